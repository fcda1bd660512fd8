"""`topic.TopicLog` in an agent: partitions through their leaders, its own log first; notes through consumer groups."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from headgate.log import v1 as api
from headgate.log.v1 import group_service_pb2, log_service_pb2
from headgate_agent.fragments.config import FragmentConfig
from headgate_agent.groups.asking import Asking
from headgate_agent.log.access import (
    FetchPart,
    GroupOffsets,
    LogAccess,
)
from headgate_agent.log.contract import PartitionKey
from headgate_agent.log.forwarding import Leaders, batches_of
from headgate_agent.log.limits import ForwardLimits
from headgate_common.clock import Clock
from headgate_common.dispatch import Transport, methods
from headgate_common.errors import UNREACHABLE, HeadgateError

_LOG = methods(log_service_pb2.DESCRIPTOR.services_by_name["LogService"])
_GROUPS = methods(group_service_pb2.DESCRIPTOR.services_by_name["GroupService"])

# Every revision of a catalog that has something is at least this.
_FIRST = 1


class ClusterTopics:
    """`leaders` reaches every partition; `asking` the leading coordinator. A call may take `config.topic_timeout`; the
    sink repeats it."""

    def __init__(self, leaders: Leaders, offsets: GroupOffsets, asking: Asking, config: FragmentConfig) -> None:
        self._leaders, self._offsets, self._asking = leaders, offsets, asking
        self._timeout, self._read_bytes = config.topic_timeout, config.topic_read_bytes

    async def topic(self, name: str) -> api.Topic | None:
        """UNREACHABLE while this agent has heard of no topic at all: it was just started, and its coordinator is
        away."""
        view = self._leaders.access.view
        try:
            async with asyncio.timeout(self._timeout):
                await view.caught_up(_FIRST)
        except TimeoutError:
            raise HeadgateError(UNREACHABLE, "no coordinator has told this agent yet which topics there are") from None
        return view.topic(name)

    async def bounds(self, topic: api.Topic, partition: int) -> tuple[int, int]:
        found = await self._leaders.offsets(topic, partition, None, self._timeout)
        return found.log_start, found.high_watermark

    async def append(self, topic: api.Topic, partition: int, batches: bytes) -> int:
        return (await self._leaders.produce(PartitionKey(topic.uid, partition), batches, self._timeout)).base_offset

    async def read(self, topic: api.Topic, partition: int, offset: int) -> bytes:
        part = FetchPart(PartitionKey(topic.uid, partition), offset, self._read_bytes)
        return batches_of(await self._leaders.fetch(part, 0.0, self._timeout))

    async def load(self, group: str) -> Sequence[api.GroupOffset]:
        return await self._offsets.read(group)

    async def store(self, group: str, offsets: Sequence[api.GroupOffset]) -> None:
        await self._offsets.commit(group, offsets)

    async def drop(self, group: str) -> None:
        request = api.DropGroupRequest(name=group, allow_missing=True)
        await self._asking.ask(_GROUPS["DropGroup"], request, within=self._timeout)


def with_log(
    access: LogAccess,
    offsets: GroupOffsets,
    name: str,
    asking: Asking,
    *,
    transport: Transport,
    clock: Clock,
    source: random.Random,
    config: FragmentConfig,
    limits: ForwardLimits | None = None,
) -> ClusterTopics:
    """For an agent that leads partitions itself."""
    leaders = Leaders(access, name, transport=transport, clock=clock, source=source, limits=limits)
    return ClusterTopics(leaders, offsets, asking, config)
