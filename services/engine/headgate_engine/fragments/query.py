"""From a request to a streaming query: session, views, SQL, output, trigger."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headgate.catalog import v1 as catalog
from headgate.engine import v1 as engine
from headgate_common.errors import HeadgateError
from headgate_engine.errors import PLAN_UNSUPPORTED
from headgate_engine.fragments.kafka import topic_range, topic_stream
from headgate_engine.fragments.native import NativeTopic
from headgate_engine.fragments.read import Input, Pace, as_view, edge_stream, with_marks
from headgate_engine.fragments.records import bad_records, decoded, fails, format_of
from headgate_engine.fragments.settings import RunDefaults, checkpoint_of, control_folder, is_realtime
from headgate_engine.fragments.storage import make_folder
from headgate_engine.fragments.write import Output, Wrote
from headgate_engine.s3 import write_safely
from headgate_engine.spark import SparkHost

# Rows that a record with an Arrow batch has, about: limits are for rows.
_ROWS_OF_ARROW = 1_000
# State partitions of an input that has fewer partitions: each costs every batch a task.
_FEW = 4
_REALTIME_CHECKPOINT = "1 minute"


@dataclass(slots=True)
class Query:
    """What a run does in Spark. Started again with another trigger, it goes on where it was."""

    request: engine.StartFragmentRequest
    inputs: tuple[Input, ...]
    output: Output
    host: SparkHost
    defaults: RunDefaults
    wrote: Wrote
    # A file that is there when the run is to end at once.
    stop: Path
    running: StreamingQuery | None = None

    def start(self, *, available_now: bool = False) -> StreamingQuery:
        request, run, plan = self.request, self.request.run, self.request.plan
        session = self._session()
        frame = session.sql(plan.spark_sql)
        realtime = is_realtime(request)
        if realtime:
            _check_realtime(request)
        writer = self.output.attach(frame, lambda: self._bad(session), self.wrote)
        writer = (
            writer.queryName(f"{request.query or 'query'} {run.fragment_uid}.{run.epoch}")
            .outputMode("update" if realtime else plan.output_mode or "append")
            .option("checkpointLocation", checkpoint_of(request))
        )
        if realtime:
            writer = writer.trigger(realTime=_REALTIME_CHECKPOINT)  # type: ignore[call-overload]
        elif available_now:
            writer = writer.trigger(availableNow=True)
        else:
            interval = request.settings.batch_interval.ToMilliseconds()
            writer = writer.trigger(processingTime=f"{interval} milliseconds")
        self.running = writer.start()
        return self.running

    def _session(self) -> SparkSession:
        """A session with the plan's settings and the views of its inputs."""
        request, defaults = self.request, self.defaults
        conf = {**request.plan.spark_conf, "spark.sql.shuffle.partitions": str(self._shuffle_partitions())}
        session = self.host.session(conf, pool=request.run.fragment_uid)
        write_safely(session, request.checkpoint)
        realtime = is_realtime(request)
        size = request.settings.batch_bytes or defaults.batch_bytes
        pace = Pace(size, defaults.idle_nap, self.host.slots, str(self.stop))
        for entry in self.inputs:
            if entry.access is not None:
                frame = edge_stream(session, entry, entry.access, pace)
            else:
                frame = self._topic(session, entry, pace)
            as_view(frame, entry, observe=not realtime)
        return session

    def _topic(self, session: SparkSession, entry: Input, pace: Pace) -> DataFrame:
        """The rows of a topic, with BAD and MARK."""
        start, fail = self.request.plan.start, self._fails(entry.plan.topic)
        if entry.control:
            make_folder(session, entry.control)
        native = self._native(entry)
        if native is not None:
            rows = native.rows(session, start, pace, fail=fail, given_up=self.stop.exists)
        else:
            rows = decoded(self._kafka(session, entry.plan.topic, start), entry.plan, fail=fail)
        return with_marks(session, rows, entry)

    def _kafka(self, session: SparkSession, origin: catalog.TopicOrigin, start: str) -> DataFrame:
        self.host.require_kafka()
        records = self.defaults.batch_records
        if format_of(origin) == "ARROW":
            records = -(-records // _ROWS_OF_ARROW)
        most = 0 if is_realtime(self.request) else records
        return topic_stream(session, origin, self.request.kafka_bootstrap, start, most)

    def _native(self, entry: Input) -> NativeTopic | None:
        if entry.topic is None:
            return None
        folder = control_folder(self.request.checkpoint, self.request.run.fragment_uid)
        return NativeTopic(entry.index, entry.plan, entry.topic, folder)

    def _fails(self, origin: catalog.TopicOrigin) -> bool:
        return self.request.settings.bad_records == engine.BAD_RECORDS_FAIL or fails(origin)

    def _shuffle_partitions(self) -> int:
        """As many as there are partitions to read, a few at least because a partition is read by several tasks, up to
        the tasks that run at once. Spark keeps those of the first start, because state depends on them."""
        asked = self.request.settings.shuffle_partitions
        if asked:
            return int(asked)
        native = {access.topic_uid: access.partitions for access in self.request.topics}
        read = 0
        for entry in self.inputs:
            if entry.access is not None:
                read += max(_FEW, entry.access.partitions)
            elif entry.topic is not None:
                read += max(_FEW, native[entry.topic.topic_uid])
            else:
                read += self.host.slots
        return max(1, min(read, self.host.slots))

    def _bad(self, session: SparkSession) -> DataFrame | None:
        """The records of the batch that is being written that could not be decoded. They are read again, from the
        topic: that there are some is known only when the batch has been computed, and most batches have none."""
        topics = [entry for entry in self.inputs if entry.access is None]
        if not topics or self.running is None:
            return None
        java: Any = self.running._jsq
        context = java.streamingQuery().getLatestExecutionContext()
        metrics = context.executionPlan().observedMetrics()
        found: DataFrame | None = None
        for entry in topics:
            row = metrics.get(entry.observation)
            if row.isEmpty() or not row.get().getLong(1):
                continue
            for records in self._records(session, context, entry):
                bad = bad_records(records, entry.plan)
                found = bad if found is None else found.unionByName(bad)
        return found

    def _records(self, session: SparkSession, context: Any, entry: Input) -> list[DataFrame]:
        """What the present batch reads of a topic, read again."""
        origin, native = entry.plan.topic, self._native(entry)
        if native is None:
            ranges = _ranges(context, lambda stream, end: f"Subscribe[{origin.options['topic']}]" in stream)
            return [topic_range(session, origin, self.request.kafka_bootstrap, *one) for one in ranges]
        mine = f'"{native.access.topic_uid}"'
        ranges = _ranges(context, lambda stream, end: mine in end, native.offset(native.first(session)))
        return [native.records(session, *one) for one in ranges]


def _ranges(context: Any, mine: Callable[[str, str], bool], first: str = "") -> set[tuple[str, str]]:
    """From where to where the present batch reads a topic, as Spark writes offsets down.

    `mine` is asked for each stream by its name and end; `first` is where the query began, unless the stream knows."""
    ranges = set()
    ends = context.endOffsets().iterator()
    while ends.hasNext():
        pair = ends.next()
        stream, end = pair._1(), pair._2().json()
        if not mine(stream.toString(), end):
            continue
        start = context.startOffsets().get(stream)
        begin = start.get().json() if start.isDefined() else first or stream.initialOffset().json()
        ranges.add((begin, end))
    return ranges


def _check_realtime(request: engine.StartFragmentRequest) -> None:
    plan = request.plan
    edges = [entry.view for entry in plan.inputs if entry.WhichOneof("origin") == "edge"]
    arrow = [
        entry.view
        for entry in plan.inputs
        if entry.WhichOneof("origin") == "topic" and format_of(entry.topic) == "ARROW"
    ]
    problem = ""
    if plan.stateful:
        problem = "realtime mode is for stateless plans, and this one keeps state"
    elif edges:
        problem = f"realtime mode reads topics, and {edges[0]} is an edge"
    elif arrow:
        problem = f"realtime mode reads JSON and CSV, and {arrow[0]} has Arrow records"
    elif not plan.HasField("target"):
        problem = "realtime mode writes to a topic, and the plan writes to an edge"
    if problem:
        raise HeadgateError(PLAN_UNSUPPORTED, problem)


def topic_origins(request: engine.StartFragmentRequest) -> list[catalog.TopicOrigin]:
    return [entry.topic for entry in request.plan.inputs if entry.WhichOneof("origin") == "topic"]
