"""The real schema and operations on SQLite in memory, run on the event loop itself: for the simulator and unit tests.

`InlineDatabase` is what survives a crash; `InlineStore` is one process's access to it, under the contract of `Store`.
Several stores on one database are several coordinators on one Postgres. Everything is deterministic: nothing runs on
another thread, and time and ids come from what is passed in.
"""

from __future__ import annotations

import asyncio
import functools
import sqlite3
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from headgate_common.clock import Clock
from headgate_common.errors import SHUTTING_DOWN, HeadgateError
from headgate_common.ids import Ids
from headgate_coordinator.catalog import changes, schema
from headgate_coordinator.catalog.changes import ChangeFeed
from headgate_coordinator.catalog.migrations import migrate
from headgate_coordinator.catalog.store import START, Operation, Outcome, StoreSettings, StoreStats, run_group
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.errors import REVISION_COMPACTED

T = TypeVar("T")
Hook = Callable[[], Awaitable[None]]

# What every write does, past SQLAlchemy: a simulation spends its time here.
_HEAD = "SELECT value FROM revision"
_SET_HEAD = "UPDATE revision SET value = ? WHERE id = 1"
_COLUMNS = schema.changes.columns.keys()
_INSERT = f"INSERT INTO changes ({', '.join(_COLUMNS)}) VALUES ({', '.join(f':{name}' for name in _COLUMNS)})"


@functools.cache
def _engine() -> Engine:
    """One engine for all databases of the process, so that statements are compiled once."""
    return create_engine("sqlite://", creator=_connect, poolclass=NullPool, query_cache_size=2000, hide_parameters=True)


def _connect(path: str = ":memory:") -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=512)
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


@functools.cache
def _template() -> bytes:
    """An empty catalog, migrated once for each process."""
    with _engine().connect() as connection:
        raw = _raw(connection)
        raw.execute("BEGIN IMMEDIATE")
        migrate(connection)
        connection.commit()
        return raw.serialize()


def _raw(connection: Connection) -> sqlite3.Connection:
    raw = connection.connection.driver_connection
    assert isinstance(raw, sqlite3.Connection)
    return raw


class InlineDatabase:
    """A catalog in memory. Holds committed state only; a store that crashes leaves it as the last commit did."""

    # How its transactions begin.
    begin_write = "BEGIN IMMEDIATE"
    begin_read = "BEGIN"

    def __init__(self, image: bytes | None = None) -> None:
        self.connection = _engine().connect()
        self.raw = _raw(self.connection)
        self.raw.deserialize(_template() if image is None else image)
        self.raw.execute("PRAGMA foreign_keys = ON")
        # The last revision. Every commit goes through a store of this database, so none need ask for it.
        (self.head,) = self.raw.execute(_HEAD).fetchone()
        self.stores: list[InlineStore] = []

    def image(self) -> bytes:
        """A copy of everything committed; `InlineDatabase(image)` is another database like this one."""
        return self.raw.serialize()

    def close(self) -> None:
        self.connection.close()


