"""Where fragments may be, and what may be dropped, after every commit.

A fragment that gets a place gets one that its agent can be: with an engine where it computes, with the role LOG where
it leads an edge, and, where links are declared, with a link along every way to and from the fragments that have a place
already. Nothing is dropped that somebody uses: no link along which a query sends data, no source, sink or agent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headgate.catalog import v1 as catalog
from headgate_coordinator.catalog.tx import Change
from headgate_simulation.edges import Edges
from headgate_simulation.refusals import agent_is_used, topic_is_used
from headgate_simulation.violation import fail

if TYPE_CHECKING:
    from headgate_simulation.invariants import Mirror

_ENDED = (catalog.QUERY_STATE_STOPPED, catalog.QUERY_STATE_TERMINATED, catalog.QUERY_STATE_FAILED)
_USED_BY_QUERIES = {"SINK": "sinks", "PHYSICAL_SOURCE": "physical_sources"}


class Places:
    def __init__(self, mirror: Mirror, edges: Edges) -> None:
        self._mirror = mirror
        self._edges = edges

    def placed(self, fragment: Any) -> None:
        """A fragment has got a place, on an agent that is there."""
        agent = self._mirror.agents_by_name[fragment.agent]
        about = (fragment.query, fragment.query_uid, fragment.uid, fragment.agent)
        told = f"fragment {fragment.ordinal} of {fragment.query} was placed on {fragment.agent}, which"
        if fragment.kind == catalog.FRAGMENT_KIND_COMPUTE and not agent.has_engine:
            fail("a place fits", f"{told} has no engine", about)
        if self._edges.leads(fragment) and catalog.AGENT_ROLE_LOG not in agent.roles:
            fail("a place fits", f"{told} cannot lead its edge", about)
        links = self._links()
        if not links:
            return
        for way in self._edges.ways(fragment.query_uid, self._mirror.by_kind["FRAGMENT"], held=True):
            if fragment.agent in way and way[0] != way[1] and way not in links:
                fail("a place is reached along links", f"{told} has no link for {way[0]}->{way[1]}", about)

    def changed(self, changes: Sequence[Change]) -> None:
        """A commit is in the mirror."""
        for change in changes:
            if change.after is not None or change.kind in ("FRAGMENT", "QUERY"):
                continue
            user = self._user(change)
            if user:
                text = f"{change.kind} {change.name} was dropped, and {user} uses it"
                fail("nothing is dropped that is used", text, (change.name, change.uid))

    def _user(self, change: Change) -> str:
        """Who uses what was dropped; empty if nobody does."""
        tables = self._mirror.by_kind
        if change.kind in _USED_BY_QUERIES:
            names = _USED_BY_QUERIES[change.kind]
            return next(
                (f"query {one.name}" for one in tables["QUERY"].values() if change.name in getattr(one, names)), ""
            )
        if change.kind == "LOGICAL_SOURCE":
            feeding = (one for one in tables["PHYSICAL_SOURCE"].values() if one.logical_source == change.name)
            return next((f"physical source {one.name}" for one in feeding), "")
        if change.kind == "AGENT":
            return "something" if agent_is_used(tables, change.name) else ""
        if change.kind == "TOPIC":
            return "a sink" if topic_is_used(tables, change.name) else ""
        if change.kind == "NETWORK_LINK":
            link: Any = change.before
            for query in tables["QUERY"].values():
                ways = self._edges.ways(query.uid, tables["FRAGMENT"], held=True) if query.state not in _ENDED else ()
                if (link.from_agent, link.to_agent) in ways:
                    return f"query {query.name}"
        return ""

    def stranded(self, query_uid: str) -> bool:
        """Whether a fragment of the query is without a place, and no agent could be it: links that went with an agent
        are not there again when it is. Slots are not looked at."""
        links, fragments = self._links(), self._mirror.by_kind["FRAGMENT"]
        own = {uid: one for uid, one in fragments.items() if one.query_uid == query_uid}
        return bool(links) and any(
            not one.slots_held and not self._fits_somewhere(uid, own, links) for uid, one in own.items()
        )

    def _fits_somewhere(self, uid: str, own: Mapping[str, Any], links: set[tuple[str, str]]) -> bool:
        fragment = own[uid]
        for name, agent in self._mirror.agents_by_name.items():
            if fragment.kind == catalog.FRAGMENT_KIND_COMPUTE and not agent.has_engine:
                continue
            if self._edges.leads(fragment) and catalog.AGENT_ROLE_LOG not in agent.roles:
                continue
            moved = catalog.Fragment()
            moved.CopyFrom(fragment)
            moved.agent, moved.slots_held = name, True
            ways = self._edges.ways(fragment.query_uid, {**own, uid: moved}, held=True)
            if all(way in links for way in ways if name in way and way[0] != way[1]):
                return True
        return False

    def _links(self) -> set[tuple[str, str]]:
        return {(one.from_agent, one.to_agent) for one in self._mirror.by_kind["NETWORK_LINK"].values()}
