"""Reaching the leader of a partition from any agent: here where this one leads, over gRPC where another does.

Only methods that answer NOT_LEADER instead of passing a call on are called elsewhere, so nothing goes round in circles.
A leader that has just changed is waited for, within the caller's time. What may have been stored is not sent again
(RECORDS_UNCERTAIN): only the caller knows whether its records may be there twice.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from google.protobuf.message import Message
from grpc import StatusCode

from headgate.log import v1 as api
from headgate.log.v1 import log_service_pb2
from headgate_agent.errors import REASONS, RECORDS_UNCERTAIN, UNKNOWN_PARTITION
from headgate_agent.log.access import AnswerRoom, FetchedPart, FetchPart, LogAccess
from headgate_agent.log.contract import PartitionKey, Uncertain
from headgate_agent.log.limits import ForwardLimits
from headgate_agent.log.refusals import EXPECTED, refusal
from headgate_agent.log.times import timestamp_of
from headgate_common.clock import Clock
from headgate_common.dispatch import Transport, methods
from headgate_common.errors import HeadgateError, Reason

T = TypeVar("T")

_METHODS = methods(log_service_pb2.DESCRIPTOR.services_by_name["LogService"])
# Of these nothing was stored, so another try is the same call.
_AGAIN = ("NOT_LEADER", "STALE_EPOCH", "LEASE_CONFLICT", "SHUTTING_DOWN", "OVERLOADED")
# Of these nobody knows whether the leader did what it was asked for.
_UNANSWERED = ("UNREACHABLE", "DEADLINE_EXCEEDED", "CANCELLED", "INTERNAL")


@dataclass(frozen=True, slots=True)
class Produced:
    """Where records are, and whether this agent has stored them: it then answers for them."""

    base_offset: int
    here: bool


class Leaders:
    """The log of the whole cluster, partition by partition, as one agent reaches it."""

    def __init__(
        self,
        access: LogAccess,
        own_name: str,
        *,
        transport: Transport,
        clock: Clock,
        source: random.Random,
        limits: ForwardLimits | None = None,
    ) -> None:
        self.access = access
        self.own_name = own_name
        self._transport = transport
        self._clock = clock
        self._random = source
        self._limits = limits or ForwardLimits()

    def topic(self, name: str) -> api.Topic:
        topic = self.access.view.topic(name)
        if topic is None:
            raise HeadgateError(UNKNOWN_PARTITION, f"there is no topic {name!a}", metadata={"topic": name})
        return topic

    def key(self, topic: api.Topic, index: int) -> PartitionKey:
        if not 0 <= index < topic.partitions:
            raise HeadgateError(
                UNKNOWN_PARTITION,
                f"topic {topic.name} has partitions 0 to {topic.partitions - 1}, not {index}",
                metadata={"topic": topic.name, "partition": str(index)},
            )
        return PartitionKey(topic.uid, index)

    async def produce(self, key: PartitionKey, batches: bytes, patience: float | None) -> Produced:
        async def here() -> Produced:
            return Produced((await self.access.produce(key, batches)).base_offset, here=True)

        async def there(address: str) -> Produced:
            part = api.ProducePart(topic_uid=key.topic_uid, partition=key.index, batches=batches)
            try:
                answer = await self._call(address, "Produce", api.ProduceRequest(parts=[part]), patience)
            except HeadgateError as error:
                if error.reason.name in _UNANSWERED:
                    raise HeadgateError(RECORDS_UNCERTAIN, f"{address}: {error.message}") from error
                raise
            told: api.ProducedPart = answer.parts[0]
            _raise(told.error_reason, told.error_message)
            return Produced(told.base_offset, here=False)

        return await self._reach(key, here, there, patience)

    async def confirm(self, key: PartitionKey) -> None:
        """The last look before records are acknowledged that were stored here."""
        try:
            await self.access.confirm(key)
        except EXPECTED as error:
            raise refusal(Uncertain(str(error)), self.access.view, key, self.own_name) from error

    async def fetch(
        self, part: FetchPart, max_wait: float, patience: float | None, room: AnswerRoom | None = None
    ) -> FetchedPart | api.FetchedPart:
        """Reads one partition; raises instead of answering with an error. The records take `room`, which must not let
        an answer go without them."""

        async def here() -> FetchedPart | api.FetchedPart:
            (found,) = await self.access.fetch(
                [part], max_wait=max_wait, min_bytes=1, max_bytes=part.max_bytes, room=room
            )
            if found.error is not None:
                raise found.error
            return found

        async def there(address: str) -> FetchedPart | api.FetchedPart:
            if room is None:
                return await self._fetch_there(address, part, part.max_bytes, max_wait, patience)
            most = await room.take(part.max_bytes, self._limits.timeout)
            found = await self._fetch_there(address, part, most, 0.0, patience)
            room.keep(len(found.batches))
            if not found.batches and max_wait > 0:
                # While it waits it holds no room, so it waits for one batch alone.
                found = await self._fetch_there(address, part, 1, max_wait, patience)
                room.keep(len(found.batches))
            return found

        return await self._reach(part.key, here, there, patience)

    async def _fetch_there(
        self, address: str, part: FetchPart, max_bytes: int, max_wait: float, patience: float | None
    ) -> api.FetchedPart:
        asked = api.FetchPart(
            topic_uid=part.key.topic_uid, partition=part.key.index, offset=part.offset, max_bytes=max_bytes
        )
        request = api.FetchRequest(parts=[asked], min_bytes=1, max_bytes=max_bytes)
        request.max_wait.FromNanoseconds(int(max_wait * 1e9))
        answer = await self._call(address, "Fetch", request, None if patience is None else patience + max_wait)
        told: api.FetchedPart = answer.parts[0]
        _raise(told.error_reason, told.error_message)
        return told

    async def offsets(
        self, topic: api.Topic, index: int, timestamp: int | None, patience: float | None, *, largest: bool = False
    ) -> api.PartitionOffset:
        key = self.key(topic, index)

        async def here() -> api.PartitionOffset:
            return await self.local_offsets(key, timestamp, largest=largest)

        async def there(address: str) -> api.PartitionOffset:
            request = api.ListOffsetsRequest(
                topic=topic.name, partitions=[index], local_only=True, max_timestamp=largest
            )
            if timestamp is not None:
                request.time.CopyFrom(timestamp_of(timestamp))
            answer: api.ListOffsetsResponse = await self._call(address, "ListOffsets", request, patience)
            return answer.offsets[0]

        return await self._reach(key, here, there, patience)

    async def local_offsets(
        self, key: PartitionKey, timestamp: int | None, *, largest: bool = False
    ) -> api.PartitionOffset:
        bounds = self.access.bounds(key)
        found = await self.access.offset_at(key, timestamp) if timestamp is not None else None
        newest = await self.access.largest_timestamp(key) if largest else None
        answer = api.PartitionOffset(
            partition=key.index,
            log_start=bounds.log_start,
            high_watermark=bounds.high_watermark,
            offset_at_time=-1 if found is None else found.offset,
            epoch=bounds.epoch,
            offset_of_max_timestamp=-1 if newest is None else newest.offset,
        )
        if newest is not None:
            answer.max_timestamp.CopyFrom(timestamp_of(newest.timestamp))
        return answer

    async def delete_records(self, topic: api.Topic, index: int, before: int, patience: float | None) -> int:
        key = self.key(topic, index)

        async def here() -> int:
            return await self.local_delete(key, before)

        async def there(address: str) -> int:
            request = api.DeleteRecordsRequest(topic=topic.name, partition=index, before_offset=before, local_only=True)
            answer: api.DeleteRecordsResponse = await self._call(address, "DeleteRecords", request, patience)
            return answer.log_start

        return await self._reach(key, here, there, patience)

    async def local_delete(self, key: PartitionKey, before: int) -> int:
        return await self.access.delete_records(key, self.access.bounds(key).high_watermark if before < 0 else before)

    async def _reach(
        self,
        key: PartitionKey,
        here: Callable[[], Awaitable[T]],
        there: Callable[[str], Awaitable[T]],
        patience: float | None,
    ) -> T:
        until = self._clock.monotonic() + (self._limits.timeout if patience is None else patience) * 0.8
        attempt = 0
        while True:
            try:
                return await self._once(key, here, there)
            except HeadgateError as error:
                pause = self._limits.backoff.delay(attempt, self._random)
                if error.reason.name not in _AGAIN or self._clock.monotonic() + pause > until:
                    raise
            await asyncio.sleep(pause)
            attempt += 1

    async def _once(
        self, key: PartitionKey, here: Callable[[], Awaitable[T]], there: Callable[[str], Awaitable[T]]
    ) -> T:
        view = self.access.view
        leader = view.leadership(key).leader
        peer = view.peer(leader) if leader and leader != self.own_name else None
        if peer is not None and peer.present:
            return await there(peer.address)
        try:
            return await here()
        except EXPECTED as error:
            raise refusal(error, view, key, self.own_name) from error

    async def _call(self, address: str, method: str, request: Message, patience: float | None) -> Any:
        timeout = self._limits.timeout if patience is None else max(patience, 0.01)
        return await self._transport.call(address, _METHODS[method], request, timeout=timeout)


def batches_of(part: FetchedPart | api.FetchedPart) -> bytes:
    return part.batches if isinstance(part.batches, bytes) else b"".join(part.batches)


def bounds_of(part: FetchedPart | api.FetchedPart) -> tuple[int, int]:
    """Log start and high watermark."""
    if isinstance(part, api.FetchedPart):
        return part.log_start, part.high_watermark
    assert part.bounds is not None, "a part without an error has bounds"
    return part.bounds.log_start, part.bounds.high_watermark


def _raise(reason: str, message: str) -> None:
    """What another agent answered for one part, as an error of this call."""
    if not reason:
        return
    raise HeadgateError(REASONS.get(reason) or Reason(reason, StatusCode.UNKNOWN, ""), message)
