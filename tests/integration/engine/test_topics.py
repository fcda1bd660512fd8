"""Topics of a real Kafka: JSON and Arrow in, bad records aside, edges and topics out, micro-batches and real time."""

from __future__ import annotations

import datetime as dt
import json
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headgate.catalog import v1 as catalog
from headgate.engine import v1 as engine
from headgate_common.errors import HeadgateError
from headgate_common.ids import RandomIds
from tests.integration.engine.edges import Edges
from tests.integration.engine.events import EVENTS, Row, events, events_input, seen_windows, windowed, windows
from tests.integration.engine.kit import Client, compute, schema, until

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark_kafka_jars")]

OUT, ERRORS = 9, 10


class Topics:
    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._producer = Producer({"bootstrap.servers": bootstrap})

    def create(self, partitions: int = 1) -> str:
        name = RandomIds().uid("topic")
        for future in self._admin.create_topics([NewTopic(name, partitions, 1)]).values():
            future.result(30)
        return name

    def send(self, topic: str, *values: bytes | None, partition: int = 0) -> None:
        for value in values:
            self._producer.produce(topic, value, partition=partition)
        assert self._producer.flush(30) == 0

    def read(self, topic: str, count: int) -> list[Any]:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
        consumer.subscribe([topic])
        found: list[Any] = []
        deadline = time.monotonic() + 60
        try:
            while len(found) < count and time.monotonic() < deadline:
                message = consumer.poll(0.2)
                if message is not None and message.error() is None:
                    found.append(json.loads(message.value()))
        finally:
            consumer.close()
        return found


@pytest.fixture
def topics(kafka_bootstrap: str) -> Topics:
    return Topics(kafka_bootstrap)


@pytest.fixture
def started(client: Client, checkpoint: str) -> Iterator[Any]:
    """Starts runs, and stops what is left of them."""
    refs: list[engine.RunRef] = []

    def start(plan: catalog.ComputeFragment, **more: Any) -> engine.RunRef:
        ref = engine.RunRef(fragment_uid=RandomIds().uid("fragment"), epoch=1)
        client(engine.StartFragmentRequest(run=ref, query="topics", plan=plan, checkpoint=checkpoint, **more))
        refs.append(ref)
        return ref

    yield start
    for ref in refs:
        client(engine.StopFragmentRequest(run=ref))
        until(lambda ref=ref: client.run(ref).state in (4, 5, 6), "the run to stop")


def as_json(rows: list[Row]) -> list[bytes]:
    return [json.dumps({**row, "ts": row["ts"].isoformat()}).encode() for row in rows]


def as_arrow(rows: list[Row]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, EVENTS) as writer:
        writer.write_batch(pa.RecordBatch.from_pylist(rows, schema=EVENTS))
    return sink.getvalue().to_pybytes()


def from_topic(entry: catalog.ComputeInput, topics: Topics, topic: str, kind: str = "JSON") -> None:
    entry.topic.CopyFrom(
        catalog.TopicOrigin(
            physical_source="events",
            type=catalog.SOURCE_TYPE_KAFKA,
            options={"bootstrap_servers": topics.bootstrap, "topic": topic},
            parser_options={"type": kind},
        )
    )


def edge(edges: Edges, ordinal: int) -> engine.EdgeAccess:
    access = edges.create(RandomIds().uid("edge"))
    access.edge = ordinal
    return access


def filter_plan(topics: Topics, topic: str, kind: str = "JSON") -> catalog.ComputeFragment:
    entry = events_input("s", 0, time=False)
    from_topic(entry, topics, topic, kind)
    return compute("SELECT k, v, ts FROM s WHERE v % 2 = 0", [entry], schema(k="VARCHAR", v="INT64", ts="TIMESTAMP"))


def keep(client: Client, ref: engine.RunRef) -> engine.Run:
    client(engine.KeepAliveRequest(runs=[ref]))
    return client.run(ref)


