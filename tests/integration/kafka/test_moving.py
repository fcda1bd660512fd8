"""Clients go on while agents come and go."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.integration.kafka.test_confluent import PATIENCE
from tests.unit.kafka.kit import running_cluster

GROUP = "moving"


class Traffic:
    """A producer and two consumers of a group that go on until they are stopped."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.acknowledged: list[bytes] = []
        self.failed: list[Any] = []
        self.seen: list[bytes] = []
        self.stop = threading.Event()
        self.finished = threading.Event()
        self._threads = [
            threading.Thread(target=self._produce, daemon=True),
            threading.Thread(target=self._consume, daemon=True),
            threading.Thread(target=self._consume, daemon=True),
        ]
        for one in self._threads:
            one.start()

    def _produce(self) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "linger.ms": 5})

        def delivered(error: Any, message: Any) -> None:
            (self.failed.append(error) if error else self.acknowledged.append(message.value()))

        number = 0
        while not self.stop.is_set():
            producer.produce("t", b"%d" % number, key=b"%d" % number, on_delivery=delivered)
            number += 1
            producer.poll(0)
            time.sleep(0.002)
        producer.flush(PATIENCE)
        self.finished.set()

    def _consume(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 200,
            }
        )
        consumer.subscribe(["t"])
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline:
            for message in consumer.consume(100, timeout=0.1):
                if message.error() is None:
                    self.seen.append(message.value())
            with suppress(KafkaException):
                # Nothing to commit, or a rebalance: the next member reads it again.
                consumer.commit(asynchronous=False)
            if self.finished.is_set() and set(self.seen) >= set(self.acknowledged):
                break
        consumer.close()

    def end(self) -> None:
        self.stop.set()
        for one in self._threads:
            one.join(100)


@pytest.mark.slow
def test_a_producer_and_a_group_go_on_while_agents_join_and_leave(tmp_path: Path) -> None:
    with running_cluster(tmp_path, agents=2) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        config = {"headgate.durability": "OBJECT", "headgate.linger.ms": "10"}
        admin.create_topics([NewTopic("t", 6, config=config)])["t"].result(PATIENCE)
        traffic = Traffic(cluster.bootstrap)
        time.sleep(2)
        cluster.run(cluster.add("agent-2"))
        time.sleep(2)
        cluster.run(cluster.leave("agent-0"))
        time.sleep(3)
        cluster.run(cluster.add("agent-3"))
        time.sleep(2)
        traffic.end()
        assert not traffic.failed
        assert len(traffic.acknowledged) > 500
        assert len(set(traffic.acknowledged)) == len(traffic.acknowledged)
        assert set(traffic.seen) == set(traffic.acknowledged)
