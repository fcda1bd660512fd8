"""Topics of a real Kafka: JSON and Arrow in, bad records aside, edges and topics out, micro-batches and real time."""

from __future__ import annotations

import datetime as dt
import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
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
from tests.integration.engine.events import EVENTS, START, Row, events, events_input, seen_windows, windowed, windows
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


def test_a_query_begins_where_its_deployment_found_the_end(
    topics: Topics, edges: Edges, client: Client, started: Any
) -> None:
    """Partitions that the topic has got since then are read from their beginning."""
    topic = topics.create(3)
    before, later = events(37, 30), events(38, 30, first=100)
    for partition, some in ((0, before[:20]), (1, before[20:])):
        topics.send(topic, *as_json(some), partition=partition)
    plan = filter_plan(topics, topic)
    plan.start = "latest"
    plan.starts.add(physical_source="events", offsets=[20, 10])
    for partition in range(3):
        topics.send(topic, *as_json(later[partition * 10 : partition * 10 + 10]), partition=partition)
    out, errors = edge(edges, OUT), edge(edges, ERRORS)
    ref = started(plan, output=out, errors=errors)
    until(lambda: keep(client, ref).progress.rows_in >= 30, "the rows since then")
    client(engine.StopFragmentRequest(run=ref, mode=engine.STOP_MODE_SOFT))
    client.wait(ref, engine.RUN_STATE_STOPPED)
    wanted = Counter((row["k"], row["v"], row["ts"]) for row in later if row["v"] % 2 == 0)
    assert Counter((row["k"], row["v"], row["ts"]) for row in edges.rows(out.topic_uid)) == wanted


def test_a_topic_with_fewer_partitions_than_at_the_deployment_is_another_one(
    topics: Topics, edges: Edges, client: Client, started: Any
) -> None:
    plan = filter_plan(topics, topics.create(1))
    plan.start = "latest"
    plan.starts.add(physical_source="events", offsets=[0, 0])
    ref = started(plan, output=edge(edges, OUT), errors=edge(edges, ERRORS))
    run = client.wait(ref, engine.RUN_STATE_FAILED)
    assert run.error.reason == "EDGE_DATA_LOST"
    assert "1 partitions, and had 2" in run.error.message


def test_two_inputs_of_one_topic_at_their_own_pace_give_each_bad_record_once_for_each(
    topics: Topics, edges: Edges, client: Client, started: Any
) -> None:
    topic = topics.create()
    topics.send(topic, *as_json(events(35, 4)), b"bad")
    time.sleep(0.05)
    middle = time.time_ns() // 1000
    topics.send(topic, *as_json(events(36, 4)), b"worse")
    first, second = events_input("s1", 0, time=False), events_input("s2", 0, time=False)
    for entry, name in ((first, "one"), (second, "two")):
        from_topic(entry, topics, topic)
        entry.topic.physical_source = name
    second.topic.options["start"] = str(middle)
    sql = "SELECT k, v FROM s1 UNION ALL SELECT k, v FROM s2"
    out, errors = edge(edges, OUT), edge(edges, ERRORS)
    ref = started(compute(sql, [first, second], schema(k="VARCHAR", v="INT64")), output=out, errors=errors)
    until(lambda: keep(client, ref).progress.rows_in == 12, "all rows")
    assert keep(client, ref).progress.bad_records == 3
    client(engine.StopFragmentRequest(run=ref))
    client.wait(ref, engine.RUN_STATE_STOPPED)
    places = sorted(row["place"] for row in edges.rows(errors.topic_uid))
    assert places == sorted(
        f"partition 0, offset {offset} of topic {topic} (source {name})"
        for offset, name in ((4, "one"), (9, "one"), (9, "two"))
    )


def test_a_topic_that_is_missing_fails_the_run_for_good_and_brokers_that_are_silent_do_not(
    topics: Topics, edges: Edges, client: Client, started: Any
) -> None:
    sink = topics.create()
    lost = filter_plan(topics, "no-such-topic")
    run = client.wait(started(lost, output=edge(edges, OUT)), engine.RUN_STATE_FAILED)
    wanted = ("KAFKA_TOPIC_MISSING", f"there is no topic no-such-topic at {topics.bootstrap}", False)
    assert (run.error.reason, run.error.message, run.error.transient) == wanted
    nowhere = filter_plan(topics, sink)
    to_topic(nowhere, topics, "no-such-sink")
    run = client.wait(started(nowhere), engine.RUN_STATE_FAILED)
    assert (run.error.reason, run.error.transient) == ("KAFKA_TOPIC_MISSING", False)
    for servers, problem in (("127.0.0.1:1", "did not answer within"), ("no-such-host.invalid:9092", "nobody knows")):
        away = filter_plan(topics, sink)
        away.inputs[0].topic.options["bootstrap_servers"] = servers
        run = client.wait(started(away, output=edge(edges, OUT)), engine.RUN_STATE_FAILED)
        assert (run.error.reason, run.error.transient) == ("KAFKA_UNREACHABLE", True)
        assert servers in run.error.message and problem in run.error.message


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


