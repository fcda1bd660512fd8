"""Queries from topics of a real Kafka broker to others, in each way in which results may be promised: those of
`topic_workload.py` exactly once through KAFKA sinks, a projection at least once, and one in real time."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.e2e.queries.kit import QueryCluster, until
from tests.e2e.queries.topic_workload import TopicWorkload
from tests.e2e.queries.topics import KafkaTopics
from tests.e2e.queries.workload import counted, some_of

# A realtime run holds a task slot for its partition; micro-batches keep two.
ENGINE_OPTIONS = ("--master", "local[3]", "--set", "reserved_slots=2")
LOOSE = ("repeated", "instant")


@dataclass
class KafkaWorkload:
    cluster: QueryCluster
    topics: KafkaTopics
    seed: int = 1
    exact: TopicWorkload = field(init=False)

    def __post_init__(self) -> None:
        self.exact = TopicWorkload(self.cluster, self.topics, self.seed)

    @property
    def queries(self) -> tuple[str, ...]:
        return (*self.exact.queries, *LOOSE)

    def create(self) -> None:
        self.exact.create()
        self.topics.create(LOOSE)
        events = f"{self.topics.prefix}events"
        for part in (
            *(f"CREATE SINK {name} (id INT64, v INT64) {self.topics.settings(name)})" for name in LOOSE),
            f"CREATE QUERY repeated AS SELECT id, v FROM {events} WHERE k <> 3 INTO repeated "
            "WITH (delivery = at_least_once)",
            f"CREATE QUERY instant AS SELECT id, v FROM {events} WHERE k <> 3 INTO instant WITH (mode = realtime)",
        ):
            self.cluster.sql(part)

    def feed(self, count: int) -> None:
        self.exact.feed(count)

    def settle(self, seconds: float) -> None:
        """A realtime query knows no end of what it reads: it is stopped when all of it has come out."""
        wanted = self._passed()
        until(lambda: not wanted - self._found("instant"), "all rows in real time", seconds, lambda: "some are missing")

    def check(self) -> None:
        """The exact ones are; and of the others no row was lost, nor came one that nobody sent, though some may have
        come twice."""
        self.exact.check()
        for query in LOOSE:
            found, expected = self._found(query), self._passed()
            lost, strange = expected - found, Counter(set(found) - set(expected))
            assert not lost and not strange, f"{query}: lost {some_of(lost)}, never sent {some_of(strange)}"

    def _found(self, query: str) -> Counter[tuple[Any, ...]]:
        return counted(self.topics.rows(query))

    def _passed(self) -> Counter[tuple[Any, ...]]:
        return Counter((row.id, row.v) for row in self.exact.feeds["events"].rows if row.k != 3)
