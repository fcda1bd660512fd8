"""A soft stop in the middle of a batch that nothing fences: the batch is done, and none of its rows comes twice."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from headgate.engine import v1 as engine
from tests.integration.engine.edges import Edges
from tests.integration.engine.events import events
from tests.integration.engine.kit import Client, until
from tests.integration.engine.test_topics import (
    ERRORS,
    Topics,
    as_json,
    edge,
    filter_plan,
    keep,
    started,
    to_topic,
    topics,
)

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark_kafka_jars")]

__all__ = ["started", "topics"]

# So many that writing a batch of them takes seconds.
ROWS = 60_000


def values(bootstrap: str, topic: str) -> list[bytes]:
    """All records of a topic with one partition that have a value."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "all", "enable.partition.eof": True})
    found: list[bytes] = []
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        while True:
            message = consumer.poll(30)
            assert message is not None, f"{topic} has no end"
            if error := message.error():
                assert error.code() == KafkaError._PARTITION_EOF, error
                return found
            if message.value() is not None:
                found.append(message.value())
    finally:
        consumer.close()


def end_of(bootstrap: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "all"})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)[1])
    finally:
        consumer.close()


def rows_on_edge(records: list[bytes]) -> Counter[Any]:
    tables = (pa.ipc.open_stream(record).read_all() for record in records)
    return Counter(tuple(row.values()) for table in tables for row in table.to_pylist())


@pytest.mark.parametrize("to", ["topic", "topic, with error rows beside it", "edge"])
def test_no_row_of_a_batch_that_was_being_written_comes_twice(
    to: str, topics: Topics, edges: Edges, client: Client, started: Any
) -> None:
    source, sink = topics.create(), topics.create()
    rows = [{**row, "v": 2 * number} for number, row in enumerate(events(39, ROWS))]
    topics.send(source, *as_json(rows))
    plan = filter_plan(topics, source)
    more: dict[str, Any] = {} if to == "topic" else {"errors": edge(edges, ERRORS)}
    if to == "edge":
        options = {"bootstrap_servers": topics.bootstrap}
        more["kafka_output"] = engine.KafkaEdge(edge=9, topic=sink, options=options)
    else:
        to_topic(plan, topics, sink)
        more["settings"] = engine.RunSettings(delivery=engine.DELIVERY_AT_LEAST_ONCE)
    ref = started(plan, **more)
    until(lambda: end_of(topics.bootstrap, sink) > 0, "the first rows")
    assert keep(client, ref).progress.rows_out == 0, "the batch is not done yet"
    client(engine.StopFragmentRequest(run=ref, mode=engine.STOP_MODE_SOFT))
    client.wait(ref, engine.RUN_STATE_STOPPED)
    records = values(topics.bootstrap, sink)
    found = rows_on_edge(records) if to == "edge" else Counter(records)
    assert (len(found), found.total()) == (ROWS, ROWS)
