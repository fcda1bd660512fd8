"""Chooses the agent of every fragment. Deterministic: the same agents, links and fragments give the same places.

A fragment that needs something of one node is placed there. Others go to the eligible agent with the most free slots;
of equal ones to that in the zone with the most free slots, then to the first by name. Eligible is an agent that is
ACTIVE, runs fragments, has the slots (and an engine, for compute; the role LOG, for what leads an edge), is of the same
group as the rest of the query, and, where links are declared, has a link along every way that data takes: from source
to compute to sink.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from headgate.catalog import v1 as catalog
from headgate_common.errors import HeadgateError, Reason
from headgate_coordinator.errors import INSUFFICIENT_CAPACITY, PLACEMENT_ERROR

# How many agents an error tells of.
_NAMED = 20
# How many of those that it tells of for each place of the compute fragment.
_NAMED_FOR_SINK = 3


@dataclass(frozen=True, slots=True)
class Need:
    """A fragment to be placed. `agent` is where it must be; empty for anywhere. `what` is how messages call it."""

    what: str
    slots: int
    agent: str = ""
    engine: bool = False
    # Whether its agent leads an edge of the query, or its error rows.
    leads: bool = False


@dataclass(frozen=True, slots=True)
class Placement:
    """Agents by fragment, and the links that the data takes, where links are declared."""

    sources: tuple[catalog.Agent, ...]
    compute: catalog.Agent
    sink: catalog.Agent | None
    links: tuple[catalog.NetworkLink, ...]


class PlacementFailed(Exception):
    """No placement, with the reason that a caller may rely on."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


@dataclass(slots=True)
class _Lack:
    """Why an agent cannot take a fragment. `only_slots`: whether slots are all it lacks."""

    text: str
    only_slots: bool = False


@dataclass(slots=True)
class Cluster:
    """Agents and links at one moment, and the slots that this placement has taken so far."""

    agents: dict[str, catalog.Agent]
    links: dict[tuple[str, str], catalog.NetworkLink]
    taken: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    # Places as if every agent had all the slots that it could be asked for.
    unlimited: bool = False

    def without_load(self) -> Cluster:
        """The same cluster as if slots did not matter."""
        return Cluster(self.agents, self.links, unlimited=True)

    @classmethod
    def of(cls, agents: Iterable[catalog.Agent], links: Iterable[catalog.NetworkLink]) -> Cluster:
        return cls(
            {agent.name: agent for agent in sorted(agents, key=lambda agent: agent.name)},
            {(link.from_agent, link.to_agent): link for link in links},
        )

    def free(self, agent: catalog.Agent) -> int:
        return agent.slots - agent.slots_used - self.taken[agent.name]

    def reaches(self, sender: str, receiver: str) -> bool:
        """Whether data can go from one agent to another."""
        return sender == receiver or not self.links or (sender, receiver) in self.links

    def lack(
        self,
        agent: catalog.Agent,
        need: Need,
        group: str | None,
        feeding: Iterable[str] = (),
        fed: Iterable[str] = (),
    ) -> _Lack | None:
        """What an agent lacks for a fragment; None where nothing.

        Data comes to it from the agents `feeding` and goes on to those `fed`. Slots are looked at last: they are told
        of only where more of them would help.
        """
        if agent.state != catalog.AGENT_STATE_ACTIVE:
            return _Lack("does not answer")
        if catalog.AGENT_ROLE_FRAGMENTS not in agent.roles:
            return _Lack("runs no fragments")
        if need.leads and catalog.AGENT_ROLE_LOG not in agent.roles:
            return _Lack("cannot lead its edge without the role LOG (start it with --roles log,fragments)")
        if need.engine and not agent.has_engine:
            return _Lack("has no engine")
        if group is not None and (agent.group or "default") != group:
            return _Lack(f"is of group {agent.group or 'default'}, not {group}")
        for name in feeding:
            if not self.reaches(name, agent.name):
                return _Lack(f"has no link from {name}")
        for name in fed:
            if not self.reaches(agent.name, name):
                return _Lack(f"has no link to {name}")
        free = self.free(agent)
        if free < need.slots and not self.unlimited:
            return _Lack(f"has {max(free, 0)} of {agent.slots} slots free, {need.slots} needed", only_slots=True)
        return None

    def ranked(self) -> list[catalog.Agent]:
        """Agents, the best first for a fragment that can be anywhere."""
        zones: dict[str, int] = defaultdict(int)
        for agent in self.agents.values():
            zones[agent.zone] += self.free(agent)
        return sorted(self.agents.values(), key=lambda a: (-self.free(a), -zones[a.zone], a.name))


def place(cluster: Cluster, sources: Sequence[Need], compute: Need, sink: Need | None) -> Placement:
    """Places a query; PlacementFailed says which agent lacked what.

    INSUFFICIENT_CAPACITY is the reason only where the query could be placed if slots were free.
    """
    try:
        return _place(cluster, sources, compute, sink)
    except PlacementFailed as failure:
        if failure.reason == INSUFFICIENT_CAPACITY:
            _place(cluster.without_load(), sources, compute, sink)
        raise


def _place(cluster: Cluster, sources: Sequence[Need], compute: Need, sink: Need | None) -> Placement:
    fixed = [*sources, *([sink] if sink is not None and sink.agent else [])]
    group = _place_fixed(cluster, fixed)
    at_sources = tuple(cluster.agents[need.agent] for need in sources)
    at_sink = cluster.agents[sink.agent] if sink is not None and sink.agent else None
    lacks: dict[str, _Lack] = {}
    for agent in [cluster.agents[compute.agent]] if compute.agent else cluster.ranked():
        fed = (at_sink.name,) if at_sink is not None else ()
        lack = cluster.lack(agent, compute, group, (source.name for source in at_sources), fed)
        chosen = at_sink
        if lack is None and sink is not None and at_sink is None:
            cluster.taken[agent.name] += compute.slots
            found = _place_movable(cluster, sink, agent, group or agent.group or "default")
            cluster.taken[agent.name] -= compute.slots
            if isinstance(found, _Lack):
                lack = found
            else:
                chosen = found
        if lack is None:
            cluster.taken[agent.name] += compute.slots
            return Placement(at_sources, agent, chosen, _used_links(cluster, at_sources, agent, chosen))
        lacks[agent.name] = lack
    raise _failed(compute, lacks)


