"""Native topics, read over gRPC from real agents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headgate.catalog import v1 as catalog
from headgate.engine import v1 as engine
from headgate.log import v1 as log
from headgate_common.errors import HeadgateError
from headgate_common.ids import RandomIds
from tests.e2e.log.kit import Log, call, log_of
from tests.integration.engine.edges import Edges
from tests.integration.engine.events import Row, events, events_input, seen_windows, windowed, windows
from tests.integration.engine.kit import Client, compute, schema, until
from tests.integration.engine.test_topics import as_arrow, as_json, edge, keep

pytestmark = pytest.mark.spark

OUT, ERRORS = 9, 10


@pytest.fixture(scope="module")
def topics(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
    with log_of(Path(tmp_path_factory.mktemp("log")), "a", "b") as made:
        yield made


class Native:
    """One topic of the agents, and runs that read it."""

    def __init__(self, topics: Log, client: Client, edges: Edges, checkpoint: str, partitions: int = 1) -> None:
        self.topics = topics
        self.client = client
        self.checkpoint = checkpoint
        self.topic = topics.create(RandomIds().uid("topic"), partitions)
        self.uid = RandomIds().uid("fragment")
        self.epoch = 0
        self.out, self.errors = edge(edges, OUT), edge(edges, ERRORS)

    def send(self, *values: bytes | None, partition: int = 0) -> None:
        """At once, so that they are one batch."""
        records = [log.Record(value=value) for value in values]
        request = log.ProduceRecordsRequest(topic=self.topic.name, partition=partition, records=records)

        def sent() -> bool:
            for agent in self.topics.cluster.agents.values():
                try:
                    call(agent.address, request)
                except HeadgateError:
                    continue
                return True
            return False

        until(sent, "an agent to take records")

    def origin(self, kind: str = "JSON", **parser: str) -> catalog.TopicOrigin:
        return catalog.TopicOrigin(
            physical_source="events",
            type=catalog.SOURCE_TYPE_TOPIC,
            options={"topic": self.topic.name},
            parser_options={"type": kind, **parser},
        )

    def filtering(self, kind: str = "JSON", **parser: str) -> catalog.ComputeFragment:
        entry = events_input("s", 0, time=False)
        entry.topic.CopyFrom(self.origin(kind, **parser))
        columns = schema(k="VARCHAR", v="INT64", ts="TIMESTAMP")
        return compute("SELECT k, v, ts FROM s WHERE v % 2 = 0", [entry], columns)

    @property
    def access(self) -> engine.TopicAccess:
        return engine.TopicAccess(
            topic=self.topic.name,
            topic_uid=self.topic.uid,
            partitions=self.topic.partitions,
            addresses=[agent.address for agent in self.topics.cluster.agents.values()],
        )

    def start(self, plan: catalog.ComputeFragment, *, kafka: bool = False) -> engine.RunRef:
        self.epoch += 1
        ref = engine.RunRef(fragment_uid=self.uid, epoch=self.epoch)
        agents = self.topics.cluster.agents
        request = engine.StartFragmentRequest(
            run=ref,
            query="native",
            plan=plan,
            output=self.out,
            errors=self.errors,
            checkpoint=self.checkpoint,
            topics=[] if kafka else [self.access],
            kafka_bootstrap=",".join(self.topics.cluster.agent(name).kafka_address for name in agents) if kafka else "",
        )
        self.client(request)
        return ref

    def read(self, ref: engine.RunRef, rows: int) -> None:
        until(lambda: keep(self.client, ref).progress.rows_in >= rows, f"{rows} rows to be read")


@pytest.fixture
def native(topics: Log, client: Client, edges: Edges, checkpoint: str) -> Iterator[Any]:
    made: list[Native] = []

    def make(partitions: int = 1) -> Native:
        made.append(Native(topics, client, edges, checkpoint, partitions))
        return made[-1]

    yield make
    for one in made:
        if not one.epoch:
            continue
        ref = engine.RunRef(fragment_uid=one.uid, epoch=one.epoch)
        client(engine.StopFragmentRequest(run=ref))
        until(lambda ref=ref: client.run(ref).state in (4, 5, 6), "the run to stop")


def even(rows: list[Row]) -> Counter[tuple[Any, ...]]:
    return Counter((row["k"], row["v"], row["ts"]) for row in rows if row["v"] % 2 == 0)


def seen(rows: list[Row]) -> Counter[tuple[Any, ...]]:
    return Counter((row["k"], row["v"], row["ts"]) for row in rows)


@pytest.mark.parametrize("kind", ["JSON", "ARROW"])
def test_rows_come_once_over_runs_and_bad_records_go_to_the_error_topic(kind: str, native: Any, edges: Edges) -> None:
    one = native(partitions=2)
    rows = events(51, 60)
    good = as_json(rows) if kind == "JSON" else [as_arrow(rows[:30]), as_arrow(rows[30:])]
    half = len(good) // 2
    one.send(*good[:half])
    one.send(b"no such thing \xff", None, partition=1)
    plan = one.filtering(kind)
    ref = one.start(plan)
    one.read(ref, 30)
    assert one.client.run(ref).progress.bad_records == 2
    one.client(engine.StopFragmentRequest(run=ref))
    one.client.wait(ref, engine.RUN_STATE_STOPPED)
    one.send(*good[half:], partition=1)
    ref = one.start(plan)
    one.read(ref, 30)
    one.client(engine.StopFragmentRequest(run=ref, mode=engine.STOP_MODE_SOFT))
    run = one.client.wait(ref, engine.RUN_STATE_STOPPED)
    assert run.progress.lag == 0
    assert seen(edges.rows(one.out.topic_uid)) == even(rows)
    bad = sorted(edges.rows(one.errors.topic_uid), key=lambda row: row["place"])
    where = f"of topic {one.topic.name} (source events)"
    assert [row["place"] for row in bad] == [f"partition 1, offset {number} {where}" for number in (0, 1)]
    assert [row["raw"] for row in bad] == ["no such thing \ufffd", None]
    assert "declared columns" in bad[0]["reason"]


def test_a_soft_stop_reads_to_its_moment_and_emits_every_open_window(native: Any, edges: Edges) -> None:
    one = native(partitions=2)
    rows = events(52, 80)
    plan = windowed(1)
    plan.inputs[0].topic.CopyFrom(one.origin())
    one.send(*as_json(rows[:40]))
    ref = one.start(plan)
    one.read(ref, 40)
    one.send(*as_json(rows[40:]), partition=1)
    one.client(engine.StopFragmentRequest(run=ref, mode=engine.STOP_MODE_SOFT))
    run = one.client.wait(ref, engine.RUN_STATE_STOPPED)
    assert seen_windows(edges.rows(one.out.topic_uid)) == windows(rows)
    assert run.progress.rows_late == 0
    assert edges.topics[one.out.topic_uid].ended


@pytest.mark.parametrize("kind", ["JSON", "ARROW"])
def test_a_bad_record_ends_the_run_with_its_place_where_the_source_says_so(
    kind: str, native: Any, edges: Edges
) -> None:
    one = native()
    one.send(*(as_json(events(53, 3)) if kind == "JSON" else [as_arrow(events(53, 3))] * 3))
    one.send(b"{broken")
    ref = one.start(one.filtering(kind, on_error="fail"))
    run = one.client.wait(ref, engine.RUN_STATE_FAILED)
    assert (run.error.reason, run.error.transient) == ("BAD_RECORD", False)
    assert run.error.message.startswith(f"partition 0, offset 3 of topic {one.topic.name} (source events): the record")
    assert edges.rows(one.out.topic_uid) == []


def required(plan: catalog.ComputeFragment, *names: str) -> catalog.ComputeFragment:
    """The plan with columns of its input that are NOT NULL."""
    for field in plan.inputs[0].schema.fields:
        field.not_null = field.name in names
    return plan


@pytest.mark.parametrize("kind", ["JSON", "ARROW"])
def test_null_where_a_column_is_not_null_is_a_bad_record(kind: str, native: Any, edges: Edges) -> None:
    one = native()
    rows = events(58, 20)
    lacking: list[Row] = [{"k": "x", "v": 2, "ts": None}]
    if kind == "JSON":
        one.send(*as_json(rows), b'{"k":"x","v":2}', b'{"k":"x","v":2,"ts":null}', b"", b" ")
    else:
        one.send(as_arrow(rows), as_arrow(lacking), as_arrow([*rows[:3], *lacking]))
    bad = 4 if kind == "JSON" else 2
    ref = one.start(required(one.filtering(kind), "ts"))
    until(lambda: keep(one.client, ref).progress.bad_records == bad, "bad records")
    one.client(engine.StopFragmentRequest(run=ref, mode=engine.STOP_MODE_SOFT))
    assert one.client.wait(ref, engine.RUN_STATE_STOPPED).progress.rows_in == 20
    assert seen(edges.rows(one.out.topic_uid)) == even(rows)
    found = sorted(edges.rows(one.errors.topic_uid), key=lambda row: row["place"])
    missing, blank = (
        "column ts is NOT NULL and there is NULL",
        "the record is not a JSON object of the declared columns",
    )
    assert [row["reason"] for row in found] == [missing] * 2 + [blank] * (bad - 2)

    other = native()
    other.send(*(as_json(rows[:2]) if kind == "JSON" else [as_arrow(rows[:1]), as_arrow(rows[1:2])]))
    other.send(b'{"k":"x","v":2}' if kind == "JSON" else as_arrow(lacking))
    ref = other.start(required(other.filtering(kind, on_error="fail"), "ts"))
    run = other.client.wait(ref, engine.RUN_STATE_FAILED)
    where = f"partition 0, offset 2 of topic {other.topic.name} (source events)"
    assert (run.error.reason, run.error.transient) == ("BAD_RECORD", False)
    assert run.error.message == f"{where}: {missing}"
    assert edges.rows(other.out.topic_uid) == []


def test_what_can_be_read_of_a_bad_record_does_not_move_the_watermark(native: Any, edges: Edges) -> None:
    one = native()
    rows = events(59, 80)
    plan = windowed(1)
    plan.inputs[0].topic.CopyFrom(one.origin())
    one.send(
        *as_json(rows[:40]), b'{"v":1,"ts":"2099-01-01T00:00:00Z"}', b'{"k":"x","v":"y","ts":"2099-01-01T00:00:00Z"}'
    )
    ref = one.start(required(plan, "k"))
    one.read(ref, 40)
    until(lambda: keep(one.client, ref).progress.watermark.seconds, "the watermark")
    one.send(*as_json(rows[40:]))
    one.read(ref, 80)
    one.client(engine.StopFragmentRequest(run=ref, mode=engine.STOP_MODE_SOFT))
    run = one.client.wait(ref, engine.RUN_STATE_STOPPED)
    assert (run.progress.bad_records, run.progress.rows_late) == (2, 0)
    assert seen_windows(edges.rows(one.out.topic_uid)) == windows(rows)


def test_where_a_query_begins_is_found_out_once(native: Any, edges: Edges) -> None:
    """The first batch fails before it is committed; what the next run reads begins where the first one did."""
    one = native()
    rows = events(54, 20)
    one.send(*as_json(rows))
    plan = one.filtering()
    plan.start = "latest"
    ref = one.start(plan)
    one.client.wait(ref, engine.RUN_STATE_RUNNING)
    one.client(engine.StopFragmentRequest(run=ref))
    one.client.wait(ref, engine.RUN_STATE_STOPPED)
    later = events(55, 20, first=100)
    one.send(*as_json(later))
    ref = one.start(plan)
    one.read(ref, 20)
    assert seen(edges.rows(one.out.topic_uid)) == even(later)


def test_a_query_begins_where_its_deployment_found_the_end(native: Any, edges: Edges) -> None:
    """Of two partitions; what came between the deployment and the first start is read, and no later plan moves it."""
    one = native(2)
    before, between, later = events(61, 20), events(62, 20, first=100), events(63, 20, first=200)
    one.send(*as_json(before[:15]))
    one.send(*as_json(before[15:]), partition=1)
    plan = one.filtering()
    plan.start = "latest"
    plan.starts.add(physical_source="elsewhere", topic_uid="another", offsets=[1000])
    plan.starts.add(physical_source="events", topic_uid=one.topic.uid, offsets=[15, 5])
    one.send(*as_json(between[:10]))
    one.send(*as_json(between[10:]), partition=1)
    ref = one.start(plan)
    one.read(ref, 20)
    one.client(engine.StopFragmentRequest(run=ref))
    one.client.wait(ref, engine.RUN_STATE_STOPPED)
    one.send(*as_json(later))
    del plan.starts[1].offsets[:]
    plan.starts[1].offsets.extend([45, 25])
    ref = one.start(plan)
    one.read(ref, 20)
    assert seen(edges.rows(one.out.topic_uid)) == even(between + later)


def test_a_topic_that_was_created_again_since_the_deployment_is_not_taken_for_its_namesake(native: Any) -> None:
    one = native()
    plan = one.filtering()
    plan.start = "latest"
    plan.starts.add(physical_source="events", topic_uid="former", offsets=[0])
    ref = one.start(plan)
    run = one.client.wait(ref, engine.RUN_STATE_FAILED)
    assert run.error.reason == "EDGE_DATA_LOST"
    assert "was created again" in run.error.message


def test_a_topic_that_nobody_says_where_it_is_is_refused(native: Any) -> None:
    one = native()
    plan = one.filtering()
    plan.inputs[0].topic.options["topic"] = "elsewhere"
    ref = one.start(plan)
    run = one.client.wait(ref, engine.RUN_STATE_FAILED)
    assert run.error.message == "topics: nothing says where topic elsewhere is"


@pytest.mark.usefixtures("spark_kafka_jars")
def test_a_source_chooses_the_kafka_protocol_instead(native: Any, edges: Edges) -> None:
    one = native()
    rows = events(57, 20)
    one.send(*as_json(rows))
    plan = one.filtering()
    plan.inputs[0].topic.options["transport"] = "kafka"
    ref = one.start(plan, kafka=True)
    one.read(ref, 20)
    assert seen(edges.rows(one.out.topic_uid)) == even(rows)


def test_the_leader_is_followed_when_it_dies(native: Any, edges: Edges, topics: Log) -> None:
    one = native(partitions=2)
    rows = events(56, 80)
    one.send(*as_json(rows[:20]))
    one.send(*as_json(rows[20:40]), partition=1)
    ref = one.start(one.filtering())
    one.read(ref, 40)
    leaders = topics.leaders(one.topic.name)
    gone = topics.cluster.agents[leaders[0]]
    gone.kill()

    def moved() -> bool:
        keep(one.client, ref)
        return leaders[0] not in topics.leaders(one.topic.name).values()

    try:
        until(moved, "the partitions to be led by the other agent")
        one.send(*as_json(rows[40:60]))
        one.send(*as_json(rows[60:]), partition=1)
        one.read(ref, 80)
        assert seen(edges.rows(one.out.topic_uid)) == even(rows)
    finally:
        gone.start()


def batch_over(one: Native, kind: str = "JSON", parser: dict[str, str] | None = None, **range_: list[int]) -> Any:
    """A batch that counts and sums what is in a range of the topic."""
    records = engine.RecordRange(access=one.access, parser_options={"type": kind, **(parser or {})}, **range_)
    columns = schema(k="VARCHAR", v="INT64", ts="TIMESTAMP")
    entry = engine.BatchInput(view="t", schema=columns, records=records)
    sql = "SELECT k, count(*) AS n, sum(v) AS total FROM t GROUP BY k"
    table, _ = one.client.batch(engine.ExecuteBatchRequest(sql=sql, inputs=[entry]))
    return {row["k"]: (row["n"], row["total"]) for row in table.to_pylist()}


def totals(rows: list[Row]) -> dict[str, tuple[int, int]]:
    found: dict[str, list[int]] = {}
    for row in rows:
        found.setdefault(row["k"], []).append(row["v"])
    return {key: (len(values), sum(values)) for key, values in found.items()}


def test_a_batch_reads_a_range_of_a_topic_or_all_that_is_there(native: Any) -> None:
    one = native(2)
    rows = events(81, 40)
    one.send(*as_json(rows[:25]), partition=0)
    one.send(*as_json(rows[25:]), b"no row", partition=1)
    assert batch_over(one) == totals(rows), "a record that is no row is left out"
    assert batch_over(one, from_offsets=[5, 3], until_offsets=[20, 10]) == totals([*rows[5:20], *rows[28:35]])
    assert batch_over(one, from_offsets=[25, 2], until_offsets=[25, 2]) == {}
    with pytest.raises(HeadgateError, match="BAD_RECORD"):
        batch_over(one, parser={"on_error": "fail"})
    with pytest.raises(HeadgateError, match="ends at 25"):
        batch_over(one, from_offsets=[0, 0], until_offsets=[26, 16])
    with pytest.raises(HeadgateError, match="each of its 2 partitions"):
        batch_over(one, until_offsets=[25])


def test_a_batch_reads_arrow_records_of_a_topic(native: Any) -> None:
    one = native()
    rows = events(82, 30)
    one.send(as_arrow(rows[:10]), as_arrow(rows[10:]))
    assert batch_over(one, "ARROW", until_offsets=[1]) == totals(rows[:10])
