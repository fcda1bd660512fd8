"""What an agent's answers, and its silence, change in the catalog.

An answer counts only if the catalog still believes of the agent what it believed when the question was sent; within an
epoch a fragment's state only moves on, unless its agent's process is another one. A query never stays RUNNING in the
transaction in which one of its fragments, or the agent of one, is seen not to be.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, bindparam, select

from headgate.catalog import v1 as catalog
from headgate.cluster import v1 as cluster
from headgate_coordinator.catalog import agent_rows, fragments, query_states
from headgate_coordinator.catalog.fragments import Changes, OpenFragment
from headgate_coordinator.catalog.query_states import Failure, OpenQuery
from headgate_coordinator.catalog.schema import agents
from headgate_coordinator.catalog.schema import fragments as fragments_table
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.catalog.wire import short
from headgate_coordinator.errors import FRAGMENT_FAILED
from headgate_coordinator.query.transitions import FRAGMENT_ENDED

# How far a fragment has come within an epoch.
_PROGRESS = {"PENDING": 0, "REGISTERED": 1, "STARTED": 2, "RUNNING": 3, "STOPPED": 4, "TERMINATED": 4, "FAILED": 4}
_LIVE = ("REGISTERED", "STARTED", "RUNNING")

_BY_UID = select(agents).where(agents.c.uid == bindparam("uid_"))
_LIVE_ON = fragments.select_fragments().where(
    fragments_table.c.agent_uid == bindparam("agent_uid_"),
    fragments_table.c.slots_held,
    fragments_table.c.state.in_(_LIVE),
)


@dataclass(frozen=True, slots=True)
class Asked:
    """What was believed when a status was asked for."""

    # The agent's process according to the catalog; empty before the first.
    incarnation: str
    # Every change up to this revision was known: what was confirmed by then must be in a full answer.
    revision: int


@dataclass(frozen=True, slots=True)
class Run:
    """A run of a fragment as an agent reports it."""

    uid: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Applied:
    # False if the answer was dropped, because the catalog has changed its mind about the agent, or shut it out.
    accepted: bool
    # Runs that the catalog knows nothing of, or has replaced: to be stopped.
    zombies: tuple[Run, ...] = ()
    # False if something was too fresh to be judged missing: everything must be asked for again.
    settled: bool = True


def mark_unreachable(tx: Tx, agent_uid: str, reason: str) -> bool:
    """Takes the agent out of rotation, and its RUNNING queries back to DEPLOYING. False if it was out already."""
    row = tx.connection.execute(_BY_UID, {"uid_": agent_uid}).one_or_none()
    if row is None or row.state == "UNREACHABLE":
        return False
    agent_rows.update_agent(tx, agent_uid, state="UNREACHABLE", state_reason=reason, state_time=tx.now)
    query_states.take_back(tx, fragments.queries_on(tx, agent_uid), f"agent {row.name} is unreachable: {reason}")
    return True


def apply_status(tx: Tx, agent_uid: str, asked: Asked, status: cluster.GetStatusResponse) -> Applied:
    """Makes the agent ACTIVE, and its fragments what it says they are."""
    agent = tx.connection.execute(_BY_UID, {"uid_": agent_uid}).one_or_none()
    if agent is None or agent.incarnation != asked.incarnation:
        return Applied(accepted=False)
    reported = {one.fragment.uid: one for one in status.fragments}
    # An agent without a known process was declared gone, or never was: whoever comes up in its place with runs of
    # before is let in when those are stopped, as when it registers.
    if agent_rows.fenced(tx, status.incarnation) or (reported and not agent.incarnation):
        return Applied(accepted=False, zombies=tuple(Run(uid, one.fragment.epoch) for uid, one in reported.items()))
    _welcome(tx, agent, status.incarnation)
    application = _Application(tx, agent, status)
    application.apply(reported)
    if status.full:
        application.miss_all_but(reported, asked.revision)
    else:
        # What was forgotten and given to it anew is both: the run it has now is what counts.
        application.miss([uid for uid in status.forgotten if uid not in reported], asked.revision)
    application.finish()
    return Applied(True, tuple(application.zombies), application.settled)


def _welcome(tx: Tx, agent: Row[Any], incarnation: str) -> None:
    """Notes that the agent answers, and with which process."""
    restarted = bool(agent.incarnation) and agent.incarnation != incarnation
    if restarted:
        query_states.take_back(tx, fragments.queries_on(tx, agent.uid), f"agent {agent.name} restarted")
        agent_rows.fence(tx, agent.name, agent.incarnation)
    if agent.state != "ACTIVE" or agent.incarnation != incarnation:
        values: dict[str, Any] = {"incarnation": incarnation, "state_reason": ""}
        if agent.state != "ACTIVE":
            values |= {"state": "ACTIVE", "state_time": tx.now}
        agent_rows.update_agent(tx, agent.uid, **values)


class _Application:
    """One answer on its way into the catalog."""

    def __init__(self, tx: Tx, agent: Row[Any], status: cluster.GetStatusResponse) -> None:
        self.tx = tx
        self.agent = agent
        self.incarnation = status.incarnation
        self.zombies: list[Run] = []
        self.settled = True
        self._changes = Changes(tx)
        self._queries: dict[str, OpenQuery | None] = {}
        self._shaken: dict[str, str] = {}

    def apply(self, reported: dict[str, cluster.FragmentStatus]) -> None:
        known = fragments.by_uid(self.tx, reported)
        for uid, one in reported.items():
            fragment = known.get(uid)
            if (
                fragment is None
                or fragment.agent_uid != self.agent.uid
                or fragment.epoch != one.fragment.epoch
                or not fragment.slots_held
            ):
                self.zombies.append(Run(uid, one.fragment.epoch))
            else:
                self._apply_one(fragment, one)

    def miss_all_but(self, reported: dict[str, cluster.FragmentStatus], revision: int) -> None:
        """The answer is everything: what should be there and is not has been lost."""
        for row in self.tx.connection.execute(_LIVE_ON, {"agent_uid_": self.agent.uid}):
            if row.uid not in reported:
                self._miss_one(fragments.opened(row), revision)

    def miss(self, forgotten: Iterable[str], revision: int) -> None:
        for fragment in fragments.by_uid(self.tx, forgotten).values():
            if fragment.agent_uid == self.agent.uid and fragment.slots_held and fragment.state in _LIVE:
                self._miss_one(fragment, revision)

    def finish(self) -> None:
        self._changes.flush()
        for query_uid, cause in self._shaken.items():
            query_states.take_back(self.tx, [query_uid], cause)

    def _apply_one(self, fragment: OpenFragment, one: cluster.FragmentStatus) -> None:
        state = short(catalog.FragmentState, one.state)
        if state not in _PROGRESS:
            return
        another_process = fragment.incarnation != self.incarnation
        if _PROGRESS[state] > _PROGRESS[fragment.state]:
            self._advance(fragment, state, one.error)
        elif another_process and fragment.state == "RUNNING" and state == "STARTED":
            self._changes.set(
                fragment,
                f"agent {self.agent.name} restarted and starts it again",
                state="STARTED",
                incarnation=self.incarnation,
            )
        elif another_process and fragment.state in ("STARTED", "RUNNING") and state == "REGISTERED":
            self._again(fragment, f"agent {self.agent.name} restarted and has not started it")
        elif another_process:
            self._changes.set(fragment, f"agent {self.agent.name} restarted with it", incarnation=self.incarnation)
        if fragment.state == state == "STARTED" and fragment.waiting != one.waiting:
            self._changes.set(fragment, waiting=one.waiting)

    def _advance(self, fragment: OpenFragment, state: str, error: cluster.FragmentError) -> None:
        """Moves it on to `state` by legal steps."""
        cause = _cause(state, error)
        values: dict[str, Any] = {"incarnation": self.incarnation}
        if fragment.state == "PENDING" and state in ("STARTED", "RUNNING", "TERMINATED"):
            self._changes.set(fragment, "its agent has it", state="REGISTERED", incarnation=self.incarnation)
        if state == "RUNNING":
            values |= {"attempts": 0, "last_error": ""}
        elif state == "FAILED":
            values |= {"attempts": fragment.attempts + 1, "last_error": f"{error.reason}: {error.message}"}
        self._changes.set(fragment, cause, state=state, **values)
        if state == "FAILED" and not error.transient:
            self._fail(fragment, error, cause)
        elif state in ("FAILED", "STOPPED"):
            self._shake(fragment, cause)

    def _miss_one(self, fragment: OpenFragment, revision: int) -> None:
        if fragment.revision > revision:
            # Confirmed after the question was sent: the answer may be older than the fragment.
            self.settled = False
            return
        self._again(fragment, f"agent {self.agent.name} does not know it")

    def _again(self, fragment: OpenFragment, cause: str) -> None:
        """It needs a new run, unless its query is being taken down anyway."""
        query = self._query(fragment.query_uid)
        if query is None or (query.state == "STOPPING" and (query.failed or query.stop_mode == "HARD")):
            return
        self._changes.new_epoch(fragment, cause)
        self._shake(fragment, cause)

    def _shake(self, fragment: OpenFragment, cause: str) -> None:
        self._shaken.setdefault(fragment.query_uid, f"fragment {fragment.ordinal}: {cause}")

    def _fail(self, fragment: OpenFragment, error: cluster.FragmentError, cause: str) -> None:
        query = self._query(fragment.query_uid)
        if query is None or query.state not in ("DEPLOYING", "RUNNING", "STOPPING"):
            return
        if query.stop_mode == "HARD":
            # It is to go anyway, so it does not fail; but it does not run any more either.
            self._shake(fragment, cause)
            return
        query.fail(
            Failure(
                FRAGMENT_FAILED.name,
                f"fragment {fragment.ordinal} failed on agent {self.agent.name}: {error.message}",
                agent=self.agent.name,
                fragment=fragment.ordinal,
                attempts=fragment.attempts,
                last_error=fragment.last_error,
            )
        )

    def _query(self, uid: str) -> OpenQuery | None:
        if uid not in self._queries:
            self._queries[uid] = query_states.open_query(self.tx, uid)
        return self._queries[uid]


def _cause(state: str, error: cluster.FragmentError) -> str:
    if state == "FAILED":
        return f"its agent reports it broken: {error.reason}: {error.message}"
    if state in FRAGMENT_ENDED:
        return {"STOPPED": "its agent reports it stopped", "TERMINATED": "it ended by itself, complete"}[state]
    return {"REGISTERED": "its agent has the plan", "STARTED": "its agent accepted the start"}.get(
        state, "its agent reports it running"
    )
