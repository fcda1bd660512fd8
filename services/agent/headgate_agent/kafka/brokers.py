"""Who is listed to clients as a broker.

One that has left stays in the list for a while. librdkafka takes apart whatever belongs to a broker that is no longer
listed, and with it the partitions that the very same answer gives to a new leader: they would wait for its next look,
a second later.

The list is never empty. librdkafka (from 2.10 on) lets go of all its brokers when it is told of none, and has nobody
left to ask. It is lost for good if it does not begin anew with its bootstrap servers: because it is told not to, or
because a race in it (2.16, on a busy machine) has made it believe that it is doing so already.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from headgate_agent.log.access import ClusterView, Peer
from headgate_common.clock import Clock

NO_NODE = -1


class Brokers:
    def __init__(self, view: ClusterView, clock: Clock, departed_listed: float, look_interval: float = 0.01) -> None:
        self._view, self._clock, self._departed_listed = view, clock, departed_listed
        self._look_interval = look_interval
        # By node id, with when it was last listed as one that is there.
        self._listed: dict[int, tuple[float, Peer]] = {}

    def listed(self) -> list[Peer]:
        """By node id. While nobody is there, all that are known: clients keep whom they have, and find them when they
        are back. Empty only where none is known."""
        now = self._clock.monotonic()
        for peer in self._present():
            self._listed[peer.node_id] = now, peer
        self._listed = {
            node: (seen, peer)
            for node, (seen, peer) in sorted(self._listed.items())
            if now - seen <= self._departed_listed
        }
        if not self._listed:
            return sorted(self._known(), key=lambda peer: peer.node_id)
        return [peer for _, peer in self._listed.values()]

    async def controller(self, agent: str, within: float) -> int:
        """The agent itself if it is there, else another: each passes administrative requests on to the coordinator.

        Waits so many seconds for one to be there; then it is one that is known, and `NO_NODE` only where none is, as
        before the first word of the coordinator. librdkafka, told of nobody, does not ask again for minutes.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                while True:
                    if present := self._present():
                        return _preferred(present, agent)
                    await asyncio.sleep(self._look_interval)
        return _preferred(self._known(), agent)

    def _present(self) -> list[Peer]:
        return [peer for peer in self._known() if peer.present]

    def _known(self) -> list[Peer]:
        return [peer for peer in self._view.peers() if peer.kafka_address]


def _preferred(peers: Sequence[Peer], agent: str) -> int:
    return next((peer.node_id for peer in peers if peer.name == agent), peers[0].node_id if peers else NO_NODE)