def test_at_least_once_keeps_bad_records_counts_what_it_writes_and_does_not_keep_them_again(
    topics: Topics, edges: Edges, client: Client, checkpoint: str
) -> None:
    source, sink = topics.create(), topics.create()
    topics.send(source, *as_json(events(37, 10)), b"bad")
    plan = filter_plan(topics, source)
    to_topic(plan, topics, sink)
    errors = edge(edges, ERRORS)
    uid = RandomIds().uid("fragment")
    bad: list[int] = []
    for epoch, rows in ((1, 10), (2, 4)):
        ref = engine.RunRef(fragment_uid=uid, epoch=epoch)
        settings = engine.RunSettings(delivery=engine.DELIVERY_AT_LEAST_ONCE)
        client(
            engine.StartFragmentRequest(
                run=ref, query="topics", plan=plan, checkpoint=checkpoint, errors=errors, settings=settings
            )
        )
        until(lambda ref=ref, rows=rows: keep(client, ref).progress.rows_in == rows, "rows")
        progress = keep(client, ref).progress
        assert progress.rows_out == rows // 2
        bad.append(progress.bad_records)
        client(engine.StopFragmentRequest(run=ref))
        client.wait(ref, engine.RUN_STATE_STOPPED)
        topics.send(source, *as_json(events(38, 4)))
    assert bad == [1, 1], "the sum of all runs; the record itself is kept once"
    assert len(topics.read(sink, 7)) == 7
    (row,) = edges.rows(errors.topic_uid)
    assert (row["raw"], row["place"]) == ("bad", f"partition 0, offset 10 of topic {source} (source events)")


def test_realtime_takes_slots_refuses_without_and_delivers(topics: Topics, client: Client, started: Any) -> None:
    wide, source, sink = topics.create(5), topics.create(), topics.create()
    realtime = engine.RunSettings(mode=catalog.QUERY_MODE_REALTIME)
    refused = filter_plan(topics, wide)
    to_topic(refused, topics, sink)
    with pytest.raises(HeadgateError, match=r"TOO_FEW_SLOTS.*needs 5 task slots"):
        started(refused, settings=realtime)
    missing = filter_plan(topics, "no-such-topic")
    to_topic(missing, topics, sink)
    with pytest.raises(HeadgateError, match="KAFKA_TOPIC_MISSING: there is no topic no-such-topic at"):
        started(missing, settings=realtime)
    plan = filter_plan(topics, source)
    to_topic(plan, topics, sink)
    ref = started(plan, settings=realtime)
    client.wait(ref, engine.RUN_STATE_RUNNING)
    rows = events(34, 20)
    topics.send(source, *as_json(rows))
    assert len(topics.read(sink, 10)) == 10


def test_realtime_counts_bad_records_and_keeps_them_once_its_checkpoint_is_written(
    topics: Topics, edges: Edges, client: Client, started: Any
) -> None:
    source, sink = topics.create(), topics.create()
    plan = filter_plan(topics, source)
    to_topic(plan, topics, sink)
    errors = edge(edges, ERRORS)
    ref = started(plan, settings=engine.RunSettings(mode=catalog.QUERY_MODE_REALTIME), errors=errors)
    client.wait(ref, engine.RUN_STATE_RUNNING)
    topics.send(source, *as_json(events(39, 4)), b"bad")
    until(lambda: client.wait(ref, engine.RUN_STATE_RUNNING).progress.bad_records == 1, "the bad record to be counted")
    assert keep(client, ref).progress.rows_in == 4

    def kept_rows() -> int:
        client.wait(ref, engine.RUN_STATE_RUNNING)
        return len(edges.rows(errors.topic_uid))

    until(kept_rows, "the bad record to be kept")
    topics.send(source, b"worse")
    until(lambda: kept_rows() > 1, "the next one to be kept")
    kept = [(row["raw"], row["place"]) for row in edges.rows(errors.topic_uid)]
    where = f"of topic {source} (source events)"
    assert kept == [("bad", f"partition 0, offset 4 {where}"), ("worse", f"partition 0, offset 5 {where}")]


