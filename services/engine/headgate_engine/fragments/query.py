"""From a request to a streaming query: session, views, SQL, output, trigger."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headgate.catalog import v1 as catalog
from headgate.engine import v1 as engine
from headgate_common.errors import HeadgateError
from headgate_engine.errors import PLAN_UNSUPPORTED
from headgate_engine.fragments.kafka import bad_records, format_of, topic_range, topic_stream
from headgate_engine.fragments.read import Input, as_view, edge_stream, rows_of_topic
from headgate_engine.fragments.settings import RunDefaults, checkpoint_of, is_realtime
from headgate_engine.fragments.storage import make_folder
from headgate_engine.fragments.write import Output, Wrote
from headgate_engine.spark import SparkHost

# Rows that a record with an Arrow batch has, about: limits are for rows.
_ROWS_OF_ARROW = 1_000
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
        realtime = is_realtime(request)
        for entry in self.inputs:
            if entry.access is not None:
                size = request.settings.batch_bytes or defaults.batch_bytes
                frame = edge_stream(session, entry, entry.access, size, defaults.idle_nap)
            else:
                self.host.require_kafka()
                frame = self._topic(session, entry)
            as_view(frame, entry, observe=not realtime)
        return session

    def _topic(self, session: SparkSession, entry: Input) -> DataFrame:
        origin = entry.plan.topic
        records = self.defaults.batch_records
        if format_of(origin) == "ARROW":
            records = -(-records // _ROWS_OF_ARROW)
        if entry.control:
            make_folder(session, entry.control)
        request = self.request
        stream = topic_stream(
            session, origin, request.kafka_bootstrap, request.plan.start, 0 if is_realtime(request) else records
        )
        return rows_of_topic(session, stream, entry, fail=request.settings.bad_records == engine.BAD_RECORDS_FAIL)

    def _shuffle_partitions(self) -> int:
        """As many as there are partitions to read, up to the tasks that run at once. Spark keeps those of the first
        start, because state depends on them."""
        asked = self.request.settings.shuffle_partitions
        if asked:
            return int(asked)
        read = [entry.access.partitions if entry.access is not None else self.host.slots for entry in self.inputs]
        return max(1, min(sum(read), self.host.slots))

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
            for start, until in _ranges(context, entry.plan.topic.options["topic"]):
                records = topic_range(session, entry.plan.topic, self.request.kafka_bootstrap, start, until)
                bad = bad_records(records, entry.plan)
                found = bad if found is None else found.unionByName(bad)
        return found


def _ranges(context: Any, topic: str) -> set[tuple[str, str]]:
    """From where to where the present batch reads a topic, as Spark writes offsets down."""
    ranges = set()
    ends = context.endOffsets().iterator()
    while ends.hasNext():
        pair = ends.next()
        stream = pair._1()
        if f"Subscribe[{topic}]" not in stream.toString():
            continue
        start = context.startOffsets().get(stream)
        first = start.get() if start.isDefined() else stream.initialOffset()
        ranges.add((first.json(), pair._2().json()))
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
