"""The inputs of a fragment as views of a session.

Each input gets its own watermark, so that one that is ahead does not make rows of the others late; Spark then goes by
the slowest. A mark (`executor/reading.py`) counts as a row of its event time and is removed behind the watermark. What
stands between, an observation, is there so that Spark moves no filter below the watermark; it also counts rows and
records that could not be decoded.

Marks of an edge come with the edge. Those of a topic come from files in the checkpoint: nothing is ever written to a
user's topic, and Spark reads such files without a Python process. So do those of an edge on Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from headgate.catalog import v1 as catalog
from headgate.engine import v1 as engine
from headgate_common.errors import INVALID_ARGUMENT, HeadgateError
from headgate_engine.executor.calls import Access
from headgate_engine.executor.decoding import BAD, edge_decoding
from headgate_engine.executor.log_calls import TopicAccess
from headgate_engine.executor.reading import MARK, schema_text
from headgate_engine.fragments.control import mark_stream
from headgate_engine.fragments.settings import control_folder, is_realtime
from headgate_engine.types import arrow_of, ddl, quote, struct_of


@dataclass(frozen=True, slots=True)
class Input:
    """One input of a run."""

    index: int
    plan: catalog.ComputeInput
    # Set for an edge; otherwise it is a topic.
    access: Access | None
    # An edge's marks: a file of the driver. Empty where it has no event time.
    marks: str
    # Marks of a topic and of an edge on Kafka: a folder of the checkpoint. Empty where it has no event time.
    control: str
    # Set for a native topic that is read from agents.
    topic: TopicAccess | None = None
    # Set for an edge on Kafka.
    kafka_edge: engine.KafkaEdge | None = None

    @property
    def observation(self) -> str:
        return f"input{self.index}"

    @property
    def is_topic(self) -> bool:
        """Whether it is a topic of users, with records that may be bad."""
        return self.access is None and self.kafka_edge is None

    @property
    def kafka(self) -> bool:
        """Whether Spark's Kafka connector reads it."""
        return self.access is None and self.topic is None


def inputs_of(
    request: engine.StartFragmentRequest,
    accesses: Mapping[int, Access],
    topics: Mapping[str, TopicAccess],
    folder: Path,
) -> tuple[Input, ...]:
    """The inputs of the plan, with where each is read."""
    found = []
    realtime = is_realtime(request)
    on_kafka = {edge.edge: edge for edge in request.kafka_inputs}
    for index, entry in enumerate(request.plan.inputs):
        access = topic = kafka_edge = None
        marks = control = ""
        folder_of_marks = f"{control_folder(request.checkpoint, request.run.fragment_uid)}/{index}"
        if entry.WhichOneof("origin") == "edge" and entry.edge in on_kafka:
            kafka_edge = on_kafka[entry.edge]
            control = folder_of_marks if entry.event_time else ""
        elif entry.WhichOneof("origin") == "edge":
            access = accesses.get(entry.edge)
            if access is None:
                raise HeadgateError(INVALID_ARGUMENT, f"inputs: nothing says where edge {entry.edge} is")
            marks = str(folder / f"marks{index}") if entry.event_time else ""
        else:
            if entry.event_time:
                control = folder_of_marks
            if over_grpc(entry.topic, realtime=realtime):
                topic = topics.get(entry.topic.options["topic"])
                if topic is None:
                    name = entry.topic.options["topic"]
                    raise HeadgateError(INVALID_ARGUMENT, f"topics: nothing says where topic {name} is")
        found.append(Input(index, entry, access, marks, control, topic, kafka_edge))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Pace:
    """How streams of Python data sources read."""

    # About how much a batch reads of a partition.
    batch_bytes: int
    # Longest pause of an idle source, in seconds.
    nap: float
    # How many tasks read a range at most.
    tasks: int
    # A file that is there when the run is to end at once.
    stop: str

    def options(self) -> dict[str, str]:
        return {
            "batch_bytes": str(self.batch_bytes),
            "nap": str(self.nap),
            "tasks": str(self.tasks),
            "stop": self.stop,
        }


def over_grpc(origin: catalog.TopicOrigin, *, realtime: bool) -> bool:
    """Whether a topic is read from agents; otherwise Spark's Kafka connector reads it, as real time needs."""
    transport = origin.options.get("transport", "grpc")
    return origin.type == catalog.SOURCE_TYPE_TOPIC and transport != "kafka" and not realtime


def edge_stream(session: SparkSession, entry: Input, access: Access, pace: Pace) -> DataFrame:
    """The rows of an edge, with MARK."""
    schema = entry.plan.schema
    return (
        session.readStream.format("headgate_edge")
        .option("access_secret", access.to_json())
        .option("columns", f"{ddl(schema)}, {quote(MARK)} bigint")
        .option("arrow", schema_text(arrow_of(struct_of(schema))))
        .option("marks", entry.marks)
        .options(**pace.options())
        .load()
    )


def edge_rows(records: DataFrame, entry: Input) -> DataFrame:
    """The rows of an edge on Kafka, with MARK, out of its records."""
    schema = entry.plan.schema
    decode = edge_decoding(schema_text(arrow_of(struct_of(schema))))
    return records.select("key", "value").mapInArrow(decode, f"{ddl(schema)}, {quote(MARK)} bigint")


def with_marks(session: SparkSession, rows: DataFrame, entry: Input) -> DataFrame:
    """Rows with MARK, and the marks of their input among them. Those of a topic have BAD too."""
    if MARK not in rows.columns:
        rows = rows.withColumn(MARK, f.lit(None).cast("bigint"))
    if not entry.control:
        return rows
    return rows.unionByName(mark_stream(session, entry.control), allowMissingColumns=True)


def as_view(frame: DataFrame, entry: Input, *, watermark: bool = True) -> None:
    """Makes the view that the SQL reads, out of rows with MARK and, for a topic, BAD. Real time has no watermarks."""
    plan = entry.plan
    topic = entry.is_topic
    good = f.col(MARK).isNull() & f.col(BAD).isNull() if topic else f.col(MARK).isNull()
    timed = bool(plan.event_time) and watermark
    if timed:
        frame = frame.selectExpr(*_with_event_time(plan, topic=topic), quote(MARK), *([quote(BAD)] if topic else []))
        frame = frame.withWatermark(plan.event_time, f"{plan.lateness_us} microseconds")
    time = f.unix_micros(f.col(quote(plan.event_time))) if timed else f.lit(None).cast("bigint")
    frame = frame.observe(
        entry.observation,
        f.count_if(good).alias("rows"),
        f.count_if(f.col(BAD).isNotNull() if topic else f.lit(False)).alias("bad"),
        f.max(f.when(good, time)).alias("latest_us"),
    )
    if topic or plan.event_time:
        frame = frame.where(good)
    frame.drop(MARK, BAD).createOrReplaceTempView(plan.view)


def _with_event_time(plan: catalog.ComputeInput, *, topic: bool) -> list[str]:
    """Every column; the one of event time is that of the mark where there is one, and NULL for a bad record: what Spark
    could read of it must not move the watermark."""
    name = quote(plan.event_time)
    value = plan.event_time_expression or name
    otherwise = f"WHEN {quote(BAD)} IS NULL THEN {value}" if topic else f"ELSE {value}"
    made = f"CASE WHEN {quote(MARK)} IS NOT NULL THEN timestamp_micros({quote(MARK)}) {otherwise} END AS {name}"
    columns = [quote(field.name) for field in plan.schema.fields]
    if plan.event_time_expression:
        return [*columns, made]
    return [made if column.lower() == name.lower() else column for column in columns]
