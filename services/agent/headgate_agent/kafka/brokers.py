"""Who is listed to clients as a broker.

One that has left stays in the list for a while. librdkafka takes apart whatever belongs to a broker that is no longer
listed, and with it the partitions that the very same answer gives to a new leader: they would wait for its next look,
a second later.
"""

from __future__ import annotations

from headgate_agent.log.access import ClusterView, Peer
from headgate_common.clock import Clock


class Brokers:
    def __init__(self, view: ClusterView, clock: Clock, departed_listed: float) -> None:
        self._view, self._clock, self._departed_listed = view, clock, departed_listed
        # By node id, with when it was last listed as one that is there.
        self._listed: dict[int, tuple[float, Peer]] = {}

    def listed(self) -> list[Peer]:
        """By node id."""
        now = self._clock.monotonic()
        for peer in self._view.peers():
            if peer.present and peer.kafka_address:
                self._listed[peer.node_id] = now, peer
        self._listed = {
            node: (seen, peer)
            for node, (seen, peer) in sorted(self._listed.items())
            if now - seen <= self._departed_listed
        }
        return [peer for _, peer in self._listed.values()]
