"""What plans with queries have beside their queries: links between agents, and drops of what is in use.

Both come from random streams of their own and are added to a plan that is there already.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

from headgate_simulation.plan import Operation, Plan
from headgate_simulation.streams import stream

# Share of plans in which links are declared, and of those the share in which that happens while queries run.
LINKED = 0.3
AT_RUNTIME = 0.4

Link = tuple[str, str]


def with_links(plan: Plan, setup: float, span: tuple[float, float]) -> Plan:
    """Declares links, when agents register or in one bundle `setup` seconds after the start, or while queries run; then
    creates and drops single ones in the `span`."""
    source = stream(plan.seed, "links")
    if source.random() >= LINKED:
        return plan
    late = source.random() < AT_RUNTIME
    names = [agent.name for agent in plan.agents if agent.starts is not None]
    links = _links(source, names)
    made = _Made("n", source, plan.clients)
    if late:
        middle = source.uniform(span[0], sum(span) / 2)
        made.add(middle, "bundle", {"items": _created(links)}, attempts=5)
        span = (middle, span[1])
    else:
        rest = [(sender, receiver) for sender, receiver in links if names.index(sender) < names.index(receiver)]
        plan = _with_peers(source, plan, names, links)
        if rest:
            made.add(setup, "setup", {"items": _created(rest)}, attempts=12)
    for _ in range(source.randint(2, 5)):
        drops = source.random() < 0.7
        sender, receiver = source.choice(links) if drops else source.sample(names, 2)
        kind = "drop_link" if drops else "create_link"
        made.add(source.uniform(*span), kind, {"from_agent": sender, "to_agent": receiver})
    return _with(plan, made)


def with_drops(plan: Plan, span: tuple[float, float]) -> Plan:
    """Drops of what the first operation of the plan has made, at any time, and topics that sinks write to."""
    source = stream(plan.seed, "drops")
    setup = next((one for one in plan.operations if one.kind == "setup"), None)
    assert setup is not None
    items = setup["items"]
    assert isinstance(items, tuple)
    made = _Made("d", source, plan.clients)
    for _ in range(source.choice((0, 1, 2))):
        kind, arguments = source.choice(items)
        made.add(source.uniform(*span), kind.replace("create", "drop"), {"name": dict(arguments)["name"]})
    sinks = [dict(arguments) for kind, arguments in items if kind == "create_sink"]
    topics = [f"of_{sink['name']}" for sink in sinks if not sink["agent"]]
    if topics and source.random() < 0.5:
        topic = source.choice(topics)
        at = source.uniform(*span)
        made.add(at, "declare_topic", {"name": topic})
        made.add(at + source.uniform(0.0, 4.0), "drop_topic", {"name": topic})
    if source.random() < 0.4:
        made.add(source.uniform(*span), "drop_agent", {"name": source.choice(plan.agents).name})
    return _with(plan, made)


def _links(source: random.Random, names: list[str]) -> list[Link]:
    """Many or all, one way or both, and so that all are joined."""
    density = source.choice((0.5, 0.8, 1.0))
    chosen = {(one, other) for one in names for other in names if one != other and source.random() < density}
    for number in range(1, len(names)):
        chosen.add((names[number], names[source.randrange(number)]))
    return sorted(chosen)


def _with_peers(source: random.Random, plan: Plan, names: list[str], links: list[Link]) -> Plan:
    """Agents tell of their links to those before them when they register: so some of them wait for others."""
    agents = []
    for agent in plan.agents:
        before = names[: names.index(agent.name)] if agent.name in names else names
        peers = [name for name in before if (agent.name, name) in links]
        if agent.name not in names:
            peers = source.sample(names, source.choice((1, 2)))
        agents.append(replace(agent, peers=tuple(peers)))
    return replace(plan, agents=tuple(agents))


def _created(links: list[Link]) -> tuple[object, ...]:
    return tuple(
        ("create_network_link", (("from_agent", sender), ("to_agent", receiver))) for sender, receiver in links
    )


def _with(plan: Plan, made: _Made) -> Plan:
    return replace(plan, operations=tuple(sorted((*plan.operations, *made.operations), key=lambda one: one.at)))


class _Made:
    def __init__(self, letter: str, source: random.Random, clients: int) -> None:
        self._letter = letter
        self._source = source
        self._clients = clients
        self.operations: list[Operation] = []

    def add(self, at: float, kind: str, arguments: Mapping[str, object], *, attempts: int = 0) -> None:
        source = self._source
        self.operations.append(
            Operation(
                id=f"{self._letter}{len(self.operations) + 1}",
                at=round(at, 3),
                client=source.randrange(self._clients) + 1,
                kind=kind,
                arguments=tuple(arguments.items()),
                attempts=attempts or source.choice((1, 5)),
                timeout=source.choice((0.5, 2.0, 5.0)),
            )
        )
