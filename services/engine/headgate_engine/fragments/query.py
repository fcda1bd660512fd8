"""From a request to a streaming query: session, views, SQL, output, trigger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headgate.catalog import v1 as catalog
from headgate.engine import v1 as engine
from headgate_common.errors import HeadgateError
from headgate_engine.checkpoint_files import choose_files
from headgate_engine.errors import PLAN_UNSUPPORTED
from headgate_engine.fragments.kafka import partitions_of, starting_offsets, topic_range, topic_stream
from headgate_engine.fragments.kafka_edges import edge_records
from headgate_engine.fragments.native import NativeTopic
from headgate_engine.fragments.ranges import read_ranges, reported_ranges
from headgate_engine.fragments.read import Input, Pace, as_view, edge_rows, edge_stream, with_marks
from headgate_engine.fragments.records import bad_records, decoded, fails, format_of
from headgate_engine.fragments.settings import RunDefaults, checkpoint_of, control_folder, is_realtime
from headgate_engine.fragments.storage import make_folder, read_text
from headgate_engine.fragments.write import Output, Wrote
from headgate_engine.s3 import is_s3
from headgate_engine.spark import QUERIES, SparkHost

# Rows that a record with an Arrow batch has, about: limits are for rows.
_ROWS_OF_ARROW = 1_000
# State partitions of an input that has fewer partitions: each costs every batch a task.
_FEW = 4
_POLLING = "spark.sql.streaming.pollingDelay"
# Spark's own, in seconds.
_SHORTEST_PAUSE = 0.01


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
            seconds = self.defaults.realtime_checkpoint
            writer = writer.trigger(realTime=f"{round(seconds * 1000)} milliseconds")  # type: ignore[call-overload]
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
        conf = {
            _POLLING: f"{max(1, round(self._pause() * 1000))}ms",
            **request.plan.spark_conf,
            "spark.sql.shuffle.partitions": str(self._shuffle_partitions()),
        }
        session = self.host.session(conf, pool=QUERIES)
        choose_files(session, request.checkpoint, self.host.conf)
        realtime = is_realtime(request)
        size = request.settings.batch_bytes or defaults.batch_bytes
        pace = Pace(size, defaults.idle_nap, self.host.slots, str(self.stop))
        for entry in self.inputs:
            if entry.access is not None:
                frame = edge_stream(session, entry, entry.access, pace)
            elif entry.kafka_edge is not None:
                frame = self._kafka_edge(session, entry, entry.kafka_edge)
            else:
                frame = self._topic(session, entry, pace)
            as_view(frame, entry, watermark=not realtime)
        return session

    def _pause(self) -> float:
        """How long Spark waits after a look that found nothing. Python data sources take a nap within the look; Kafka's
        asks brokers each time, and a bucket with marks is asked, and charges, each time too."""
        if is_s3(self.request.checkpoint) and any(entry.control for entry in self.inputs):
            return self.defaults.idle_nap
        return self.defaults.poll if any(entry.kafka for entry in self.inputs) else _SHORTEST_PAUSE

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

    def _kafka_edge(self, session: SparkSession, entry: Input, edge: engine.KafkaEdge) -> DataFrame:
        """The rows of an edge on Kafka, with MARK. What is there is bounded by how far its source may be ahead."""
        self.host.require_kafka()
        if entry.control:
            make_folder(session, entry.control)
        records = edge_records(session, edge, -(-self.defaults.batch_records // _ROWS_OF_ARROW))
        return with_marks(session, edge_rows(records, entry), entry)

    def _kafka(self, session: SparkSession, origin: catalog.TopicOrigin, start: str) -> DataFrame:
        self.host.require_kafka()
        records = self.defaults.batch_records
        if format_of(origin) == "ARROW":
            records = -(-records // _ROWS_OF_ARROW)
        most = 0 if is_realtime(self.request) else records
        bootstrap, deployed = self.request.kafka_bootstrap, self._start_of(origin)
        if deployed is not None:
            partitions = partitions_of(session, origin.options, bootstrap, self.defaults.brokers)
            start = starting_offsets(origin.options["topic"], deployed, partitions)
        return topic_stream(session, origin, bootstrap, start, most)

    def _start_of(self, origin: catalog.TopicOrigin) -> catalog.TopicStart | None:
        """Where a topic begins, if that was found at deployment."""
        starts = self.request.plan.starts
        return next((one for one in starts if one.physical_source == origin.physical_source), None)

    def _native(self, entry: Input) -> NativeTopic | None:
        if entry.topic is None:
            return None
        folder = control_folder(self.request.checkpoint, self.request.run.fragment_uid)
        return NativeTopic(entry.index, entry.plan, entry.topic, folder, self._start_of(entry.plan.topic))

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
            elif entry.kafka_edge is not None:
                read += _FEW
            else:
                read += self.host.slots
        return max(1, min(read, self.host.slots))

    def _bad(self, session: SparkSession) -> DataFrame | None:
        """The records of the batch that is being written that could not be decoded. They are read again, from the
        topic: that there are some is known only when the batch has been computed, and most batches have none."""
        topics = [entry for entry in self.inputs if entry.is_topic]
        if not topics or self.running is None:
            return None
        java: Any = self.running._jsq
        executed = java.streamingQuery().getLatestExecutionContext().executionPlan()
        metrics = executed.observedMetrics()
        found: DataFrame | None = None
        for entry in topics:
            row = metrics.get(entry.observation)
            if row.isEmpty() or not row.get().getLong(1):
                continue
            for begin, end in read_ranges(executed.logical(), entry.observation):
                bad = bad_records(self._records(session, entry, begin, end), entry.plan)
                found = bad if found is None else found.unionByName(bad)
        return found

    def bad_of(self, report: Mapping[str, Any]) -> DataFrame | None:
        """The same for a batch that is over, out of what Spark reports of it: real time calls nobody before its end."""
        session = self.host.session({}, pool=QUERIES)
        found: DataFrame | None = None
        for entry in self.inputs:
            if not report.get("observedMetrics", {}).get(entry.observation, {}).get("bad"):
                continue
            for begin, end in reported_ranges(report, entry.plan.topic.options["topic"], self._first):
                bad = bad_records(self._records(session, entry, begin, end), entry.plan)
                found = bad if found is None else found.unionByName(bad)
        # Streams of one topic have one name: what one of them has read may be found for the other one too.
        return found.dropDuplicates(["place"]) if found is not None else None

    def _first(self, source: int) -> str:
        """Where the Kafka connector began to read, as it has written it down beside its version."""
        text = read_text(self.host.root, f"{checkpoint_of(self.request)}/sources/{source}/0") or ""
        return text[text.index("{") :] if "{" in text else "earliest"

    def _records(self, session: SparkSession, entry: Input, begin: str, end: str) -> DataFrame:
        """Records of a topic between two offsets, read again."""
        native = self._native(entry)
        if native is None:
            return topic_range(session, entry.plan.topic, self.request.kafka_bootstrap, begin, end)
        return native.records(session, begin, end)


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
