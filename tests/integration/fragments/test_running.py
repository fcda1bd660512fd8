"""Sources and sinks as an agent runs them, on edges of a real log: from the coordinator's assignment to rows in a file,
through crashes of the agent."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from headgate.catalog import v1 as catalog
from headgate.cluster import v1 as cluster
from headgate.log import v1 as api
from headgate_agent.engines import Engines, EngineTimings
from headgate_agent.fragments.checkpoints import Checkpoints
from headgate_agent.fragments.config import FragmentConfig
from headgate_agent.fragments.local_edges import read_record
from headgate_agent.fragments.result_service import ResultService
from headgate_agent.fragments.runner import Assignment, Report, Run
from headgate_agent.fragments.running import AgentRunner
from headgate_agent.fragments.sinks.file import slots_path
from headgate_agent.fragments.sinks.result import Results
from headgate_agent.fragments.sources.build import Surroundings
from headgate_agent.log.contract import PartitionKey
from headgate_agent.log.records import unpack_batches
from headgate_agent.work import Threads
from headgate_common.backoff import Backoff
from headgate_common.clock import SystemClock
from headgate_common.dispatch import Call
from headgate_common.errors import HeadgateError
from tests.integration.log.kit import LogCluster, log_cluster

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
    work: Threads = field(default_factory=lambda: Threads(2, "test"))
    results: Results = field(default_factory=Results)
    reports: list[Report] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)

    @property
    def runner(self) -> AgentRunner:
        agent = self.log.agents["a"]
        clock, source = SystemClock(), random.Random(1)
        timings = EngineTimings(1, 1, 1, 1, Backoff())
        engines = Engines((), agent.line, clock=clock, source=source, timings=timings)
        config = FragmentConfig(
            file_roots=(self.folder,),
            edge_max_lag=self.max_lag,
            flush_interval=0.01,
            edge_read_wait=0.05,
            result_patience=self.patience,
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

    async def until(self, condition: Any) -> None:
        await self.log.until(condition, seconds=20)

    async def ended(self) -> Report:
        await self.until(lambda: self.reports and self.reports[-1].state in (STOPPED, TERMINATED, FAILED))
        return self.reports.pop()

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


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with log_cluster("a") as made:
        edge = await made.create("edge", wal=True)
        errors = await made.create("errors", wal=True)
        found = Node(made, tmp_path, edge, errors)
        yield found
        for run in found.runs:
            await run.stop()
        found.work.close()


def write(node: Node, first: int, count: int) -> None:
    with (node.folder / "in.csv").open("a") as file:
        file.writelines(f"{number},row {number}\n" for number in range(first, first + count))


def rows(count: int) -> list[dict[str, Any]]:
    return [{"id": number, "text": f"row {number}"} for number in range(count)]


async def test_rows_of_a_bounded_source_come_to_the_sink_and_both_end_by_themselves(node: Node) -> None:
    write(node, 0, 1000)
    source = node.start(node.source())
    assert await node.ended() == Report(TERMINATED)
    assert node.reports == [Report(RUNNING)]
    progress = source.progress()
    assert progress is not None and (progress.rows_in, progress.rows_out) == (1000, 1000)
    node.start(node.sink())
    assert (await node.ended()).state == TERMINATED
    assert node.delivered == rows(1000)


async def test_a_drained_source_ends_its_edge_and_so_its_sink(node: Node) -> None:
    write(node, 0, 10)
    source = node.start(node.source(follow="true", poll_interval="10 ms"))
    sink = node.start(node.sink())
    await node.until(lambda: len(node.delivered) == 10)
    source.drain()
    sink.drain()
    assert (await node.ended()).state == (await node.ended()).state == STOPPED
    assert node.delivered == rows(10)


async def test_every_row_is_delivered_once_though_the_agent_crashes_again_and_again(node: Node) -> None:
    total = 0
    for epoch in range(1, 6):
        write(node, total, 300)
        total += 300
        node.start(node.source(epoch, follow="true", poll_interval="10 ms"))
        node.start(node.sink(epoch))
        await node.until(lambda: len(node.delivered) > 0)
        await asyncio.sleep(0.02 * epoch)
        await node.crash()
    node.start(node.source(9))
    node.start(node.sink(9))
    await node.until(lambda: len(node.delivered) >= total)
    assert (await node.ended()).state == TERMINATED
    assert node.delivered == rows(total)


async def test_a_run_of_a_lower_epoch_is_shut_out(node: Node) -> None:
    write(node, 0, 10)
    earlier = node.start(node.source(1, follow="true", poll_interval="10 ms"))
    await node.until(lambda: Report(RUNNING) in node.reports)
    node.start(node.source(2, follow="true", poll_interval="10 ms"))
    await node.until(lambda: node.reports.count(Report(RUNNING)) == 2)
    write(node, 10, 10)
    report = await node.ended()
    assert report.error is not None and report.error.reason == "STALE_EPOCH"
    await earlier.stop()


async def test_malformed_rows_are_in_the_topic_of_error_rows_with_the_rows_around_them(node: Node) -> None:
    (node.folder / "in.csv").write_text("1,one\nnonsense,two\n3,three\n")
    source = node.start(node.source())
    assert (await node.ended()).state == TERMINATED
    (bad,) = await node.error_rows()
    assert bad["raw"] == "nonsense,two" and "id" in bad["reason"] and "in.csv" in bad["place"]
    progress = source.progress()
    assert progress is not None and progress.bad_records == 1


async def test_a_source_pauses_when_its_query_is_too_far_behind_and_says_so(node: Node) -> None:
    node.max_lag = 1
    write(node, 0, 5)
    source = node.start(node.source(follow="true", poll_interval="10 ms"))
    broker = node.log.agents["a"].broker
    await node.until(lambda: broker.bounds(PartitionKey(node.edge.uid, 0)).high_watermark == 1)
    write(node, 5, 5)
    await node.until(lambda: (progress := source.progress()) is not None and "behind" in progress.waiting)
    node.start(node.sink())
    await node.until(lambda: len(node.delivered) == 10)


async def test_a_source_that_cannot_be_read_fails_for_good_with_its_reason(node: Node) -> None:
    node.start(node.source())
    report = await node.ended()
    assert report.error is not None and (report.error.reason, report.error.transient) == ("SOURCE_MISSING", False)


async def test_what_this_agent_may_not_touch_is_refused_before_it_is_registered(node: Node) -> None:
    with pytest.raises(HeadgateError) as refused:
        node.start(node.source(file_path="/etc/passwd"))
    assert refused.value.reason.name == "TARGET_FORBIDDEN"


async def test_a_run_waits_for_the_lead_of_its_edge_and_says_so(node: Node) -> None:
    write(node, 0, 5)
    assignment = node.source()
    assignment.topics[1].topic_uid = "topic-unknown"
    node.start(assignment)
    await node.until(lambda: any("not led here yet" in report.waiting for report in node.reports))


async def test_what_a_sink_remembers_is_removed_when_its_fragment_is_gone_for_good(node: Node) -> None:
    write(node, 0, 5)
    node.start(node.source())
    await node.ended()
    node.start(node.sink())
    await node.ended()
    remembered = slots_path(node.folder / "sinks", "sink")
    assert remembered.exists()
    await node.runner.discard(node.sink())
    assert not remembered.exists()


async def test_the_checkpoint_of_a_compute_fragment_is_removed_when_it_is_gone_for_good(node: Node) -> None:
    folder = node.folder / "checkpoints" / "compute"
    folder.mkdir(parents=True)
    (folder / "metadata").write_text("x")
    plan = catalog.FragmentPlan(ordinal=2, compute=catalog.ComputeFragment())
    assignment = Assignment("compute", 1, "q", "uq", plan)
    await node.runner.discard(assignment)
    assert not folder.exists()
    await node.runner.discard(assignment)


def result(node: Node, epoch: int = 1, **options: str) -> Assignment:
    body = catalog.SinkFragment(type=catalog.SINK_TYPE_RESULT, options=options, schema=SCHEMA)
    plan = catalog.FragmentPlan(ordinal=2, input_edges=[1], sink=body)
    return Assignment("result", epoch, "q", "uq", plan, node.topics)


async def read(node: Node, count: int | None = None, wait: float = 10.0) -> list[Any]:
    """Rows that a reader of the query gets: so many, or all; `...` stands for the end."""
    found: list[Any] = []
    request = cluster.ReadResultsRequest(query_uid="uq")
    request.wait.FromMilliseconds(int(wait * 1000))
    async with aclosing(ResultService(node.results, node.work).read_results(request, Call())) as answers:
        async for answer in answers:
            found += [json.loads(row) for row in answer.rows]
            if answer.ended:
                found.append(...)
            if count is not None and len(found) >= count:
                break
    return found


async def test_rows_of_a_temporary_query_are_read_by_whoever_asks_and_end_with_it(node: Node) -> None:
    write(node, 0, 100)
    node.start(node.source())
    await node.ended()
    node.start(result(node))
    assert await read(node) == [*rows(100), ...]
    assert (await node.ended()).state == TERMINATED


async def test_a_limit_ends_the_rows_of_a_temporary_query(node: Node) -> None:
    write(node, 0, 100)
    node.start(node.source())
    node.start(result(node, limit="7"))
    assert await read(node) == [*rows(7), ...]


async def test_a_second_reader_is_refused_and_a_later_one_goes_on(node: Node) -> None:
    write(node, 0, 10)
    node.start(node.source(follow="true", poll_interval="10 ms"))
    node.start(result(node))
    first = asyncio.create_task(read(node, 20))
    await node.until(lambda: node.runs[1].progress().rows_out == 10)  # type: ignore[union-attr]
    with pytest.raises(HeadgateError) as refused:
        await read(node)
    assert refused.value.reason.name == "RESULT_IN_USE"
    first.cancel()
    await asyncio.wait((first,))
    write(node, 10, 5)
    assert (await read(node, 5))[-5:] == rows(15)[10:]


async def test_a_temporary_query_that_nobody_reads_ends_for_good(node: Node) -> None:
    node.patience = 0.1
    write(node, 0, 10)
    node.start(node.source())
    await node.ended()
    node.start(result(node))
    report = await node.ended()
    assert report.error is not None and (report.error.reason, report.error.transient) == ("RESULT_ABANDONED", False)
    with pytest.raises(HeadgateError) as refused:
        await read(node, wait=0.0)
    assert refused.value.reason.name == "RESULT_NOT_FOUND"
