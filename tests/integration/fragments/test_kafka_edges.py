"""Edges that are topics of a real Kafka broker, in what only they do: their topics, their transactions, clusters that
are away or refuse. `test_edges.py` has what edges of both kinds do."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pyarrow as pa
import pytest

from headgate_agent.errors import EDGE_MISSING
from headgate_agent.fragments.kafka_calls import KafkaTimings
from headgate_agent.fragments.kafka_edge_topics import KafkaEdgeTopic, Reach, discard_edges
from headgate_agent.fragments.kafka_edges import KafkaEdgeReader, KafkaEdgeWriter
from headgate_agent.work import Threads
from headgate_common.clock import SystemClock
from headgate_common.errors import HeadgateError
from tests.integration.fragments.node import FAILED, TERMINATED, KafkaNode, rows, running_node, topic_at, write
from tests.servers.ports import free_port

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
async def node(tmp_path: Path, kafka_bootstrap: str) -> AsyncIterator[KafkaNode]:
    async with running_node(tmp_path, kafka_bootstrap) as made:
        assert isinstance(made, KafkaNode)
        yield made


async def test_what_was_delivered_is_deleted(node: KafkaNode) -> None:
    write(node, 0, 1000)
    node.start(node.source())
    assert (await node.ended()).state == TERMINATED
    # A transaction is seen a moment after its commit was answered.
    await node.until(lambda: node.bounds()[1] > 1)
    assert (await asyncio.to_thread(node.bounds))[0] == 0
    node.start(node.sink())
    assert (await node.ended()).state == TERMINATED
    assert node.delivered == rows(1000)
    assert (await asyncio.to_thread(node.bounds))[0] > 0


async def test_the_topic_goes_with_either_end_and_a_second_time_is_fine(node: KafkaNode) -> None:
    write(node, 0, 5)
    node.start(node.source())
    assert (await node.ended()).state == TERMINATED
    assert await asyncio.to_thread(node.there)
    await node.runner.discard(node.source())
    await node.until(lambda: not node.there())
    await node.runner.discard(node.sink())


async def test_brokers_that_are_away_are_named_while_they_are_waited_for(node: KafkaNode) -> None:
    node.bootstrap = f"127.0.0.1:{free_port()}"
    write(node, 0, 5)
    node.start(node.source())
    await node.until(lambda: any(node.bootstrap in report.waiting for report in node.reports))
    node.start(node.sink())
    await node.until(lambda: sum(node.bootstrap in report.waiting for report in node.reports) >= 2)


async def test_a_cluster_that_refuses_the_client_fails_the_run_for_good(node: KafkaNode) -> None:
    assignment = node.source()
    assignment.topics[1].kafka.update({"security_protocol": "SSL", "ssl_ca_location": "/no/such/ca.pem"})
    write(node, 0, 5)
    node.start(assignment)
    report = await node.ended()
    assert report.state == FAILED and report.error is not None
    assert (report.error.reason, report.error.transient) == ("EDGE_REFUSED", False)


def reach() -> Reach:
    return Reach(SystemClock(), random.Random(1), Threads(2, "reach"), KafkaTimings(patience=5.0, step=0.5))


async def test_a_sink_whose_records_are_gone_does_not_go_on_without_them(node: KafkaNode) -> None:
    topic = node.topics[1]
    opened = KafkaEdgeTopic(topic, reach(), lambda what: None)
    await opened.open()
    await opened.close()
    reader = KafkaEdgeReader(topic, reach(), lambda what: None)
    assert await reader.start() == 0
    with pytest.raises(HeadgateError) as raised:
        await reader.read(7, max_bytes=1, wait=0.1)
    assert raised.value.reason == EDGE_MISSING
    await reader.close()


async def test_a_position_is_found_behind_what_a_killed_run_left_open(node: KafkaNode) -> None:
    def writer() -> KafkaEdgeWriter:
        return KafkaEdgeWriter(
            node.topics[1],
            None,
            reach(),
            fragment=node.name,
            max_lag=1 << 20,
            most_bytes=1 << 20,
            work=node.work,
            waiting=lambda what: None,
        )

    first = writer()
    assert await first.stored() is None
    await first.append([pa.RecordBatch.from_pylist([{"id": 1}])], b"one")
    producer = first._producer
    assert producer is not None
    producer.begin_transaction()
    for number in range(100):
        producer.produce(node.name, b"never seen %d" % number, None, 0)
    producer.flush(10)
    second = writer()
    stored = await second.stored()
    assert stored is not None and (stored.position, stored.ended) == (b"one", False)
    with pytest.raises(HeadgateError):
        await first.append([pa.RecordBatch.from_pylist([{"id": 2}])], b"two")
    await second.append([], b"three", end=True)
    await second.close()
    third = writer()
    stored = await third.stored()
    assert stored is not None and (stored.position, stored.ended) == (b"three", True)
    await third.close()
    await first.close()


async def test_a_cluster_that_is_gone_keeps_no_query_from_its_end(caplog: pytest.LogCaptureFixture) -> None:
    topic = topic_at(f"127.0.0.1:{free_port()}", "left")
    async with asyncio.timeout(30):
        await discard_edges([topic], Threads(1), timeout=0.5)
    assert "is left on Kafka" in caplog.text
