"""Queries whose results are known: a windowed aggregation, a join within a time range and a union of two sources of
which one ends early, from files to files; and a windowed aggregation from a topic to a topic. A feeder appends rows to
files and topic; oracles compute what must come out, from the same rows and without Spark."""

from __future__ import annotations

import csv
import json
import os
import random
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from headgate.catalog import v1 as catalog
from tests.e2e.queries.kit import QueryCluster, json_lines

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
WINDOW = timedelta(seconds=5)
WITHIN = timedelta(seconds=2)
KEYS = 7

COLUMNS = "(id INT64 NOT NULL, ts TIMESTAMP NOT NULL, k INT32 NOT NULL, v INT64 NOT NULL)"


@dataclass(frozen=True, slots=True)
class Row:
    id: int
    ts: datetime
    k: int
    v: int


@dataclass
class Feed:
    """A file that grows. Event time moves 50 ms a row, and no row is out of order: none may be dropped as late."""

    path: Path
    source: random.Random
    rows: int = 0

    def __post_init__(self) -> None:
        self.path.touch()

    def append(self, count: int) -> None:
        with self.path.open("a") as file:
            for _ in range(count):
                ts = BEGIN + timedelta(milliseconds=50 * self.rows)
                key, value = self.source.randrange(KEYS), self.source.randrange(1000)
                file.write(f"{self.rows},{ts.isoformat()},{key},{value}\n")
                self.rows += 1


class TopicFeed:
    """A topic that grows, by a stock Kafka client with idempotence: what it has flushed is there once."""

    def __init__(self, servers: str, topic: str, source: random.Random) -> None:
        self._topic = topic
        self._producer = Producer(
            {"bootstrap.servers": servers, "enable.idempotence": True, "message.timeout.ms": 300_000, "linger.ms": 5}
        )
        self._source = source
        self.rows: list[Row] = []

    def append(self, count: int) -> None:
        for _ in range(count):
            number = len(self.rows)
            ts = BEGIN + timedelta(milliseconds=50 * number)
            row = Row(number, ts, self._source.randrange(KEYS), self._source.randrange(1000))
            self.rows.append(row)
            value = json.dumps({"id": row.id, "ts": ts.isoformat(), "k": row.k, "v": row.v})
            self._producer.produce(self._topic, value.encode(), key=str(row.k).encode())
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


def rows_of(path: Path) -> list[Row]:
    with path.open() as file:
        return [Row(int(i), datetime.fromisoformat(ts), int(k), int(v)) for i, ts, k, v in csv.reader(file)]


