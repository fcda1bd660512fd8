"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords: where partitions begin and end. Each partition is answered for
itself, with what was asked for or with an error."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from kio.schema.errors import ErrorCode

from headgate_agent.kafka.codec import Values
from headgate_agent.kafka.config import KafkaLimits
from headgate_agent.kafka.errors import KafkaError, translate
from headgate_agent.kafka.fetch import check_epoch
from headgate_agent.kafka.request import Request
from headgate_agent.kafka.topics import TopicNames
from headgate_agent.log.access import LogAccess, certain_bounds
from headgate_agent.log.contract import PartitionKey

log = logging.getLogger(__name__)

LATEST = -1
EARLIEST = -2
LARGEST = -3
# There is one log, and none behind it: its local part is all of it, and nothing of it is tiered.
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
# What stands for a time and is none, with the first version that knows it.
_SINCE = {LATEST: 1, EARLIEST: 1, LARGEST: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}
TO_THE_END = -1
PartitionCall = Callable[[PartitionKey, Any], Awaitable[dict[str, Any]]]


class Offsets:
    def __init__(self, access: LogAccess, topics: TopicNames, limits: KafkaLimits) -> None:
        self._access, self._topics, self._limits = access, topics, limits

    async def list_offsets(self, request: Request) -> Values:
        async def one(key: PartitionKey, item: Any) -> dict[str, Any]:
            if item.timestamp < 0 and request.version < _SINCE.get(item.timestamp, request.version + 1):
                raise KafkaError(ErrorCode.unsupported_version)
            return await self._list_one(key, item)

        return {"topics": await self._each(request, "name", "partition_index", one)}

    async def _list_one(self, key: PartitionKey, item: Any) -> dict[str, Any]:
        bounds = await certain_bounds(self._access, key)
        check_epoch(getattr(item, "current_leader_epoch", -1), bounds)
        if item.timestamp == LATEST:
            return {"offset": bounds.high_watermark, "leader_epoch": bounds.epoch}
        if item.timestamp in (EARLIEST, EARLIEST_LOCAL):
            return {"offset": bounds.log_start, "leader_epoch": bounds.epoch}
        if item.timestamp == LATEST_TIERED:
            return {}
        if item.timestamp == LARGEST:
            found = await self._access.largest_timestamp(key)
        else:
            found = await self._access.offset_at(key, item.timestamp)
        if found is None:
            return {}
        return {"offset": found.offset, "timestamp": found.timestamp, "leader_epoch": found.epoch}

    async def offset_for_leader_epoch(self, request: Request) -> Values:
        return {"topics": await self._each(request, "topic", "partition", self._epoch_one)}

    async def _epoch_one(self, key: PartitionKey, item: Any) -> dict[str, Any]:
        check_epoch(item.current_leader_epoch, await certain_bounds(self._access, key))
        epoch, end = self._access.epoch_end(key, item.leader_epoch)
        return {"leader_epoch": epoch, "end_offset": end}

    async def delete_records(self, request: Request) -> Values:
        """All partitions at once, so that one whose records cannot be uploaded now takes no time from the others. What
        is not done in the client's time is REQUEST_TIMED_OUT: it may have happened, and may be asked for again."""
        until = asyncio.get_running_loop().time() + request.within(self._limits)

        async def one(key: PartitionKey, item: Any) -> dict[str, Any]:
            async with asyncio.timeout_at(until):
                return await self._delete_one(key, item)

        begun: list[tuple[str, list[asyncio.Task[dict[str, Any]]]]] = []
        turns = request.turns()
        async with asyncio.TaskGroup() as tasks:
            for topic in request.body.topics:
                await turns.pass_on()
                begun.append((topic.name, []))
                for item in topic.partitions:
                    await turns.pass_on()
                    deleting = self._one(topic.name, item, "partition_index", one, low_watermark=-1)
                    begun[-1][1].append(tasks.create_task(deleting))
        return {
            "topics": [{"name": name, "partitions": [task.result() for task in deleted]} for name, deleted in begun]
        }

    async def _delete_one(self, key: PartitionKey, item: Any) -> dict[str, Any]:
        topic = self._topics.find_uid(key.topic_uid)
        if topic is not None and topic.internal:
            raise KafkaError(ErrorCode.topic_authorization_failed)
        before: int = item.offset
        if before == TO_THE_END:
            before = (await certain_bounds(self._access, key)).high_watermark
        if before < 0:
            raise KafkaError(ErrorCode.offset_out_of_range)
        return {"low_watermark": await self._access.delete_records(key, before)}

    async def _each(self, request: Request, name: str, index: str, call: PartitionCall) -> list[dict[str, Any]]:
        """Asks for each partition of each topic, one after the other."""
        answers: list[dict[str, Any]] = []
        turns = request.turns()
        for topic in request.body.topics:
            await turns.pass_on()
            partitions: list[dict[str, Any]] = []
            for item in topic.partitions:
                await turns.pass_on()
                partitions.append(await self._one(getattr(topic, name), item, index, call))
            answers.append({name: getattr(topic, name), "partitions": partitions})
        return answers

    async def _one(self, topic: str, item: Any, index: str, call: PartitionCall, **absent: int) -> dict[str, Any]:
        """The answer for one partition; `absent` is what it says where there is an error."""
        number = getattr(item, index)
        try:
            found = self._topics.partition(topic, number)
            if found is None:
                raise KafkaError(ErrorCode.unknown_topic_or_partition)
            return {index: number, **await call(found[1], item)}
        except Exception as error:
            refused = translate(error)
            if refused.code is ErrorCode.unknown_server_error:
                log.error("partition not answered", extra={"topic": topic, "partition": number}, exc_info=error)
            return {index: number, **absent, "error_code": refused.code}
