"""Which agent should lead which partition, as every agent computes it alone from what the catalog says.

Members of the ring are the agents whose session lives. A topic that is pinned to an agent is that agent's whether it is
there or not.
"""

from __future__ import annotations

from collections.abc import Iterable

from headgate.log import v1 as api
from headgate_agent.log.access import Peer
from headgate_agent.log.contract import PartitionKey
from headgate_agent.log.ring import Member, Ring, rings

DEFAULT_GROUP = "default"


class Assignment:
    """Remembers the last rings and what they gave, because most looks find nothing changed."""

    def __init__(self) -> None:
        self._members: frozenset[Member] = frozenset()
        self._rings: dict[str, Ring] = {}
        self._leaders: dict[tuple[str, str, int], list[str]] = {}

    def leaders(
        self, peers: Iterable[Peer], topics: Iterable[api.Topic], *, without: str = ""
    ) -> dict[PartitionKey, str]:
        """The leader of every partition; an empty name where nobody is there to lead it. `without` is left out."""
        self._follow(peers, without)
        found: dict[PartitionKey, str] = {}
        for topic in topics:
            for index, leader in enumerate(self._of(topic)):
                found[PartitionKey(topic.uid, index)] = leader
        return found

    def keeper(self, peers: Iterable[Peer], task: str, agent: str = "") -> str:
        """Who does a task that one agent does for all that use the object store of `agent`: groups may have stores of
        their own, and none looks into another's. One that does not know its store stands for itself. Without `agent`,
        who does it for all."""
        present = [peer for peer in peers if peer.present]
        own = next((peer for peer in present if peer.name == agent), None)
        if own is not None:
            present = [peer for peer in present if peer is own or (own.store_id and peer.store_id == own.store_id)]
        return Ring(tuple(Member(peer.name) for peer in present)).leaders(task, 1)[0]

    def _follow(self, peers: Iterable[Peer], without: str) -> None:
        members = frozenset(
            Member(peer.name, peer.zone, peer.group or DEFAULT_GROUP)
            for peer in peers
            if peer.present and peer.name != without
        )
        if members != self._members:
            self._members = members
            self._rings = rings(sorted(members, key=lambda member: member.name))
            self._leaders = {}

    def _of(self, topic: api.Topic) -> list[str]:
        if topic.pinned_agent:
            return [topic.pinned_agent] * topic.partitions
        key = (topic.group or DEFAULT_GROUP, topic.name, topic.partitions)
        known = self._leaders.get(key)
        if known is None:
            ring = self._rings.get(key[0])
            known = ring.leaders(topic.name, topic.partitions) if ring is not None else [""] * topic.partitions
            self._leaders[key] = known
        return known
