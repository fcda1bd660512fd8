"""Who is listed to clients as a broker.

One that has left stays in the list for a while. librdkafka takes apart whatever belongs to a broker that is no longer
listed, and with it the partitions that the very same answer gives to a new leader: they would wait for its next look,
a second later.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from headgate_agent.log.access import ClusterView, Peer
from headgate_common.clock import Clock

NO_NODE = -1
# Seconds between two looks for somebody to be there.
_LOOK = 0.05


class Brokers:
    def __init__(self, view: ClusterView, clock: Clock, departed_listed: float) -> None:
        self._view, self._clock, self._departed_listed = view, clock, departed_listed
        # By node id, with when it was last listed as one that is there.
        self._listed: dict[int, tuple[float, Peer]] = {}

    def listed(self) -> list[Peer]:
        """By node id."""
        now = self._clock.monotonic()
        for peer in self._present():
            self._listed[peer.node_id] = now, peer
        self._listed = {
            node: (seen, peer)
            for node, (seen, peer) in sorted(self._listed.items())
            if now - seen <= self._departed_listed
        }
        return [peer for _, peer in self._listed.values()]

    async def controller(self, agent: str, within: float) -> int:
        """The agent itself if it is there, else another: each passes administrative requests on to the coordinator.

        Waits so many seconds for one to be there. librdkafka, told of nobody, does not ask again for minutes.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                while True:
                    if present := self._present():
                        return next((peer for peer in present if peer.name == agent), present[0]).node_id
                    await asyncio.sleep(_LOOK)
        return NO_NODE

    def _present(self) -> list[Peer]:
        return [peer for peer in self._view.peers() if peer.present and peer.kafka_address]