@pytest.mark.parametrize("kind", ["JSON", "ARROW"])
def test_bad_records_go_to_the_error_topic_with_their_reason_and_the_query_goes_on(
    kind: str, topics: Topics, edges: Edges, client: Client, started: Any
) -> None:
    topic = topics.create(2)
    rows = events(31, 60)
    good = as_json(rows) if kind == "JSON" else [as_arrow(rows[:30]), as_arrow(rows[30:])]
    topics.send(topic, *good[: len(good) // 2])
    topics.send(topic, b"no such thing \xff", None, partition=1)
    out, errors = edge(edges, OUT), edge(edges, ERRORS)
    ref = started(filter_plan(topics, topic, kind), output=out, errors=errors)
    until(lambda: keep(client, ref).progress.rows_in == 30, "the first rows")
    topics.send(topic, *good[len(good) // 2 :])
    until(lambda: keep(client, ref).progress.rows_in == 60, "the last rows")
    client(engine.StopFragmentRequest(run=ref, mode=engine.STOP_MODE_SOFT))
    run = client.wait(ref, engine.RUN_STATE_STOPPED)
    wanted = Counter((row["k"], row["v"], row["ts"]) for row in rows if row["v"] % 2 == 0)
    assert Counter((row["k"], row["v"], row["ts"]) for row in edges.rows(out.topic_uid)) == wanted
    assert run.progress.bad_records == 2
    bad = sorted(edges.rows(errors.topic_uid), key=lambda row: row["place"])
    where = f"of topic {topic} (source events)"
    assert [row["place"] for row in bad] == [f"partition 1, offset {number} {where}" for number in (0, 1)]
    assert [row["raw"] for row in bad] == ["no such thing \ufffd", None]
    assert "declared columns" in bad[0]["reason"]
    assert bad[1]["reason"] == "the record has no value"


def test_a_bad_record_fails_the_run_where_the_query_is_set_so(
    topics: Topics, edges: Edges, client: Client, started: Any
) -> None:
    topic = topics.create()
    topics.send(topic, *as_json(events(30, 2)), b"{broken")
    settings = engine.RunSettings(bad_records=engine.BAD_RECORDS_FAIL)
    out = edge(edges, OUT)
    ref = started(filter_plan(topics, topic), output=out, settings=settings)
    run = client.wait(ref, engine.RUN_STATE_FAILED)
    assert (run.error.reason, run.error.transient) == ("BAD_RECORD", False)
    assert run.error.message.startswith(f"partition 0, offset 2 of topic {topic} (source events): the record")
    assert edges.rows(out.topic_uid) == []


def test_a_soft_stop_of_a_query_on_a_topic_emits_every_open_window(
    topics: Topics, edges: Edges, client: Client, started: Any
) -> None:
    topic = topics.create(2)
    rows = events(32, 80)
    plan = windowed(1)
    from_topic(plan.inputs[0], topics, topic)
    out = edge(edges, OUT)
    topics.send(topic, *as_json(rows[:40]))
    ref = started(plan, output=out)
    until(lambda: keep(client, ref).progress.rows_in == 40, "the first rows")
    topics.send(topic, *as_json(rows[40:]), partition=1)
    client(engine.StopFragmentRequest(run=ref, mode=engine.STOP_MODE_SOFT))
    run = client.wait(ref, engine.RUN_STATE_STOPPED)
    assert seen_windows(edges.rows(out.topic_uid)) == windows(rows)
    assert run.progress.rows_late == 0
    assert edges.topics[out.topic_uid].ended


def to_topic(plan: catalog.ComputeFragment, topics: Topics, topic: str) -> None:
    options = {"bootstrap_servers": topics.bootstrap, "topic": topic, "key_column": "k"}
    plan.target.CopyFrom(catalog.TopicTarget(sink="out", type=catalog.SINK_TYPE_KAFKA, options=options))


def test_at_least_once_writes_json_to_a_topic_without_an_edge(topics: Topics, client: Client, started: Any) -> None:
    source, sink = topics.create(), topics.create()
    rows = events(33, 40)
    topics.send(source, *as_json(rows))
    plan = filter_plan(topics, source)
    to_topic(plan, topics, sink)
    ref = started(plan, settings=engine.RunSettings(delivery=engine.DELIVERY_AT_LEAST_ONCE))
    client.wait(ref, engine.RUN_STATE_RUNNING)
    found = topics.read(sink, 20)
    wanted = {(row["k"], row["v"], row["ts"]) for row in rows if row["v"] % 2 == 0}
    assert {(row["k"], row["v"], dt.datetime.fromisoformat(row["ts"])) for row in found} == wanted


def test_realtime_takes_slots_refuses_without_and_delivers(topics: Topics, client: Client, started: Any) -> None:
    wide, source, sink = topics.create(5), topics.create(), topics.create()
    realtime = engine.RunSettings(mode=catalog.QUERY_MODE_REALTIME)
    refused = filter_plan(topics, wide)
    to_topic(refused, topics, sink)
    with pytest.raises(HeadgateError, match=r"NO_SLOT.*needs 5 task slots"):
        started(refused, settings=realtime)
    missing = filter_plan(topics, "no-such-topic")
    to_topic(missing, topics, sink)
    with pytest.raises(HeadgateError, match="SPARK_FAILED: UnknownTopicOrPartitionException"):
        started(missing, settings=realtime)
    plan = filter_plan(topics, source)
    to_topic(plan, topics, sink)
    ref = started(plan, settings=realtime)
    client.wait(ref, engine.RUN_STATE_RUNNING)
    rows = events(34, 20)
    topics.send(source, *as_json(rows))
    assert len(topics.read(sink, 10)) == 10
