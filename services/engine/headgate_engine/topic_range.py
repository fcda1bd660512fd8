"""A bounded range of a topic, native or of a Kafka cluster, as a table of rows."""

from __future__ import annotations

import json
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from headgate.catalog import v1 as catalog
from headgate.engine import v1 as engine
from headgate_common.errors import INVALID_ARGUMENT, HeadgateError
from headgate_engine.errors import EDGE_DATA_LOST
from headgate_engine.executor.channels import GivenUp, never
from headgate_engine.executor.decoding import BAD
from headgate_engine.executor.log_calls import Bounds, LogClient, TopicAccess
from headgate_engine.fragments.kafka import partitions_of, topic_range
from headgate_engine.fragments.native import NativeTopic
from headgate_engine.fragments.records import decoded, fails


def topic_rows(
    session: SparkSession, entry: engine.BatchInput, access: TopicAccess, given_up: GivenUp = never
) -> DataFrame:
    """Its rows. Asks the agents where the topic begins and ends: what is not there cannot be waited for."""
    _need_schema(entry)
    wanted = entry.records
    first, until = offset_range(
        entry.view, LogClient(access, given_up).offsets(), list(wanted.from_offsets), list(wanted.until_offsets)
    )
    origin = catalog.TopicOrigin(
        physical_source=entry.view,
        type=catalog.SOURCE_TYPE_TOPIC,
        options={"topic": access.topic},
        parser_options=wanted.parser_options,
    )
    plan = catalog.ComputeInput(view=entry.view, schema=entry.schema, topic=origin)
    topic = NativeTopic(0, plan, access, folder="")
    records = topic.records(session, topic.offset(first), topic.offset(until))
    return _rows(records, plan)


def kafka_rows(session: SparkSession, entry: engine.BatchInput, seconds: float) -> DataFrame:
    """Its rows, through Spark's Kafka connector. The brokers have `seconds` to say that the topic is there."""
    _need_schema(entry)
    wanted = entry.kafka
    for name in ("bootstrap_servers", "topic"):
        if not wanted.options.get(name):
            raise HeadgateError(INVALID_ARGUMENT, f"inputs: {entry.view} needs the option {name}")
    topic, count = wanted.options["topic"], partitions_of(session, wanted.options, "", seconds)
    origin = catalog.TopicOrigin(
        physical_source=entry.view,
        type=catalog.SOURCE_TYPE_KAFKA,
        options=wanted.options,
        parser_options=wanted.parser_options,
    )
    bounds = []
    for offsets, whole in ((wanted.from_offsets, "earliest"), (wanted.until_offsets, "latest")):
        if offsets and (len(offsets) != count or min(offsets) < 0):
            raise HeadgateError(
                INVALID_ARGUMENT, f"inputs: {entry.view} needs offsets for each of its {count} partitions, or none"
            )
        numbered = {str(number): offset for number, offset in enumerate(offsets)}
        bounds.append(json.dumps({topic: numbered}) if offsets else whole)
    records = topic_range(session, origin, "", *bounds)
    return _rows(records, catalog.ComputeInput(view=entry.view, schema=entry.schema, topic=origin))


def _need_schema(entry: engine.BatchInput) -> None:
    if not entry.schema.fields:
        raise HeadgateError(INVALID_ARGUMENT, f"inputs: {entry.view} needs a schema, because records have none")


def _rows(records: DataFrame, plan: catalog.ComputeInput) -> DataFrame:
    return decoded(records, plan, fail=fails(plan.topic)).where(f.col(BAD).isNull()).drop(BAD)


def offset_range(
    view: str, bounds: Sequence[Bounds], first: list[int], until: list[int]
) -> tuple[dict[str, int], dict[str, int]]:
    """From where to where each partition is read: as asked for, or all that is there."""
    first = first or [one.log_start for one in bounds]
    until = until or [one.high_watermark for one in bounds]
    if {len(first), len(until)} != {len(bounds)}:
        raise HeadgateError(
            INVALID_ARGUMENT, f"inputs: {view} needs offsets for each of its {len(bounds)} partitions, or none"
        )
    for one, begin, end in zip(bounds, first, until, strict=True):
        if begin < one.log_start:
            raise HeadgateError(
                EDGE_DATA_LOST, f"partition {one.partition} begins at {one.log_start}; {begin} is asked for"
            )
        if end > one.high_watermark or begin > end:
            raise HeadgateError(
                INVALID_ARGUMENT,
                f"inputs: {view} asks for {begin} to {end} of partition {one.partition}, which ends at "
                f"{one.high_watermark}",
            )
    numbers = [str(one.partition) for one in bounds]
    return dict(zip(numbers, first, strict=True)), dict(zip(numbers, until, strict=True))
