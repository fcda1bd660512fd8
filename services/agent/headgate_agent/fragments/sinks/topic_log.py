"""`topic.TopicLog` in an agent: partitions through their leaders, its own log first; notes through consumer groups."""

from __future__ import annotations

import random
from collections.abc import Sequence

from headgate.log import v1 as api
from headgate.log.v1 import group_service_pb2, log_service_pb2
from headgate_agent.groups.asking import Asking
from headgate_agent.log.access import (
    FetchPart,
    GroupOffsets,
    LogAccess,
)
from headgate_agent.log.contract import PartitionKey
from headgate_agent.log.forwarding import Leaders, batches_of
from headgate_common.clock import Clock
from headgate_common.dispatch import Transport, methods

_LOG = methods(log_service_pb2.DESCRIPTOR.services_by_name["LogService"])
_GROUPS = methods(group_service_pb2.DESCRIPTOR.services_by_name["GroupService"])
# Of one call, in seconds; the sink repeats it.
_PATIENCE = 10.0
_READ_BYTES = 4 << 20


class ClusterTopics:
    """`leaders` reaches every partition; `asking` the leading coordinator."""

    def __init__(self, leaders: Leaders, offsets: GroupOffsets, asking: Asking) -> None:
        self._leaders, self._offsets, self._asking = leaders, offsets, asking

    async def topic(self, name: str) -> api.Topic | None:
        return self._leaders.access.view.topic(name)

    async def bounds(self, topic: api.Topic, partition: int) -> tuple[int, int]:
        found = await self._leaders.offsets(topic, partition, None, _PATIENCE)
        return found.log_start, found.high_watermark

    async def append(self, topic: api.Topic, partition: int, batches: bytes) -> int:
        return (await self._leaders.produce(PartitionKey(topic.uid, partition), batches, _PATIENCE)).base_offset

    async def read(self, topic: api.Topic, partition: int, offset: int) -> bytes:
        part = FetchPart(PartitionKey(topic.uid, partition), offset, _READ_BYTES)
        return batches_of(await self._leaders.fetch(part, 0.0, _PATIENCE))

    async def load(self, group: str) -> Sequence[api.GroupOffset]:
        return await self._offsets.read(group)

    async def store(self, group: str, offsets: Sequence[api.GroupOffset]) -> None:
        await self._offsets.commit(group, offsets)

    async def drop(self, group: str) -> None:
        request = api.DropGroupRequest(name=group, allow_missing=True)
        await self._asking.ask(_GROUPS["DropGroup"], request, within=_PATIENCE)


def with_log(
    access: LogAccess,
    offsets: GroupOffsets,
    name: str,
    asking: Asking,
    *,
    transport: Transport,
    clock: Clock,
    source: random.Random,
) -> ClusterTopics:
    """For an agent that leads partitions itself."""
    return ClusterTopics(Leaders(access, name, transport=transport, clock=clock, source=source), offsets, asking)
