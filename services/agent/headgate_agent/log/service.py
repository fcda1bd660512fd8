"""LogService: the records of topics over gRPC. Plain records here, record batches in `batches.py`."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import TypeVar

from google.protobuf.duration_pb2 import Duration

from headgate.log import v1 as api
from headgate.log.v1 import log_service_pb2
from headgate_agent.errors import GROUP_UNAVAILABLE, RECORD_TOO_LARGE, RECORDS_UNCERTAIN
from headgate_agent.log.access import FetchedPart, FetchPart, GroupOffsets, LogAccess
from headgate_agent.log.answer_memory import DEFAULT_BYTES, AnswerMemory
from headgate_agent.log.answers import Answers, time_left
from headgate_agent.log.batches import Batches
from headgate_agent.log.contract import PartitionKey
from headgate_agent.log.forwarding import Leaders, Produced, batches_of, bounds_of
from headgate_agent.log.limits import CallLimits
from headgate_agent.log.record_batch import HEADER_BYTES
from headgate_agent.log.records import PlainRecord, pack, partition_of_key
from headgate_agent.log.refusals import EXPECTED, refusal, refuse_internal
from headgate_agent.log.tailing import Tailing
from headgate_agent.log.times import timestamp_of
from headgate_agent.log.unpacking import Unpacking
from headgate_agent.work import Inline, Work
from headgate_common.clock import Clock
from headgate_common.dispatch import Call, Transport
from headgate_common.errors import INVALID_ARGUMENT, HeadgateError

T = TypeVar("T")

_DEFAULT_RECORDS = 100
_DEFAULT_BYTES = 1 << 20


class NoGroups:
    """`GroupOffsets` of an agent that looks after none."""

    async def commit(self, group: str, offsets: Sequence[api.GroupOffset], *, local_only: bool = False) -> None:
        raise HeadgateError(GROUP_UNAVAILABLE, "this agent looks after no consumer groups")

    async def read(self, group: str) -> Sequence[api.GroupOffset]:
        raise HeadgateError(GROUP_UNAVAILABLE, "this agent looks after no consumer groups")


class LogService:
    descriptor = log_service_pb2.DESCRIPTOR.services_by_name["LogService"]

    def __init__(
        self,
        access: LogAccess,
        *,
        transport: Transport,
        clock: Clock,
        source: random.Random,
        name: str = "",
        groups: GroupOffsets | None = None,
        work: Work | None = None,
        unpacking: Unpacking | None = None,
        answers: Answers | None = None,
        limits: CallLimits | None = None,
    ) -> None:
        self._limits = limits or CallLimits()
        self._clock = clock
        self._random = source
        self._work: Work = work or Inline()
        self._unpacking = unpacking or Unpacking(Inline())
        self._groups: GroupOffsets = groups or NoGroups()
        self._leaders = Leaders(
            access,
            name or str(getattr(access, "name", "")),
            transport=transport,
            clock=clock,
            source=source,
            limits=self._limits.forward,
        )
        self._answers = answers or Answers(AnswerMemory(DEFAULT_BYTES), clock)
        self._batches = Batches(access, self._leaders.own_name, self._answers, self._limits)

    async def produce_records(self, request: api.ProduceRecordsRequest, call: Call) -> api.ProduceRecordsResponse:
        topic = self._leaders.topic(request.topic)
        refuse_internal(topic)
        chosen = self._choose(topic, request)
        groups: dict[int, list[int]] = defaultdict(list)
        for place, index in enumerate(chosen):
            groups[index].append(place)
        records = self._plain(request.records)
        _check_sizes(topic, records)
        answers = await asyncio.gather(
            *(
                self._produce(topic, index, [records[place] for place in places], call)
                for index, places in groups.items()
            ),
            return_exceptions=True,
        )
        stored = await self._stored(topic, dict(zip(groups, answers, strict=True)))
        positions = [api.RecordPosition(partition=index) for index in chosen]
        for index, places in groups.items():
            for delta, place in enumerate(places):
                positions[place].offset = stored[index] + delta
        return api.ProduceRecordsResponse(positions=positions)

    async def _stored(self, topic: api.Topic, answers: Mapping[int, Produced | BaseException]) -> dict[int, int]:
        """The first offset in each partition. Where not all of them have their records, one error is told of all: if
        some partition has them, or may have them, it is RECORDS_UNCERTAIN."""
        stored: dict[int, int] = {}
        failed: list[BaseException] = []
        for index, answer in answers.items():
            try:
                if isinstance(answer, BaseException):
                    raise answer
                if answer.here:
                    await self._leaders.confirm(PartitionKey(topic.uid, index))
                stored[index] = answer.base_offset
            except HeadgateError as error:
                failed.append(error)
        if not failed:
            return stored
        uncertain = [each for each in failed if isinstance(each, HeadgateError) and each.reason is RECORDS_UNCERTAIN]
        if not stored or uncertain:
            raise (uncertain or failed)[0]
        raise HeadgateError(
            RECORDS_UNCERTAIN,
            f"partitions {', '.join(map(str, sorted(stored)))} of {topic.name} have their records, and others do not: "
            f"{failed[0]}",
            metadata={"topic": topic.name, "stored": ",".join(map(str, sorted(stored)))},
        ) from failed[0]

    async def fetch_records(self, request: api.FetchRecordsRequest, call: Call) -> api.FetchRecordsResponse:
        topic = self._leaders.topic(request.topic)
        key = self._leaders.key(topic, request.partition)
        offset = await self._start(topic, request.partition, getattr(request, "from"), call)
        wait = self._wait(request.max_wait, call)
        part = FetchPart(key, offset, min(request.max_bytes or _DEFAULT_BYTES, self._limits.answer_most))
        with self._answers.one(call) as room:
            fetched = await self._leaders.fetch(part, wait, call.timeout, room)
            log_start, high_watermark = bounds_of(fetched)
            response = api.FetchRecordsResponse(next_offset=offset, high_watermark=high_watermark, log_start=log_start)
            for record in await self._unpacked(part, fetched, most=request.max_records or _DEFAULT_RECORDS):
                response.records.append(message_of(record, request.partition))
                response.next_offset = record.offset + 1
            return response

    async def tail_records(
        self, request: api.TailRecordsRequest, call: Call
    ) -> AsyncGenerator[api.TailRecordsResponse, None]:
        topic = self._leaders.topic(request.topic)
        indexes = list(request.partitions) or list(range(topic.partitions))
        starts = {
            index: await self._start(topic, index, getattr(request, "from"), call) for index in dict.fromkeys(indexes)
        }
        ends: dict[int, int] | None = None
        if request.until_end:
            ends = {
                index: (await self._leaders.offsets(topic, index, None, call.timeout)).high_watermark
                for index in starts
            }
        left = request.limit or None
        with self._answers.stream(call, self._limits.tail_pages) as room:
            tailing = Tailing(self._leaders, self._unpacked, topic, starts, ends, room, self._limits)
            async with aclosing(tailing.pages()) as pages:
                async for page in pages:
                    found = [message_of(record, page.partition) for record in page.records]
                    if left is not None:
                        found = found[:left]
                        left -= len(found)
                    with room.on_its_way():
                        yield api.TailRecordsResponse(records=found)
                    if left == 0:
                        return

    async def list_offsets(self, request: api.ListOffsetsRequest, call: Call) -> api.ListOffsetsResponse:
        topic = self._leaders.topic(request.topic)
        time = request.time.ToMilliseconds() if request.HasField("time") else None
        indexes = list(request.partitions) or list(range(topic.partitions))
        if request.local_only:
            keys = [self._leaders.key(topic, index) for index in indexes]
            offsets = [
                await self._local(key, partial(self._leaders.local_offsets, key, time, largest=request.max_timestamp))
                for key in keys
            ]
        else:
            offsets = await asyncio.gather(
                *(
                    self._leaders.offsets(topic, index, time, call.timeout, largest=request.max_timestamp)
                    for index in indexes
                )
            )
        return api.ListOffsetsResponse(offsets=sorted(offsets, key=lambda one: one.partition))

    async def delete_records(self, request: api.DeleteRecordsRequest, call: Call) -> api.DeleteRecordsResponse:
        topic = self._leaders.topic(request.topic)
        refuse_internal(topic)
        if request.local_only:
            key = self._leaders.key(topic, request.partition)
            start = await self._local(key, partial(self._leaders.local_delete, key, request.before_offset))
        else:
            start = await self._leaders.delete_records(topic, request.partition, request.before_offset, call.timeout)
        return api.DeleteRecordsResponse(log_start=start)

    async def commit_offsets(self, request: api.CommitOffsetsRequest, call: Call) -> api.CommitOffsetsResponse:
        for offset in request.offsets:
            self._leaders.key(self._leaders.topic(offset.topic), offset.partition)
        await self._groups.commit(request.group, list(request.offsets), local_only=request.local_only)
        return api.CommitOffsetsResponse()

    async def get_offsets(self, request: api.GetOffsetsRequest, call: Call) -> api.GetOffsetsResponse:
        known = [one for one in await self._groups.read(request.group) if request.topic in ("", one.topic)]
        lags = await asyncio.gather(*(self._lag(offset, call) for offset in known))
        return api.GetOffsetsResponse(offsets=sorted(lags, key=lambda one: (one.offset.topic, one.offset.partition)))

    async def produce(self, request: api.ProduceRequest, call: Call) -> api.ProduceResponse:
        return api.ProduceResponse(parts=await self._batches.produce(request.parts))

    async def stream_produce(
        self, requests: AsyncIterator[api.StreamProduceRequest], call: Call
    ) -> AsyncGenerator[api.StreamProduceResponse, None]:
        async for response in self._batches.stream_produce(requests):
            yield response

    async def fetch(self, request: api.FetchRequest, call: Call) -> api.FetchResponse:
        wait = self._wait(request.max_wait, call)
        return await self._batches.fetch(request, wait, call)

    async def stream_fetch(
        self, request: api.StreamFetchRequest, call: Call
    ) -> AsyncGenerator[api.StreamFetchResponse, None]:
        async with aclosing(self._batches.stream_fetch(request, call)) as responses:
            async for response in responses:
                yield response

    def _wait(self, wanted: Duration, call: Call) -> float:
        """How long to wait for records, in seconds."""
        left, most = time_left(call), self._limits.fetch_wait
        return min(wanted.ToNanoseconds() / 1e9, most if left is None else left, most)

    def _choose(self, topic: api.Topic, request: api.ProduceRecordsRequest) -> list[int]:
        """The partition of each record."""
        if request.HasField("partition"):
            self._leaders.key(topic, request.partition)
            return [request.partition] * len(request.records)
        without_key = self._random.randrange(topic.partitions)
        return [
            partition_of_key(record.key, topic.partitions) if record.HasField("key") else without_key
            for record in request.records
        ]

    def _plain(self, records: Sequence[api.Record]) -> list[PlainRecord]:
        now = int(self._clock.wall().timestamp() * 1000)
        return [
            PlainRecord(
                record.key if record.HasField("key") else None,
                record.value if record.HasField("value") else None,
                record.timestamp.ToMilliseconds() if record.HasField("timestamp") else now,
                tuple((one.key, one.value if one.HasField("value") else None) for one in record.headers),
            )
            for record in records
        ]

    async def _produce(self, topic: api.Topic, index: int, records: Sequence[PlainRecord], call: Call) -> Produced:
        batches = await self._work.run(lambda: b"".join(pack(records, _largest_batch(topic))))
        return await self._leaders.produce(PartitionKey(topic.uid, index), batches, call.timeout)

    async def _start(self, topic: api.Topic, index: int, start: api.StartPosition, call: Call) -> int:
        """The offset to begin at."""
        self._leaders.key(topic, index)
        match start.WhichOneof("start"):
            case "offset":
                return start.offset
            case "latest" if start.latest:
                return (await self._leaders.offsets(topic, index, None, call.timeout)).high_watermark
            case "time":
                found = await self._leaders.offsets(topic, index, start.time.ToMilliseconds(), call.timeout)
                return found.offset_at_time if found.offset_at_time >= 0 else found.high_watermark
            case None | "earliest" | "latest":
                return (await self._leaders.offsets(topic, index, None, call.timeout)).log_start
        raise HeadgateError(INVALID_ARGUMENT, "an unknown place to begin")

    async def _unpacked(
        self, part: FetchPart, fetched: FetchedPart | api.FetchedPart, *, until: int | None = None, most: int
    ) -> list[PlainRecord]:
        """The records that were asked for, of those that were fetched, in an answer of as many bytes."""
        try:
            return await self._unpacking.records(
                part.key, batches_of(fetched), part.offset, until=until, most=most, most_bytes=part.max_bytes
            )
        except EXPECTED as error:
            raise refusal(error, self._leaders.access.view) from error

    async def _local(self, key: PartitionKey, work: Callable[[], Awaitable[T]]) -> T:
        """What the leader is asked that this agent must be; it waits while that is in doubt."""
        try:
            await self._leaders.access.confirm(key)
            return await work()
        except EXPECTED as error:
            raise refusal(error, self._leaders.access.view, key, self._leaders.own_name) from error

    async def _lag(self, offset: api.GroupOffset, call: Call) -> api.GroupLag:
        lag = api.GroupLag(offset=offset, high_watermark=-1, lag=-1)
        try:
            topic = self._leaders.topic(offset.topic)
            # A partition without a leader has no end that anyone knows; that is an answer too, and is not waited for.
            found = await self._leaders.offsets(topic, offset.partition, None, self._limits.lag_timeout)
        except HeadgateError:
            return lag
        lag.high_watermark = found.high_watermark
        lag.lag = max(0, found.high_watermark - max(offset.offset, found.log_start))
        return lag


def message_of(record: PlainRecord, partition: int) -> api.Record:
    message = api.Record(partition=partition, offset=record.offset)
    if record.key is not None:
        message.key = record.key
    if record.value is not None:
        message.value = record.value
    for name, value in record.headers:
        header = message.headers.add(key=name)
        if value is not None:
            header.value = value
    if record.timestamp >= 0:
        message.timestamp.CopyFrom(timestamp_of(record.timestamp))
    return message


def _largest_batch(topic: api.Topic) -> int:
    return topic.settings.max_message_bytes or _DEFAULT_BYTES


def _check_sizes(topic: api.Topic, records: Sequence[PlainRecord]) -> None:
    """Before anything is stored, because partitions are stored one without the other."""
    largest = _largest_batch(topic)
    for record in records:
        if record.size + HEADER_BYTES > largest:
            raise HeadgateError(
                RECORD_TOO_LARGE,
                f"a record of {record.size} bytes; topic {topic.name} takes batches of up to {largest}",
                metadata={"topic": topic.name, "max_message_bytes": str(largest)},
            )
