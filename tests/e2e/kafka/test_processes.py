"""Kafka clients against a real coordinator and real agents that are killed, stopped and started."""

from __future__ import annotations

import resource
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.e2e.life.kit import Cluster, Process, cluster_of, until
from tests.integration.kafka.test_confluent import PATIENCE, read
from tests.integration.kafka.test_moving import Traffic

pytestmark = pytest.mark.slow


def addresses(cluster: Cluster) -> str:
    return ",".join(cluster.agent(name).kafka_address for name in cluster.agents)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with cluster_of(tmp_path, "a", "b", "c") as made:
        yield made


def create(bootstrap: str, durability: str = "OBJECT", partitions: int = 6) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    config = {"headgate.durability": durability, "headgate.linger.ms": "20"}
    admin.create_topics([NewTopic("t", partitions, config=config)])["t"].result(PATIENCE)
    until(lambda: _led(admin, partitions), "leaders")


def _led(admin: AdminClient, partitions: int) -> bool:
    found = admin.list_topics(timeout=PATIENCE).topics["t"].partitions
    return len(found) == partitions and all(one.leader > 0 for one in found.values())


def complete(traffic: Traffic) -> None:
    """Everything acknowledged was seen by the group, nothing was acknowledged twice, and nothing failed."""
    traffic.end()
    assert not traffic.failed
    assert len(set(traffic.acknowledged)) == len(traffic.acknowledged)
    assert set(traffic.seen) >= set(traffic.acknowledged)


def stored(bootstrap: str, partitions: int = 6) -> list[bytes]:
    """Everything in the topic, by partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "checker"})
    found: list[bytes] = []
    for number in range(partitions):
        partition = TopicPartition("t", number, 0)
        _, end = consumer.get_watermark_offsets(partition, timeout=PATIENCE)
        consumer.assign([partition])
        found += read(consumer, end)
    consumer.close()
    return found


def test_a_producer_and_a_group_survive_the_death_of_an_agent(cluster: Cluster) -> None:
    bootstrap = addresses(cluster)
    create(bootstrap)
    traffic = Traffic(bootstrap)
    until(lambda: len(traffic.seen) > 200, "traffic")
    cluster.agents["b"].kill()
    before = len(traffic.acknowledged)
    until(lambda: len(traffic.acknowledged) > before + 500, "traffic after the death")
    time.sleep(8)
    complete(traffic)
    values = stored(bootstrap)
    assert len(values) == len(set(values)), "no duplicate"
    assert set(values) >= set(traffic.acknowledged), "nothing lost"


UNDER_LIMIT = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (200, 400))
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


def test_idle_connections_leave_an_agent_its_open_files(tmp_path: Path) -> None:
    """More of them than the agent may have files: whoever is connected goes on."""
    with cluster_of(tmp_path) as cluster, ExitStack() as stack:
        agent = cluster.agents["few"] = Process("few", ["-c", UNDER_LIMIT, *cluster.agent_arguments("few")], tmp_path)
        agent.start()
        until(lambda: cluster.is_active("few"), "the agent to be ACTIVE")
        soft, hard = resource.prlimit(agent.pid, resource.RLIMIT_NOFILE)
        assert (soft, hard) == (400, 400)
        bootstrap = addresses(cluster)
        create(bootstrap, "WAL", partitions=1)
        producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        delivered: list[object] = []

        def produce(count: int) -> None:
            for _ in range(count):
                producer.produce("t", b"value", on_delivery=lambda error, _: delivered.append(error))
            assert producer.flush(PATIENCE) == 0

        produce(10)
        host, _, port = bootstrap.rpartition(":")
        for _ in range(500):
            stack.enter_context(socket.create_connection((host, int(port)), timeout=PATIENCE))
        produce(100)
        assert delivered == [None] * 110
        written = (tmp_path / "few-1.log").read_text()
        assert written.count("fewer kafka connections than configured") == 1
        assert "Too many open files" not in written
        assert written.count("kafka connection refused") <= 5


def test_a_graceful_stop_hands_over(cluster: Cluster) -> None:
    bootstrap = addresses(cluster)
    create(bootstrap)
    traffic = Traffic(bootstrap)
    until(lambda: len(traffic.seen) > 200, "traffic")
    cluster.agents["a"].signal(signal.SIGTERM)
    cluster.agents["a"].wait_for_death()
    before = len(traffic.acknowledged)
    until(lambda: len(traffic.acknowledged) > before + 200, "traffic after the stop")
    complete(traffic)
    values = stored(bootstrap)
    assert sorted(values) == sorted(traffic.acknowledged)


@pytest.mark.parametrize("durability", ["OBJECT", "WAL"])
def test_everything_is_there_after_all_processes_were_killed(cluster: Cluster, durability: str) -> None:
    bootstrap = addresses(cluster)
    create(bootstrap, durability, 3)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    values = [b"%d" % number for number in range(1000)]
    for value in values:
        producer.produce("t", value, key=value)
    assert producer.flush(PATIENCE) == 0
    processes = (*cluster.agents.values(), cluster.coordinator)
    for one in processes:
        one.kill()
    for one in reversed(processes):
        one.start()
    bootstrap = addresses(cluster)
    until(lambda: _led(AdminClient({"bootstrap.servers": bootstrap}), 3), "leaders")
    assert sorted(stored(bootstrap, 3)) == sorted(values)


def test_a_coordinator_restart_refuses_no_produce(cluster: Cluster) -> None:
    bootstrap = addresses(cluster)
    create(bootstrap, "WAL", 3)
    traffic = Traffic(bootstrap)
    until(lambda: len(traffic.seen) > 200, "traffic")
    cluster.coordinator.kill()
    before = len(traffic.acknowledged)
    until(lambda: len(traffic.acknowledged) > before + 50, "traffic without a coordinator")
    cluster.coordinator.start()
    complete(traffic)


def test_clients_are_told_the_advertised_address(tmp_path: Path) -> None:
    with cluster_of(tmp_path) as cluster:
        cluster.add_agent("a", "--kafka-advertise", "localhost:0")
        until(lambda: bool(cluster.agent("a").kafka_address), "the agent")
        host, _, port = cluster.agent("a").kafka_address.rpartition(":")
        assert (host, port != "0") == ("localhost", True)
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"})
        (broker,) = admin.list_topics(timeout=PATIENCE).brokers.values()
        assert (broker.host, str(broker.port)) == ("localhost", port)
