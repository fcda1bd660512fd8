"""Runners for tests: they refuse, break, hang or take their time, as told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from headgate.catalog import v1 as catalog
from headgate_agent.errors import PLAN_UNSUPPORTED
from headgate_agent.fragments.runner import RUNNING, STOPPED, Assignment, Report, Run, failed, waits
from headgate_common.errors import HeadgateError


@dataclass
class Script:
    """How runs go here. `fail` has one entry for each run that breaks: whether the failure may pass."""

    refuse: bool = False
    fail: list[bool] = field(default_factory=list)
    # Runs drain only after this is set.
    drain: asyncio.Event = field(default_factory=asyncio.Event)
    # What runs say that they wait for before they are up.
    waits: str = ""
    # Runs report RUNNING only after this is set.
    up: asyncio.Event = field(default_factory=asyncio.Event)
    starts: list[Assignment] = field(default_factory=list)
    drains: list[str] = field(default_factory=list)
    stops: list[str] = field(default_factory=list)
    discards: list[str] = field(default_factory=list)
    # How runs are doing.
    progress: catalog.FragmentProgress | None = None

    def __post_init__(self) -> None:
        self.drain.set()
        self.up.set()

    def check(self, assignment: Assignment) -> None:
        if self.refuse:
            raise HeadgateError(PLAN_UNSUPPORTED, "this agent runs nothing of the kind")

    def start(self, assignment: Assignment, report: Callable[[Report], None]) -> Run:
        self.starts.append(assignment)
        return _ScriptedRun(self, assignment, report)

    async def discard(self, assignment: Assignment) -> None:
        self.discards.append(assignment.uid)


class _ScriptedRun:
    def __init__(self, script: Script, assignment: Assignment, report: Callable[[Report], None]) -> None:
        self._script = script
        self._uid = assignment.uid
        self._report = report
        self._asked = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        if self._script.waits:
            self._report(waits(self._script.waits))
        await self._script.up.wait()
        self._report(RUNNING)
        if self._script.fail:
            transient = self._script.fail.pop(0)
            self._report(failed("BROKEN", "it broke as told", transient=transient))
            return
        await self._asked.wait()
        await self._script.drain.wait()
        self._report(STOPPED)

    def progress(self) -> catalog.FragmentProgress | None:
        return self._script.progress

    def drain(self) -> None:
        self._script.drains.append(self._uid)
        self._asked.set()

    async def stop(self) -> None:
        self._script.stops.append(self._uid)
        self._task.cancel()
        await asyncio.wait((self._task,))
