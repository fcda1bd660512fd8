"""Queries from topics of a real Kafka broker to others, in each way in which results may be promised: those of
`topic_workload.py` exactly once through KAFKA sinks, a projection at least once, and one in real time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.e2e.queries.at_least_once import at_least_once
from tests.e2e.queries.kit import QueryCluster, until
from tests.e2e.queries.topic_workload import TopicWorkload
from tests.e2e.queries.topics import KafkaTopics
from tests.e2e.queries.workload import values

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
        wanted = set(self._passed())
        until(lambda: wanted <= set(self._found("instant")), "all rows in real time", seconds, lambda: "some miss")

    def check(self) -> None:
        """The exact ones are; and of the others no row was lost, nor came one that nobody sent, though those that a run
        had read since its last batch, or checkpoint, may have come again."""
        self.exact.check()
        for query in LOOSE:
            at_least_once(query, self._found(query), self._passed(), self.cluster.runs(query))

    def _found(self, query: str) -> list[tuple[Any, ...]]:
        return values(self.topics.rows(query))

    def _passed(self) -> list[tuple[Any, ...]]:
        return [(row.id, row.v) for row in self.exact.feeds["events"].rows if row.k != 3]
