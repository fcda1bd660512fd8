"""How a fragment is executed.

Contract of `Runner`: `check` refuses, with PLAN_UNSUPPORTED, what it can never run. `start` begins a run and returns at
once; the run tells how it goes through `report`, on the event loop and not before `start` has returned: what it waits
for, any number of times; RUNNING once or not at all; then exactly one end (TERMINATED, FAILED, or STOPPED after
`drain`), unless it is stopped first. `discard` removes what runs of a fragment have left outside of edges; it is called
when none of them runs and none will. Contract of `Run`: `drain` lets it emit everything that it has and then end;
`stop` ends it at once and returns when nothing of it runs any more, and nothing is reported after that. Both may be
called more than once. `progress` says how it is doing; None if there is nothing to say.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from headgate.catalog import v1 as catalog
from headgate.cluster import v1 as cluster
from headgate_agent.errors import PLAN_UNSUPPORTED
from headgate_common.errors import HeadgateError
from headgate_common.signals import Signal

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Assignment:
    """A run to be executed. `uid` is the fragment's identity, whatever the epoch."""

    uid: str
    epoch: int
    query: str
    query_uid: str
    plan: catalog.FragmentPlan
    # Topics of the edges, by the ordinal of the edge.
    topics: Mapping[int, cluster.EdgeTopic] = field(default_factory=dict)
    # Where records go that cannot be read.
    errors: cluster.EdgeTopic | None = None
    mode: catalog.QueryMode.ValueType = catalog.QUERY_MODE_UNSPECIFIED
    # Whether the run was begun by an earlier process of this agent, and may still go on elsewhere.
    resumed: bool = False

    @property
    def facts(self) -> dict[str, object]:
        """For logs."""
        return {"query": self.query, "fragment": self.plan.ordinal, "epoch": self.epoch}


@dataclass(frozen=True, slots=True)
class Report:
    """How a run goes: a state, why where it FAILED, and what it waits for where it is only STARTED."""

    state: catalog.FragmentState.ValueType
    error: cluster.FragmentError | None = None
    waiting: str = ""


RUNNING = Report(catalog.FRAGMENT_STATE_RUNNING)
TERMINATED = Report(catalog.FRAGMENT_STATE_TERMINATED)
STOPPED = Report(catalog.FRAGMENT_STATE_STOPPED)


def failed(reason: str, message: str, *, transient: bool) -> Report:
    error = cluster.FragmentError(reason=reason, message=message, transient=transient)
    return Report(catalog.FRAGMENT_STATE_FAILED, error)


def waits(what: str) -> Report:
    return Report(catalog.FRAGMENT_STATE_STARTED, waiting=what)


class Run(Protocol):
    def progress(self) -> catalog.FragmentProgress | None: ...

    def drain(self) -> None: ...

    async def stop(self) -> None: ...


class Runner(Protocol):
    def check(self, assignment: Assignment) -> None: ...

    def start(self, assignment: Assignment, report: Callable[[Report], None]) -> Run: ...

    async def discard(self, assignment: Assignment) -> None: ...


class SimulatedRunner:
    """Stands in for the edges and the engine: its runs move no data, they only take the time that they would.

    A run is RUNNING at once. A GENERATOR source with `rows` ends by itself after rows / rate seconds; every other run
    goes on until it is stopped, and drains at once.
    """

    def check(self, assignment: Assignment) -> None:
        """It can pretend to run anything but what somebody waits for."""
        sink = assignment.plan.sink
        if assignment.plan.WhichOneof("body") == "sink" and sink.type == catalog.SINK_TYPE_RESULT:
            raise HeadgateError(
                PLAN_UNSUPPORTED,
                "a temporary query has no rows to give here: the agent has no engine and only pretends to run queries. "
                "Start it with an engine (`headgate dev` without --no-engine), or look at the plan with EXPLAIN",
            )

    def start(self, assignment: Assignment, report: Callable[[Report], None]) -> Run:
        log.info("simulated run: no data is read or written", extra=assignment.facts)
        return SimulatedRun(duration_of(assignment.plan), report)

    async def discard(self, assignment: Assignment) -> None:
        """Its runs leave nothing."""


class SimulatedRun:
    def __init__(self, duration: float | None, report: Callable[[Report], None]) -> None:
        self._report = report
        self._drained = Signal()
        self._task = asyncio.create_task(self._run(duration))

    def progress(self) -> None:
        return None

    def drain(self) -> None:
        self._drained.set()

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait((self._task,))

    async def _run(self, duration: float | None) -> None:
        self._report(RUNNING)
        self._report(STOPPED if await self._drained.wait(duration) else TERMINATED)


def duration_of(plan: catalog.FragmentPlan) -> float | None:
    """How many seconds a bounded generator takes; None for everything else."""
    source = plan.source
    if plan.WhichOneof("body") != "source" or source.type != catalog.SOURCE_TYPE_GENERATOR:
        return None
    rows, rate = source.options.get("rows", ""), source.options.get("rate", "10")
    return float(rows) / float(rate) if rows else None
