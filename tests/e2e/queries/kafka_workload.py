"""Queries from a topic of a real Kafka broker to others, in each way in which results may be promised: a windowed
aggregation exactly once through a KAFKA sink, a projection at least once, and one in real time."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.e2e.queries.kit import QueryCluster, until
from tests.e2e.queries.workload import COLUMNS, Row, TopicFeed, counted, some_of, windowed

# A realtime run holds a task slot for its partition; micro-batches keep two.
ENGINE_OPTIONS = ("--master", "local[3]", "--set", "reserved_slots=2")
_READ_SECONDS = 60.0


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
            message = consumer.poll(_READ_SECONDS)
            assert message is not None, f"{topic} has no end"
            if error := message.error():
                assert error.code() == KafkaError._PARTITION_EOF, error
                return found
            found.append(json.loads(message.value() or b""))
    finally:
        consumer.close()


@dataclass
class KafkaWorkload:
    """`name` keeps its topics apart from those of others on the same broker."""

    cluster: QueryCluster
    bootstrap: str
    name: str
    seed: int = 1
    topic: TopicFeed = field(init=False)

    @property
    def queries(self) -> tuple[str, ...]:
        return ("exact", "repeated", "instant")

    def create(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        topics = [NewTopic(self._topic(name), 1, 1) for name in ("events", *self.queries)]
        for made in admin.create_topics(topics).values():
            made.result(30)
        brokers = f"bootstrap_servers = '{self.bootstrap}'"
        for part in (
            f"CREATE LOGICAL SOURCE cars {COLUMNS}",
            "CREATE PHYSICAL SOURCE FOR cars TYPE KAFKA "
            f"WITH ({brokers}, topic = '{self._topic('events')}', parser.type = 'JSON')",
            f"CREATE SINK exact (start TIMESTAMP, k INT32, n INT64, total INT64) TYPE KAFKA {self._into('exact')}",
            f"CREATE SINK repeated (id INT64, v INT64) TYPE KAFKA {self._into('repeated')}",
            f"CREATE SINK instant (id INT64, v INT64) TYPE KAFKA {self._into('instant')}",
            "CREATE QUERY exact AS SELECT start, k, COUNT(*) AS n, SUM(v) AS total FROM cars GROUP BY k "
            "WINDOW TUMBLING(ts, SIZE 5 SEC) INTO exact",
            "CREATE QUERY repeated AS SELECT id, v FROM cars WHERE k <> 3 INTO repeated "
            "WITH (delivery = at_least_once)",
            "CREATE QUERY instant AS SELECT id, v FROM cars WHERE k <> 3 INTO instant WITH (mode = realtime)",
        ):
            self.cluster.sql(part)
        self.topic = TopicFeed(self.bootstrap, self._topic("events"), random.Random(self.seed))

    def feed(self, count: int) -> None:
        self.topic.append(count)

    def stop(self, seconds: float) -> None:
        """A realtime query knows no end of what it reads: it is stopped when all of it has come out."""
        wanted = self._passed()
        until(lambda: not wanted - self.found("instant"), "all rows in real time", seconds, lambda: "some are missing")
        for query in self.queries:
            self.cluster.sql(f"STOP QUERY {query} WITHIN 10 MIN")
        for query in self.queries:
            self.cluster.wait(query, "STOPPED", seconds=seconds)

    def check(self) -> None:
        """Each window once; and no other row lost, nor one that nobody sent, though some may have come twice."""
        found, expected = self.found("exact"), counted(windowed(self.topic.rows))
        lost, extra = expected - found, found - expected
        assert not lost and not extra, f"exact: lost {some_of(lost)}, too many {some_of(extra)}"
        for query in ("repeated", "instant"):
            found, expected = self.found(query), self._passed()
            lost, strange = expected - found, Counter(set(found) - set(expected))
            assert not lost and not strange, f"{query}: lost {some_of(lost)}, never sent {some_of(strange)}"

    def found(self, query: str) -> Counter[tuple[Any, ...]]:
        return counted(committed(self.bootstrap, self._topic(query)))

    def _passed(self) -> Counter[tuple[Any, ...]]:
        rows: list[Row] = self.topic.rows
        return Counter((row.id, row.v) for row in rows if row.k != 3)

    def _topic(self, query: str) -> str:
        return f"{self.name}-{query}"

    def _into(self, query: str) -> str:
        return f"WITH (bootstrap_servers = '{self.bootstrap}', topic = '{self._topic(query)}')"
