"""An agent with one edge, which a source writes and a sink reads: an edge of the log, or one on Kafka."""

from __future__ import annotations

import itertools
import json
import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from headgate.catalog import v1 as catalog
from headgate.cluster import v1 as cluster
from headgate.log import v1 as api
from headgate_agent.coordinators import Coordinators
from headgate_agent.engines import Engines, EngineTimings
from headgate_agent.fragments.checkpoints import Checkpoints
from headgate_agent.fragments.config import FragmentConfig
from headgate_agent.fragments.local_edges import read_record
from headgate_agent.fragments.runner import Assignment, Report, Run
from headgate_agent.fragments.running import AgentRunner
from headgate_agent.fragments.sinks.result import Results
from headgate_agent.fragments.sources.build import Surroundings
from headgate_agent.fragments.starts import Starts, StartTimings
from headgate_agent.log.contract import PartitionKey
from headgate_agent.log.records import unpack_batches
from headgate_agent.work import Threads
from headgate_common.backoff import Backoff
from headgate_common.clock import SystemClock
from tests.integration.log.kit import LogCluster, log_cluster

_NUMBERS = itertools.count()
RUNNING, STOPPED, TERMINATED, FAILED = (
    catalog.FRAGMENT_STATE_RUNNING,
    catalog.FRAGMENT_STATE_STOPPED,
    catalog.FRAGMENT_STATE_TERMINATED,
    catalog.FRAGMENT_STATE_FAILED,
)
SCHEMA = catalog.Schema(
    fields=[catalog.Field(name="id", type="INT64"), catalog.Field(name="text", type="VARCHAR")],
)


@dataclass
class Node:
    """An agent with its runner and one edge, which a source writes and a sink reads."""

    log: LogCluster
    folder: Path
    edge: api.Topic
    errors: api.Topic
    max_lag: int = 64 * 2**20
    patience: float = 30.0
    settings: dict[str, Any] = field(default_factory=dict)
    work: Threads = field(default_factory=lambda: Threads(2, "test"))
    results: Results = field(default_factory=Results)
    reports: list[Report] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)

    @property
    def runner(self) -> AgentRunner:
        agent = self.log.agents["a"]
        clock, source = SystemClock(), random.Random(1)
        timings = EngineTimings(1, 1, 1, 1, Backoff(), 1)
        engines = Engines((), agent.line, clock=clock, source=source, timings=timings)
        config = FragmentConfig(
            file_roots=(self.folder,),
            edge_max_lag=self.max_lag,
            flush_interval=0.01,
            edge_read_wait=0.05,
            result_patience=self.patience,
            **self.settings,
        )
        return AgentRunner(
            around=Surroundings(config, clock, self.work, source),
            engines=engines,
            checkpoints=Checkpoints(str(self.folder / "checkpoints"), engines, self.work),
            state=self.folder / "sinks",
            broker=lambda: agent.broker,
            results=self.results,
            sink_work=self.work,
            topics=lambda: None,
            starts=Starts(
                topics=lambda: None,
                coordinators=lambda: Coordinators(agent.line, ("nobody:1",), timeout=1.0),
                blocking=self.work,
                clock=clock,
                source=source,
                timings=StartTimings(1, 1, Backoff()),
            ),
        )

    def start(self, assignment: Assignment) -> Run:
        runner = self.runner
        runner.check(assignment)
        run = runner.start(assignment, self.reports.append)
        self.runs.append(run)
        return run

    def source(self, epoch: int = 1, **options: str) -> Assignment:
        options = {"file_path": str(self.folder / "in.csv"), **options}
        body = catalog.SourceFragment(
            type=catalog.SOURCE_TYPE_FILE,
            options=options,
            parser_options={"type": "CSV"},
            schema=SCHEMA,
            columns=["id", "text"],
        )
        plan = catalog.FragmentPlan(ordinal=1, output_edges=[1], source=body)
        return Assignment("source", epoch, "q", "uq", plan, self.topics, self.told(self.errors, 0))

    def sink(self, epoch: int = 1) -> Assignment:
        options = {"file_path": str(self.folder / "out.json"), "input_format": "JSON"}
        body = catalog.SinkFragment(type=catalog.SINK_TYPE_FILE, options=options, schema=SCHEMA)
        plan = catalog.FragmentPlan(ordinal=2, input_edges=[1], sink=body)
        return Assignment("sink", epoch, "q", "uq", plan, self.topics)

    @property
    def topics(self) -> dict[int, cluster.EdgeTopic]:
        return {1: self.told(self.edge, 1)}

    def told(self, topic: api.Topic, ordinal: int) -> cluster.EdgeTopic:
        return cluster.EdgeTopic(
            edge=ordinal, topic=topic.name, topic_uid=topic.uid, partitions=1, agent="a", address="a:1"
        )

    def appended(self) -> int:
        """How far the edge goes; 0 while there is none."""
        return self.log.agents["a"].broker.bounds(PartitionKey(self.edge.uid, 0)).high_watermark

    async def until(self, condition: Any) -> None:
        await self.log.until(condition)

    async def ended(self) -> Report:
        """The first end of a run that was not asked for yet; another run may have told something since."""

        def ends() -> list[Report]:
            return [report for report in self.reports if report.state in (STOPPED, TERMINATED, FAILED)]

        await self.until(ends)
        found = ends()[0]
        self.reports.remove(found)
        return found

    @property
    def delivered(self) -> list[dict[str, Any]]:
        path = self.folder / "out.json"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    async def error_rows(self) -> list[dict[str, Any]]:
        data = await self.log.agents["a"].broker.records(PartitionKey(self.errors.uid, 0), 0, 1 << 20)
        return [row for record in unpack_batches(data) for row in read_record(record.value or b"").to_pylist()]

    async def crash(self) -> None:
        """The agent dies with its runs, and comes back with its disk."""
        agent = self.log.agents["a"]
        for run in self.runs:
            await run.stop()
        self.runs.clear()
        self.reports.clear()
        await agent.crash()
        await agent.start()


