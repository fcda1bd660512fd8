"""Queries: accepted, asked to stop, asked to go. What becomes of a request is the reconciler's work.

A query is planned before its transaction. `create_query` accepts the plan only if all it was made against is still so,
and raises `PlanChanged` otherwise: then it is to be planned again.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from google.protobuf.duration_pb2 import Duration
from sqlalchemy import bindparam, exists, insert, select, update

from headgate.catalog import v1 as catalog
from headgate_common.errors import INVALID_ARGUMENT, HeadgateError
from headgate_coordinator.catalog import query_rows, story
from headgate_coordinator.catalog.fragments import delete_query, insert_fragments
from headgate_coordinator.catalog.log import edge_topics
from headgate_coordinator.catalog.log.settings import TopicRules
from headgate_coordinator.catalog.pages import page, prefix_filter
from headgate_coordinator.catalog.plan_uses import require_unchanged
from headgate_coordinator.catalog.query_rows import COLUMNS, messages, not_found, query_row
from headgate_coordinator.catalog.schema import (
    fragments,
    queries,
    query_links,
    query_sinks,
    query_sources,
    sinks,
)
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.catalog.wire import AnyRow, microseconds, short, timestamp
from headgate_coordinator.errors import ALREADY_EXISTS, QUERY_NAME_LOCKED, UID_MISMATCH
from headgate_coordinator.query.transitions import QUERY_ENDED
from headgate_coordinator.sql.names import fold


@dataclass(frozen=True, slots=True)
class PlannedQuery:
    """A query as it was planned."""

    # The name of CREATE QUERY ... AS, where there is one.
    name: str
    plan: catalog.QueryPlan
    # From the statement's WITH; None where it has none.
    deadline_us: int | None
    # Whether links were declared when it was planned; without any, every agent reaches every other.
    links_declared: bool
    # The statement without its secrets; empty where it has none.
    shown: str = ""


_INSERT = insert(queries)
# Writes the columns that it is given values for.
_UPDATE = update(queries).where(queries.c.uid == bindparam("uid_"))
# Where it is written which resources a query uses: by the kind of PlanUse, its column for their uids.
_REFERENCES = {
    "physical_source": ("physical_source_uid", insert(query_sources)),
    "sink": ("sink_uid", insert(query_sinks)),
    "link": ("link_uid", insert(query_links)),
}


def create_query(
    tx: Tx,
    request: catalog.CreateQueryRequest,
    planned: PlannedQuery,
    default_deadline_us: int,
    topic_rules: TopicRules,
) -> catalog.Query:
    """Accepts a planned query: PENDING, desired RUNNING, its slots reserved, the topics of its edges there."""
    uid = tx.ids.uid("query")
    name = _name(request.name, planned.name) or uid
    refuse_taken(tx, name)
    plan = planned.plan
    uses = require_unchanged(tx, plan, links_declared=planned.links_declared)
    waiting = catalog.Waiting(
        reason=catalog.WAITING_REASON_ACCEPTED, message="accepted, not yet taken up", since=timestamp(tx.now)
    )
    values = {
        "uid": uid,
        "name": name,
        "statement": planned.shown or request.statement,
        "mode": short(catalog.QueryMode, plan.mode) or "EXACTLY_ONCE",
        "state": "PENDING",
        "desired_state": "RUNNING",
        "stop_mode": "",
        "waiting": waiting.SerializeToString(),
        "failure": None,
        "has_run": False,
        "temporary": request.temporary,
        "deployment_deadline_us": _deadline(request, planned.deadline_us, default_deadline_us),
        "drain_deadline_us": 0,
        "time": tx.now,
        "state_time": tx.now,
        "revision": tx.revision,
    }
    tx.connection.execute(_INSERT, values | {"plan": plan.SerializeToString(deterministic=True)})
    for kind, (column, into) in _REFERENCES.items():
        if uses[kind]:
            tx.connection.execute(into, [{"query_uid": uid, column: used} for used in uses[kind]])
    created = query_rows.message(
        SimpleNamespace(**values),
        sorted(uses["sink"].values()),
        sorted(uses["physical_source"].values()),
        len(plan.fragments),
    )
    tx.record("QUERY", name, uid, None, created)
    story.append(tx, uid, name, to_state="PENDING", cause="created")
    insert_fragments(tx, uid, name, plan)
    edge_topics.create(tx, uid, plan, topic_rules)
    return created


def forget_temporary(tx: Tx, age: float, limit: int) -> int:
    """Deletes up to `limit` temporary queries that ended more than `age` seconds ago; how many is the answer."""
    ended = select(queries.c.uid).where(
        queries.c.temporary,
        queries.c.state.in_(QUERY_ENDED),
        queries.c.state_time < tx.now - round(age * 1_000_000),
    )
    uids = tx.connection.execute(ended.order_by(queries.c.state_time).limit(limit)).scalars().all()
    for uid in uids:
        delete_query(tx, uid, "it was temporary, and has ended")
    return len(uids)


def refuse_taken(tx: Tx, name: str) -> None:
    """Refuses a name that another query has, or still has."""
    row = query_row(tx, name)
    if row is None:
        return
    if row.desired_state != "DROPPED":
        raise HeadgateError(
            ALREADY_EXISTS,
            f"there is a query {name}, which is {row.state}",
            metadata={"kind": "query", "name": name, "state": row.state},
        )
    waiting = catalog.Waiting.FromString(row.waiting or b"")
    why = f" ({waiting.message})" if waiting.message else ""
    raise HeadgateError(
        QUERY_NAME_LOCKED,
        f"query {name} is being dropped and is {row.state}{why}; its name is free when all its fragments are gone",
        metadata={"kind": "query", "name": name, "state": row.state, "uid": row.uid},
    )


def _name(asked: str, written: str) -> str:
    """The folded name of the request or the statement; empty where neither has one."""
    names = {fold(name) for name in (asked, written) if name}
    if len(names) > 1:
        raise HeadgateError(
            INVALID_ARGUMENT,
            f"the request names the query {fold(asked)}, and its statement names it {fold(written)}",
            metadata={"field": "name"},
        )
    return names.pop() if names else ""


def _deadline(request: catalog.CreateQueryRequest, written_us: int | None, default_us: int) -> int:
    if request.HasField("deployment_deadline"):
        return max(1, microseconds(request.deployment_deadline))
    return default_us if written_us is None else written_us


def stop_query(tx: Tx, request: catalog.StopQueryRequest, default_drain_us: int) -> catalog.Query:
    """Asks a query to stop. Softer than what was asked before, or asked of an ended query, it changes nothing."""
    row = _find(tx, request.name, request.uid)
    mode = short(catalog.StopMode, request.mode) or "SOFT"
    if row.state in QUERY_ENDED:
        return messages(tx, [row])[0]
    desired = "STOPPED" if row.desired_state == "RUNNING" else row.desired_state
    drain_us = _drain(request.drain_deadline if request.HasField("drain_deadline") else None, default_drain_us)
    return _ask(tx, row, desired, mode, drain_us, f"{mode.lower()} stop asked for")


def drop_query(tx: Tx, request: catalog.DropQueryRequest, default_drain_us: int) -> catalog.Query | None:
    """Asks a query to stop and go; one that has ended goes at once. Answers the query as it then is, or last was."""
    name = fold(request.name)
    if request.allow_missing and query_row(tx, name) is None:
        return None
    row = _find(tx, request.name, request.uid)
    mode = short(catalog.StopMode, request.mode) or "HARD"
    drain_us = _drain(request.drain_deadline if request.HasField("drain_deadline") else None, default_drain_us)
    asked = _ask(tx, row, "DROPPED", mode, drain_us, f"{mode.lower()} drop asked for")
    held = select(fragments.c.uid).where(fragments.c.query_uid == row.uid, fragments.c.slots_held).limit(1)
    if row.state in QUERY_ENDED and tx.connection.execute(held).first() is None:
        delete_query(tx, row.uid, "dropped after it had ended")
    return asked


def _drain(asked: Duration | None, default_us: int) -> int:
    return default_us if asked is None else max(1, microseconds(asked))


def _ask(tx: Tx, row: AnyRow, desired: str, mode: str, drain_us: int, cause: str) -> catalog.Query:
    """Writes what is asked for. HARD overrides SOFT, never the other way; the first drain deadline of a mode holds."""
    harder = mode == "HARD" and row.stop_mode != "HARD"
    changed: dict[str, Any] = {}
    if desired != row.desired_state:
        changed["desired_state"] = desired
    if row.stop_mode == "" or harder:
        changed |= {"stop_mode": mode, "drain_deadline_us": drain_us if mode == "SOFT" else 0}
    before = messages(tx, [row])[0]
    if not changed:
        return before
    tx.connection.execute(_UPDATE, {"uid_": row.uid, "revision": tx.revision, **changed})
    after = query_rows.query_by_uid(tx, row.uid)
    tx.record("QUERY", row.name, row.uid, before, after)
    story.append(tx, row.uid, row.name, from_state=row.state, to_state=row.state, cause=cause)
    return after


def _find(tx: Tx, asked: str, uid: str) -> AnyRow:
    name = fold(asked)
    row = query_row(tx, name)
    if row is None:
        raise not_found(name)
    if uid and uid != row.uid:
        raise HeadgateError(
            UID_MISMATCH,
            f"query {name} has the uid {row.uid}, not {uid}",
            metadata={"kind": "query", "name": name, "uid": row.uid},
        )
    return row


def get_query(tx: Tx, request: catalog.GetQueryRequest) -> catalog.Query:
    return messages(tx, [_find(tx, request.name, "")])[0]


def list_queries(tx: Tx, request: catalog.ListQueriesRequest) -> catalog.ListQueriesResponse:
    filters = prefix_filter(queries.c.name, request.name_prefix)
    if request.uid:
        filters.append(queries.c.uid == request.uid)
    if request.state:
        filters.append(queries.c.state == short(catalog.QueryState, request.state))
    if request.agent:
        on_agent = select(fragments.c.uid).where(
            fragments.c.query_uid == queries.c.uid, fragments.c.agent_name == fold(request.agent)
        )
        filters.append(exists(on_agent))
    if request.sink:
        to_sink = (
            select(query_sinks.c.sink_uid)
            .join(sinks, sinks.c.uid == query_sinks.c.sink_uid)
            .where(query_sinks.c.query_uid == queries.c.uid, sinks.c.name == fold(request.sink))
        )
        filters.append(exists(to_sink))
    found = page(tx, request, select(*COLUMNS), [queries.c.name], filters)
    return catalog.ListQueriesResponse(
        queries=messages(tx, found.rows), next_page_token=found.next_page_token, revision=tx.revision
    )
