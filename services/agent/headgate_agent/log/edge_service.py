"""EdgeService: edges of queries over gRPC, for the runs that write and read them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

from headgate.log import v1 as api
from headgate.log.v1 import edge_service_pb2
from headgate_agent.errors import STAGE_NOT_FOUND, STALE_EPOCH, UNKNOWN_PARTITION
from headgate_agent.log.access import certain_bounds
from headgate_agent.log.answer_memory import DEFAULT_BYTES, AnswerMemory
from headgate_agent.log.answers import Answers, PageRoom
from headgate_agent.log.broker import Broker
from headgate_agent.log.contract import PartitionKey
from headgate_agent.log.edges import END_KEY, StaleWriter, UnknownStage
from headgate_agent.log.limits import CallLimits
from headgate_agent.log.records import PlainRecord, pack, unpack_batches
from headgate_agent.log.refusals import EXPECTED, refusal
from headgate_common.clock import Clock
from headgate_common.dispatch import Call
from headgate_common.errors import HeadgateError


class EdgeService:
    descriptor = edge_service_pb2.DESCRIPTOR.services_by_name["EdgeService"]

    def __init__(
        self, broker: Broker, clock: Clock, answers: Answers | None = None, limits: CallLimits | None = None
    ) -> None:
        """`answers` is the room that it shares with the log's other fetches over gRPC."""
        self._broker = broker
        self._edges = broker.edges
        self._clock = clock
        self._page_bytes = (limits or CallLimits()).edge_page_bytes
        self._answers = answers or Answers(AnswerMemory(DEFAULT_BYTES), clock)

    async def open_writer(self, request: api.OpenWriterRequest, call: Call) -> api.OpenWriterResponse:
        keys = [key for uid in request.topic_uids for key in self._keys(uid)]
        try:
            writer = await self._edges.open_writer(request.writer.fragment_uid, request.writer.epoch, keys)
        except (*EXPECTED, StaleWriter) as error:
            raise self._refusal(error, keys[0]) from error
        return api.OpenWriterResponse(batch_id=writer.batch_id)

    async def stage(self, request: api.StageRequest, call: Call) -> api.StageResponse:
        key = self._key(request.topic_uid, request.partition)
        now = int(self._clock.wall().timestamp() * 1000)
        data = b"".join(
            bytes(batch) for record in request.batches for batch in pack([PlainRecord(None, record, now)], len(record))
        )
        try:
            await self._edges.stage(request.writer.fragment_uid, request.writer.epoch, request.stage_id, key, data)
        except (*EXPECTED, StaleWriter) as error:
            raise self._refusal(error, key) from error
        return api.StageResponse(bytes=len(data))

    async def commit_batch(self, request: api.CommitBatchRequest, call: Call) -> api.CommitBatchResponse:
        writer = request.writer
        try:
            opened = await self._edges.require(writer.fragment_uid, writer.epoch)
            ends = [key for uid in opened.topics for key in self._keys(uid)] if request.end else []
            applied = await self._edges.commit(
                writer.fragment_uid, writer.epoch, request.batch_id, list(request.stage_ids), ends=ends
            )
        except (*EXPECTED, StaleWriter, UnknownStage) as error:
            raise self._refusal(error, None) from error
        return api.CommitBatchResponse(already_committed=not applied)

    async def get_edge(self, request: api.GetEdgeRequest, call: Call) -> api.GetEdgeResponse:
        answer = api.GetEdgeResponse()
        ended = self._edges.ended(request.topic_uid)
        for key in self._keys(request.topic_uid):
            try:
                size = await self._broker.size(key)
                bounds = await certain_bounds(self._broker, key)
            except EXPECTED as error:
                raise self._refusal(error, key) from error
            answer.partitions.add(
                log_start=bounds.log_start, high_watermark=bounds.high_watermark, bytes=size, ended=ended
            )
        return answer

    async def read_edge(self, request: api.ReadEdgeRequest, call: Call) -> AsyncGenerator[api.ReadEdgeResponse, None]:
        key = self._key(request.topic_uid, request.partition)
        at = request.from_offset
        with self._answers.stream(call, pages=1) as stream:
            while at < request.until_offset:
                page = stream.page()
                part = api.ReadEdgeResponse(offset=at)
                for record in unpack_batches(await self._read(key, at, page)):
                    if record.offset < at or record.offset >= request.until_offset:
                        continue
                    part.batches.append(record.value or b"")
                    part.ended = record.key == END_KEY
                    at = record.offset + 1
                if not part.batches:
                    return
                with stream.on_its_way():
                    yield part
                page.release()

    async def _read(self, key: PartitionKey, at: int, room: PageRoom) -> bytes:
        try:
            # Before room is taken: while that is in doubt, others may need it.
            await self._broker.confirm(key)
            most = await room.take(self._page_bytes, self._broker.settings.read_timeout)
            records = await self._broker.records(key, at, most)
        except EXPECTED as error:
            raise self._refusal(error, key) from error
        room.keep(len(records))
        return records

    async def trim_edge(self, request: api.TrimEdgeRequest, call: Call) -> api.TrimEdgeResponse:
        keys = self._keys(request.topic_uid)
        try:
            await self._broker.confirm(keys[0])
            await self._edges.open_reader(request.reader.fragment_uid, request.reader.epoch, keys)
        except (*EXPECTED, StaleWriter) as error:
            raise self._refusal(error, keys[0]) from error
        for key, start in zip(keys, request.log_starts, strict=False):
            try:
                await self._broker.delete_records(key, start)
            except EXPECTED as error:
                raise self._refusal(error, key) from error
        return api.TrimEdgeResponse()

    def _keys(self, topic_uid: str) -> Sequence[PartitionKey]:
        topic = self._broker.view.topic_by_uid(topic_uid)
        if topic is None:
            raise HeadgateError(UNKNOWN_PARTITION, f"there is no topic with the uid {topic_uid}")
        return [PartitionKey(topic_uid, index) for index in range(topic.partitions)]

    def _key(self, topic_uid: str, index: int) -> PartitionKey:
        keys = self._keys(topic_uid)
        if index >= len(keys):
            raise HeadgateError(UNKNOWN_PARTITION, f"topic {topic_uid} has {len(keys)} partitions, not one {index}")
        return keys[index]

    def _refusal(self, error: Exception, key: PartitionKey | None) -> HeadgateError:
        if isinstance(error, StaleWriter):
            return HeadgateError(STALE_EPOCH, str(error))
        if isinstance(error, UnknownStage):
            return HeadgateError(STAGE_NOT_FOUND, str(error))
        return refusal(error, self._broker.view, key, self._broker.name)
