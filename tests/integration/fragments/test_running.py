"""Sources and sinks as an agent runs them, on edges of a real log: from the coordinator's assignment to rows in a file,
through crashes of the agent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from headgate.catalog import v1 as catalog
from headgate.cluster import v1 as cluster
from headgate_agent.fragments.result_service import ResultService
from headgate_agent.fragments.runner import Assignment
from headgate_agent.fragments.sinks.file import slots_path
from headgate_agent.log.contract import PartitionKey
from headgate_common.dispatch import Call
from headgate_common.errors import HeadgateError
from tests.integration.fragments.node import (
    SCHEMA,
    TERMINATED,
    Node,
    rows,
    running_node,
    write,
)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with running_node(tmp_path) as made:
        yield made


async def test_rows_that_a_failing_disk_refused_are_appended_again_and_none_behind_them_was(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Many appends, of which several are on their way at any time; each commit is one of them.
    node.settings = {"block_bytes": 256, "step_bytes": 256, "linger": 0.0, "appends_ahead": 4}
    write(node, 0, 2000)
    files = node.log.agents["a"].files
    whole, left = files.write, 0

    async def failing(number: int, position: int, buffers: Any) -> None:
        nonlocal left
        left -= 1
        files.fail = int(left == 0)
        await asyncio.sleep(0.001)
        await whole(number, position, buffers)

    monkeypatch.setattr(files, "write", failing)
    for epoch in range(1, 8):
        left = 4 + epoch
        node.start(node.source(epoch))
        report = await node.ended()
        assert report.error is not None and report.error.transient
        node.reports.clear()
    left = -1
    node.start(node.source(9))
    assert (await node.ended()).state == TERMINATED
    node.start(node.sink(9))
    assert (await node.ended()).state == TERMINATED
    assert node.delivered == rows(2000)


async def test_appends_that_are_ready_meanwhile_share_one_commit(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.settings = {"block_bytes": 1200, "step_bytes": 2200, "linger": 0.0, "appends_ahead": 4}
    write(node, 0, 2000)
    files, wal = node.log.agents["a"].files, node.log.agents["a"].broker.world.wal
    at_once = files.write

    async def slowly(number: int, position: int, buffers: Any) -> None:
        await asyncio.sleep(0.05)
        await at_once(number, position, buffers)

    monkeypatch.setattr(files, "write", slowly)
    before = wal.writes
    node.start(node.source())
    assert (await node.ended()).state == TERMINATED
    bounds = node.log.agents["a"].broker.bounds(PartitionKey(node.edge.uid, 0))
    assert wal.writes - before < bounds.high_watermark


async def test_malformed_rows_are_in_the_topic_of_error_rows_with_the_rows_around_them(node: Node) -> None:
    (node.folder / "in.csv").write_text("1,one\nnonsense,two\n3,three\n")
    source = node.start(node.source())
    assert (await node.ended()).state == TERMINATED
    (bad,) = await node.error_rows()
    assert bad["raw"] == "nonsense,two" and "id" in bad["reason"] and "in.csv" in bad["place"]
    progress = source.progress()
    assert progress is not None and progress.bad_records == 1


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
