"""What the links of the cluster must fulfil, checked once at the end of a transaction that adds agents or links.

Where no link is declared, every agent reaches every other and there is nothing to check. Where links are declared:

- An agent that is created must be joined to the other agents of its group by links, in whichever direction; and the
  transaction that declares the first links of all must join every agent of each group. So no agent is cut off by
  surprise. Dropping a link or an agent may take the topology apart: that was asked for, and what runs along a link
  refuses its drop.
- With `refuse_cycles`, links form no directed cycle.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import pairwise

from sqlalchemy import select

from headgate_common.errors import HeadgateError
from headgate_coordinator.catalog import links
from headgate_coordinator.catalog.schema import agents
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.errors import TOPOLOGY_CYCLE, TOPOLOGY_DISCONNECTED

# How many agents an error names.
NAMED = 20


def check(tx: Tx, *, refuse_cycles: bool) -> None:
    """Refuses the transaction if what it created breaks a rule above."""
    created_agents = {change.uid for change in tx.changes if change.kind == "AGENT" and change.before is None}
    created_links = {change.uid for change in tx.changes if change.kind == "NETWORK_LINK" and change.before is None}
    if not created_agents and not created_links:
        return
    declared = list(links.all_links(tx))
    if not declared:
        return
    if refuse_cycles and created_links:
        _refuse_cycle({(row.from_agent, row.to_agent): row.uid for row in declared}, created_links)
    groups: dict[str, dict[str, str]] = defaultdict(dict)
    for uid, name, group in tx.connection.execute(select(agents.c.uid, agents.c.name, agents.c.group_name)):
        groups[group][uid] = name
    neighbours: dict[str, set[str]] = defaultdict(set)
    linked_before: set[str] = set()
    for row in declared:
        neighbours[row.from_uid].add(row.to_uid)
        neighbours[row.to_uid].add(row.from_uid)
        if row.uid not in created_links:
            linked_before |= {row.from_uid, row.to_uid}
    for members in groups.values():
        anchors = (linked_before - created_agents) & members.keys()
        concerned = created_agents & members.keys() if linked_before else members.keys()
        _refuse_unjoined(members, concerned, anchors, neighbours)


def _refuse_unjoined(
    members: Mapping[str, str], concerned: Iterable[str], anchors: set[str], neighbours: Mapping[str, set[str]]
) -> None:
    """Every agent that is concerned must be joined to the anchors, or to the first of the group where there is none."""
    concerned = set(concerned)
    if not concerned or len(members) == 1:
        return
    start = anchors or {min(members, key=lambda uid: members[uid])}
    unreached = sorted(concerned - _reached(start, neighbours), key=lambda uid: members[uid])
    if not unreached:
        return
    alone = [members[uid] for uid in unreached]
    listed = ", ".join(alone[:NAMED]) + (f" and {len(alone) - NAMED} more" if len(alone) > NAMED else "")
    noun, verb = ("agent", "is") if len(alone) == 1 else ("agents", "are")
    raise HeadgateError(
        TOPOLOGY_DISCONNECTED,
        f"links are declared, and {noun} {listed} {verb} not joined to the others by any: "
        "give it peers (CREATE AGENT ... PEERS (...), or `peers` in the agent's own settings), or apply agents and "
        "links in one bundle",
        metadata={"agents": ",".join(alone[:NAMED]), "count": str(len(alone)), "uid": unreached[0]},
    )


def _reached(start: Iterable[str], neighbours: Mapping[str, set[str]]) -> set[str]:
    reached = set(start)
    waiting = list(reached)
    while waiting:
        for neighbour in neighbours.get(waiting.pop(), ()):
            if neighbour not in reached:
                reached.add(neighbour)
                waiting.append(neighbour)
    return reached


def _refuse_cycle(edges: Mapping[tuple[str, str], str], created: set[str]) -> None:
    following: dict[str, list[str]] = defaultdict(list)
    for sending, receiving in sorted(edges):
        following[sending].append(receiving)
    finished: set[str] = set()
    for start in sorted(following):
        path: list[str] = []
        on_path: set[str] = set()
        # Each entry is an agent and the agents after it that are still to be looked at.
        stack = [(start, iter(following[start]))] if start not in finished else []
        if stack:
            path.append(start)
            on_path.add(start)
        while stack:
            agent, rest = stack[-1]
            after = next(rest, None)
            if after is None:
                stack.pop()
                path.pop()
                on_path.discard(agent)
                finished.add(agent)
            elif after in on_path:
                cycle = [*path[path.index(after) :], after]
                around = [edges[pair] for pair in pairwise(cycle)]
                raise _cycle(cycle, next((uid for uid in around if uid in created), around[0]))
            elif after not in finished:
                stack.append((after, iter(following.get(after, ()))))
                path.append(after)
                on_path.add(after)


def _cycle(path: list[str], link_uid: str) -> HeadgateError:
    shown = path if len(path) <= NAMED else [*path[: NAMED - 1], "…", path[-1]]
    return HeadgateError(
        TOPOLOGY_CYCLE,
        f"the links would form a cycle: {' -> '.join(shown)}; cycles are refused here (refuse_cycles)",
        metadata={"agents": ",".join(path[:NAMED]), "uid": link_uid},
    )
