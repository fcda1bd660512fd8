"""Which agent leads which consumer group: the ring of all agents whose session lives, whatever group of agents they
belong to, because a consumer group may read topics of several."""

from __future__ import annotations

from headgate_agent.log.access import ClusterView, Peer
from headgate_agent.log.ring import Member, Ring


class GroupPlacing:
    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._names: tuple[str, ...] = ()
        self._ring = Ring(())

    def owner(self, group: str) -> Peer | None:
        """The agent that should lead a group; None where there is none."""
        present = [peer for peer in self._view.peers() if peer.present]
        # Members are Kafka clients, so an agent that they can reach; where none has a port there are only offsets.
        reachable = [peer for peer in present if peer.kafka_address] or present
        names = tuple(sorted(peer.name for peer in reachable))
        if names != self._names:
            self._names, self._ring = names, Ring([Member(name) for name in names])
        if not names:
            return None
        # Apart from the places of topics: a group may have the name of one.
        return self._view.peer(self._ring.leaders(f"group/{group}", 1)[0])
