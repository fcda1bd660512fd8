"""Agents of a run: the real registry, journal format, service and membership, on a simulated disk, with scripted runs.

A scripted run takes time to come up and to stop, may end by itself, and may break, all drawn from the seed under the
name of its query, fragment and epoch. It tells the `Truth` what it really does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headgate.catalog import v1 as catalog
from headgate_agent.config import Timings
from headgate_agent.errors import JOURNAL_UNAVAILABLE, PLAN_UNSUPPORTED
from headgate_agent.fragments.registry import FragmentRegistry
from headgate_agent.fragments.runner import RUNNING, STOPPED, TERMINATED, Assignment, Report, Run, failed
from headgate_agent.fragments.service import FragmentService
from headgate_agent.member import Identity, Member
from headgate_common.backoff import Backoff
from headgate_common.dispatch import Dispatcher, Service
from headgate_common.errors import HeadgateError
from headgate_simulation.log_agent import AgentLog, open_log
from headgate_simulation.log_disk import WalDisk
from headgate_simulation.loop import Killed, SimulationError
from headgate_simulation.plan import AgentSpec
from headgate_simulation.processes import Environment, Program, Running
from headgate_simulation.streams import stream
from headgate_simulation.truth import Run as TrueRun

if TYPE_CHECKING:
    from headgate_simulation.world import World

# How long a write to the disk takes at most.
DISK_DELAY = 0.004


@dataclass(slots=True)
class SimulatedDisk:
    """What survives the process."""

    records: list[bytes] = field(default_factory=list)
    volume_id: str = ""
    wal: WalDisk = field(default_factory=WalDisk)


@dataclass(slots=True)
class RunFaults:
    """What is wrong with one agent's runs and disk just now. Changed by `faults.py`."""

    breaks: bool = False
    transient: bool = True
    journal_fails: bool = False
    # Whether the process dies at its next write: "before" it, "after" it, or not at all.
    dies: str = ""


class SimulatedJournal:
    """`Journal` on a disk that outlives the process. Writes become durable in the order of the calls."""

    def __init__(
        self, disk: SimulatedDisk, environment: Environment, faults: RunFaults, die: Callable[[], None]
    ) -> None:
        self._disk = disk
        self._environment = environment
        self._faults = faults
        self._die = die
        self._last = 0.0

    async def load(self) -> list[bytes]:
        return list(self._disk.records)

    async def append(self, record: bytes) -> None:
        loop = asyncio.get_running_loop()
        durable = loop.create_future()
        # In order: none is durable before those that were called earlier.
        self._last = max(self._last, loop.time() + self._environment.random.random() * DISK_DELAY)
        loop.call_at(self._last, self._write, [*self._disk.records[:0], record], durable, False)
        await durable

    async def rewrite(self, records: Sequence[bytes]) -> None:
        loop = asyncio.get_running_loop()
        durable = loop.create_future()
        self._last = max(self._last, loop.time() + self._environment.random.random() * DISK_DELAY)
        loop.call_at(self._last, self._write, list(records), durable, True)
        await durable

    def _write(self, records: list[bytes], durable: asyncio.Future[None], anew: bool) -> None:
        if self._faults.dies == "before":
            self._dies()
        if self._faults.journal_fails:
            if not durable.done():
                durable.set_exception(HeadgateError(JOURNAL_UNAVAILABLE, "no space is left on the simulated disk"))
            return
        self._disk.records[:] = records if anew else [*self._disk.records, *records]
        if self._faults.dies == "after":
            self._dies()
        if not durable.done():
            durable.set_result(None)

    def _dies(self) -> None:
        self._faults.dies = ""
        self._die()
        raise Killed(self._environment.name)


class ScriptedRunner:
    """`Runner` whose runs follow the seed."""

    def __init__(self, world: World, environment: Environment, incarnation: str) -> None:
        self.world = world
        self.environment = environment
        self.incarnation = incarnation
        self.runs: dict[int, ScriptedRun] = {}

    def check(self, assignment: Assignment) -> None:
        name = f"refused/{assignment.query}/{assignment.plan.ordinal}"
        if stream(self.world.plan.seed, name).random() < self.world.weather.refused:
            raise HeadgateError(PLAN_UNSUPPORTED, "the script of this run refuses the fragment")

    def start(self, assignment: Assignment, report: Callable[[Report], None]) -> Run:
        return ScriptedRun(self, assignment, report)

    async def discard(self, assignment: Assignment) -> None:
        """Its runs leave nothing."""

    def break_all(self, transient: bool) -> None:
        for run in list(self.runs.values()):
            run.break_now(transient)


