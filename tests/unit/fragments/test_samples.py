"""Sources that the agent feeds about itself."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from headgate_agent.fragments.sources.samples import AGENT_RESOURCES, BUILT_INS, HEARTBEATS, BuiltIn, SampleSource
from headgate_agent.fragments.sources.source import run_source
from headgate_coordinator.sql.types import validate_schema
from tests.unit.fragments.kit import LoopClock, MemoryEdge, simulated


def sampled(built_in: BuiltIn, values: dict[str, Any], edge: MemoryEdge, seconds: float) -> None:
    source = SampleSource(built_in, "agent-1", lambda: values, lambda b: b, interval=1.0, clock=LoopClock())

    async def main() -> None:
        task = asyncio.create_task(run_source(source, edge, asyncio.Event()))
        await asyncio.sleep(seconds)
        task.cancel()
        await asyncio.wait((task,))

    simulated(main())


def test_a_row_comes_at_every_interval_and_numbers_go_on_after_a_restart() -> None:
    edge = MemoryEdge()
    sampled(HEARTBEATS, {}, edge, 4.5)
    moments = edge.column("ts")
    assert [later - earlier for earlier, later in pairwise(moments)] == [timedelta(seconds=1)] * 4
    sampled(HEARTBEATS, {}, edge, 2.5)
    assert edge.column("number") == list(range(8))
    assert set(edge.column("agent")) == {"agent-1"}


def test_a_sample_has_the_columns_that_are_declared() -> None:
    edge = MemoryEdge()
    values = {"cpu": 0.5, "memory_bytes": 2**40, "backlog": 0, "slots_used": 3}
    sampled(AGENT_RESOURCES, values, edge, 0.5)
    (row,) = edge.rows()
    assert {name: row[name] for name in values} == values


@pytest.mark.parametrize("built_in", BUILT_INS.values())
def test_the_coordinator_takes_the_schemas(built_in: BuiltIn) -> None:
    assert validate_schema(built_in.schema()) == built_in.schema()
