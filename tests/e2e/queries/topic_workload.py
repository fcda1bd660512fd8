"""The queries of `workload.py` from topics to topics: of the log that agents lead, or of a Kafka broker. A windowed
aggregation, a join within a time range and a union of two topics of which one ends early, with the same oracles."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.e2e.queries.kit import QueryCluster
from tests.e2e.queries.topics import TopicFeed, Topics
from tests.e2e.queries.workload import COLUMNS, counted, joined, same, united, windowed

SOURCES = ("events", "lefts", "rights", "short")
RESULTS = {
    "windowed": "start TIMESTAMP, k INT32, n INT64, total INT64",
    "joined": "l INT64, r INT64",
    "united": "start TIMESTAMP, n INT64, total INT64",
}
# A topic never ends: one that is silent holds the others back for so long. A join must not go on without a side.
SILENT = "20 s"
NEVER = "1 h"


@dataclass
class TopicWorkload:
    cluster: QueryCluster
    topics: Topics
    seed: int = 1
    feeds: dict[str, TopicFeed] = field(default_factory=dict)

    @property
    def queries(self) -> tuple[str, ...]:
        return tuple(f"{self.topics.prefix}{name}" for name in RESULTS)

    def create(self) -> None:
        self.topics.create((*SOURCES, *RESULTS))
        source = random.Random(self.seed)
        servers = self.topics.servers
        for name in SOURCES:
            self.feeds[name] = TopicFeed(servers, self.topics.topic(name), random.Random(source.random()))
        # Both topics of the union have rows when they are first read, so that neither is ahead of the other.
        self.feeds["short"].produce(200)
        self.feed(20)
        own = self.topics.prefix
        parts = [f"CREATE LOGICAL SOURCE {own}{name} {COLUMNS}" for name in ("events", "lefts", "rights", "both")]
        read = (("events", "events"), ("lefts", "lefts"), ("rights", "rights"), ("both", "short"), ("both", "rights"))
        parts += [
            f"CREATE PHYSICAL SOURCE FOR {own}{logical} {self.topics.settings(topic)}, parser.type = 'JSON')"
            for logical, topic in read
        ]
        parts += [f"CREATE SINK {own}{name} ({made}) {self.topics.settings(name)})" for name, made in RESULTS.items()]
        parts += [
            f"CREATE QUERY {own}windowed AS SELECT start, k, COUNT(*) AS n, SUM(v) AS total FROM {own}events "
            f"GROUP BY k WINDOW TUMBLING(ts, SIZE 5 SEC) INTO {own}windowed{self.topics.lateness}",
            f"CREATE QUERY {own}joined AS SELECT l.id AS l, r.id AS r FROM {own}lefts l JOIN {own}rights r "
            f"ON l.k = r.k AND r.ts BETWEEN l.ts AND l.ts + INTERVAL 2 SECOND INTO {own}joined "
            f"WITH (idle_timeout = '{NEVER}')",
            f"CREATE QUERY {own}united AS SELECT start, COUNT(*) AS n, SUM(v) AS total FROM {own}both "
            f"WINDOW TUMBLING(ts, SIZE 5 SEC) INTO {own}united WITH (idle_timeout = '{SILENT}')",
        ]
        for part in parts:
            self.cluster.sql(part)

    def feed(self, count: int) -> None:
        growing = [self.feeds[name] for name in ("events", "lefts", "rights")]
        for feed in growing:
            feed.produce(count)
        for feed in (*growing, self.feeds["short"]):
            feed.flush()

    def settle(self, seconds: float) -> None:
        """Nothing to wait for: a soft stop reads topics to where they end at its moment."""

    def check(self) -> None:
        rows = {name: feed.rows for name, feed in self.feeds.items()}
        expected = {
            "windowed": windowed(rows["events"]),
            "joined": joined(rows["lefts"], rows["rights"]),
            "united": united([*rows["short"], *rows["rights"]]),
        }
        for name, wanted in expected.items():
            same(f"{self.topics.prefix}{name}", self.found(name), counted(wanted))

    def found(self, name: str) -> Counter[tuple[Any, ...]]:
        return counted(self.topics.rows(name))