def _place_fixed(cluster: Cluster, needs: Sequence[Need]) -> str | None:
    """Takes the slots of fragments whose place is given; answers their group, None where there are none."""
    group: str | None = None
    wrong: list[tuple[Need, _Lack]] = []
    for need in needs:
        agent = cluster.agents.get(need.agent)
        if agent is None:
            wrong.append((need, _Lack("does not exist")))
            continue
        lack = cluster.lack(agent, need, group)
        if lack is not None:
            wrong.append((need, lack))
            continue
        group = agent.group or "default"
        cluster.taken[agent.name] += need.slots
    if wrong:
        told = "; ".join(f"agent {need.agent}, where {need.what} is, {lack.text}" for need, lack in wrong[:_NAMED])
        only_slots = all(lack.only_slots for _, lack in wrong)
        raise PlacementFailed(INSUFFICIENT_CAPACITY if only_slots else PLACEMENT_ERROR, told)
    return group


def _place_movable(cluster: Cluster, need: Need, compute: catalog.Agent, group: str) -> catalog.Agent | _Lack:
    """The agent of a sink fragment that can be anywhere: beside the compute fragment if there is room."""
    candidates = [compute, *(agent for agent in cluster.ranked() if agent.name != compute.name)]
    only_slots = False
    lacks: list[str] = []
    for agent in candidates:
        lack = cluster.lack(agent, need, group, (compute.name,))
        if lack is None:
            return agent
        only_slots = only_slots or lack.only_slots
        lacks.append(f"{agent.name} {lack.text}")
    told = "; ".join(lacks[:_NAMED_FOR_SINK]) + ("; ..." if len(lacks) > _NAMED_FOR_SINK else "")
    return _Lack(f"leaves no room for {need.what}, here or on an agent that it reaches ({told})", only_slots)


def _used_links(
    cluster: Cluster, sources: Sequence[catalog.Agent], compute: catalog.Agent, sink: catalog.Agent | None
) -> tuple[catalog.NetworkLink, ...]:
    ways = [(source.name, compute.name) for source in sources]
    if sink is not None:
        ways.append((compute.name, sink.name))
    return tuple(cluster.links[way] for way in sorted(set(ways)) if way in cluster.links)


def _failed(need: Need, lacks: dict[str, _Lack]) -> PlacementFailed:
    if not lacks:
        return PlacementFailed(PLACEMENT_ERROR, f"there is no agent for {need.what}")
    told = "; ".join(f"{name} {lack.text}" for name, lack in sorted(lacks.items())[:_NAMED])
    if len(lacks) > _NAMED:
        told += f"; and {len(lacks) - _NAMED} more"
    reason = INSUFFICIENT_CAPACITY if any(lack.only_slots for lack in lacks.values()) else PLACEMENT_ERROR
    return PlacementFailed(reason, f"no agent can run {need.what}: {told}")


def replace_fragment(
    plan: catalog.QueryPlan,
    ordinal: int,
    agents: Iterable[catalog.Agent],
    links: Iterable[catalog.NetworkLink],
    exclude: Callable[[catalog.Agent], bool],
) -> catalog.Agent:
    """The agent to which a fragment of a running query moves when its own is gone.

    `plan` says where the other fragments are now, and `agents` count their slots already. PLACEMENT_ERROR where the
    fragment cannot move or nothing reaches, INSUFFICIENT_CAPACITY where only slots are missing.
    """
    fragment = plan.fragments[ordinal - 1]
    if fragment.node_local:
        raise HeadgateError(
            PLACEMENT_ERROR, f"fragment {ordinal} needs something of agent {fragment.agent} and cannot move"
        )
    cluster = Cluster.of(agents, links)
    kind = catalog.FragmentKind.Name(fragment.kind).removeprefix("FRAGMENT_KIND_").lower()
    need = Need(
        f"the {kind} fragment {ordinal}",
        fragment.slots,
        engine=fragment.kind == catalog.FRAGMENT_KIND_COMPUTE,
        leads=fragment.compute.HasField("target") or any(edge.leader_fragment == ordinal for edge in plan.edges),
    )
    feeding, fed = _neighbours(plan, ordinal)
    group = next((cluster.agents[name].group or "default" for name in (*feeding, *fed) if name in cluster.agents), None)
    lacks: dict[str, _Lack] = {}
    for agent in cluster.ranked():
        if exclude(agent):
            lacks[agent.name] = _Lack("is the one it leaves")
            continue
        lack = cluster.lack(agent, need, group, feeding, fed)
        if lack is None:
            return agent
        lacks[agent.name] = lack
    failure = _failed(need, lacks)
    raise HeadgateError(failure.reason, failure.message)


def _neighbours(plan: catalog.QueryPlan, ordinal: int) -> tuple[list[str], list[str]]:
    """Names of the agents whose fragments send to this one, and of those that it sends to."""
    feeding, fed = [], []
    for edge in plan.edges:
        if edge.to_fragment == ordinal:
            feeding.append(plan.fragments[edge.from_fragment - 1].agent)
        if edge.from_fragment == ordinal:
            fed.append(plan.fragments[edge.to_fragment - 1].agent)
    return feeding, fed