class InlineStore:
    """See `Store`. `before_commit` and `after_commit` are awaited around each write; they may pause it or make it fail.

    If `before_commit` raises, the operation is run and rolled back, and its error reaches the caller. If `after_commit`
    raises, the commit stands all the same, and this process learns of it later, as if from another.
    """

    def __init__(
        self,
        database: InlineDatabase,
        *,
        clock: Clock,
        ids: Ids,
        settings: StoreSettings | None = None,
        before_commit: Hook | None = None,
        after_commit: Hook | None = None,
    ) -> None:
        self.database = database
        self.before_commit = before_commit
        self.after_commit = after_commit
        self._clock = clock
        self._ids = ids
        self._settings = settings or StoreSettings()
        self._stats = StoreStats()
        self._closed = False
        self._look_again: asyncio.TimerHandle | None = None
        last, _ = self._read(lambda tx: changes.head(tx.connection))
        self._feed = ChangeFeed(last, max_revisions=self._settings.feed_revisions, max_bytes=self._settings.feed_bytes)
        database.stores.append(self)

    @property
    def changes(self) -> ChangeFeed:
        return self._feed

    @property
    def stats(self) -> StoreStats:
        return self._stats

    async def write(self, operation: Operation[T], term: int | None = None) -> T:
        self._require_open()
        refusal: HeadgateError | None = None
        if self.before_commit is not None:
            try:
                await self.before_commit()
            except HeadgateError as error:
                refusal = error
            self._require_open()
        outcome = self._commit(operation, term, refusal)
        if outcome.error is not None:
            try:
                raise outcome.error
            finally:
                # The error knows this frame by its traceback: each would keep the other until a collection.
                del outcome, refusal
        for other in self.database.stores:
            if outcome.revision is not None and (other is not self or self.after_commit is not None):
                other._look_soon()
        if self.after_commit is not None:
            await self.after_commit()
            self._require_open()
        if outcome.revision is not None and not self._feed.publish((outcome.revision,)):
            self.catch_up()
        for callback in outcome.after_commit:
            callback()
        result: T = outcome.result
        return result

    async def read(self, operation: Operation[T]) -> T:
        self._require_open()
        self._stats.reads += 1
        return self._read(operation)

    async def close(self) -> None:
        self.crash()

    def crash(self) -> None:
        """Ends this process's access at once. What was committed stays; open the database again with a new store."""
        self._closed = True
        if self._look_again is not None:
            self._look_again.cancel()
        if self in self.database.stores:
            self.database.stores.remove(self)
        self._feed.fail(_closed())

    def catch_up(self) -> None:
        """Publishes what others committed since."""
        self._look_again = None
        while not self._closed and self._feed.position < self.database.head:
            try:
                found = self._read(lambda tx: changes.history(tx, self._feed.position, 1000))
            except HeadgateError as error:
                if error.reason is not REVISION_COMPACTED:
                    raise
                self._feed.skip_to(self._read(lambda tx: tx.revision))
                return
            if not found:
                return
            self._feed.publish(found)

    def _look_soon(self) -> None:
        if self._look_again is None and not self._closed:
            loop = asyncio.get_running_loop()
            self._look_again = loop.call_later(self._settings.poll_interval, self.catch_up)

    def _commit(self, operation: Operation[Any], term: int | None, refusal: HeadgateError | None) -> Outcome:
        database = self.database
        connection, raw = database.connection, database.raw
        transaction = connection.begin()
        try:
            raw.execute(database.begin_write)
            work = [(operation, term)]
            start = connection.execute(START).one()
            done = run_group(connection, work, start=start, now=self._now(), ids=self._ids, aborts=_never)
            (outcome,) = done.outcomes
            self._stats.writes += 1
            if outcome.error is None and refusal is not None:
                outcome = Outcome(error=refusal)
            if outcome.error is None:
                if done.rows:
                    raw.executemany(_INSERT, done.rows)
                    raw.execute(_SET_HEAD, (done.head,))
                transaction.commit()
                database.head = done.head
                self._stats.commits += 1
            else:
                transaction.rollback()
                self._stats.refused += 1
        except BaseException:
            transaction.rollback()
            raise
        return outcome

    def _read(self, operation: Operation[T]) -> T:
        connection, raw = self.database.connection, self.database.raw
        before = raw.total_changes
        transaction = connection.begin()
        try:
            raw.execute(self.database.begin_read)
            result = operation(Tx(connection, self._now(), self.database.head, self._ids))
        finally:
            transaction.rollback()
        if raw.total_changes != before:
            raise AssertionError("a read operation wrote to the catalog")
        return result

    def _now(self) -> int:
        return int(self._clock.wall().timestamp() * 1_000_000)

    def _require_open(self) -> None:
        if self._closed:
            raise _closed()


def _closed() -> HeadgateError:
    return HeadgateError(SHUTTING_DOWN, "this store is closed")


def _never(_: DBAPIError) -> bool:
    return False
