"""Sources that the agent feeds about itself."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from headgate.catalog import v1 as catalog
from headgate_agent.errors import PLAN_UNSUPPORTED
from headgate_agent.fragments.sinks.sink import Delivered
from headgate_agent.fragments.sources.build import build_source
from headgate_agent.fragments.sources.samples import (
    AGENT_RESOURCES,
    AGENT_STATISTICS,
    BUILT_INS,
    HEARTBEATS,
    BuiltIn,
    Sample,
    SampleSource,
    Vitals,
    taking,
)
from headgate_agent.fragments.sources.source import Counters, run_source
from headgate_agent.fragments.tally import Tally
from headgate_common.errors import HeadgateError
from headgate_coordinator.catalog.descriptors import BUILT_IN_NAMES, built_in_source
from headgate_coordinator.sql.types import validate_schema
from tests.unit.fragments.kit import LoopClock, MemoryEdge, around, simulated


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


@pytest.mark.parametrize("name", BUILT_INS)
def test_the_coordinator_plans_with_the_columns_that_agents_give(name: str) -> None:
    planned = built_in_source(name)
    assert planned is not None and planned.schema == BUILT_INS[name].schema()


def test_every_column_of_a_built_in_source_is_filled_in() -> None:
    for name in BUILT_INS:
        edge = MemoryEdge()
        read(name, vitals(Tally()), edge)
        (row,) = edge.rows()
        assert None not in row.values() and row["agent"] == "agent-1"
    assert BUILT_INS.keys() == {name for name in BUILT_IN_NAMES if not name.startswith("worker_")}


def test_counts_are_of_all_fragments_since_the_sample_before_and_none_is_missed_with_a_run_that_ends() -> None:
    tally = Tally()
    take = taking(AGENT_STATISTICS, vitals(tally))
    source, other, sink = Counted(), Counted(), Counted()
    with tally.reading(source):  # type: ignore[arg-type]
        source.counters.rows_read, source.counters.rows_kept = 10, 6
        with tally.reading(other), tally.delivering(sink):  # type: ignore[arg-type]
            other.counters.rows_read = 1
            sink.delivered.rows, sink.delivered.bytes = 4, 400
            assert counts(take()) == {"rows_read": 11, "rows_kept": 6, "rows_delivered": 4, "bytes_delivered": 400}
            assert counts(take()) == {}
            other.counters.rows_read = 3
        source.counters.rows_read = 15
    tally.computed(7)
    # Another query sees what came since it began.
    assert counts(taking(AGENT_STATISTICS, vitals(tally))()) == {}
    assert counts(take()) == {"rows_read": 7, "rows_computed": 7}


@pytest.mark.parametrize(
    ("name", "columns"),
    [("secrets", HEARTBEATS.schema()), ("", HEARTBEATS.schema()), ("heartbeats", AGENT_RESOURCES.schema())],
)
def test_a_plan_of_another_version_is_refused(name: str, columns: catalog.Schema) -> None:
    fragment = catalog.SourceFragment(
        type=catalog.SOURCE_TYPE_AGENT, options={"built_in": name}, schema=columns, columns=["number"]
    )
    with pytest.raises(HeadgateError, match="does not offer the built-in source") as refused:
        build_source(fragment, replace(around(), vitals=lambda: vitals(Tally())))
    assert refused.value.reason is PLAN_UNSUPPORTED


class Counted:
    """What a tally sees of a source or a sink."""

    def __init__(self) -> None:
        self.counters = Counters()
        self.delivered = Delivered()


def counts(sample: Sample) -> dict[str, int]:
    return {name: value for name, value in sample.items() if value and name != "fragments"}


def vitals(tally: Tally) -> Vitals:
    resources = catalog.AgentResources(cpu=0.5, memory_bytes=2**30, backlog=1)
    return Vitals("agent-1", lambda: resources, lambda: 2, lambda: 3, tally)


def read(name: str, vitals: Vitals, edge: MemoryEdge) -> None:
    """One sample, as a fragment of a plan asks for it."""
    schema = BUILT_INS[name].schema()
    fragment = catalog.SourceFragment(
        type=catalog.SOURCE_TYPE_AGENT,
        options={"built_in": name},
        schema=schema,
        columns=[field.name for field in schema.fields],
    )
    source = build_source(fragment, replace(around(), vitals=lambda: vitals))

    async def main() -> None:
        task = asyncio.create_task(run_source(source, edge, asyncio.Event()))
        await asyncio.sleep(0.5)
        task.cancel()
        await asyncio.wait((task,))

    simulated(main())
