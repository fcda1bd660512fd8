"""Bugs of refusals, of drops, of links and of wall clocks, planted as in `planted.py`, for plans with queries."""

from __future__ import annotations

from headgate_simulation.planted import Edit, Planted

_CATALOG = "headgate_coordinator.catalog"
_PLACE = "headgate_coordinator.sql.place"

PLANTED: tuple[Planted, ...] = (
    Planted(
        "slots that come back are not seen by the planner",
        "queries are refused for lack of slots that are free",
        (
            Edit(
                f"{_CATALOG}.planner_view:AgentCache.read",
                "if uid not in known or known[uid].revision != revision",
                "if uid not in known",
            ),
        ),
    ),
    Planted(
        "lack of slots is told where no place could be reached",
        "a query is refused for what more slots would not change",
        (
            Edit(
                f"{_PLACE}:_failed",
                "INSUFFICIENT_CAPACITY if any(lack.only_slots for lack in lacks.values()) else PLACEMENT_ERROR",
                "INSUFFICIENT_CAPACITY",
            ),
            Edit(f"{_PLACE}:place", "if failure.reason == INSUFFICIENT_CAPACITY:", "if False:"),
        ),
    ),
    Planted(
        "an agent that a query has left is in use",
        "its drop is refused though nothing is on it",
        (
            Edit(
                f"{_CATALOG}.agents:_references",
                ".where(fragments.c.agent_uid == uid, fragments.c.slots_held)",
                ".where(fragments.c.agent_uid == uid)",
            ),
        ),
    ),
    Planted(
        "a topic is dropped under its sink",
        "a sink writes to what is not there",
        (Edit(f"{_CATALOG}.log.topics:drop_topic", "if refers:", "if False:"),),
    ),
    Planted(
        "a link is dropped under a query",
        "a query sends data along a link that is gone",
        (Edit(f"{_CATALOG}.links:drop_network_link", "if using is not None:", "if False:"),),
    ),
    Planted(
        "links that are declared later are not used",
        "what runs that way already does not refuse their drop",
        (
            Edit(
                f"{_CATALOG}.links:create_network_link",
                "_take_for_running(tx, created.uid, from_uid, to_uid)",
                "pass",
            ),
        ),
    ),
    Planted(
        "a fragment moves where no link leads",
        "it cannot reach the others of its query",
        (
            Edit(
                f"{_PLACE}:replace_fragment",
                "lack = cluster.lack(agent, need, group, feeding, fed)",
                "lack = cluster.lack(agent, need, group)",
            ),
        ),
    ),
    Planted(
        "links lead both ways",
        "a query is placed where data can only come back",
        (
            Edit(
                f"{_PLACE}:Cluster.reaches",
                "(sender, receiver) in self.links",
                "not self.links.keys().isdisjoint(((sender, receiver), (receiver, sender)))",
            ),
        ),
    ),
    Planted(
        "what is old by a clock that jumped is forgotten",
        "a retry is a new request, because the answer to the first is gone",
        (
            Edit(
                f"{_CATALOG}.retention:Retention.run_once",
                "now = self._time.read(min(max(aged.age, 0.0), self._settings.patience))",
                "now = await self._store.read(lambda tx: tx.now)",
            ),
        ),
    ),
    Planted(
        "the silence of a leader is counted on the wall clock",
        "whoever stands by takes over from a leader that is well when its own clock is put forward",
        (
            Edit(
                "headgate_coordinator.cluster.leadership:Leadership._stand_by",
                "self._clock.monotonic()",
                "self._clock.wall().timestamp()",
            ),
        ),
    ),
)
