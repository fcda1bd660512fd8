"""Queries whose edges are on a real Kafka broker: those of `workload.py` from files to files, with edges on both sides
of Spark, and a windowed aggregation from a topic to a topic of the log, whose only edge is the one to its sink."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from tests.e2e.queries.at_least_once import at_least_once
from tests.e2e.queries.kit import QueryCluster
from tests.e2e.queries.topic_workload import RESULTS
from tests.e2e.queries.topics import LogTopics, TopicFeed
from tests.e2e.queries.workload import COLUMNS, Workload, values, windowed

PREFIX = "edged_"
COUNTED = f"{PREFIX}counted"


@dataclass
class EdgesWorkload:
    cluster: QueryCluster
    bootstrap: str
    seed: int = 1
    files: Workload = field(init=False)
    topics: LogTopics = field(init=False)
    events: TopicFeed = field(init=False)

    def __post_init__(self) -> None:
        self.files = Workload(self.cluster, self.seed, prefix=PREFIX, options=f"WITH ({self.edges})", again=True)
        self.topics = LogTopics(self.cluster, PREFIX)

    @property
    def edges(self) -> str:
        return f"edges = 'kafka', bootstrap_servers = '{self.bootstrap}'"

    @property
    def queries(self) -> tuple[str, ...]:
        return (*self.files.queries, COUNTED)

    def create(self) -> None:
        self.files.create()
        self.topics.create(("numbers", "counted"))
        self.events = TopicFeed(self.topics.servers, self.topics.topic("numbers"), random.Random(self.seed))
        for statement in (
            f"CREATE LOGICAL SOURCE {PREFIX}numbers {COLUMNS}",
            f"CREATE PHYSICAL SOURCE FOR {PREFIX}numbers {self.topics.settings('numbers')}, parser.type = 'JSON')",
            f"CREATE SINK {COUNTED} ({RESULTS['windowed']}) {self.topics.settings('counted')})",
            f"CREATE QUERY {COUNTED} AS SELECT start, k, COUNT(*) AS n, SUM(v) AS total FROM {PREFIX}numbers "
            f"GROUP BY k WINDOW TUMBLING(ts, SIZE 5 SEC) INTO {COUNTED} WITH ({self.edges})",
        ):
            self.cluster.sql(statement)

    def feed(self, count: int) -> None:
        self.files.feed(count)
        self.events.produce(count)
        self.events.flush()

    def settle(self, seconds: float) -> None:
        """Nothing to wait for: files are read to their ends, and topics to where they end when the stop comes."""

    def check(self) -> None:
        """No row is lost, none comes that should not, and again comes only what a run that was cut off had begun."""
        self.files.check()
        found = values(self.topics.rows("counted"))
        at_least_once(COUNTED, found, values(windowed(self.events.rows)), self.cluster.runs(COUNTED))
