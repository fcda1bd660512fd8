"""Rows of queries and their messages: what queries, fragments and the reconciler's writes stand on.

The plan, which holds options of sources and sinks unredacted, is no part of a message: it is read only where fragments
are sent to agents.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import bindparam, func, literal_column, select, union_all

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
_SINK, _SOURCE, _FRAGMENTS = 0, 1, 2
# What belongs to queries: names of their sinks and physical sources, and how many fragments they have.
_BELONGING = union_all(
    select(query_sinks.c.query_uid, literal_column(str(_SINK)), sinks.c.name, literal_column("1"))
    .join(sinks, sinks.c.uid == query_sinks.c.sink_uid)
    .where(query_sinks.c.query_uid.in_(bindparam("uids_", expanding=True))),
    select(query_sources.c.query_uid, literal_column(str(_SOURCE)), physical_sources.c.name, literal_column("1"))
    .join(physical_sources, physical_sources.c.uid == query_sources.c.physical_source_uid)
    .where(query_sources.c.query_uid.in_(bindparam("uids_", expanding=True))),
    select(fragments.c.query_uid, literal_column(str(_FRAGMENTS)), literal_column("''"), func.count())
    .where(fragments.c.query_uid.in_(bindparam("uids_", expanding=True)))
    .group_by(fragments.c.query_uid),
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


def drain_abandoned(row: Any) -> bool:
    """Whether a soft stop became a hard one: a hard one that was asked for has no drain deadline."""
    return bool(row.stop_mode == "HARD" and row.drain_deadline_us > 0)


def messages(tx: Tx, rows: Iterable[AnyRow]) -> list[catalog.Query]:
    """The queries of `rows`, which hold `COLUMNS`, with their sinks, sources and number of fragments."""
    rows = list(rows)
    if not rows:
        return []
    uids = [row.uid for row in rows]
    written: dict[str, list[str]] = {uid: [] for uid in uids}
    read: dict[str, list[str]] = {uid: [] for uid in uids}
    counts = dict.fromkeys(uids, 0)
    for uid, kind, name, count in tx.connection.execute(_BELONGING, {"uids_": uids}):
        if kind == _FRAGMENTS:
            counts[uid] = count
        else:
            (written if kind == _SINK else read)[uid].append(name)
    return [message(row, sorted(written[row.uid]), sorted(read[row.uid]), counts[row.uid]) for row in rows]


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
        drain_abandoned=drain_abandoned(row),
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
