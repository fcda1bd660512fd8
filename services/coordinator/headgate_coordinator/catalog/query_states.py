"""Changes of a query's row by the reconciler, and by what happens to its agents: each recorded, and told in the story.

`open_query` reads a query inside a write transaction; the methods of `OpenQuery` change it, one legal transition at a
time. `take_back` is the same for many queries at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, delete, select, update

from headgate.catalog import v1 as catalog
from headgate_coordinator.catalog import query_rows, story
from headgate_coordinator.catalog.log import edge_topics
from headgate_coordinator.catalog.schema import queries, query_links, query_sinks, query_sources
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.catalog.wire import AnyRow, number, timestamp
from headgate_coordinator.query.transitions import QUERY_ENDED

# Queries that one statement names at most.
BATCH = 400

_BY_UID = select(*query_rows.COLUMNS).where(queries.c.uid == bindparam("uid_"))
_WITH_PLAN = select(queries).where(queries.c.uid == bindparam("uid_"))
_RUNNING = select(*query_rows.COLUMNS).where(
    queries.c.uid.in_(bindparam("uids_", expanding=True)), queries.c.state == "RUNNING"
)
# Writes the columns that it is given values for.
_UPDATE = update(queries).where(queries.c.uid == bindparam("uid_"))
_TAKE_BACK = (
    update(queries)
    .where(queries.c.uid.in_(bindparam("uids_", expanding=True)))
    .values(state="DEPLOYING", state_time=bindparam("now_"), waiting=None, revision=bindparam("revision_"))
)
# A query with what says which sources, sinks and links it uses.
_DELETE = (
    *(
        delete(table).where(table.c.query_uid == bindparam("uid_"))
        for table in (query_sources, query_sinks, query_links)
    ),
    delete(queries).where(queries.c.uid == bindparam("uid_")),
)
# On the way, unwanted, and to be deleted: each finds its rows by the index on the state.
_UNSETTLED = tuple(
    chosen.order_by(queries.c.uid)
    for chosen in (
        select(queries.c.uid).where(queries.c.state.in_(("PENDING", "DEPLOYING", "STOPPING"))),
        select(queries.c.uid).where(queries.c.state == "RUNNING", queries.c.desired_state != "RUNNING"),
        select(queries.c.uid).where(
            queries.c.state.in_(("STOPPED", "TERMINATED", "FAILED")), queries.c.desired_state == "DROPPED"
        ),
    )
)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a query fails: what `QueryFailure` says, without the time."""

    reason: str
    message: str
    agent: str = ""
    fragment: int = 0
    attempts: int = 0
    last_error: str = ""


