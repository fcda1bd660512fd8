"""`start = latest` is the moment at which a query was deployed, and not the one at which Spark begins.

One story, told once: queries read topics of the log and of a real broker from their end while no engine is up; the
records that come meanwhile, and while their agent is killed and comes back, are read when the engine comes at last, and
none before.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from headgate.catalog import v1 as catalog
from tests.e2e.queries.kit import QueryCluster, json_lines, query_cluster, until
from tests.servers.kafka import Kafka

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

WAIT_SECONDS = 240.0
PARTITIONS = 2
# Read over gRPC; over the Kafka protocol; of a Kafka broker, where the source says it and not the query; from the
# beginning, to compare with.
QUERIES = ("native", "wire", "broker", "whole")


@dataclass
class Story:
    cluster: QueryCluster
    brokers: str
    # What was sent to each topic, by when.
    sent: dict[str, list[int]] = field(default_factory=dict)
    starts: dict[str, list[list[list[int]]]] = field(default_factory=dict)
    epochs: dict[str, list[int]] = field(default_factory=dict)
    waiting: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.topic = f"latest-{os.getpid()}"
        self.admin = AdminClient({"bootstrap.servers": self.brokers})

    def send(self, when: str, partitions: int = PARTITIONS) -> None:
        """Some rows into every partition of both topics."""
        rows = [len(self.sent) * 100 + number for number in range(10)]
        self.sent[when] = rows
        agents = self.cluster.ask(catalog.ListAgentsRequest()).agents
        for servers, topic, count in (
            (",".join(agent.kafka_address for agent in agents), "log", PARTITIONS),
            (self.brokers, self.topic, partitions),
        ):
            producer = Producer({"bootstrap.servers": servers, "message.timeout.ms": 300_000, "log_level": 2})
            for number in rows:
                producer.produce(topic, json.dumps({"id": number}).encode(), partition=number % count)
            assert producer.flush(300) == 0

    def compute(self, query: str) -> catalog.Fragment:
        (found,) = [one for one in self.cluster.fragments(query) if one.kind == catalog.FRAGMENT_KIND_COMPUTE]
        return found

    def look(self) -> None:
        for query in QUERIES:
            found = self.compute(query)
            self.starts.setdefault(query, []).append([list(one.offsets) for one in found.starts])
            self.epochs.setdefault(query, []).append(found.epoch)

    def waits(self, query: str) -> bool:
        """Whether the query says that it waits for the engine."""
        self.waiting[query] = self.cluster.query(query).waiting.message
        return self.cluster.engines[0].address in self.waiting[query]

    def out(self, query: str) -> Path:
        return self.cluster.files / f"{query}.json"

    def read(self, query: str) -> list[int]:
        return sorted(row["id"] for row in json_lines(self.out(query)))

    def wanted(self, query: str) -> list[int]:
        return sorted(row for when, rows in self.sent.items() if query == "whole" or when != "before" for row in rows)


def create(story: Story) -> None:
    story.cluster.sql(f"CREATE TOPIC log PARTITIONS {PARTITIONS}")
    story.admin.create_topics([NewTopic(story.topic, PARTITIONS, 1)])[story.topic].result(60)
    story.send("before")
    broker = f"TYPE KAFKA WITH (bootstrap_servers = '{story.brokers}', topic = '{story.topic}'"
    latest = " WITH (start = 'latest')"
    for query, source, settings in (
        ("native", "TYPE TOPIC WITH (topic = 'log')", latest),
        ("wire", "TYPE TOPIC WITH (topic = 'log', transport = 'kafka')", latest),
        ("broker", f"{broker}, start = 'latest')", ""),
        ("whole", f"{broker})", ""),
    ):
        for statement in (
            f"CREATE LOGICAL SOURCE {query} (id INT64)",
            f"CREATE PHYSICAL SOURCE FOR {query} {source}",
            f"CREATE SINK {query} (id INT64) TYPE FILE ON a "
            f"SET('{story.out(query)}' AS `SINK`.file_path, 'JSON' AS `SINK`.input_format)",
            f"CREATE QUERY {query} AS SELECT id FROM {query} INTO {query}{settings}",
        ):
            story.cluster.sql(statement)


def tell(story: Story) -> None:
    cluster = story.cluster
    create(story)
    for query in ("native", "wire", "broker"):
        until(lambda query=query: story.compute(query).starts, f"{query} to be deployed", WAIT_SECONDS)  # type: ignore[misc]
    story.look()
    story.send("after the deployment")
    agent = cluster.agents["a"]
    agent.kill()
    agent.start()

    def again() -> bool:
        return all(story.compute(query).epoch > 1 and story.compute(query).waiting for query in QUERIES)

    until(again, "new runs that wait for an engine", WAIT_SECONDS, lambda: str(cluster.fragments("")))
    story.look()
    for query in QUERIES:
        until(lambda query=query: story.waits(query), f"{query} to say so", WAIT_SECONDS, lambda: str(story.waiting))  # type: ignore[misc]
    story.admin.create_partitions([NewPartitions(story.topic, PARTITIONS + 1)])[story.topic].result(60)
    story.send("after the crash", PARTITIONS + 1)
    cluster.engines[0].start(ready=False)
    for query in QUERIES:
        cluster.wait(query, "RUNNING", seconds=WAIT_SECONDS)
    story.send("while it runs", PARTITIONS + 1)
    for query in QUERIES:
        done = len(story.wanted(query))
        until(lambda query=query, done=done: len(story.read(query)) >= done, f"all of {query}", WAIT_SECONDS)  # type: ignore[misc]
    story.look()


@pytest.fixture(scope="module")
def story(
    tmp_path_factory: pytest.TempPathFactory, kafka_server: Kafka, spark_kafka_jars: list[Path]
) -> Iterator[Story]:
    with query_cluster(tmp_path_factory.mktemp("latest")) as cluster:
        cluster.engines[0].kill()
        told = Story(cluster, kafka_server.bootstrap)
        tell(told)
        yield told


@pytest.mark.parametrize("query", QUERIES)
def test_what_came_after_the_deployment_is_read_and_nothing_from_before(story: Story, query: str) -> None:
    assert story.read(query) == story.wanted(query)


@pytest.mark.parametrize("query", ["native", "wire", "broker"])
def test_where_a_query_begins_is_found_without_an_engine_and_never_moved(story: Story, query: str) -> None:
    first, *later = story.starts[query]
    assert [sum(offsets) for offsets in first] == [len(story.sent["before"])]
    assert all(one == first for one in later)
    assert story.epochs[query][1] > story.epochs[query][0], "another run was told"


def test_a_query_that_reads_from_the_beginning_keeps_no_offsets(story: Story) -> None:
    assert story.starts["whole"] == [[], [], []]


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_says_that_it_waits_for_an_engine(story: Story, query: str) -> None:
    assert story.cluster.engines[0].address in story.waiting[query]
