"""The KAFKA sink against a real broker: each row once for whoever reads what is committed."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import random
import signal
import time
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from headgate.catalog import v1 as catalog
from headgate_agent.errors import (
    RECORD_TOO_LARGE,
    SINK_MISSING,
    SINK_REFUSED,
    SINK_UNAVAILABLE,
    STALE_EPOCH,
)
from headgate_agent.fragments.sinks.build import Reach, build_sink, discard_sink
from headgate_agent.fragments.sinks.kafka import KafkaSink, KafkaTimings, name_of
from headgate_agent.fragments.sinks.sink import Sink, run_sink
from headgate_agent.work import Threads
from headgate_common.clock import SystemClock
from headgate_common.errors import HeadgateError
from tests.integration.fragments.delivering import (
    COLUMNS,
    SETTINGS,
    ComputedEdge,
    batch_at,
    deliver_to_kafka,
    numbers,
    rows_of,
)
from tests.servers.kafka import running_kafka
from tests.servers.ports import free_port
from tests.unit.fragments.kit import sink_fragment

pytestmark = pytest.mark.timeout(180)

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.integration.fragments.delivering"])
_NUMBERS = itertools.count()


class Target:
    """A topic of the broker."""

    def __init__(self, bootstrap: str, partitions: int) -> None:
        self.name = f"sink-{os.getpid()}-{next(_NUMBERS)}"
        self.bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        self.admin.create_topics([NewTopic(self.name, partitions, 1)])[self.name].result(30)
        self.partitions = partitions

    @property
    def options(self) -> dict[str, str]:
        return {"bootstrap_servers": self.bootstrap, "topic": self.name}

    def read(self, isolation: str = "read_committed") -> list[list[tuple[bytes | None, bytes]]]:
        """Keys and values of each partition."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": f"reader-{next(_NUMBERS)}",
                "isolation.level": isolation,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )
        found: list[list[tuple[bytes | None, bytes]]] = [[] for _ in range(self.partitions)]
        try:
            consumer.assign([TopicPartition(self.name, index, 0) for index in range(self.partitions)])
            ended: set[int] = set()
            deadline = time.monotonic() + 60
            while len(ended) < self.partitions:
                assert time.monotonic() < deadline
                message = consumer.poll(1.0)
                if message is None:
                    continue
                partition = message.partition()
                assert partition is not None
                if message.error() is not None:
                    ended.add(partition)
                else:
                    found[partition].append((message.key(), message.value() or b""))
        finally:
            consumer.close()
        return found


def sink_to(
    target: Mapping[str, str], identity: str, work: Threads, columns: str = COLUMNS, **timings: float
) -> KafkaSink:
    fragment = sink_fragment(catalog.SINK_TYPE_KAFKA, target, columns)
    return KafkaSink(
        identity,
        fragment.options,
        fragment.update_keys,
        clock=SystemClock(),
        source=random.Random(1),
        blocking=work,
        timings=KafkaTimings(**timings),
    )


@pytest.fixture
def work() -> Threads:
    return Threads(2)


def all_rows(count: int) -> list[int]:
    return [n for batch in range(count) for n in rows_of(batch)]


async def test_rows_are_records_with_the_key_of_their_column(kafka_bootstrap: str, work: Threads) -> None:
    target = Target(kafka_bootstrap, 3)
    fragment = sink_fragment(catalog.SINK_TYPE_KAFKA, {**target.options, "key_column": "k"}, COLUMNS)
    reach = Reach(SystemClock(), random.Random(1))
    sink: Sink = build_sink("rows", fragment, state=Path("unused"), config=SETTINGS, blocking=work, reach=reach)
    edge = ComputedEdge(50)
    await run_sink(sink, edge, SETTINGS, SystemClock())
    assert edge.trimmed == 50
    found = target.read()
    assert sorted(numbers([value for part in found for _, value in part])) == all_rows(50)
    for part in found:
        there = numbers([value for _, value in part])
        assert there == sorted(there)
        assert [key for key, _ in part] == [f"k{n % 7}".encode() for n in there]
    # As the Java client chooses: one partition for each key.
    places = {key: index for index, part in enumerate(found) for key, _ in part}
    assert all(places[key] == index for index, part in enumerate(found) for key, _ in part)
    assert sink.delivered.rows == len(all_rows(50))


