"""One run: a plan carried out in a world of its own, checked all the way, and told if it fails.

`run(plan)` builds the catalog, the coordinators, the agents, the clients and the watchers; starts what the plan starts,
asks what it asks, breaks what it breaks; heals everything; waits for quiet; and checks what must hold then. Whatever is
wrong, at whatever moment, ends the run with a `Failure`.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import traceback
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from headgate_agent.fragments.records import replay
from headgate_agent.fragments.registry import FragmentRegistry
from headgate_common.dispatch import Method
from headgate_common.errors import HeadgateError
from headgate_coordinator.config import CoordinatorConfig
from headgate_coordinator.errors import REASONS
from headgate_simulation import quiet
from headgate_simulation.agents import RunFaults, ScriptedRunner, SimulatedDisk, agent_program
from headgate_simulation.calls import CAUSE
from headgate_simulation.clients import Client, Watcher
from headgate_simulation.coordinators import CoordinatorProcess, coordinator_program
from headgate_simulation.database import FastDatabase
from headgate_simulation.faults import Faults
from headgate_simulation.history import History
from headgate_simulation.invariants import Asked, Checker
from headgate_simulation.log_world import LogWorld
from headgate_simulation.loop import Domain, SimulationError, SimulationLoop
from headgate_simulation.plan import AgentSpec, Operation, Plan, Weather
from headgate_simulation.processes import Process
from headgate_simulation.refusals import Refusals
from headgate_simulation.store import Commit, StoreFaults
from headgate_simulation.streams import stream
from headgate_simulation.trace import Trace
from headgate_simulation.transport import Link, Network
from headgate_simulation.truth import Truth
from headgate_simulation.violation import Violation, fail

CALM = Weather()
EPOCH = datetime.fromtimestamp(0, UTC)
# No run takes this long: what is left to wait for after the faults is bounded.
TIME_LIMIT = 600.0
# How often the leading coordinator forgets what is too old.
HOUSEKEEPING = 8.0
COMMANDS = frozenset({"RegisterFragment", "StartFragment", "StopFragment", "UnregisterFragment"})
# Of groups, what has no number of its own comes once at most: every try of an offset commit is told from all others,
# and happens once if it was acknowledged.
# So does what an agent passes on to a leader, which is stored as often as it comes.
ONCE = frozenset({"CommitOffsets", "OffsetCommit", "AcquireGroup", "Produce"})
BRING_UP = frozenset({"RegisterFragment", "StartFragment"})


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong. `invariant` is what a smaller plan must break too, to be the same failure."""

    invariant: str
    message: str
    about: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Result:
    plan: Plan
    digest: str
    simulated: float
    commits: int
    calls: int
    failure: Failure | None
    trace: Trace


def _config(plan: Plan) -> CoordinatorConfig:
    """That of production, but for what the plan says."""
    config = CoordinatorConfig()
    # So often that it happens within a run, and what is kept for a day goes where a clock jumps and is believed.
    timings = replace(config.timings, housekeeping_interval=HOUSEKEEPING)
    if plan.log is not None:
        timings = replace(timings, session_ttl=plan.log.session_ttl)
    return replace(config, timings=timings)


