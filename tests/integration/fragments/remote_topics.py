"""`TopicLog` for a process that leads nothing itself, so that its line to the agents can be cut alone."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NoReturn

from headgate.log import v1 as api
from headgate.log.v1 import log_service_pb2
from headgate_agent.errors import GROUP_UNAVAILABLE
from headgate_agent.fragments.config import FragmentConfig
from headgate_agent.fragments.sinks.topic_log import ClusterTopics
from headgate_agent.groups.asking import Asking
from headgate_agent.log.access import AnswerRoom, Bounds, ClusterView, FetchedPart, FetchPart, TimedOffset
from headgate_agent.log.contract import Appended, NotLeader, PartitionKey
from headgate_agent.log.forwarding import Leaders
from headgate_common.clock import Clock
from headgate_common.dispatch import Transport, methods
from headgate_common.errors import HeadgateError

_LOG = methods(log_service_pb2.DESCRIPTOR.services_by_name["LogService"])
_PATIENCE = 10.0


def without_log(
    view: ClusterView, name: str, asking: Asking, *, transport: Transport, clock: Clock, source: random.Random
) -> ClusterTopics:
    """`view` is one that it follows."""
    leaders = Leaders(_NoLog(view), name, transport=transport, clock=clock, source=source)
    return ClusterTopics(leaders, _PeerOffsets(view, transport, source), asking, FragmentConfig())


class _NoLog:
    """`LogAccess` of an agent that leads nothing, so that every call goes to another."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view

    @property
    def view(self) -> ClusterView:
        return self._view

    async def produce(self, key: PartitionKey, batches: bytes | memoryview) -> Appended:
        self._refuse(key)

    async def confirm(self, key: PartitionKey) -> None:
        self._refuse(key)

    async def fetch(
        self,
        parts: Sequence[FetchPart],
        *,
        max_wait: float,
        min_bytes: int,
        max_bytes: int,
        room: AnswerRoom | None = None,
    ) -> list[FetchedPart]:
        self._refuse(parts[0].key)

    def bounds(self, key: PartitionKey) -> Bounds:
        self._refuse(key)

    async def offset_at(self, key: PartitionKey, timestamp: int) -> TimedOffset | None:
        self._refuse(key)

    async def largest_timestamp(self, key: PartitionKey) -> TimedOffset | None:
        self._refuse(key)

    def epoch_end(self, key: PartitionKey, epoch: int) -> tuple[int, int]:
        self._refuse(key)

    async def delete_records(self, key: PartitionKey, before: int) -> int:
        self._refuse(key)

    def _refuse(self, key: PartitionKey) -> NoReturn:
        waiting = self._view.leadership(key).waiting
        raise NotLeader(waiting or "no agent that can be reached leads the partition")


class _PeerOffsets:
    """`GroupOffsets` by way of any agent with a log: it passes them on."""

    def __init__(self, view: ClusterView, transport: Transport, source: random.Random) -> None:
        self._view, self._transport, self._random = view, transport, source

    async def commit(self, group: str, offsets: Sequence[api.GroupOffset], *, local_only: bool = False) -> None:
        request = api.CommitOffsetsRequest(group=group, offsets=offsets)
        await self._transport.call(self._address(), _LOG["CommitOffsets"], request, timeout=_PATIENCE)

    async def read(self, group: str) -> Sequence[api.GroupOffset]:
        request = api.GetOffsetsRequest(group=group)
        answer = await self._transport.call(self._address(), _LOG["GetOffsets"], request, timeout=_PATIENCE)
        assert isinstance(answer, api.GetOffsetsResponse)
        return [lag.offset for lag in answer.offsets]

    def _address(self) -> str:
        present = sorted(peer.address for peer in self._view.peers() if peer.present)
        if not present:
            raise HeadgateError(GROUP_UNAVAILABLE, "no agent with a log is known here")
        return self._random.choice(present)
