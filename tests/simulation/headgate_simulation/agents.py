"""Agents of a run: the real registry, journal, service and membership, on a simulated disk, with scripted runs.

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
from headgate_agent.errors import PLAN_UNSUPPORTED
from headgate_agent.fragments import registry as registry_module
from headgate_agent.fragments.registry import FragmentRegistry
from headgate_agent.fragments.runner import RUNNING, STOPPED, TERMINATED, Assignment, Report, Run, failed
from headgate_agent.fragments.service import FragmentService
from headgate_agent.leaving import Leaving
from headgate_agent.member import Identity, Member
from headgate_common.backoff import Backoff
from headgate_common.dispatch import Dispatcher, Service
from headgate_common.errors import HeadgateError
from headgate_simulation.journal_disk import Access, JournalDisk, JournalFaults, SimulatedJournal
from headgate_simulation.log_agent import AgentLog, open_log
from headgate_simulation.log_disk import WalDisk
from headgate_simulation.loop import SimulationError
from headgate_simulation.plan import AgentSpec
from headgate_simulation.processes import Environment, Program, Running
from headgate_simulation.streams import stream
from headgate_simulation.truth import Run as TrueRun
from headgate_simulation.violation import Violation

if TYPE_CHECKING:
    from headgate_simulation.world import World

# Records that a journal has more than it needs before it is written anew: few, so that it is.
SLACK = 4
vars(registry_module)["SLACK"] = SLACK


@dataclass(slots=True)
class SimulatedDisk:
    """What survives the process."""

    journal: JournalDisk = field(default_factory=JournalDisk)
    volume_id: str = ""
    wal: WalDisk = field(default_factory=WalDisk)


@dataclass(slots=True)
class RunFaults:
    """What is wrong with one agent's runs and journal just now. Changed by `faults.py`."""

    breaks: bool = False
    transient: bool = True
    journal: JournalFaults = field(default_factory=JournalFaults)


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
            self.world.truth.refused.add(assignment.uid)
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
        if not transient:
            self._world.truth.broken.add((self.true.uid, self.true.epoch))
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
        self, leave: Leaving, journal: SimulatedJournal, tasks: Sequence[asyncio.Task[None]], log: AgentLog | None
    ) -> None:
        self._leave = leave
        self._journal = journal
        self._tasks = tasks
        self._log = log

    async def stop(self) -> None:
        """As `headgate_agent.server.build` does it."""
        await self._leave()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._log is not None:
            await self._log.close()
        await self._journal.close()


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
        process = world.processes[spec.name]
        torn = stream(world.plan.seed, f"journal/{spec.name}/{process.lives}")
        access = Access(
            disk.journal,
            environment,
            faults.journal,
            torn,
            lambda: world.struck_at_journal(spec.name, dies=True),
            lambda: world.struck_at_journal(spec.name, dies=False),
        )
        journal = SimulatedJournal(access, environment.random, lambda record: world.kept(spec.name, record))
        registry = FragmentRegistry(incarnation=incarnation, runner=runner, journal=journal, clock=environment.clock)
        await _open(world, spec.name, registry)
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
                peers=spec.peers,
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
        tasks = [membership, asyncio.create_task(_watch(world, spec.name, journal))]
        leave = Leaving(registry, service, member, membership, log.leaving if log is not None else None)
        return AgentProcess(leave, journal, tasks, log)

    return start


async def _open(world: World, name: str, registry: FragmentRegistry) -> None:
    """Reads the journal. A full disk ends the process, and it is started again."""
    try:
        await registry.open()
    except OSError as error:
        world.trace.note(name, "ends", detail=str(error))
        world.restart_soon(name)
        await asyncio.get_running_loop().create_future()
    except Exception as error:
        # No simulated disk damages what is on it for certain.
        unread = Violation("a journal can be read again", f"{name}: {error}", (name,))
        world.broken(unread)
        raise unread from error


async def _watch(world: World, name: str, journal: SimulatedJournal) -> None:
    """A journal that cannot be trusted ends the process: the next one begins from what is on the disk."""
    await journal.broken.wait()
    world.trace.note(name, "ends", detail="the journal failed")
    world.restart_soon(name)


async def _stay(world: World, name: str, member: Member) -> None:
    """A process that was dropped for good ends, and is started again by whoever supervises it."""
    try:
        await member.run()
    except HeadgateError as error:
        world.trace.note(name, "ends", detail=str(error))
        world.restart_soon(name)
