"""Reading several kinds at one revision: for GetSnapshot, and for what a watcher is sent first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from google.protobuf.message import Message
from sqlalchemy import ColumnElement, Select, bindparam, select, tuple_

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


class _Batches:
    """All rows of a statement in the order of a key, a bounded number at a time. Its statements are built once."""

    def __init__(self, statement: Select[Any], key: Mapping[str, ColumnElement[Any]]) -> None:
        self._names = tuple(key)
        columns = tuple(key.values())
        self._first = statement.order_by(*columns).limit(BATCH)
        last = tuple_(*(bindparam(f"{name}_", type_=column.type) for name, column in key.items()))
        self._following = statement.where(tuple_(*columns) > last).order_by(*columns).limit(BATCH)

    def __call__(self, tx: Tx) -> Iterator[Sequence[AnyRow]]:
        rows = tx.connection.execute(self._first).all()
        while rows:
            yield rows
            if len(rows) < BATCH:
                return
            last = rows[-1]._mapping
            rows = tx.connection.execute(self._following, {f"{name}_": last[name] for name in self._names}).all()


def _by_name(statement: Select[Any]) -> _Batches:
    return _Batches(statement, {"name": statement.selected_columns.name})


_AGENTS = _by_name(select(agents))
_LOGICAL_SOURCES = _by_name(sources.LOGICAL)
_PHYSICAL_SOURCES = _by_name(sources.PHYSICAL)
_SINKS = _by_name(sinks.SINKS)
_QUERIES = _by_name(select(*query_rows.COLUMNS))
_FRAGMENTS = _Batches(
    fragments.select_fragments(), {"query_name": queries.c.name, "ordinal": fragments_table.c.ordinal}
)
_TOPICS = _by_name(topics.TOPICS)
_PARTITIONS = _Batches(
    partitions.PARTITIONS, {name: partitions.PARTITIONS.selected_columns[name] for name in ("topic", "ordinal")}
)
_TRANSFERS = _Batches(
    transfers.TRANSFERS, {name: transfers.TRANSFERS.selected_columns[name] for name in ("topic", "ordinal", "uid")}
)


def _each(batches: _Batches, message: Callable[[AnyRow], Message]) -> Callable[[Tx], Iterable[Message]]:
    """A reader of rows that are messages by themselves."""
    return lambda tx: (message(row) for rows in batches(tx) for row in rows)


def _together(
    batches: _Batches, messages: Callable[[Tx, Sequence[AnyRow]], Iterable[Message]]
) -> Callable[[Tx], Iterable[Message]]:
    """A reader of rows whose messages need other rows too, read for a batch at once."""
    return lambda tx: (made for rows in batches(tx) for made in messages(tx, rows))


def _links(tx: Tx) -> Iterable[Message]:
    return (links.message(row) for row in links.all_links(tx))


_READERS: dict[str, Callable[[Tx], Iterable[Message]]] = {
    "AGENT": _together(_AGENTS, agent_rows.messages),
    "NETWORK_LINK": _links,
    "LOGICAL_SOURCE": _each(_LOGICAL_SOURCES, sources.logical_message),
    "PHYSICAL_SOURCE": _each(_PHYSICAL_SOURCES, sources.physical_message),
    "SINK": _each(_SINKS, sinks.message),
    "QUERY": _together(_QUERIES, query_rows.messages),
    "FRAGMENT": _each(_FRAGMENTS, lambda row: fragments.opened(row).message()),
    "TOPIC": _each(_TOPICS, topics.message),
    "PARTITION": _each(_PARTITIONS, partitions.message),
    "TRANSFER": _each(_TRANSFERS, transfers.message),
}
