"""Topics that queries read and write, of the log that agents lead or of a Kafka broker: made, fed and read."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from headgate.catalog import v1 as catalog
from tests.e2e.queries.kit import QueryCluster
from tests.e2e.queries.workload import BEGIN, KEYS, Row

READ_SECONDS = 60.0


class TopicFeed:
    """A topic that grows, by a stock Kafka client with idempotence: what it has flushed is there once."""

    def __init__(self, servers: str, topic: str, source: random.Random) -> None:
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "message.timeout.ms": 300_000,
                "linger.ms": 5,
                # That a broker is gone is no news here.
                "log_level": 2,
            }
        )
        self._source = source
        self.rows: list[Row] = []

    def produce(self, count: int) -> None:
        for _ in range(count):
            number = len(self.rows)
            ts = BEGIN + timedelta(milliseconds=50 * number)
            row = Row(number, ts, self._source.randrange(KEYS), self._source.randrange(1000))
            self.rows.append(row)
            value = json.dumps({"id": row.id, "ts": ts.isoformat(), "k": row.k, "v": row.v})
            self._producer.produce(self._topic, value.encode(), key=str(row.k).encode())

    def flush(self) -> None:
        left = self._producer.flush(300)
        assert left == 0, f"{left} records were not acknowledged in 300 s"


def consumed(cluster: QueryCluster, topic: str) -> list[dict[str, Any]]:
    """All records of a topic, as `headgate topics consume` prints them."""
    done = subprocess.run(
        [Path(sys.executable).parent / "headgate", "topics", "consume", topic],
        env={**os.environ, "HEADGATE_COORDINATOR": cluster.coordinator.address},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def committed(bootstrap: str, topic: str) -> list[dict[str, Any]]:
    """All rows of a topic with one partition, as a reader sees them that wants only what is committed."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "oracle",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    found: list[dict[str, Any]] = []
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        while True:
            message = consumer.poll(READ_SECONDS)
            assert message is not None, f"{topic} has no end"
            if error := message.error():
                assert error.code() == KafkaError._PARTITION_EOF, error
                return found
            found.append(json.loads(message.value() or b""))
    finally:
        consumer.close()


class Topics(Protocol):
    """Where the topics are."""

    prefix: str
    # Partitions are read at their own pace: rows may be out of order by what a batch may read ahead.
    lateness: str

    def topic(self, name: str) -> str: ...

    def create(self, names: Iterable[str]) -> None: ...

    def settings(self, name: str) -> str:
        """What a source or sink of the topic takes, in SQL: its type and the beginning of its options."""

    @property
    def servers(self) -> str: ...

    def rows(self, name: str) -> list[dict[str, Any]]: ...


@dataclass
class LogTopics:
    """Of the log that the agents lead themselves."""

    cluster: QueryCluster
    prefix: str = "topic_"
    lateness: str = " WITH (lateness = '10 min')"

    def topic(self, name: str) -> str:
        return f"{self.prefix}{name}"

    def create(self, names: Iterable[str]) -> None:
        for name in names:
            self.cluster.sql(f"CREATE TOPIC {self.topic(name)} PARTITIONS {2 if name == 'events' else 1}")

    def settings(self, name: str) -> str:
        return f"TYPE TOPIC WITH (topic = '{self.topic(name)}'"

    @property
    def servers(self) -> str:
        agents = self.cluster.ask(catalog.ListAgentsRequest()).agents
        return ",".join(agent.kafka_address for agent in agents if agent.kafka_address)

    def rows(self, name: str) -> list[dict[str, Any]]:
        return consumed(self.cluster, self.topic(name))


@dataclass
class KafkaTopics:
    """Of a broker. `name` keeps them apart from those of others on the same one."""

    servers: str
    name: str
    prefix: str = "kafka_"
    lateness: str = ""

    def topic(self, name: str) -> str:
        return f"{self.name}-{self.prefix}{name}"

    def create(self, names: Iterable[str]) -> None:
        admin = AdminClient({"bootstrap.servers": self.servers})
        for made in admin.create_topics([NewTopic(self.topic(name), 1, 1) for name in names]).values():
            made.result(30)

    def settings(self, name: str) -> str:
        return f"TYPE KAFKA WITH (bootstrap_servers = '{self.servers}', topic = '{self.topic(name)}'"

    def rows(self, name: str) -> list[dict[str, Any]]:
        return committed(self.servers, self.topic(name))