async def test_arrow_records_hold_whole_batches_and_large_ones_are_cut(kafka_bootstrap: str, work: Threads) -> None:
    target = Target(kafka_bootstrap, 1)
    sink = sink_to({**target.options, "format": "ARROW"}, "arrow", work, "n INT64, t VARCHAR")
    small = pa.RecordBatch.from_pydict({"n": [1, 2], "t": ["a", "b"]})
    large = pa.RecordBatch.from_pydict({"n": list(range(300)), "t": ["x" * 10_000] * 300})
    await sink.open(0)
    await sink.deliver([small, large], 2)
    assert await sink.flush() == 2
    await sink.close()
    (found,) = target.read()
    read = [pa.ipc.open_stream(value).read_all() for _, value in found]
    assert read[0].to_pylist() == small.to_pylist()
    assert [n for table in read[1:] for n in table["n"].to_pylist()] == list(range(300))
    assert max(len(value) for _, value in found) < 1_000_000


async def test_what_was_not_flushed_is_not_seen_and_is_delivered_by_the_next_run(
    kafka_bootstrap: str, work: Threads
) -> None:
    target = Target(kafka_bootstrap, 2)
    first = sink_to(target.options, "next-run", work)
    assert await first.open(0) == 0
    await first.deliver([batch_at(0)], 1)
    assert await first.flush() == 1
    await first.deliver([batch_at(2), batch_at(3)], 4)
    await first.close()
    second = sink_to(target.options, "next-run", work)
    assert await second.open(0) == 1
    await second.deliver([batch_at(number) for number in range(1, 4)], 4)
    assert await second.flush() == 4
    await second.close()
    assert sorted(numbers([value for part in target.read() for _, value in part])) == all_rows(4)


async def test_a_run_that_another_one_has_replaced_is_shut_out(kafka_bootstrap: str, work: Threads) -> None:
    target = Target(kafka_bootstrap, 1)
    old = sink_to(target.options, "replaced", work)
    await old.open(0)
    await old.deliver([batch_at(0)], 1)
    new = sink_to(target.options, "replaced", work)
    assert await new.open(0) == 0
    await new.deliver([batch_at(0)], 1)
    with pytest.raises(HeadgateError) as raised:
        await old.flush()
    assert raised.value.reason is STALE_EPOCH, raised.value
    await old.close()
    assert await new.flush() == 1
    await new.close()
    assert numbers([value for _, value in target.read()[0]]) == all_rows(1)


async def test_batches_without_rows_move_the_position_too(kafka_bootstrap: str, work: Threads) -> None:
    target = Target(kafka_bootstrap, 1)
    sink = sink_to(target.options, "empty", work)
    await sink.open(0)
    await sink.deliver([batch_at(1)], 7)
    assert await sink.flush() == 7
    await sink.close()
    again = sink_to(target.options, "empty", work)
    assert await again.open(0) == 7
    await again.close()
    assert target.read() == [[]]


async def test_a_missing_topic_is_refused_by_name_and_not_created(kafka_bootstrap: str, work: Threads) -> None:
    sink = sink_to({"bootstrap_servers": kafka_bootstrap, "topic": "nowhere"}, "missing", work)
    with pytest.raises(HeadgateError) as raised:
        await sink.open(0)
    await sink.close()
    assert raised.value.reason is SINK_MISSING
    assert "nowhere" in raised.value.message
    assert "nowhere" not in AdminClient({"bootstrap.servers": kafka_bootstrap}).list_topics(timeout=10).topics


async def test_no_broker_is_an_error_that_may_pass(work: Threads) -> None:
    options = {"bootstrap_servers": f"127.0.0.1:{free_port()}", "topic": "t"}
    sink = sink_to(options, "nobody", work, patience=1.5, step=0.3)
    with pytest.raises(HeadgateError) as raised:
        await sink.open(0)
    await sink.close()
    assert raised.value.reason is SINK_UNAVAILABLE
    assert "topic t" in raised.value.message


async def test_a_client_that_cannot_be_made_is_refused(kafka_bootstrap: str, work: Threads) -> None:
    options = {
        "bootstrap_servers": kafka_bootstrap,
        "topic": "t",
        "security_protocol": "SSL",
        "ssl_ca_location": "/nowhere/ca.pem",
    }
    sink = sink_to(options, "refused", work)
    with pytest.raises(HeadgateError) as raised:
        await sink.open(0)
    await sink.close()
    assert raised.value.reason is SINK_REFUSED


