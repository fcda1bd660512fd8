"""Small catalog operations and stores for the tests of the store itself."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from pathlib import Path

from google.protobuf.message import Message
from sqlalchemy import delete, select, update

from headgate.catalog.v1 import resources_pb2 as pb
from headgate_common.clock import SystemClock
from headgate_common.errors import HeadgateError
from headgate_common.ids import RandomIds
from headgate_coordinator.catalog import schema
from headgate_coordinator.catalog.inline import InlineDatabase, InlineStore
from headgate_coordinator.catalog.postgres import PostgresStore
from headgate_coordinator.catalog.sqlite import SqliteStore
from headgate_coordinator.catalog.store import Store, StoreSettings
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.errors import ALREADY_EXISTS

sources = schema.logical_sources

SETTINGS = StoreSettings(poll_interval=0.02)
STORES = ("sqlite", "postgres", "inline")


class Databases:
    """Makes stores on one database of the given kind: each is what one process would open."""

    def __init__(self, kind: str, folder: Path, postgres_url: Callable[[], str]) -> None:
        self.kind = kind
        self._path = folder / "catalog.sqlite"
        self._postgres_url = postgres_url
        self._inline: InlineDatabase | None = None
        self._opened: list[Store] = []

    @property
    def url(self) -> str:
        return self._postgres_url() if self.kind == "postgres" else f"sqlite:///{self._path}"

    async def open(self, settings: StoreSettings = SETTINGS) -> Store:
        clock, ids = SystemClock(), RandomIds(random.Random())
        store: Store
        if self.kind == "sqlite":
            store = await SqliteStore(self._path, clock=clock, ids=ids, settings=settings).start()
        elif self.kind == "postgres":
            store = await PostgresStore(self._postgres_url(), clock=clock, ids=ids, settings=settings).start()
        else:
            self._inline = self._inline or InlineDatabase()
            store = InlineStore(self._inline, clock=clock, ids=ids, settings=settings)
        self._opened.append(store)
        return store

    async def close(self) -> None:
        for store in self._opened:
            await store.close()


def create(name: str, columns: int = 0) -> Callable[[Tx], pb.LogicalSource]:
    """Creates a logical source and records it; ALREADY_EXISTS if there is one of that name."""

    def operation(tx: Tx) -> pb.LogicalSource:
        if tx.connection.execute(select(sources.c.uid).where(sources.c.name == name)).first() is not None:
            raise HeadgateError(ALREADY_EXISTS, f"there is a source {name}")
        uid = tx.ids.uid("source")
        made = pb.LogicalSource(name=name, uid=uid, revision=tx.revision, schema=_columns(columns))
        tx.connection.execute(
            sources.insert(),
            {
                "uid": uid,
                "name": name,
                "schema": made.schema.SerializeToString(),
                "time": tx.now,
                "revision": tx.revision,
            },
        )
        tx.record("LOGICAL_SOURCE", name, uid, None, made)
        return made

    return operation


def change(name: str, columns: int) -> Callable[[Tx], pb.LogicalSource]:
    """Gives a logical source as many columns."""

    def operation(tx: Tx) -> pb.LogicalSource:
        before = get(tx, name)
        after = pb.LogicalSource(name=name, uid=before.uid, revision=tx.revision, schema=_columns(columns))
        values = {"schema": after.schema.SerializeToString(), "revision": tx.revision}
        tx.connection.execute(update(sources).where(sources.c.uid == before.uid).values(values))
        tx.record("LOGICAL_SOURCE", name, before.uid, before, after)
        return after

    return operation


def drop(name: str) -> Callable[[Tx], None]:
    def operation(tx: Tx) -> None:
        before = get(tx, name)
        tx.connection.execute(delete(sources).where(sources.c.uid == before.uid))
        tx.record("LOGICAL_SOURCE", name, before.uid, before, None)

    return operation


def together(*operations: Callable[[Tx], object]) -> Callable[[Tx], int]:
    """Several operations as one, as a bundle is; the revision is the answer."""

    def operation(tx: Tx) -> int:
        for each in operations:
            each(tx)
        return tx.revision

    return operation


def get(tx: Tx, name: str) -> pb.LogicalSource:
    return next(message for message in _all(tx) if message.name == name)


def names(tx: Tx) -> list[str]:
    return [message.name for message in _all(tx)]


def snapshot(tx: Tx, kinds: tuple[str, ...]) -> Iterable[tuple[str, Message]]:
    """What a hub reads snapshots with."""
    if "LOGICAL_SOURCE" in kinds:
        for message in _all(tx):
            yield "LOGICAL_SOURCE", message


def _all(tx: Tx) -> list[pb.LogicalSource]:
    rows = tx.connection.execute(select(sources).order_by(sources.c.name)).all()
    return [
        pb.LogicalSource(
            name=row.name, uid=row.uid, revision=row.revision, schema=pb.Schema.FromString(bytes(row.schema))
        )
        for row in rows
    ]


def _columns(count: int) -> pb.Schema:
    return pb.Schema(fields=[pb.Field(name=f"c{number}", type="INT32") for number in range(count)])
