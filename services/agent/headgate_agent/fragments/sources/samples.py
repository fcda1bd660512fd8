"""Sources that the agent itself feeds: a row about it every so often.

Promises: samples are taken at a steady interval on the agent's monotonic clock while the source runs, numbered without
a gap over all its runs; each is stored at most once. There is nothing to read again: what was not sampled, because the
agent was down or the edge took nothing, is not there, and the times of the rows show the hole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from headgate.catalog import v1 as catalog
from headgate_agent.errors import PLAN_UNSUPPORTED
from headgate_agent.fragments.sources.source import Counters, Emitted, wait_or_stop
from headgate_agent.fragments.tally import Tally
from headgate_agent.fragments.types import Column, arrow_schema, columns_of
from headgate_common.clock import Clock
from headgate_common.errors import HeadgateError

# A sample: values by column, beside those that the source fills in.
Sample = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """A source that every agent offers: its name and columns. `agent`, `ts` and `number` are filled in."""

    name: str
    fields: tuple[tuple[str, str], ...]

    def schema(self) -> catalog.Schema:
        common = (("agent", "VARCHAR"), ("ts", "TIMESTAMP"), ("number", "INT64"))
        fields = [catalog.Field(name=name, type=type_, not_null=True) for name, type_ in (*common, *self.fields)]
        return catalog.Schema(fields=fields)


# Counts of agent_statistics are of the time since the sample before.
AGENT_STATISTICS = BuiltIn(
    "agent_statistics",
    (
        ("rows_read", "INT64"),
        ("rows_kept", "INT64"),
        ("rows_malformed", "INT64"),
        ("rows_computed", "INT64"),
        ("rows_delivered", "INT64"),
        ("bytes_read", "INT64"),
        ("bytes_delivered", "INT64"),
        ("fragments", "INT32"),
    ),
)
AGENT_RESOURCES = BuiltIn(
    "agent_resources", (("cpu", "FLOAT64"), ("memory_bytes", "INT64"), ("backlog", "INT64"), ("slots_used", "INT32"))
)
HEARTBEATS = BuiltIn("heartbeats", ())

BUILT_INS = {built_in.name: built_in for built_in in (AGENT_STATISTICS, AGENT_RESOURCES, HEARTBEATS)}


@dataclass(frozen=True, slots=True)
class Vitals:
    """What an agent can say of itself, asked anew for each sample."""

    agent: str
    resources: Callable[[], catalog.AgentResources]
    slots_used: Callable[[], int]
    # How many fragments it has, ended ones included.
    fragments: Callable[[], int]
    tally: Tally


def built_in_of(fragment: catalog.SourceFragment) -> BuiltIn:
    """The built-in source that a fragment reads. PLAN_UNSUPPORTED where this agent does not offer it as the plan has
    it: agents and coordinators of two versions may disagree about its columns."""
    name = fragment.options.get("built_in", "")
    built_in = BUILT_INS.get(name)
    if built_in is None or built_in.schema() != fragment.schema:
        raise HeadgateError(PLAN_UNSUPPORTED, f"this agent does not offer the built-in source {name} with such columns")
    return built_in


def taking(built_in: BuiltIn, vitals: Vitals) -> Callable[[], Sample]:
    """How a sample of a built-in source is taken. Counts begin now."""
    if built_in is AGENT_STATISTICS:
        return _Statistics(vitals)
    if built_in is AGENT_RESOURCES:
        return lambda: _resources(vitals)
    return dict


class _Statistics:
    """Counts since the sample before."""

    def __init__(self, vitals: Vitals) -> None:
        self._vitals = vitals
        self._before = vitals.tally.totals()

    def __call__(self) -> Sample:
        now = self._vitals.tally.totals()
        since, self._before = now - self._before, now
        return {**asdict(since), "fragments": self._vitals.fragments()}


def _resources(vitals: Vitals) -> Sample:
    found = vitals.resources()
    return {
        "cpu": found.cpu,
        "memory_bytes": found.memory_bytes,
        "backlog": found.backlog,
        "slots_used": vitals.slots_used(),
    }


class SampleSource:
    """A `Source` of samples. `take` answers the values that the source does not fill in."""

    def __init__(
        self,
        built_in: BuiltIn,
        agent: str,
        take: Callable[[], Sample],
        shape: Callable[[pa.RecordBatch], pa.RecordBatch],
        *,
        interval: float,
        clock: Clock,
    ) -> None:
        if interval <= 0:
            raise ValueError("samples are taken at an interval of more than nothing")
        self.counters = Counters()
        self._agent = agent
        self._take = take
        self._shape = shape
        self._interval = interval
        self._clock = clock
        self._columns: tuple[Column, ...] = columns_of(built_in.schema())
        self._schema = arrow_schema(self._columns)
        self._number = 0
        self._due = 0.0

    async def open(self, position: bytes | None) -> None:
        self._number = int(position) if position else 0
        self._due = self._clock.monotonic()

    async def next(self, stopping: asyncio.Event) -> Emitted | None:
        wait = self._due - self._clock.monotonic()
        if stopping.is_set() or (wait > 0 and await wait_or_stop(stopping, wait)):
            return None
        # Samples that were missed are not made up for.
        self._due = max(self._due + self._interval, self._clock.monotonic())
        row = {"agent": self._agent, "ts": self._clock.wall(), "number": self._number, **self._take()}
        batch = pa.RecordBatch.from_pylist([row], schema=self._schema)
        self._number += 1
        self.counters.rows_read += 1
        kept = self._shape(batch)
        self.counters.rows_kept += kept.num_rows
        return Emitted((kept,), str(self._number).encode())

    async def close(self) -> None:
        """There is nothing to close."""