class World:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.weather = plan.weather
        # Whether nothing goes wrong any more.
        self.healed = False
        self.loop = SimulationLoop(stream(plan.seed, "loop"), time_limit=TIME_LIMIT)  # type: ignore[abstract]
        self.trace = Trace(self.loop.time)
        self.network = Network(self.loop, self.trace, plan.seed, reasons=REASONS, profile=self._profile)
        self.network.sent, self.network.arrived, self.network.answered = self._sent, self._arrived, self._answered
        self.network.once = ONCE
        self.database = FastDatabase()
        self.truth = Truth()
        self.checker = Checker(self.database, self.truth, self.loop.time)
        self.history = History(Refusals(self.checker.mirror, self.checker.edges))
        self.faults = Faults(self)
        self.store_faults: dict[str, StoreFaults] = {}
        self.run_faults: dict[str, RunFaults] = {}
        self.runners: dict[str, ScriptedRunner] = {}
        self.config = _config(plan)
        self.processes: dict[str, Process] = {}
        # Names of the processes that should be up, faults aside.
        self.wanted: dict[str, None] = {}
        self.watchers: list[Watcher] = []
        # Incarnations that were dropped and must not act as if nothing had happened.
        self._domain = Domain("world")
        self._broken: SimulationError | None = None
        self._checking = _Checking(self)
        self._leader = 0
        self._powers: dict[str, int] = {}
        self.log = LogWorld(self, plan.log) if plan.log is not None else None
        self._build()

    def _build(self) -> None:
        for number in range(1, self.plan.coordinators + 1):
            name = f"c{number}"
            self.store_faults[name] = StoreFaults()
            self._process(name, f"{name}:7400", coordinator_program(self), None)
            self.wanted[name] = None
        for spec in self.plan.agents:
            self.run_faults[spec.name] = RunFaults()
            self._process(spec.name, spec.address, agent_program(self, spec), SimulatedDisk())
        self.clients = [Client(self, number) for number in range(1, self.plan.clients + 1)]
        self.watchers = [Watcher(self, number) for number in range(1, self.plan.watchers + 1)]

    def _process(self, name: str, address: str, program: Any, durable: Any) -> None:
        self.processes[name] = Process(
            name=name,
            address=address,
            program=program,
            durable=durable,
            loop=self.loop,
            network=self.network,
            trace=self.trace,
            seed=self.plan.seed,
        )

    def _profile(self, sender: str, receiver: str, link: Link) -> None:
        self.faults.set_link(sender, receiver, link)

    def forget_dead_stores(self) -> None:
        followers = self.database.followers
        followers[:] = [store for store in followers if store.alive]

    def coordinator_addresses(self) -> list[str]:
        return [f"c{number}:7400" for number in range(1, self.plan.coordinators + 1)]

    def spec(self, name: str) -> AgentSpec:
        return next(spec for spec in self.plan.agents if spec.name == name)

    # What the parts tell the world

    def committed(self, commit: Commit) -> None:
        """Called for every operation that becomes durable, before anybody else can know; those that become so in one
        commit one after the other, each with the catalog as it was behind it."""
        if commit.revision is not None:
            for change in commit.revision.changes:
                self.trace.note(commit.coordinator, "commit", change.name, change.uid, detail=_told(change))
        with self.checking():
            self.history.committed(commit)
            self.checker.committed(commit)
            self._leader_is_alone()
            if self.log is not None:
                self.log.committed()

    def settled(self) -> None:
        """Called when a commit is complete."""
        with self.checking():
            self.checker.settled()

    def _leader_is_alone(self) -> None:
        """When the leadership passes, nobody else may still believe that it leads."""
        leader = self.checker.leader
        if leader == self._leader:
            return
        self._leader = leader
        for name in self.store_faults:
            running = self.processes[name].running
            believed = running.coordinator.leadership.term if isinstance(running, CoordinatorProcess) else None
            if believed is not None and believed != leader:
                fail("one leader at a time", f"term {leader} begins while {name} still leads in {believed}", (name,))

    def leading(self) -> str | None:
        """The coordinator that believes it leads, if there is one."""
        for name in self.store_faults:
            running = self.processes[name].running
            if isinstance(running, CoordinatorProcess) and running.coordinator.leadership.term is not None:
                return name
        return None

    def _sent(self, caller: str, method: Method, request: Any) -> None:
        """Called when a process sends a request."""
        if self.log is not None:
            self.faults.sent(method.name)
        if method.name == "CommitGroupOffsets" and self.log is not None:
            self.log.groups.sent(request)
        elif method.name in BRING_UP:
            with self.checking():
                self.checker.brought_up(caller, method.name, request.fragment)

    def _arrived(self, server: str, method: Method, request: Any) -> Any:
        """Called when a server begins to handle a call."""
        if method.name == "RegisterFragment":
            self.checker.edges.registered(request)
        if method.name in COMMANDS:
            return self.checker.asked(server, method.name, request.fragment)
        return self.history.arrived(CAUSE.get()) if CAUSE.get() else server

    def _answered(self, token: Any, caller: str, method: Method, request: Any, told: Any) -> None:
        """Called when a server has answered a call, whether or not its answer arrives."""
        with self.checking():
            failed = isinstance(told, HeadgateError)
            if self.log is not None and isinstance(token, str):
                self.faults.answered(token, method.name)
                self.log.answered(token, caller, method, request, told)
            if method.name in COMMANDS:
                self._obeyed(token, caller, method, request, told.reason.name if failed else "OK")
            elif method.name == "GetStatus":
                if not failed:
                    self.truth.told(told)
            elif failed and CAUSE.get():
                self.history.refused(token, told)

    def _obeyed(self, asked: Asked, caller: str, method: Method, request: Any, told: str) -> None:
        fragment, command = request.fragment, request.command
        self.trace.note(
            asked.agent,
            method.name,
            fragment.uid,
            detail=f"epoch {fragment.epoch} term {command.term} of {caller}: {told}",
        )
        if told == "OK":
            self.checker.obeyed(asked, command.term, method.name, fragment)

    def checking(self) -> AbstractContextManager[None]:
        """What breaks inside breaks the run, whoever catches the exception."""
        return self._checking

    def opened(self, name: str, domain: Domain, registry: FragmentRegistry) -> None:
        """An agent has read its journal: all that it said yes to must be there."""
        self.truth.opened(name, domain, registry)
        with self.checking():
            known = {uid: held.epoch for uid, held in registry._held.items()}
            for uid, (epoch, term) in registry._tombstones.items():
                known[uid] = max(known.get(uid, 0), epoch)
                self.checker.forgot(name, uid, epoch, term)
            self.checker.remembered(name, registry.term, known)

    def kept(self, name: str, record: bytes) -> None:
        """A record of an agent's journal has become durable."""
        for uid, (epoch, term) in replay((record,), EPOCH).tombstones.items():
            self.checker.forgot(name, uid, epoch, term)

    def broken(self, error: SimulationError) -> None:
        """Something that must hold does not. The first such thing ends the run, whoever swallows the exception."""
        if self._broken is None:
            self._broken = error
            self.trace.note("world", "BROKEN", detail=str(error).splitlines()[0])

    def calm(self) -> None:
        self.healed = True
        self.weather = CALM
        for store in self.store_faults.values():
            store.dies = ""
        self.nobody_dies_at_journal()
        if self.log is not None:
            self.log.calm()

    def journal_loses_power(self, name: str) -> None:
        """The machine of an agent that has crashed: what its journal was not sure of may be gone."""
        number = self._powers[name] = self._powers.get(name, 0) + 1
        self.trace.note(name, "power lost")
        self.processes[name].durable.journal.lose_power(stream(self.plan.seed, f"journal-power/{name}/{number}"))

    def struck_at_journal(self, name: str, *, dies: bool) -> None:
        """What a process or its disk was told to do at its next write has happened."""
        faults = self.run_faults[name].journal
        if faults.alone:
            self.nobody_dies_at_journal()
        if dies:
            self.processes[name].crash()
            if not faults.down:
                return
            if faults.power:
                self.journal_loses_power(name)
            self.later(faults.down, lambda: self.start_wanted(name))
        if faults.again:
            self.later(faults.down + faults.again, lambda: self.power_fails(name))

    def nobody_dies_at_journal(self) -> None:
        for runs in self.run_faults.values():
            runs.journal.dies = ""

    def power_fails(self, name: str) -> None:
        """For a moment. Not when all is healed."""
        if self.weather is not CALM:
            self.processes[name].crash()
            self.journal_loses_power(name)
            self.later(0.3, lambda: self.start_wanted(name))

    def start_wanted(self, name: str) -> None:
        if name in self.wanted:
            self.processes[name].start()

    def later(self, seconds: float, then: Callable[[], None]) -> None:
        self.loop.call_later(seconds, then, context=self._domain.context.copy())

    async def cluster_operation(self, operation: Operation) -> None:
        name = str(operation["name"])
        self.trace.note(name, operation.kind, operation.id)
        if operation.kind == "join":
            self.wanted[name] = None
            self.processes[name].start()
        else:
            self.wanted.pop(name, None)
            await self.stop_process(name)

    def restart_soon(self, name: str) -> None:
        """A process has ended by itself. Its supervisor starts it again."""

        def again() -> None:
            self.processes[name].crash()
            self.start_wanted(name)

        self.later(0.5, again)

    async def stop_process(self, name: str) -> None:
        process = self.processes[name]
        process.resume()
        leaked = await process.stop()
        if leaked:
            fail("no task leaks", f"{name} was stopped and left {', '.join(leaked)}", (name,))

    # The run

    def run(self) -> Result:
        failure: Failure | None = None
        errors = _ErrorLog()
        logging.getLogger().addHandler(errors)
        # What is not an error is not made into a record: the trace tells the run better.
        logging.disable(logging.WARNING)
        collecting = gc.isenabled()
        gc.disable()
        try:
            self.loop.run_until_complete(self.loop.create_task(self._main(), context=self._domain.context.copy()))
            self._nothing_was_swallowed(errors)
        except Exception as error:
            # Whatever it is, whoever reads of it learns the seed.
            failure = _failure(self._broken or error, errors)
        finally:
            logging.disable(logging.NOTSET)
            logging.getLogger().removeHandler(errors)
            self.loop.close()
            self.database.close()
            if collecting:
                gc.enable()
        # What leaves no event of its own must repeat too.
        self.trace.note("world", "over", detail=f"{self.loop.steps} steps, {self.network.calls} calls")
        return Result(
            plan=self.plan,
            digest=self.trace.digest,
            simulated=self.loop.time(),
            commits=self.checker.commits,
            calls=self.network.calls,
            failure=failure,
            trace=self.trace,
        )

    async def _main(self) -> None:
        for name in self.wanted:
            self.processes[name].start()
        agenda: list[tuple[float, int, Any]] = []
        for spec in self.plan.agents:
            if spec.starts is not None:
                self.wanted[spec.name] = None
                agenda.append((spec.starts, len(agenda), self.processes[spec.name].start))
        for operation in self.plan.operations:
            agenda.append((operation.at, len(agenda), operation))
        for fault in self.plan.faults:
            agenda.append((fault.at, len(agenda), lambda fault=fault: self.faults.begin(fault)))
            agenda.append((fault.at + fault.lasts, len(agenda), lambda fault=fault: self.faults.end(fault)))
        watching = [self.spawn(watcher.follow(), watcher.domain) for watcher in self.watchers]
        asking: list[asyncio.Task[None]] = []
        for at, _, item in sorted(agenda, key=lambda entry: entry[:2]):
            if at >= self.plan.heals:
                break
            await self._until(at)
            if isinstance(item, Operation):
                client = self.clients[item.client - 1]
                if self.log is not None and self.log.handles(item):
                    asking.append(self.spawn(self.log.perform(item), self._domain))
                else:
                    asking.append(self.spawn(client.perform(item), client.domain))
            else:
                item()
        await self._until(self.plan.heals)
        await quiet.reach(self, asking)
        if self.log is not None:
            watching += self.log.following()
        for task in watching:
            task.cancel()
        await asyncio.gather(*watching, return_exceptions=True)
        for name in [*(spec.name for spec in self.plan.agents), *self.store_faults]:
            await self.stop_process(name)

    def spawn(self, work: Coroutine[Any, Any, None], domain: Domain) -> asyncio.Task[None]:
        async def guarded() -> None:
            try:
                await work
            except Exception as error:
                told = error if isinstance(error, SimulationError) else SimulationError(traceback.format_exc())
                self.broken(told)
                raise told from error

        return self.loop.create_task(guarded(), context=domain.context.copy())

    async def _until(self, at: float) -> None:
        if at > self.loop.time():
            await asyncio.sleep(at - self.loop.time())
        self.check()

    def check(self) -> None:
        if self._broken is not None:
            raise self._broken

    def _nothing_was_swallowed(self, errors: _ErrorLog) -> None:
        self.check()
        if self.loop.errors:
            first = self.loop.errors[0]
            fail("no defects", f"{first.get('message')}: {first.get('exception')!r}")
        if errors.records:
            fail("no defects", errors.told())


