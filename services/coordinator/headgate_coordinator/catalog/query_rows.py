"""Rows of queries and their messages: what queries, fragments and the reconciler's writes stand on.

The plan, which holds options of sources and sinks unredacted, is no part of a message: it is read only where fragments
are sent to agents.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import bindparam, func, select

from headgate.catalog import v1 as catalog
from headgate_common.errors import HeadgateError
from headgate_coordinator.catalog.schema import (
    fragments,
    physical_sources,
    queries,
    query_sinks,
    query_sources,
    sinks,
)
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.catalog.wire import AnyRow, duration, number, timestamp
from headgate_coordinator.errors import QUERY_NOT_FOUND

# Every column but the plan, which may be large.
COLUMNS = tuple(column for column in queries.c if column.name != "plan")
_WRITES = (
    select(query_sinks.c.query_uid, sinks.c.name)
    .join(sinks, sinks.c.uid == query_sinks.c.sink_uid)
    .where(query_sinks.c.query_uid.in_(bindparam("uids_", expanding=True)))
    .order_by(sinks.c.name)
)
_READS = (
    select(query_sources.c.query_uid, physical_sources.c.name)
    .join(physical_sources, physical_sources.c.uid == query_sources.c.physical_source_uid)
    .where(query_sources.c.query_uid.in_(bindparam("uids_", expanding=True)))
    .order_by(physical_sources.c.name)
)
_COUNTS = (
    select(fragments.c.query_uid, func.count().label("count"))
    .where(fragments.c.query_uid.in_(bindparam("uids_", expanding=True)))
    .group_by(fragments.c.query_uid)
)
_BY_UID = select(*COLUMNS).where(queries.c.uid == bindparam("uid_"))
_BY_NAME = select(*COLUMNS).where(queries.c.name == bindparam("name_"))


def query_by_uid(tx: Tx, uid: str) -> catalog.Query:
    """A query that is known to be there."""
    return messages(tx, [tx.connection.execute(_BY_UID, {"uid_": uid}).one()])[0]


def query_row(tx: Tx, name: str) -> AnyRow | None:
    """The row of the query of that folded name, without its plan."""
    return tx.connection.execute(_BY_NAME, {"name_": name}).one_or_none()


def not_found(name: str) -> HeadgateError:
    return HeadgateError(QUERY_NOT_FOUND, f"there is no query {name}", metadata={"kind": "query", "name": name})


def messages(tx: Tx, rows: Iterable[AnyRow]) -> list[catalog.Query]:
    """The queries of `rows`, which hold `COLUMNS`, with their sinks, sources and number of fragments."""
    rows = list(rows)
    if not rows:
        return []
    uids = [row.uid for row in rows]
    written: dict[str, list[str]] = {uid: [] for uid in uids}
    for uid, sink in tx.connection.execute(_WRITES, {"uids_": uids}):
        written[uid].append(sink)
    read: dict[str, list[str]] = {uid: [] for uid in uids}
    for uid, source in tx.connection.execute(_READS, {"uids_": uids}):
        read[uid].append(source)
    counts = {row.query_uid: row._mapping["count"] for row in tx.connection.execute(_COUNTS, {"uids_": uids})}
    return [message(row, written[row.uid], read[row.uid], counts.get(row.uid, 0)) for row in rows]


def message(row: Any, sinks: Sequence[str], physical_sources: Sequence[str], fragment_count: int) -> catalog.Query:
    """The query of a row, or of values like it, where what never changes and is not in the row is known."""
    query = catalog.Query(
        name=row.name,
        uid=row.uid,
        statement=row.statement,
        sinks=sinks,
        physical_sources=physical_sources,
        mode=number(catalog.QueryMode, row.mode),
        state=number(catalog.QueryState, row.state),
        desired_state=number(catalog.DesiredState, row.desired_state),
        stop_mode=number(catalog.StopMode, row.stop_mode),
        fragment_count=fragment_count,
        temporary=row.temporary,
        deployment_deadline=duration(row.deployment_deadline_us),
        create_time=timestamp(row.time),
        state_time=timestamp(row.state_time),
        revision=row.revision,
    )
    if row.waiting is not None:
        query.waiting.ParseFromString(row.waiting)
    if row.failure is not None:
        query.failure.ParseFromString(row.failure)
    return query