async def test_a_user_that_the_brokers_do_not_take_is_refused(kafka_bootstrap: str, work: Threads) -> None:
    options = {
        "bootstrap_servers": kafka_bootstrap,
        "topic": "t",
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_username": "user",
        "sasl_password": "a secret",
    }
    sink = sink_to(options, "user", work, step=0.5)
    with pytest.raises(HeadgateError) as raised:
        await sink.open(0)
    await sink.close()
    assert raised.value.reason is SINK_REFUSED
    assert "a secret" not in str(raised.value)


async def test_a_broker_that_dies_is_an_error_that_may_pass(tmp_path: Path, work: Threads) -> None:
    with running_kafka(tmp_path / "kafka.log") as server:
        target = Target(server.bootstrap, 1)
        sink = sink_to(target.options, "dies", work, patience=2.0, step=0.5, closing=0.5)
        await sink.open(0)
        await sink.deliver([batch_at(0)], 1)
        assert await sink.flush() == 1
        server.process.stop()
        await sink.deliver([batch_at(2)], 3)
        with pytest.raises(HeadgateError) as raised:
            await sink.flush()
        await sink.close()
        assert raised.value.reason is SINK_UNAVAILABLE
        assert target.name in raised.value.message


async def test_a_row_that_is_too_large_for_the_topic_is_no_passing_error(kafka_bootstrap: str, work: Threads) -> None:
    target = Target(kafka_bootstrap, 1)
    sink = sink_to(target.options, "large", work, "t VARCHAR")
    await sink.open(0)
    with pytest.raises(HeadgateError) as raised:
        await sink.deliver([pa.RecordBatch.from_pydict({"t": ["x" * 3_000_000]})], 1)
        await sink.flush()
    await sink.close()
    assert raised.value.reason is RECORD_TOO_LARGE, raised.value
    assert target.read() == [[]]


async def test_more_rows_than_the_client_holds_are_waited_for(kafka_bootstrap: str, work: Threads) -> None:
    target = Target(kafka_bootstrap, 1)
    sink = sink_to(target.options, "many", work, "n INT64")
    await sink.open(0)
    batch = pa.RecordBatch.from_pydict({"n": list(range(250_000))})
    await sink.deliver([batch], 1)
    assert await sink.flush() == 1
    await sink.close()
    assert numbers([value for _, value in target.read()[0]]) == list(range(250_000))


async def test_a_fragment_that_is_gone_leaves_no_group(kafka_bootstrap: str, work: Threads) -> None:
    target = Target(kafka_bootstrap, 1)
    fragment = sink_fragment(catalog.SINK_TYPE_KAFKA, target.options, COLUMNS)
    sink = sink_to(target.options, "gone", work)
    await sink.open(0)
    await sink.deliver([batch_at(0)], 1)
    await sink.flush()
    await sink.close()

    def groups() -> set[str]:
        return {group.group_id for group in target.admin.list_consumer_groups().result(30).valid}

    assert name_of("gone") in groups()
    for _ in range(2):
        await discard_sink("gone", fragment, state=Path("unused"), blocking=work)
        assert name_of("gone") not in groups()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_killed_at_random_moments_it_delivers_every_row_once_and_in_order(
    kafka_bootstrap: str, tmp_path: Path, seed: int
) -> None:
    target = Target(kafka_bootstrap, 2)
    options = {**target.options, "key_column": "k"}
    moments = random.Random(seed)
    count, kills, starts = 1_500, 0, 0
    while True:
        ready = tmp_path / f"ready-{starts}"
        starts += 1
        assert starts < 60
        process = PROCESSES.Process(
            target=deliver_to_kafka, args=(tmp_path, f"killed-{seed}", options, count, ready), daemon=True
        )
        process.start()
        while not ready.exists() and process.is_alive():
            time.sleep(0.005)
        process.join(moments.uniform(0.0, 0.8) if kills < 6 else 60)
        if process.is_alive():
            assert process.pid is not None
            os.kill(process.pid, signal.SIGKILL)
            process.join(20)
            kills += 1
            continue
        assert process.exitcode == 0
        break
    assert kills >= 3
    found = target.read()
    for part in found:
        there = numbers([value for _, value in part])
        assert there == sorted(there)
    assert sorted(numbers([value for part in found for _, value in part])) == all_rows(count)