class _Checking(AbstractContextManager[None]):
    """See `World.checking`. There is one for a world, because it is entered many thousand times."""

    __slots__ = ("_world",)

    def __init__(self, world: World) -> None:
        self._world = world

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, SimulationError):
            self._world.broken(error)


class _ErrorLog(logging.Handler):
    """Defects that servers log and hide from their callers."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def told(self) -> str:
        lines = []
        for record in self.records[:3]:
            lines.append(record.getMessage())
            if record.exc_info:
                lines.append(logging.Formatter().formatException(record.exc_info))
        return "\n".join(lines)


def _told(change: Any) -> str:
    """A change in a few words."""
    if change.after is None:
        return f"{change.kind} dropped"
    before, after = change.before, change.after
    if change.kind == "QUERY":
        was = quiet.QUERY_STATES[before.state] if before is not None else ""
        waits = f" ({after.waiting.message})" if after.waiting.message else ""
        return f"QUERY {was}->{quiet.QUERY_STATES[after.state]} wants {quiet.DESIRED[after.desired_state]}{waits}"
    if change.kind == "FRAGMENT":
        was = quiet.FRAGMENT_STATES[before.state] if before is not None else ""
        now = quiet.FRAGMENT_STATES[after.state]
        return f"FRAGMENT {was}->{now} epoch={after.epoch} on {after.agent} held={after.slots_held}"
    if change.kind == "AGENT":
        state = "ACTIVE" if after.state == 1 else "UNREACHABLE"
        return f"AGENT {state} {after.slots_used}/{after.slots} {after.incarnation}"
    return f"{change.kind} {'created' if before is None else 'changed'}"


def _failure(error: Exception, errors: _ErrorLog) -> Failure:
    message = str(error)
    if not isinstance(error, SimulationError):
        message = f"{type(error).__name__}: {message}\n{''.join(traceback.format_exception(error))}"
    if errors.records:
        message += "\n" + errors.told()
    if isinstance(error, Violation):
        return Failure(error.invariant, message, error.about)
    return Failure(type(error).__name__, message, ())


def run(plan: Plan) -> Result:
    return World(plan).run()