@dataclass
class Workload:
    """`agents` are where the left and the right source are, and the sinks."""

    cluster: QueryCluster
    seed: int = 1
    left_agent: str = "a"
    right_agent: str = "b"
    feeds: dict[str, Feed] = field(default_factory=dict)
    topic: TopicFeed | None = None

    @property
    def queries(self) -> tuple[str, ...]:
        return ("windowed", "joined", "united", *(("relayed",) if self.topic is not None else ()))

    def create(self) -> None:
        files = self.cluster.files
        source = random.Random(self.seed)
        self.feeds = {name: Feed(files / f"{name}.csv", source) for name in ("left", "right", "short", "long")}
        # All of it is there from the start: it ends while the other goes on.
        self.feeds["short"].append(200)
        left, right = self.left_agent, self.right_agent
        parts = [f"CREATE LOGICAL SOURCE {name} {COLUMNS}" for name in ("lefts", "rights", "both")]
        parts += [self._file("lefts", left, "left"), self._file("rights", right, "right")]
        parts += [self._file("both", left, "short", follow=False), self._file("both", right, "long")]
        parts += [
            self._sink("windowed", left, "start TIMESTAMP, k INT32, n INT64, total INT64"),
            self._sink("joined", right, "l INT64, r INT64"),
            self._sink("united", left, "start TIMESTAMP, n INT64, total INT64"),
            "CREATE QUERY windowed AS SELECT start, k, COUNT(*) AS n, SUM(v) AS total FROM lefts GROUP BY k "
            "WINDOW TUMBLING(ts, SIZE 5 SEC) INTO windowed",
            "CREATE QUERY joined AS SELECT l.id AS l, r.id AS r FROM lefts l JOIN rights r ON l.k = r.k "
            "AND r.ts BETWEEN l.ts AND l.ts + INTERVAL 2 SECOND INTO joined",
            "CREATE QUERY united AS SELECT start, COUNT(*) AS n, SUM(v) AS total FROM both "
            "WINDOW TUMBLING(ts, SIZE 5 SEC) INTO united",
        ]
        for part in parts:
            self.cluster.sql(part)

    def create_relay(self) -> None:
        """From topic to topic, through the log that the agents lead themselves."""
        for part in (
            "CREATE TOPIC events PARTITIONS 2",
            "CREATE TOPIC relayed",
            f"CREATE LOGICAL SOURCE events {COLUMNS}",
            "CREATE PHYSICAL SOURCE FOR events TYPE TOPIC WITH (topic = 'events', parser.type = 'JSON')",
            "CREATE SINK relayed (start TIMESTAMP, k INT32, n INT64, total INT64) TYPE TOPIC WITH (topic = 'relayed')",
            # A topic's partitions are read at their own pace: rows may be out of order by what a batch may read ahead.
            "CREATE QUERY relayed AS SELECT start, k, COUNT(*) AS n, SUM(v) AS total FROM events GROUP BY k "
            "WINDOW TUMBLING(ts, SIZE 5 SEC) INTO relayed WITH (lateness = '10 min')",
        ):
            self.cluster.sql(part)
        agents = self.cluster.ask(catalog.ListAgentsRequest()).agents
        servers = ",".join(agent.kafka_address for agent in agents if agent.kafka_address)
        self.topic = TopicFeed(servers, "events", random.Random(self.seed))

    def feed(self, count: int) -> None:
        for name in ("left", "right", "long"):
            self.feeds[name].append(count)
        if self.topic is not None:
            self.topic.append(count)

    def stop(self, seconds: float) -> None:
        """Softly, and waits until everything has come out."""
        for query in self.queries:
            self.cluster.sql(f"STOP QUERY {query} WITHIN 10 MIN")
        for query in self.queries:
            self.cluster.wait(query, "STOPPED", seconds=seconds)

    def _file(self, logical: str, agent: str, name: str, *, follow: bool = True) -> str:
        follows = ", true AS `SOURCE`.follow, '100 ms' AS `SOURCE`.poll_interval" if follow else ""
        path = self.cluster.files / f"{name}.csv"
        return f"CREATE PHYSICAL SOURCE FOR {logical} TYPE FILE ON {agent} SET('{path}' AS `SOURCE`.file_path{follows})"

    def _sink(self, name: str, agent: str, columns: str) -> str:
        path = self.cluster.files / f"{name}.json"
        return (
            f"CREATE SINK {name} ({columns}) TYPE FILE ON {agent} "
            f"SET('{path}' AS `SINK`.file_path, 'JSON' AS `SINK`.input_format)"
        )

    def found(self, query: str) -> Counter[tuple[Any, ...]]:
        if query == "relayed":
            return counted(consumed(self.cluster, "relayed"))
        return counted(json_lines(self.cluster.files / f"{query}.json"))

    def expected(self, query: str) -> Counter[tuple[Any, ...]]:
        if query == "relayed":
            assert self.topic is not None
            return counted(windowed(self.topic.rows))
        rows = {name: rows_of(feed.path) for name, feed in self.feeds.items()}
        if query == "windowed":
            return counted(windowed(rows["left"]))
        if query == "joined":
            return counted(joined(rows["left"], rows["right"]))
        return counted(united([*rows["short"], *rows["long"]]))

    def check(self) -> None:
        """Every query has given exactly what it should: no row twice, none lost, none dropped as late."""
        for query in self.queries:
            found, expected = self.found(query), self.expected(query)
            lost, extra = expected - found, found - expected
            assert not lost and not extra, f"{query}: lost {some_of(lost)}, too many {some_of(extra)}"


def some_of(rows: Counter[tuple[Any, ...]]) -> str:
    return f"{rows.total()} rows such as {sorted(rows, key=str)[:5]}"


def counted(rows: Iterable[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in rows)


def windowed(rows: Iterable[Row]) -> list[dict[str, Any]]:
    groups: dict[tuple[datetime, int], list[int]] = defaultdict(list)
    for row in rows:
        groups[_start(row.ts), row.k].append(row.v)
    return [{"start": text(start), "k": k, "n": len(v), "total": sum(v)} for (start, k), v in groups.items()]


def united(rows: Iterable[Row]) -> list[dict[str, Any]]:
    groups: dict[datetime, list[int]] = defaultdict(list)
    for row in rows:
        groups[_start(row.ts)].append(row.v)
    return [{"start": text(start), "n": len(v), "total": sum(v)} for start, v in groups.items()]


def joined(lefts: Iterable[Row], rights: Iterable[Row]) -> list[dict[str, Any]]:
    by_key: dict[int, list[Row]] = defaultdict(list)
    for right in rights:
        by_key[right.k].append(right)
    return [
        {"l": left.id, "r": right.id}
        for left in lefts
        for right in by_key[left.k]
        if left.ts <= right.ts <= left.ts + WITHIN
    ]


def _start(ts: datetime) -> datetime:
    return BEGIN + (ts - BEGIN) // WINDOW * WINDOW


def text(ts: datetime) -> str:
    return ts.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
