"""What must hold of the topics that queries make for themselves, after every commit.

A query that has not ended has exactly the topics of its plan's edges and of their error rows, each pinned to the agent
where the edge's leader fragment is; one that has ended, or is gone, has no edges. A run was told of the leaders that
its edges have now.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from headgate.catalog import v1 as catalog
from headgate_coordinator.catalog.inline import InlineDatabase
from headgate_coordinator.catalog.log.edge_topics import EDGE_PREFIX, edge_topic, error_topic
from headgate_coordinator.catalog.tx import Change
from headgate_simulation.violation import fail

if TYPE_CHECKING:
    from headgate_simulation.invariants import Mirror

# Its agent has a run of it.
_TOLD = (catalog.FRAGMENT_STATE_REGISTERED, catalog.FRAGMENT_STATE_STARTED, catalog.FRAGMENT_STATE_RUNNING)
_ENDED = (catalog.QUERY_STATE_STOPPED, catalog.QUERY_STATE_TERMINATED, catalog.QUERY_STATE_FAILED)


class Edges:
    def __init__(self, database: InlineDatabase, mirror: Mirror) -> None:
        self._database = database
        self._mirror = mirror
        self._plans: dict[str, catalog.QueryPlan] = {}
        # By query, of each edge its topic, that of its error rows and the fragment that leads; by fragment of a query,
        # the topics that its runs read and write. Plans do not change.
        self._topics: dict[str, list[tuple[str, str, int]]] = {}
        self._names: dict[tuple[str, int], list[str]] = {}
        # By run, what the registrations that have reached an agent say: the leader of each topic, and its address.
        self._told: dict[tuple[str, int], list[dict[str, tuple[str, str]]]] = {}

    def registered(self, request: Any) -> None:
        """A registration reaches an agent."""
        known = self._told.setdefault((request.fragment.uid, request.fragment.epoch), [])
        topics = [*request.topics, *([request.errors] if request.HasField("errors") else [])]
        told = {topic.topic: (topic.agent, topic.address) for topic in topics}
        if told not in known:
            known.append(told)

    def query(self, uid: str) -> None:
        query = self._mirror.by_kind["QUERY"].get(uid)
        found = {topic.name: topic.pinned_agent for topic in self._mirror.topics(uid)}
        if query is None or query.state in _ENDED:
            left = sorted(name for name in found if name.startswith(EDGE_PREFIX))
            if left:
                fail("an ended query has no edges", f"{left} are left of {uid}", (uid,))
            return
        leading = self._leading(uid)
        leaders = {name: fragment.agent for name, fragment in leading.items()}
        if found != leaders:
            text = f"query {query.name} has the topics {found}, and should have {leaders}"
            fail("a live query has exactly its edges", text, (query.name, uid))
        self._knows_leaders(query, leading)

    def ways(self, uid: str, fragments: Mapping[str, Any], *, held: bool = False) -> set[tuple[str, str]]:
        """Between which agents a query sends data, by the fragments of one revision; with `held`, where both ends of an
        edge have their place."""
        placed = {one.ordinal: one for one in fragments.values() if one.query_uid == uid}
        ends = [(placed.get(edge.from_fragment), placed.get(edge.to_fragment)) for edge in self._plan(uid).edges]
        return {
            (sender.agent, receiver.agent)
            for sender, receiver in ends
            if sender is not None and receiver is not None
            if not held or (sender.slots_held and receiver.slots_held)
        }

    def leads(self, fragment: Any) -> bool:
        """Whether an edge is led where the fragment is."""
        return any(edge.leader_fragment == fragment.ordinal for edge in self._plan(fragment.query_uid).edges)

    def followers(self, changes: Iterable[Change], before: dict[str, Any]) -> set[str]:
        """Uids of the fragments at the other end of an edge whose leader fragment has just moved."""
        found: set[str] = set()
        for change in changes:
            was, now = before[change.uid], change.after
            if change.kind != "FRAGMENT" or was is None or now is None:
                continue
            assert isinstance(now, catalog.Fragment)
            # Also to another agent of the same name: then the former one was declared gone, and held nothing.
            if was.agent == now.agent and (was.slots_held or was.epoch == now.epoch):
                continue
            ends = {
                end
                for edge in self._plan(now.query_uid).edges
                if edge.leader_fragment == now.ordinal
                for end in (edge.from_fragment, edge.to_fragment)
            }
            found |= {each.uid for each in self._mirror.fragments(now.query_uid) if each.ordinal in ends}
        return found

    def _leading(self, uid: str) -> dict[str, catalog.Fragment]:
        """The topics of a query that lives, and the fragment on whose agent each is led."""
        fragments = {fragment.ordinal: fragment for fragment in self._mirror.fragments(uid)}
        expected: dict[str, catalog.Fragment] = {}
        topics = self._topics.get(uid)
        if topics is None:
            topics = self._topics[uid] = [
                (edge_topic(uid, edge.ordinal), error_topic(uid, edge.from_fragment), edge.leader_fragment)
                for edge in self._plan(uid).edges
            ]
        for topic, errors, leader in topics:
            expected[topic] = fragments[leader]
            expected.setdefault(errors, fragments[leader])
        return expected

    def _knows_leaders(self, query: Any, leading: dict[str, catalog.Fragment]) -> None:
        for fragment in self._mirror.fragments(query.uid):
            if fragment.state not in _TOLD:
                continue
            names = self._names_of(query.uid, fragment.ordinal)
            agents = self._mirror.agents_by_name
            if not all(leading[name].slots_held for name in names):
                # The leader was declared gone, and the fragment that leads has no place yet: neither on another agent
                # nor on one that has come back under the name. The run is told when it has one.
                continue
            now = {name: (leading[name].agent, agents[leading[name].agent].address) for name in names}
            told = self._told.get((fragment.uid, fragment.epoch), [])
            if now not in told:
                fail(
                    "a run knows who leads its edges",
                    f"fragment {fragment.ordinal} of {query.name} was told {told}, and leaders are {now}",
                    (query.name, query.uid, fragment.uid),
                )

    def _names_of(self, uid: str, ordinal: int) -> list[str]:
        names = self._names.get((uid, ordinal))
        if names is None:
            plan = self._plan(uid).fragments[ordinal - 1]
            names = [edge_topic(uid, edge) for edge in (*plan.input_edges, *plan.output_edges)]
            if plan.output_edges:
                names.append(error_topic(uid, ordinal))
            self._names[uid, ordinal] = names
        return names

    def _plan(self, uid: str) -> catalog.QueryPlan:
        if uid not in self._plans:
            (plan,) = self._database.raw.execute("SELECT plan FROM queries WHERE uid = ?", (uid,)).fetchone()
            self._plans[uid] = catalog.QueryPlan.FromString(plan)
        return self._plans[uid]