@dataclass
class KafkaNode(Node):
    """The same agent, with its edge on Kafka."""

    bootstrap: str = ""
    name: str = field(default_factory=lambda: f"__headgate.edge.q{os.getpid()}-{next(_NUMBERS)}.1")

    @property
    def topics(self) -> dict[int, cluster.EdgeTopic]:
        return {1: topic_at(self.bootstrap, self.name)}

    def bounds(self) -> tuple[int, int]:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "look"})
        try:
            found: tuple[int, int] = consumer.get_watermark_offsets(TopicPartition(self.name, 0), timeout=10)
            return found
        finally:
            consumer.close()

    def appended(self) -> int:
        return self.bounds()[1] if self.there() else 0

    def there(self) -> bool:
        listed = AdminClient({"bootstrap.servers": self.bootstrap}).list_topics(timeout=30)
        return self.name in listed.topics


def topic_at(bootstrap: str, name: str) -> cluster.EdgeTopic:
    return cluster.EdgeTopic(edge=1, topic=name, partitions=1, kafka={"bootstrap_servers": bootstrap})


@asynccontextmanager
async def running_node(folder: Path, bootstrap: str = "") -> AsyncIterator[Node]:
    """Its edge is on Kafka where `bootstrap` says which."""
    async with log_cluster("a") as made:
        edge = await made.create("edge", wal=True)
        errors = await made.create("errors", wal=True)
        found = Node(made, folder, edge, errors)
        if bootstrap:
            found = KafkaNode(made, folder, edge, errors, work=Threads(4, "test"), bootstrap=bootstrap)
        try:
            yield found
        finally:
            for run in found.runs:
                await run.stop()
            found.work.close()


def write(node: Node, first: int, count: int) -> None:
    with (node.folder / "in.csv").open("a") as file:
        file.writelines(f"{number},row {number}\n" for number in range(first, first + count))


def rows(count: int) -> list[dict[str, Any]]:
    return [{"id": number, "text": f"row {number}"} for number in range(count)]