class ScriptedRun:
    def __init__(self, runner: ScriptedRunner, assignment: Assignment, report: Callable[[Report], None]) -> None:
        world, environment = runner.world, runner.environment
        environment.domain.check()
        self._runner = runner
        self._world = world
        self._assignment = assignment
        self._report = report
        self._drained = asyncio.Event()
        self._broken: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._source = stream(world.plan.seed, f"run/{assignment.query}/{assignment.plan.ordinal}/{assignment.epoch}")
        self.true = TrueRun(environment.name, runner.incarnation, assignment.uid, assignment.epoch, environment.domain)
        try:
            world.truth.begin(self.true)
        except SimulationError as error:
            world.broken(error)
            raise
        self._note("begins")
        runner.runs[id(self)] = self
        self._task = asyncio.create_task(self._run())

    def progress(self) -> None:
        return None

    def drain(self) -> None:
        self._drained.set()

    async def stop(self) -> None:
        if not self._task.done():
            await asyncio.sleep(self._source.random() * self._world.weather.stop_delay)
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.wait((self._task,))
        self._over("stopped")

    def break_now(self, transient: bool) -> None:
        if not self._broken.done():
            self._broken.set_result(transient)

    async def _run(self) -> None:
        how = await self._script()
        # (nothing of it runs any more when it says so)
        if how is TERMINATED:
            self._world.truth.complete(self.true)
        self._over(catalog.FragmentState.Name(how.state).removeprefix("FRAGMENT_STATE_"))
        self._report(how)

    async def _script(self) -> Report:
        weather, source = self._world.weather, self._source
        faults = self._world.run_faults[self._runner.environment.name]
        comes_up, fate, after = source.random(), source.random(), source.uniform(0.5, 20.0)
        if faults.breaks:
            self._broken.set_result(faults.transient)
        how = await self._wait(comes_up * weather.start_delay)
        if how is not None:
            return how
        self._world.truth.running(self.true)
        self._note("runs")
        self._report(RUNNING)
        is_source = self._assignment.plan.kind == catalog.FRAGMENT_KIND_SOURCE
        ends = weather.ends if is_source else 0.0
        if fate < ends + weather.breaks + weather.fails:
            how = await self._wait(after)
            if how is None and self._world.weather is weather:
                if fate < ends:
                    return TERMINATED
                self.break_now(fate < ends + weather.breaks)
                return self._failure()
            if how is not None:
                return how
        how = await self._wait(None)
        assert how is not None
        return how

    async def _wait(self, seconds: float | None) -> Report | None:
        """How it ended while it waited; None if it only waited."""
        drained = asyncio.ensure_future(self._drained.wait())
        try:
            await asyncio.wait((drained, self._broken), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if self._broken.done():
                return self._failure()
            if drained.done():
                await asyncio.sleep(self._source.random() * self._world.weather.stop_delay)
                return STOPPED
            return None
        finally:
            drained.cancel()

    def _failure(self) -> Report:
        transient = self._broken.result()
        return failed("SCRIPTED", "the script breaks this run", transient=transient)

    def _over(self, how: str) -> None:
        if self._runner.runs.pop(id(self), None) is not None:
            self._world.truth.end(self.true)
            self._note(how)

    def _note(self, what: str) -> None:
        assignment = self._assignment
        self._world.trace.note(
            self.true.agent, f"run {what}", assignment.query, assignment.uid, detail=f"epoch {assignment.epoch}"
        )


class AgentProcess:
    """A started agent."""

    def __init__(
        self,
        registry: FragmentRegistry,
        service: FragmentService,
        member: Member,
        tasks: asyncio.Task[None],
        log: AgentLog | None,
    ) -> None:
        self._registry = registry
        self._service = service
        self._member = member
        self._membership = tasks
        self._log = log

    async def stop(self) -> None:
        if self._log is not None:
            await self._log.leave()
        self._membership.cancel()
        await asyncio.gather(self._membership, return_exceptions=True)
        self._service.left = True
        await self._member.leave()
        await self._registry.close()
        if self._log is not None:
            await self._log.close()


def agent_program(world: World, spec: AgentSpec) -> Program:
    """As `headgate_agent.server.build` wires it, with what the simulation replaces."""
    timings = Timings()

    async def start(environment: Environment) -> Running:
        disk: SimulatedDisk = environment.durable
        disk.volume_id = disk.volume_id or environment.ids.uid("volume")
        incarnation = environment.ids.uid("process")
        faults = world.run_faults[spec.name]
        runner = ScriptedRunner(world, environment, incarnation)
        world.runners[spec.name] = runner
        journal = SimulatedJournal(disk, environment, faults, world.processes[spec.name].crash)
        registry = FragmentRegistry(incarnation=incarnation, runner=runner, journal=journal, clock=environment.clock)
        await registry.open()
        world.opened(spec.name, environment.domain, registry)
        service = FragmentService(registry, spec.name, lambda: catalog.AgentResources(backlog=registry.backlog))
        member = Member(
            Identity(
                name=spec.name,
                address=spec.address,
                incarnation=incarnation,
                slots=spec.slots,
                zone=spec.zone,
                roles=("log", "fragments") if spec.log else ("fragments",),
                volume_id=disk.volume_id,
                has_engine=spec.engine,
            ),
            registry,
            transport=environment.transport,
            coordinators=world.coordinator_addresses(),
            clock=environment.clock,
            source=environment.random,
            timeout=timings.call_timeout,
            backoff=Backoff(initial=timings.retry_min, cap=timings.retry_max),
        )
        services: list[Service] = [service]
        log: AgentLog | None = None
        if world.log is not None and spec.log:
            log = await open_log(world.log, environment, disk.wal, disk.volume_id, member)
            services += log.services
        environment.serve(Dispatcher(services, environment.ids))
        membership = asyncio.create_task(_stay(world, spec.name, member))
        return AgentProcess(registry, service, member, membership, log)

    return start


async def _stay(world: World, name: str, member: Member) -> None:
    """A process that was dropped for good ends, and is started again by whoever supervises it."""
    try:
        await member.run()
    except HeadgateError as error:
        world.trace.note(name, "ends", detail=str(error))
        world.restart_soon(name)
