"""Sources and sinks on an edge of either kind, of the log or on a real Kafka broker: what comes through, in what order,
through crashes of the agent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headgate_agent.fragments.runner import Report
from tests.integration.fragments.node import RUNNING, STOPPED, TERMINATED, Node, rows, running_node, write

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(params=["log", pytest.param("kafka", marks=pytest.mark.kafka)])
def bootstrap(request: pytest.FixtureRequest) -> str:
    return "" if request.param == "log" else request.getfixturevalue("kafka_bootstrap")


@pytest.fixture
async def node(tmp_path: Path, bootstrap: str) -> AsyncIterator[Node]:
    async with running_node(tmp_path, bootstrap) as made:
        yield made


async def test_rows_of_a_bounded_source_come_to_the_sink_and_both_end_by_themselves(node: Node) -> None:
    write(node, 0, 1000)
    source = node.start(node.source())
    assert await node.ended() == Report(TERMINATED)
    assert node.reports[-1] == Report(RUNNING)
    progress = source.progress()
    assert progress is not None and (progress.rows_in, progress.rows_out) == (1000, 1000)
    node.start(node.sink())
    assert (await node.ended()).state == TERMINATED
    assert node.delivered == rows(1000)
    # Both again, as after a crash before their ends were told.
    node.start(node.source(epoch=2))
    assert await node.ended() == Report(TERMINATED)
    node.start(node.sink(epoch=2))
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


async def test_no_row_is_lost_or_doubled_though_the_agent_crashes_again_and_again(node: Node) -> None:
    # Many appends, so that crashes are between some of them.
    node.settings = {"block_bytes": 512, "step_bytes": 512, "linger": 0.0}
    total = 0
    for epoch in range(1, 6):
        write(node, total, 300)
        total += 300
        node.start(node.source(epoch, follow="true", poll_interval="10 ms"))
        node.start(node.sink(epoch))
        await node.until(lambda: len(node.delivered) > 0)
        await asyncio.sleep(0.05 * epoch)
        await node.crash()
    node.start(node.source(9))
    node.start(node.sink(9))
    await node.until(lambda: len(node.delivered) >= total)
    assert (await node.ended()).state == TERMINATED
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


async def test_malformed_rows_are_kept_and_counted_over_all_runs_of_a_source_though_its_agent_crashes(
    node: Node,
) -> None:
    path = node.folder / "in.csv"
    path.write_text("1,one\nnonsense,two\n")
    first = node.start(node.source(follow="true", poll_interval="10 ms"))
    await node.until(lambda: (told := first.progress()) is not None and told.bad_records == 1)
    await node.crash()
    with path.open("a") as file:
        file.write("rubbish,three\n4,four\n")
    second = node.start(node.source(epoch=2, follow="true", poll_interval="10 ms"))
    await node.until(lambda: (told := second.progress()) is not None and told.bad_records == 2)
    assert [row["raw"] for row in await node.error_rows()] == ["nonsense,two", "rubbish,three"]


async def test_a_source_pauses_when_its_query_is_too_far_behind_also_after_a_crash_and_says_so(node: Node) -> None:
    node.max_lag = 1
    write(node, 0, 5)
    first = node.start(node.source(follow="true", poll_interval="10 ms"))
    await node.until(lambda: node.appended() > 0)
    write(node, 5, 5)
    await node.until(lambda: (progress := first.progress()) is not None and "behind" in progress.waiting)
    before = await asyncio.to_thread(node.appended)
    await node.crash()
    again = node.start(node.source(epoch=2, follow="true", poll_interval="10 ms"))
    await node.until(lambda: (progress := again.progress()) is not None and "behind" in progress.waiting)
    assert await asyncio.to_thread(node.appended) == before, "nothing was appended beyond the limit"
    node.start(node.sink())
    await node.until(lambda: len(node.delivered) == 10)
    assert node.delivered == rows(10)
