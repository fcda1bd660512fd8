"""A query with all that belongs to it, read inside a transaction, and how `decide` sees it.

What the reconciler remembers, and the catalog does not, comes in as `Memory`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlalchemy import bindparam, select

from headgate.catalog import v1 as catalog
from headgate.cluster import v1 as cluster
from headgate_coordinator.catalog import fragments as fragment_rows
from headgate_coordinator.catalog import query_states
from headgate_coordinator.catalog.fragments import OpenFragment
from headgate_coordinator.catalog.log import edge_topics
from headgate_coordinator.catalog.query_states import OpenQuery
from headgate_coordinator.catalog.schema import agents
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.catalog.wire import AnyRow
from headgate_coordinator.query.states import decide, span
from headgate_coordinator.query.views import AgentView, Decision, FragmentView, QueryView

# What a view and a call need of an agent.
_AGENTS = select(
    agents.c.uid, agents.c.name, agents.c.address, agents.c.state, agents.c.state_time, agents.c.incarnation
).where(agents.c.uid.in_(bindparam("uids_", expanding=True)))


@dataclass(frozen=True, slots=True)
class Memory:
    """What the reconciler remembers of a query, as of now."""

    # Seconds since it was first seen on its way up, or draining; None if it is not.
    deploying_for: float | None = None
    draining_for: float | None = None
    # Fragments whose next call must wait.
    backing_off: frozenset[str] = frozenset()
    # Broken runs, (fragment, epoch), that may be replaced now.
    may_run_again: frozenset[tuple[str, int]] = frozenset()
    # Runs whose agent has accepted the soft stop: (fragment, epoch, incarnation).
    draining: frozenset[tuple[str, int, str]] = frozenset()
    # Fragments for which no agent had room a moment ago.
    no_room: frozenset[str] = frozenset()
    # Agents that are UNREACHABLE for too long.
    lost: frozenset[str] = frozenset()


@dataclass(slots=True)
class Case:
    """A query with all that belongs to it, open in a transaction."""

    tx: Tx
    query: OpenQuery
    fragments: list[OpenFragment]
    agents: dict[str, AnyRow]
    plan: catalog.QueryPlan
    memory: Memory
    no_room: set[str] = field(default_factory=set)
    passed: list[str] = field(default_factory=list)
    _told: Mapping[str, cluster.EdgeTopic] | None = None

    def told_topics(self) -> Mapping[str, cluster.EdgeTopic]:
        """What agents are told of the query's topics, once all that is to be written now is written."""
        if self._told is None:
            self._told = edge_topics.told(self.tx, self.query.uid)
        return self._told


def open_case(tx: Tx, uid: str, memory: Memory) -> Case | None:
    opened = query_states.open_with_plan(tx, uid)
    if opened is None:
        return None
    query, plan = opened
    found = fragment_rows.fragments_of(tx, uid)
    case = Case(tx, query, found, {}, plan, memory, set(memory.no_room))
    _load_agents(case)
    return case


def _load_agents(case: Case) -> None:
    uids = {fragment.agent_uid for fragment in case.fragments if fragment.agent_uid} - case.agents.keys()
    if uids:
        for row in case.tx.connection.execute(_AGENTS, {"uids_": sorted(uids)}):
            case.agents[row.uid] = row


def decide_case(case: Case) -> Decision:
    query, memory = case.query, case.memory
    view = QueryView(
        uid=query.uid,
        name=query.name,
        state=query.state,
        desired=query.desired,
        stop_mode=query.stop_mode,
        failed=query.failed,
        has_run=query.has_run,
        deployment_late=memory.deploying_for is not None and memory.deploying_for >= query.deployment_deadline,
        # A hard stop that was asked for has no drain deadline.
        drain_abandoned=query.stop_mode == "HARD" and query.drain_deadline > 0,
        drain_late=memory.draining_for is not None and memory.draining_for >= query.drain_deadline > 0,
    )
    upstream = _upstream(case.plan)
    sources = {planned.ordinal for planned in case.plan.fragments if planned.kind == catalog.FRAGMENT_KIND_SOURCE}
    fragments = [
        _fragment_view(case, fragment, upstream.get(fragment.ordinal, ()), fragment.ordinal in sources)
        for fragment in case.fragments
    ]
    return decide(view, fragments, {uid: _agent_view(case, row) for uid, row in case.agents.items()})


def _upstream(plan: catalog.QueryPlan) -> Mapping[int, tuple[int, ...]]:
    found: dict[int, tuple[int, ...]] = {}
    for edge in plan.edges:
        found[edge.to_fragment] = (*found.get(edge.to_fragment, ()), edge.from_fragment)
    return found


def _fragment_view(case: Case, fragment: OpenFragment, upstream: tuple[int, ...], brings_in: bool) -> FragmentView:
    memory = case.memory
    waits = fragment.uid in memory.backing_off
    if fragment.state == "FAILED" and fragment.slots_held:
        waits = waits or (fragment.uid, fragment.epoch) not in memory.may_run_again
    return FragmentView(
        uid=fragment.uid,
        ordinal=fragment.ordinal,
        node_local=fragment.node_local,
        agent=fragment.agent_uid or "",
        agent_name=fragment.agent_name,
        incarnation=fragment.incarnation,
        state=fragment.state,
        epoch=fragment.epoch,
        held=fragment.slots_held,
        upstream=upstream,
        brings_in=brings_in,
        backing_off=waits,
        draining=(fragment.uid, fragment.epoch, fragment.incarnation) in memory.draining,
        no_room=fragment.uid in case.no_room,
        last_error=fragment.last_error,
        attempts=fragment.attempts,
        waiting=fragment.waiting,
    )


def _agent_view(case: Case, row: AnyRow) -> AgentView:
    active = row.state == "ACTIVE"
    return AgentView(
        uid=row.uid,
        name=row.name,
        active=active,
        incarnation=row.incarnation,
        lost=row.uid in case.memory.lost,
        unreachable_for="" if active else span((case.tx.now - row.state_time) / 1_000_000),
    )
