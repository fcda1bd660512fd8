"""LogService: the records of topics over gRPC. Plain records here, record batches in `batches.py`."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any

from google.protobuf.duration_pb2 import Duration

from headgate.log import v1 as api
from headgate.log.v1 import log_service_pb2
from headgate_agent.errors import GROUP_UNAVAILABLE, RECORD_TOO_LARGE, TOPIC_INTERNAL
from headgate_agent.log.access import FetchPart, GroupOffsets, LogAccess
from headgate_agent.log.answer_memory import DEFAULT_BYTES, AnswerMemory
from headgate_agent.log.answers import Answers, time_left
from headgate_agent.log.batches import MOST_BYTES, Batches
from headgate_agent.log.contract import PartitionKey
from headgate_agent.log.forwarding import Leaders, batches_of, bounds_of
from headgate_agent.log.record_batch import HEADER_BYTES
from headgate_agent.log.records import PlainRecord, pack, partition_of_key, unpack_batches
from headgate_agent.log.refusals import EXPECTED, refusal
from headgate_agent.log.tailing import PAGES, Tailing
from headgate_agent.work import Inline, Work
from headgate_common.clock import Clock
from headgate_common.dispatch import Call, Transport
from headgate_common.errors import INVALID_ARGUMENT, HeadgateError

_DEFAULT_RECORDS = 100
_DEFAULT_BYTES = 1 << 20
_MOST_WAIT = 60.0


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
        answers: Answers | None = None,
    ) -> None:
        self._clock = clock
        self._random = source
        self._work: Work = work or Inline()
        self._groups: GroupOffsets = groups or NoGroups()
        self._leaders = Leaders(
            access, name or str(getattr(access, "name", "")), transport=transport, clock=clock, source=source
        )
        self._answers = answers or Answers(AnswerMemory(DEFAULT_BYTES), clock)
        self._batches = Batches(access, self._leaders.own_name, self._answers)

    async def produce_records(self, request: api.ProduceRecordsRequest, call: Call) -> api.ProduceRecordsResponse:
        topic = self._leaders.topic(request.topic)
        if topic.internal:
            raise HeadgateError(
                TOPIC_INTERNAL, f"topic {topic.name} belongs to a query", metadata={"query": topic.query_uid}
            )
        chosen = self._choose(topic, request)
        groups: dict[int, list[int]] = defaultdict(list)
        for place, index in enumerate(chosen):
            groups[index].append(place)
        records = self._plain(request.records)
        answers = await asyncio.gather(
            *(
                self._produce(topic, index, [records[place] for place in places], call)
                for index, places in groups.items()
            ),
            return_exceptions=True,
        )
        positions = [api.RecordPosition(partition=index) for index in chosen]
        for places, answer in zip(groups.values(), answers, strict=True):
            if isinstance(answer, BaseException):
                raise answer
            for delta, place in enumerate(places):
                positions[place].offset = answer + delta
        return api.ProduceRecordsResponse(positions=positions)

    async def fetch_records(self, request: api.FetchRecordsRequest, call: Call) -> api.FetchRecordsResponse:
        topic = self._leaders.topic(request.topic)
        key = self._leaders.key(topic, request.partition)
        offset = await self._start(topic, request.partition, getattr(request, "from"), call)
        wait = _wait(request.max_wait, call)
        part = FetchPart(key, offset, min(request.max_bytes or _DEFAULT_BYTES, MOST_BYTES))
        with self._answers.one(call) as room:
            fetched = await self._leaders.fetch(part, wait, call.timeout, room)
            log_start, high_watermark = bounds_of(fetched)
            response = api.FetchRecordsResponse(next_offset=offset, high_watermark=high_watermark, log_start=log_start)
            most = request.max_records or _DEFAULT_RECORDS
            size = 0
            for record in await self._unpack(batches_of(fetched)):
                if record.offset < offset:
                    continue
                size += record.size
                if len(response.records) >= most or (response.records and size > part.max_bytes):
                    break
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
        with self._answers.stream(call, PAGES) as room:
            async with aclosing(Tailing(self._leaders, self._unpack, topic, starts, ends, room).pages()) as pages:
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
                await self._local(key, self._leaders.local_offsets(key, time, largest=request.max_timestamp))
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
        if request.local_only:
            key = self._leaders.key(topic, request.partition)
            start = await self._local(key, self._leaders.local_delete(key, request.before_offset))
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
        wait = _wait(request.max_wait, call)
        return await self._batches.fetch(request, wait, call)

    async def stream_fetch(
        self, request: api.StreamFetchRequest, call: Call
    ) -> AsyncGenerator[api.StreamFetchResponse, None]:
        async with aclosing(self._batches.stream_fetch(request, call)) as responses:
            async for response in responses:
                yield response

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

    async def _produce(self, topic: api.Topic, index: int, records: Sequence[PlainRecord], call: Call) -> int:
        largest = topic.settings.max_message_bytes or _DEFAULT_BYTES
        for record in records:
            if record.size + HEADER_BYTES > largest:
                raise HeadgateError(
                    RECORD_TOO_LARGE,
                    f"a record of {record.size} bytes; topic {topic.name} takes batches of up to {largest}",
                    metadata={"topic": topic.name, "max_message_bytes": str(largest)},
                )
        batches = await self._work.run(lambda: b"".join(pack(records, largest)))
        appended = await self._leaders.produce(PartitionKey(topic.uid, index), batches, call.timeout)
        return appended.base_offset

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

    async def _unpack(self, batches: bytes) -> list[PlainRecord]:
        try:
            return await self._work.run(lambda: list(unpack_batches(batches)))
        except EXPECTED as error:
            raise refusal(error, self._leaders.access.view) from error

    async def _local(self, key: PartitionKey, work: Any) -> Any:
        try:
            return await work
        except EXPECTED as error:
            raise refusal(error, self._leaders.access.view, key, self._leaders.own_name) from error

    async def _lag(self, offset: api.GroupOffset, call: Call) -> api.GroupLag:
        lag = api.GroupLag(offset=offset, high_watermark=-1, lag=-1)
        try:
            topic = self._leaders.topic(offset.topic)
            # A partition without a leader has no end that anyone knows; that is an answer too, and is not waited for.
            found = await self._leaders.offsets(topic, offset.partition, None, 1.0)
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
        message.timestamp.FromMilliseconds(record.timestamp)
    return message


def _wait(wanted: Duration, call: Call) -> float:
    """How long to wait for records, in seconds."""
    left = time_left(call)
    return min(wanted.ToNanoseconds() / 1e9, _MOST_WAIT if left is None else left, _MOST_WAIT)