@dataclass(slots=True)
class OpenQuery:
    """A query as it stands in the open transaction.

    Its message is made when it is first asked for, since most looks at a query change nothing of it. Whoever is about
    to change what belongs to the query (its fragments, sources or sinks) asks before.
    """

    tx: Tx
    uid: str
    name: str
    state: str
    desired: str
    stop_mode: str
    failed: bool
    has_run: bool
    deployment_deadline: float
    drain_deadline: float
    row: AnyRow
    _message: catalog.Query | None = None

    @property
    def message(self) -> catalog.Query:
        """What was last recorded or read."""
        if self._message is None:
            self._message = query_rows.messages(self.tx, [self.row])[0]
        return self._message

    def set_state(self, to: str, cause: str, failure: Failure | None = None) -> None:
        """One transition.

        Leaving a state ends what it waited for, reaching RUNNING meets the deployment deadline, and a query that has
        ended needs its edges no more.
        """
        after = self._changed()
        after.state = number(catalog.QueryState, to)
        after.state_time.CopyFrom(timestamp(self.tx.now))
        after.ClearField("waiting")
        values: dict[str, Any] = {"state": to, "state_time": self.tx.now, "waiting": None}
        if to == "RUNNING":
            self.has_run = values["has_run"] = True
        if failure is not None:
            self._set_failure(after, values, failure)
        before, self.state = self.state, to
        self._write(after, values)
        story.append(self.tx, self.uid, self.name, from_state=before, to_state=to, cause=cause)
        if to in QUERY_ENDED:
            edge_topics.let_go(self.tx, self.uid)

    def fail(self, failure: Failure) -> None:
        """Notes why it fails, and begins to take it down unless that has begun. The first failure is the one kept."""
        if self.failed:
            return
        if self.state != "STOPPING":
            self.set_state("STOPPING", failure.message, failure)
            return
        after = self._changed()
        values: dict[str, Any] = {}
        self._set_failure(after, values, failure)
        self._write(after, values)
        self._tell(failure.message)

    def stop_hard(self, cause: str) -> None:
        """A soft stop becomes a hard one, and says so from then on."""
        after = self._changed()
        after.stop_mode, after.drain_abandoned = catalog.STOP_MODE_HARD, True
        self.stop_mode = "HARD"
        self._write(after, {"stop_mode": "HARD"})
        self._tell(cause)

    def waits_for(self, reason: str, message: str) -> bool:
        """Whether this is what the row says it waits for."""
        if self._message is not None:
            waiting = self._message.waiting
        elif self.row.waiting is None:
            return not reason and not message
        else:
            waiting = catalog.Waiting.FromString(self.row.waiting)
        return waiting.reason == number(catalog.WaitingReason, reason) and waiting.message == message

    def set_waiting(self, reason: str, message: str) -> None:
        """What it waits for; an empty reason for nothing. No revision is spent on what is known."""
        if self.waits_for(reason, message):
            return
        after = self._changed()
        if reason:
            if after.waiting.reason != number(catalog.WaitingReason, reason):
                after.waiting.since.CopyFrom(timestamp(self.tx.now))
            after.waiting.reason = number(catalog.WaitingReason, reason)
            after.waiting.message = message
            self._write(after, {"waiting": after.waiting.SerializeToString(deterministic=True)})
        else:
            after.ClearField("waiting")
            self._write(after, {"waiting": None})

    def delete(self, cause: str) -> None:
        """Deletes an ended query whose fragments are deleted: from now on its name is free."""
        before = self.message
        for statement in _DELETE:
            self.tx.connection.execute(statement, {"uid_": self.uid})
        self.tx.record("QUERY", self.name, self.uid, before, None)
        story.append(self.tx, self.uid, self.name, from_state=self.state, cause=cause)

    def _tell(self, cause: str) -> None:
        """Something that changes no state."""
        story.append(self.tx, self.uid, self.name, from_state=self.state, to_state=self.state, cause=cause)

    def _changed(self) -> catalog.Query:
        after = catalog.Query()
        after.CopyFrom(self.message)
        after.revision = self.tx.revision
        return after

    def _write(self, after: catalog.Query, values: dict[str, Any]) -> None:
        self.tx.connection.execute(_UPDATE, {"uid_": self.uid, "revision": self.tx.revision, **values})
        self.tx.record("QUERY", self.name, self.uid, self.message, after)
        self._message = after

    def _set_failure(self, after: catalog.Query, values: dict[str, Any], failure: Failure) -> None:
        self.failed = True
        after.failure.CopyFrom(
            catalog.QueryFailure(
                reason=failure.reason,
                message=failure.message,
                agent=failure.agent,
                fragment=failure.fragment,
                attempts=failure.attempts,
                last_error=failure.last_error,
                time=timestamp(self.tx.now),
            )
        )
        values["failure"] = after.failure.SerializeToString(deterministic=True)


def open_query(tx: Tx, uid: str) -> OpenQuery | None:
    """The query, or None if it is no more."""
    row = tx.connection.execute(_BY_UID, {"uid_": uid}).one_or_none()
    return None if row is None else _opened(tx, row)


def open_with_plan(tx: Tx, uid: str) -> tuple[OpenQuery, catalog.QueryPlan] | None:
    """The query and its plan, or None if it is no more."""
    row = tx.connection.execute(_WITH_PLAN, {"uid_": uid}).one_or_none()
    return None if row is None else (_opened(tx, row), catalog.QueryPlan.FromString(row.plan))


def take_back(tx: Tx, uids: Sequence[str], cause: str) -> None:
    """Takes those of the queries that are RUNNING back to DEPLOYING."""
    for start in range(0, len(uids), BATCH):
        some = uids[start : start + BATCH]
        rows = tx.connection.execute(_RUNNING, {"uids_": list(some)}).all()
        if not rows:
            continue
        running = [row.uid for row in rows]
        tx.connection.execute(_TAKE_BACK, {"uids_": running, "now_": tx.now, "revision_": tx.revision})
        for before in query_rows.messages(tx, rows):
            after = catalog.Query()
            after.CopyFrom(before)
            after.state = catalog.QUERY_STATE_DEPLOYING
            after.state_time.CopyFrom(timestamp(tx.now))
            after.ClearField("waiting")
            after.revision = tx.revision
            tx.record("QUERY", after.name, after.uid, before, after)
        story.append_all(tx, [story.Entry(row.uid, row.name, "RUNNING", "DEPLOYING", cause) for row in rows])


def unsettled(tx: Tx) -> list[str]:
    """Uids of queries that are not where they should be: what a new leader, or a periodic look, must look at."""
    return [uid for chosen in _UNSETTLED for uid in tx.connection.execute(chosen).scalars()]


def _opened(tx: Tx, row: AnyRow) -> OpenQuery:
    return OpenQuery(
        tx=tx,
        uid=row.uid,
        name=row.name,
        state=row.state,
        desired=row.desired_state,
        stop_mode=row.stop_mode,
        failed=row.failure is not None,
        has_run=row.has_run,
        deployment_deadline=row.deployment_deadline_us / 1_000_000,
        drain_deadline=row.drain_deadline_us / 1_000_000,
        row=row,
    )
