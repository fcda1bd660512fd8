"""What clients see when connections break, and through an address other than the bound one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.integration.kafka.test_confluent import PATIENCE, read
from tests.servers.tcp_proxy import TcpProxy, tcp_proxy
from tests.unit.kafka.kit import CONFIG, Cluster, running_cluster


@pytest.fixture
def behind(tmp_path: Path) -> Iterator[tuple[Cluster, TcpProxy]]:
    """One agent that clients know only by the address of a proxy."""
    with tcp_proxy() as proxy, running_cluster(tmp_path, agents=0) as cluster:
        agent = cluster.run(cluster.add("agent", replace(CONFIG, advertise=f"localhost:{proxy.port}")))
        proxy.target = agent.port.bound
        assert agent.address == f"localhost:{proxy.port}"
        yield cluster, proxy


def test_clients_use_the_advertised_address(behind: tuple[Cluster, TcpProxy]) -> None:
    cluster, proxy = behind
    (agent,) = cluster.agents.values()
    admin = AdminClient({"bootstrap.servers": agent.port.bound})
    admin.create_topics([NewTopic("t", 1)])["t"].result(PATIENCE)
    (broker,) = admin.list_topics(timeout=PATIENCE).brokers.values()
    assert (broker.host, broker.port) == ("localhost", proxy.port)
    producer = Producer({"bootstrap.servers": agent.port.bound})
    producer.produce("t", b"x")
    assert producer.flush(PATIENCE) == 0
    made = Consumer({"bootstrap.servers": agent.port.bound, "group.id": "g", "auto.offset.reset": "earliest"})
    made.subscribe(["t"])
    assert read(made, 1) == [b"x"]
    made.close()
    assert proxy.connections >= 3


@pytest.mark.parametrize("durability", ["WAL", "OBJECT"])
def test_an_idempotent_producer_leaves_no_duplicate_when_its_connections_are_cut(
    behind: tuple[Cluster, TcpProxy], durability: str
) -> None:
    cluster, proxy = behind
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    config = {"headgate.durability": durability, "headgate.linger.ms": "5"}
    admin.create_topics([NewTopic("t", 1, config=config)])["t"].result(PATIENCE)
    failed: list[Any] = []
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 1,
            "batch.num.messages": 10,
            "retry.backoff.ms": 10,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 50,
        }
    )
    values = [b"%d" % number for number in range(2000)]
    proxy.cut_answers = 0.1
    for number, value in enumerate(values):
        producer.produce("t", value, on_delivery=lambda error, _: error and failed.append(error))
        if number % 50 == 0:
            producer.poll(0.01)
    assert producer.flush(60) == 0
    proxy.cut_answers = 0.0
    assert not failed
    assert proxy.cuts > 5
    made = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g"})
    made.assign([TopicPartition("t", 0, 0)])
    assert read(made, len(values)) == values
    assert made.get_watermark_offsets(TopicPartition("t", 0), timeout=PATIENCE) == (0, len(values))
    made.close()