@pytest.mark.parametrize("way", ["exactly_once", "exactly_once ARROW", "at_least_once", "realtime"])
def test_null_where_a_column_is_not_null_is_a_bad_record_however_the_query_runs(
    way: str, topics: Topics, edges: Edges, client: Client, started: Any
) -> None:
    source, sink = topics.create(), topics.create()
    mode, _, kind = way.partition(" ")
    plan = filter_plan(topics, source, kind or "JSON")
    plan.inputs[0].schema.fields[2].not_null = True
    errors = edge(edges, ERRORS)
    more: dict[str, Any] = {"output": edge(edges, OUT)}
    if mode != "exactly_once":
        to_topic(plan, topics, sink)
        realtime = engine.RunSettings(mode=catalog.QUERY_MODE_REALTIME)
        delivery = engine.RunSettings(delivery=engine.DELIVERY_AT_LEAST_ONCE)
        more = {"settings": realtime if mode == "realtime" else delivery}
    ref = started(plan, errors=errors, **more)
    client.wait(ref, engine.RUN_STATE_RUNNING)
    if kind == "ARROW":
        topics.send(source, as_arrow(events(42, 4)), as_arrow([{"k": "x", "v": 2, "ts": None}]), b" ")
    else:
        topics.send(source, *as_json(events(42, 4)), b'{"k":"x","v":2}', b" ")

    def kept() -> list[Row]:
        client.wait(ref, engine.RUN_STATE_RUNNING)
        return sorted(edges.rows(errors.topic_uid), key=lambda row: str(row["place"]))

    first, second = until(lambda: len(found := kept()) == 2 and found, "bad records to be kept")
    assert first["reason"] == "column ts is NOT NULL and there is NULL"
    assert "declared columns" in second["reason"]
    progress = until(lambda: (told := keep(client, ref).progress).bad_records == 2 and told, "both to be counted")
    assert progress.rows_in == 4


def test_marks_for_a_silent_topic_are_few_and_go_when_they_were_read_and_an_idle_run_says_so(
    topics: Topics, edges: Edges, client: Client, checkpoint: str, started: Any
) -> None:
    busy, silent = topics.create(), topics.create()
    plan = windowed(1, 2, idle_timeout=0.5)
    for entry, topic in zip(plan.inputs, (busy, silent), strict=True):
        from_topic(entry, topics, topic)
    out = edge(edges, OUT)
    rows = events(40, 240)
    ref = started(plan, output=out)
    for at in range(0, 240, 60):
        topics.send(busy, *as_json(rows[at : at + 60]))
        until(lambda at=at: keep(client, ref).progress.rows_in == at + 60, "rows")
    wanted = windows(row for row in rows if row["ts"] < START + dt.timedelta(seconds=50))
    until(lambda: sum(seen_windows(edges.rows(out.topic_uid)).values()) >= sum(wanted.values()), "windows")
    assert not wanted - seen_windows(edges.rows(out.topic_uid))
    marks = Path(checkpoint) / f"{ref.fragment_uid}.control" / "1"
    # The last one stays until a batch follows the one that read it.
    until(lambda: len(list(marks.glob("mark-*"))) <= 2, "marks that were read to be removed")
    until(lambda: keep(client, ref).progress.rows_in_per_second == 0.0, "the rates of an idle run")
    assert keep(client, ref).progress.rows_in == 240


def test_a_batch_reads_a_range_of_a_kafka_topic_or_all_that_is_there(topics: Topics, client: Client) -> None:
    topic = topics.create(2)
    rows = events(41, 40)
    topics.send(topic, *as_json(rows[:25]))
    topics.send(topic, *as_json(rows[25:]), b"no row", partition=1)

    def numbers(name: str = topic, parser: dict[str, str] | None = None, **range_: Any) -> list[int]:
        options = {"bootstrap_servers": topics.bootstrap, "topic": name}
        entry = engine.BatchInput(
            view="t",
            schema=schema(k="VARCHAR", v="INT64", ts="TIMESTAMP"),
            kafka=engine.KafkaRange(options=options, parser_options=parser or {}, **range_),
        )
        table, _ = client.batch(engine.ExecuteBatchRequest(sql="SELECT v FROM t ORDER BY v", inputs=[entry]))
        return [row["v"] for row in table.to_pylist()]

    assert numbers() == list(range(40)), "a record that is no row is left out"
    assert numbers(from_offsets=[5, 3], until_offsets=[20, 10]) == [*range(5, 20), *range(28, 35)]
    assert numbers(from_offsets=[25, 2], until_offsets=[25, 2]) == []
    with pytest.raises(HeadgateError, match="BAD_RECORD"):
        numbers(parser={"on_error": "fail"})
    with pytest.raises(HeadgateError, match="each of its 2 partitions"):
        numbers(until_offsets=[25])
    with pytest.raises(HeadgateError, match="KAFKA_TOPIC_MISSING"):
        numbers("no-such-topic")
