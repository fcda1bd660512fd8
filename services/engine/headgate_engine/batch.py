"""ExecuteBatch: bounded SQL over files and ranges of edges and topics, with progress, and results as Arrow."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass

import pyarrow as pa
from google.protobuf import duration_pb2
from pyspark.sql import DataFrame, SparkSession

from headgate.catalog import v1 as catalog
from headgate.engine import v1 as engine
from headgate_common.clock import Clock
from headgate_common.errors import CANCELLED, INVALID_ARGUMENT, HeadgateError
from headgate_common.ids import Ids
from headgate_engine.errors import RESULT_TOO_LARGE
from headgate_engine.executor.calls import Access
from headgate_engine.executor.channels import GivenUp
from headgate_engine.executor.log_calls import TopicAccess
from headgate_engine.executor.reading import MARK, schema_text
from headgate_engine.fragments.errors import failure_of
from headgate_engine.spark import BATCHES, SparkHost
from headgate_engine.topic_range import kafka_rows, topic_rows
from headgate_engine.types import arrow_of, ddl, spelled, struct_of

_PROGRESS_SECONDS = 0.5
_MESSAGE_BYTES = 1 * 2**20
_FORMATS = {
    engine.FILE_FORMAT_PARQUET: "parquet",
    engine.FILE_FORMAT_CSV: "csv",
    engine.FILE_FORMAT_JSON: "json",
}


@dataclass(frozen=True, slots=True)
class Limits:
    max_rows: int
    traces: bool
    # How long the brokers of a Kafka topic have to answer, in seconds.
    brokers: float


class Batches:
    """Runs batches, each in a thread and a job group of its own."""

    def __init__(
        self,
        host: SparkHost,
        threads: Executor,
        limits: Limits,
        clock: Clock,
        ids: Ids,
        access: Callable[[engine.EdgeAccess, str, int], Access],
        topic: Callable[[engine.TopicAccess], TopicAccess],
    ) -> None:
        """`access` and `topic` say how an edge and a topic are reached."""
        self._host = host
        self._threads = threads
        self._limits = limits
        self._clock = clock
        self._ids = ids
        self._access = access
        self._topic = topic

    async def execute(self, request: engine.ExecuteBatchRequest) -> AsyncGenerator[engine.ExecuteBatchResponse, None]:
        """Progress while Spark works, then the rows, then the result. Closing it cancels Spark's jobs, those that would
        have followed too."""
        loop = asyncio.get_running_loop()
        group = self._ids.uid("batch")
        began = self._clock.monotonic()
        given_up = threading.Event()
        work = loop.run_in_executor(self._threads, self._run, request, group, given_up)
        try:
            said: tuple[int, int] | None = None
            while not work.done():
                await asyncio.wait([work], timeout=_PROGRESS_SECONDS)
                if work.done():
                    break
                done = await loop.run_in_executor(self._threads, self._tasks, group)
                if done != said:
                    said = done
                    progress = engine.BatchProgress(tasks_done=done[0], tasks=done[1])
                    yield engine.ExecuteBatchResponse(progress=progress)
            table, schema = await work
        except BaseException:
            # One that waits for a thread never begins; another ends when it looks, or when Spark has dropped its job.
            given_up.set()
            if not work.done():
                work.cancel()
                # Not in a thread of batches: all of them may be busy with what is to be cancelled.
                await asyncio.to_thread(self._cancel, group)
            raise
        for part in _messages(table):
            yield engine.ExecuteBatchResponse(arrow=part)
        took = duration_pb2.Duration()
        took.FromNanoseconds(int((self._clock.monotonic() - began) * 1e9))
        yield engine.ExecuteBatchResponse(result=engine.BatchResult(rows=table.num_rows, schema=schema, duration=took))

    def _run(
        self, request: engine.ExecuteBatchRequest, group: str, given_up: threading.Event
    ) -> tuple[pa.Table, catalog.Schema]:
        """`given_up` is looked at before each step that may take long; what has become a job by then Spark cancels."""

        def go_on() -> None:
            if given_up.is_set():
                raise HeadgateError(CANCELLED, "nobody waits for the batch any more")

        limit = request.max_rows or self._limits.max_rows
        try:
            session = self._host.session(request.spark_conf, pool=BATCHES)
            session.sparkContext.setJobGroup(group, request.name or group, interruptOnCancel=True)
            for entry in request.inputs:
                go_on()
                self._view(session, entry, given_up.is_set)
            go_on()
            frame = session.sql(request.sql)
            if frame.isStreaming:
                raise HeadgateError(INVALID_ARGUMENT, "sql: a batch reads bounded inputs only")
            schema = spelled(frame.schema)
            go_on()
            table: pa.Table = frame.limit(limit + 1).toArrow()
        except HeadgateError:
            raise
        except Exception as error:
            raise failure_of(error, traces=self._limits.traces).to_error() from error
        if table.num_rows > limit:
            raise HeadgateError(
                RESULT_TOO_LARGE,
                f"the result has more than {limit} rows; aggregate or limit it, or raise max_rows",
                metadata={"max_rows": str(limit)},
            )
        return table, schema

    def _view(self, session: SparkSession, entry: engine.BatchInput, given_up: GivenUp) -> None:
        origin = entry.WhichOneof("origin")
        if origin == "files":
            frame = self._files(session, entry)
        elif origin == "topic":
            frame = self._range(session, entry)
        elif origin == "records":
            frame = topic_rows(session, entry, self._topic(entry.records.access), given_up)
        elif origin == "kafka":
            self._host.require_kafka()
            frame = kafka_rows(session, entry, self._limits.brokers)
        else:
            raise HeadgateError(INVALID_ARGUMENT, f"inputs: {entry.view} has no origin")
        frame.createOrReplaceTempView(entry.view)

    def _files(self, session: SparkSession, entry: engine.BatchInput) -> DataFrame:
        reader = session.read.format(_FORMATS[entry.files.format]).options(**entry.files.options)
        if entry.schema.fields:
            reader = reader.schema(ddl(entry.schema))
        elif entry.files.format != engine.FILE_FORMAT_PARQUET:
            raise HeadgateError(INVALID_ARGUMENT, f"inputs: {entry.view} needs a schema, because its files have none")
        return reader.load(list(entry.files.paths))

    def _range(self, session: SparkSession, entry: engine.BatchInput) -> DataFrame:
        topic = entry.topic
        counts = {len(topic.from_offsets), len(topic.until_offsets), topic.access.partitions}
        if len(counts) > 1 or not entry.schema.fields:
            raise HeadgateError(
                INVALID_ARGUMENT, f"inputs: {entry.view} needs a schema, and two offsets for each partition"
            )
        access = self._access(topic.access, "batch", 1)
        columns = struct_of(entry.schema)
        frame = (
            session.read.format("headgate_edge")
            .option("access_secret", access.to_json())
            .option("columns", f"{ddl(entry.schema)}, `{MARK}` bigint")
            .option("arrow", schema_text(arrow_of(columns)))
            .option("from", json.dumps(list(topic.from_offsets)))
            .option("until", json.dumps(list(topic.until_offsets)))
            .load()
        )
        return frame.where(f"`{MARK}` IS NULL").drop(MARK)

    def _tasks(self, group: str) -> tuple[int, int]:
        """Tasks that are done, and tasks that are known."""
        tracker = self._host.root.sparkContext.statusTracker()
        done = known = 0
        for job in tracker.getJobIdsForGroup(group):
            info = tracker.getJobInfo(job)
            for stage in info.stageIds if info else ():
                stage_info = tracker.getStageInfo(stage)
                if stage_info:
                    done += stage_info.numCompletedTasks
                    known += stage_info.numTasks
        return done, known

    def _cancel(self, group: str) -> None:
        """Jobs that are there, and those that the batch may still come to: it may be between two steps."""
        self._host.root.sparkContext._jsc.sc().cancelJobGroupAndFutureJobs(group)


def _messages(table: pa.Table) -> Iterator[bytes]:
    """Arrow IPC streams, each with its schema, of about a MiB; one without rows where there are none."""
    rows = max(1, table.num_rows * _MESSAGE_BYTES // max(1, table.nbytes))
    for first in range(0, max(1, table.num_rows), rows):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table.slice(first, rows).combine_chunks())
        yield sink.getvalue().to_pybytes()
