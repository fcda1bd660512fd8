"""Reading several kinds at one revision: for GetSnapshot, and for what a watcher is sent first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from google.protobuf.message import Message
from sqlalchemy import ColumnElement, Select, select, tuple_

from headgate.catalog import v1 as catalog
from headgate_coordinator.catalog import agent_rows, fragments, links, query_rows, sinks, sources
from headgate_coordinator.catalog.log import partitions, topics, transfers
from headgate_coordinator.catalog.schema import agents, queries
from headgate_coordinator.catalog.schema import fragments as fragments_table
from headgate_coordinator.catalog.tx import KINDS, Tx
from headgate_coordinator.catalog.watch import as_resource
from headgate_coordinator.catalog.wire import AnyRow

# Rows turned into messages at once.
BATCH = 500


def read_kinds(tx: Tx, kinds: tuple[str, ...]) -> Iterator[tuple[str, Message]]:
    """All resources of `kinds`, ordered by kind as the proto numbers them, then by name."""
    for kind in KINDS:
        if kind in kinds:
            for message in _READERS[kind](tx):
                yield kind, message


def get_snapshot(tx: Tx, request: catalog.GetSnapshotRequest) -> catalog.GetSnapshotResponse:
    kinds = tuple(catalog.ResourceKind.Name(kind).removeprefix("RESOURCE_KIND_") for kind in request.kinds) or KINDS
    return catalog.GetSnapshotResponse(
        resources=(as_resource(kind, message) for kind, message in read_kinds(tx, kinds)), revision=tx.revision
    )


def _batches(
    tx: Tx, statement: Select[Any], key: Sequence[ColumnElement[Any]], names: Sequence[str]
) -> Iterator[Sequence[AnyRow]]:
    """All rows in the order of `key`, a bounded number at a time."""
    last: tuple[Any, ...] | None = None
    while True:
        following = statement.where(tuple_(*key) > last) if last is not None else statement
        rows = tx.connection.execute(following.order_by(*key).limit(BATCH)).all()
        if rows:
            yield rows
        if len(rows) < BATCH:
            return
        last = tuple(rows[-1]._mapping[name] for name in names)


def _agents(tx: Tx) -> Iterable[Message]:
    for rows in _batches(tx, select(agents), [agents.c.name], ["name"]):
        yield from agent_rows.messages(tx, rows)


def _links(tx: Tx) -> Iterable[Message]:
    return (links.message(row) for row in links.all_links(tx))


def _logical_sources(tx: Tx) -> Iterable[Message]:
    for rows in _batches(tx, sources.LOGICAL, [sources.LOGICAL.selected_columns.name], ["name"]):
        yield from (sources.logical_message(row) for row in rows)


def _physical_sources(tx: Tx) -> Iterable[Message]:
    for rows in _batches(tx, sources.PHYSICAL, [sources.PHYSICAL.selected_columns.name], ["name"]):
        yield from (sources.physical_message(row) for row in rows)


def _sinks(tx: Tx) -> Iterable[Message]:
    for rows in _batches(tx, sinks.SINKS, [sinks.SINKS.selected_columns.name], ["name"]):
        yield from (sinks.message(row) for row in rows)


def _queries(tx: Tx) -> Iterable[Message]:
    for rows in _batches(tx, select(*query_rows.COLUMNS), [queries.c.name], ["name"]):
        yield from query_rows.messages(tx, rows)


def _fragments(tx: Tx) -> Iterable[Message]:
    key = [queries.c.name, fragments_table.c.ordinal]
    for rows in _batches(tx, fragments.select_fragments(), key, ["query_name", "ordinal"]):
        yield from (fragments.opened(row).message() for row in rows)


def _topics(tx: Tx) -> Iterable[Message]:
    for rows in _batches(tx, topics.TOPICS, [topics.TOPICS.selected_columns.name], ["name"]):
        yield from (topics.message(row) for row in rows)


def _partitions(tx: Tx) -> Iterable[Message]:
    columns = partitions.PARTITIONS.selected_columns
    for rows in _batches(tx, partitions.PARTITIONS, [columns.topic, columns.ordinal], ["topic", "ordinal"]):
        yield from (partitions.message(row) for row in rows)


def _transfers(tx: Tx) -> Iterable[Message]:
    columns = transfers.TRANSFERS.selected_columns
    key = [columns.topic, columns.ordinal, columns.uid]
    for rows in _batches(tx, transfers.TRANSFERS, key, ["topic", "ordinal", "uid"]):
        yield from (transfers.message(row) for row in rows)


_READERS: dict[str, Callable[[Tx], Iterable[Message]]] = {
    "AGENT": _agents,
    "NETWORK_LINK": _links,
    "LOGICAL_SOURCE": _logical_sources,
    "PHYSICAL_SOURCE": _physical_sources,
    "SINK": _sinks,
    "QUERY": _queries,
    "FRAGMENT": _fragments,
    "TOPIC": _topics,
    "PARTITION": _partitions,
    "TRANSFER": _transfers,
}
