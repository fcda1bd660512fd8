"""Edges in memory, over a real gRPC server: the contract of `headgate.log.v1.EdgeService`, and nothing of an agent.

What an engine may rely on is here to the letter: epochs only grow and shut earlier ones out, stages are invisible and
used once, a batch is applied once and at once, the end of a partition is a record without bytes, what was trimmed is
gone. It lives in the process of the test, so it survives the engine that is killed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn

import grpc
import pyarrow as pa
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2

from headgate.engine import v1 as engine
from headgate.log import v1 as log
from headgate.log.v1 import edge_service_pb2

END = b""
# Parts of an answer to ReadEdge.
READ_RECORDS = 16


@dataclass
class Topic:
    partitions: list[list[bytes]]
    log_starts: list[int]
    ended: bool = False
    writer: tuple[str, int] | None = None
    last_batch: int = -1
    reader_epoch: int = 0


@dataclass
class Stage:
    writer: tuple[str, int]
    topic_uid: str
    partition: int
    records: list[bytes]


@dataclass
class Edges:
    """All edges of one server."""

    address: str = ""
    topics: dict[str, Topic] = field(default_factory=dict)
    stages: dict[str, Stage] = field(default_factory=dict)
    # (topics, batch id) of every commit that was applied.
    commits: list[tuple[str, int]] = field(default_factory=list)
    lock: threading.RLock = field(default_factory=threading.RLock)
    # Called with the batch id before and after a commit is applied; tests put their faults here.
    before_commit: Any = None
    # Of every so many calls one is not done, and one is done and its answer lost; 0 for none.
    flaky: int = 0
    calls: int = 0
    # (reason, address of the leader) that every call is refused with while it is set.
    refusing: tuple[str, str] | None = None
    after_commit: Any = None
    # Called with the context of every read before it is answered; tests hold tasks up here.
    before_read: Any = None
    # The ranges that were read.
    reads: list[tuple[int, int]] = field(default_factory=list)

    def create(self, uid: str, partitions: int = 1) -> engine.EdgeAccess:
        with self.lock:
            self.topics[uid] = Topic([[] for _ in range(partitions)], [0] * partitions)
        return engine.EdgeAccess(topic_uid=uid, partitions=partitions, address=self.address)

    def append(self, uid: str, rows: Sequence[dict[str, Any]], schema: pa.Schema, partition: int = 0) -> None:
        """One record with rows."""
        batch = pa.RecordBatch.from_pylist(list(rows), schema=schema)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, schema) as writer:
            writer.write_batch(batch)
        with self.lock:
            self.topics[uid].partitions[partition].append(sink.getvalue().to_pybytes())

    def end(self, uid: str) -> None:
        with self.lock:
            topic = self.topics[uid]
            for partition in topic.partitions:
                partition.append(END)
            topic.ended = True

    def rows(self, uid: str) -> list[dict[str, Any]]:
        """All visible rows."""
        with self.lock:
            records = [record for partition in self.topics[uid].partitions for record in partition if record]
        found: list[dict[str, Any]] = []
        for record in records:
            found += pa.ipc.open_stream(record).read_all().to_pylist()
        return found


def refuse(
    context: grpc.ServicerContext, code: grpc.StatusCode, reason: str, message: str, leader_address: str = ""
) -> NoReturn:
    status = status_pb2.Status(code=code.value[0], message=message)
    packed = any_pb2.Any()
    metadata = {"leader": "another", "address": leader_address} if leader_address else {}
    packed.Pack(error_details_pb2.ErrorInfo(reason=reason, domain="headgate", metadata=metadata))
    status.details.append(packed)
    context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    context.abort(code, message)
    raise AssertionError


class EdgeServicer:
    def __init__(self, edges: Edges) -> None:
        self._edges = edges

    def _topic(self, uid: str, context: grpc.ServicerContext) -> Topic:
        topic = self._edges.topics.get(uid)
        if topic is None:
            refuse(context, grpc.StatusCode.NOT_FOUND, "TOPIC_NOT_FOUND", f"there is no topic {uid}")
        return topic

    def _check_writer(self, topic: Topic, writer: log.WriterRef, context: grpc.ServicerContext) -> None:
        if topic.writer != (writer.fragment_uid, writer.epoch):
            refuse(context, grpc.StatusCode.ABORTED, "STALE_EPOCH", f"epoch {writer.epoch} is not that of the writer")

    def OpenWriter(self, request: log.OpenWriterRequest, context: grpc.ServicerContext) -> log.OpenWriterResponse:
        with self._edges.lock:
            topics = [self._topic(uid, context) for uid in request.topic_uids]
            writer = (request.writer.fragment_uid, request.writer.epoch)
            for topic in topics:
                if topic.writer is not None and topic.writer[1] > writer[1]:
                    refuse(context, grpc.StatusCode.ABORTED, "STALE_EPOCH", f"epoch {topic.writer[1]} writes")
            for topic in topics:
                topic.writer = writer
            stale = [
                key
                for key, stage in self._edges.stages.items()
                if stage.writer[0] == writer[0] and stage.writer != writer
            ]
            for key in stale:
                del self._edges.stages[key]
            return log.OpenWriterResponse(batch_id=topics[0].last_batch)

    def Stage(self, request: log.StageRequest, context: grpc.ServicerContext) -> log.StageResponse:
        records = list(request.batches)
        with self._edges.lock:
            topic = self._topic(request.topic_uid, context)
            self._check_writer(topic, request.writer, context)
            if request.stage_id in self._edges.stages:
                refuse(context, grpc.StatusCode.ALREADY_EXISTS, "STAGE_EXISTS", "a stage id is used once")
            writer = (request.writer.fragment_uid, request.writer.epoch)
            self._edges.stages[request.stage_id] = Stage(writer, request.topic_uid, request.partition, records)
        return log.StageResponse(bytes=sum(len(record) for record in records))

    def CommitBatch(self, request: log.CommitBatchRequest, context: grpc.ServicerContext) -> log.CommitBatchResponse:
        edges = self._edges
        if edges.before_commit is not None:
            edges.before_commit(request.batch_id)
        writer = (request.writer.fragment_uid, request.writer.epoch)
        with edges.lock:
            mine = {uid: topic for uid, topic in edges.topics.items() if topic.writer and topic.writer[0] == writer[0]}
            if not mine or any(topic.writer != writer for topic in mine.values()):
                refuse(context, grpc.StatusCode.ABORTED, "STALE_EPOCH", f"epoch {writer[1]} does not write any more")
            done = request.batch_id <= max(topic.last_batch for topic in mine.values())
            if not done:
                missing = [stage for stage in request.stage_ids if stage not in edges.stages]
                if missing:
                    refuse(context, grpc.StatusCode.NOT_FOUND, "STAGE_NOT_FOUND", f"no stage {missing[0]}")
                for stage_id in request.stage_ids:
                    stage = edges.stages.pop(stage_id)
                    edges.topics[stage.topic_uid].partitions[stage.partition] += stage.records
                for uid, topic in mine.items():
                    topic.last_batch = request.batch_id
                    if request.end:
                        assert not topic.ended, "the end comes once"
                        topic.ended = True
                        for partition in topic.partitions:
                            partition.append(END)
                    edges.commits.append((uid, request.batch_id))
        if edges.after_commit is not None:
            edges.after_commit(request.batch_id)
        return log.CommitBatchResponse(already_committed=done)

    def GetEdge(self, request: log.GetEdgeRequest, context: grpc.ServicerContext) -> log.GetEdgeResponse:
        with self._edges.lock:
            topic = self._topic(request.topic_uid, context)
            parts = zip(topic.partitions, topic.log_starts, strict=True)
            return log.GetEdgeResponse(
                partitions=[
                    log.EdgePartition(
                        log_start=start,
                        high_watermark=len(records),
                        bytes=sum(len(record) for record in records[start:]),
                        ended=topic.ended,
                    )
                    for records, start in parts
                ]
            )

    def ReadEdge(self, request: log.ReadEdgeRequest, context: grpc.ServicerContext) -> Iterator[log.ReadEdgeResponse]:
        with self._edges.lock:
            topic = self._topic(request.topic_uid, context)
            records = topic.partitions[request.partition][: request.until_offset]
            if request.from_offset < topic.log_starts[request.partition] or request.until_offset > len(records):
                refuse(context, grpc.StatusCode.OUT_OF_RANGE, "OFFSET_OUT_OF_RANGE", "those records are not there")
            self._edges.reads.append((request.from_offset, request.until_offset))
        if self._edges.before_read is not None:
            self._edges.before_read(context)
        for first in range(request.from_offset, request.until_offset, READ_RECORDS):
            part = records[first : min(first + READ_RECORDS, request.until_offset)]
            yield log.ReadEdgeResponse(offset=first, batches=part, ended=part[-1] == END)

    def TrimEdge(self, request: log.TrimEdgeRequest, context: grpc.ServicerContext) -> log.TrimEdgeResponse:
        with self._edges.lock:
            topic = self._topic(request.topic_uid, context)
            if request.reader.epoch < topic.reader_epoch:
                refuse(context, grpc.StatusCode.ABORTED, "STALE_EPOCH", "a later reader has trimmed")
            topic.reader_epoch = request.reader.epoch
            topic.log_starts = [max(*pair) for pair in zip(topic.log_starts, request.log_starts, strict=True)]
        return log.TrimEdgeResponse()


def sometimes_failing(edges: Edges, handle: Any) -> Any:
    def unreliable(request: Any, context: grpc.ServicerContext) -> Any:
        with edges.lock:
            edges.calls += 1
            turn = edges.calls % edges.flaky if edges.flaky else 1
        if edges.refusing is not None:
            refuse(context, grpc.StatusCode.UNAVAILABLE, edges.refusing[0], "refused", edges.refusing[1])
        if turn == 0:
            context.abort(grpc.StatusCode.UNAVAILABLE, "away for a moment, and nothing was done")
        answer = handle(request, context)
        if edges.flaky and turn == edges.flaky // 2:
            context.abort(grpc.StatusCode.UNAVAILABLE, "it was done, and the answer is lost")
        return answer

    return unreliable


@contextmanager
def serving_edges() -> Iterator[Edges]:
    edges = Edges()
    servicer = EdgeServicer(edges)
    server = grpc.server(futures.ThreadPoolExecutor(16), options=[("grpc.max_receive_message_length", 16 * 2**20)])
    service = edge_service_pb2.DESCRIPTOR.services_by_name["EdgeService"]
    kinds = {
        (False, False): grpc.unary_unary_rpc_method_handler,
        (True, False): grpc.stream_unary_rpc_method_handler,
        (False, True): grpc.unary_stream_rpc_method_handler,
    }
    handlers = {}
    for method in service.methods:
        request, response = getattr(log, method.input_type.name), getattr(log, method.output_type.name)
        make = kinds[(method.client_streaming, method.server_streaming)]
        handlers[method.name] = make(
            sometimes_failing(edges, getattr(servicer, method.name)),
            request_deserializer=request.FromString,
            response_serializer=response.SerializeToString,
        )
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service.full_name, handlers)])
    edges.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield edges
    finally:
        server.stop(1).wait(5)
