"""Processes that crash, restart, pause and stop, each on a machine of its own.

Contract:
- A `Program` is what production starts: it gets an `Environment`, serves, and returns what can be stopped.
- `crash` ends a process between two of its steps. Nothing of it runs afterwards, and nothing it had in flight has an
  effect: every seam in the environment refuses a process that is dead.
- `durable` is all that a restarted process finds of its former life. Whatever a program keeps elsewhere is gone.
- `pause` is SIGSTOP: no timer, callback or request of it runs until `resume`, and then everything is late.
- `stop` is SIGTERM; a task that outlives it is a leak.
- The wall clock of a machine may be moved. Its monotonic clock counts from a point of its own and never jumps.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from headgate_common.dispatch import Dispatcher, Transport
from headgate_common.ids import Ids, RandomIds
from headgate_simulation.loop import Domain, SimulationLoop
from headgate_simulation.streams import stream
from headgate_simulation.trace import Trace
from headgate_simulation.transport import Network

# How long after a stop a task may take to end by itself, in seconds: longer than any request that it waits for.
LINGERS = 15.0
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


class MachineClock:
    """The clocks of one machine: a monotonic one with its own zero, and a wall clock that can be moved."""

    def __init__(self, loop: SimulationLoop, zero: float) -> None:
        self._loop = loop
        self._zero = zero
        self.moved = self._furthest = self._behind = timedelta()

    def monotonic(self) -> float:
        return self._zero + self._loop._now

    def wall(self) -> datetime:
        return EPOCH + timedelta(seconds=self._loop.time()) + self.moved

    def move(self, seconds: float) -> None:
        self.moved += timedelta(seconds=seconds)
        self._furthest = max(self._furthest, self.moved)
        self._behind = min(self._behind, self.moved)

    def latest(self) -> float:
        """What the wall clock would say if it had stayed as far ahead as it ever was, in milliseconds."""
        return (EPOCH + timedelta(seconds=self._loop.time()) + self._furthest).timestamp() * 1000

    def earliest(self) -> float:
        """The same for as far behind as it ever was."""
        return (EPOCH + timedelta(seconds=self._loop.time()) + self._behind).timestamp() * 1000


@dataclass(frozen=True, slots=True)
class Environment:
    """All that a program may touch."""

    name: str
    address: str
    domain: Domain
    clock: MachineClock
    random: random.Random
    ids: Ids
    transport: Transport
    durable: Any
    serve: Callable[[Dispatcher], None]


class Running(Protocol):
    """A started program."""

    async def stop(self) -> None: ...


Program = Callable[[Environment], Awaitable[Running]]


class Process:
    """One simulated process through all its lives."""

    def __init__(
        self,
        *,
        name: str,
        address: str,
        program: Program,
        durable: Any,
        loop: SimulationLoop,
        network: Network,
        trace: Trace,
        seed: int,
    ) -> None:
        self.name = name
        self.address = address
        self.durable = durable
        self.lives = 0
        self.running: Running | None = None
        self.domain: Domain | None = None
        self._program = program
        self._loop = loop
        self._network = network
        self._trace = trace
        self._seed = seed
        self.clock = MachineClock(loop, stream(seed, f"boot/{name}").uniform(10.0, 1e6))
        self._stopping: asyncio.Event | None = None

    @property
    def up(self) -> bool:
        return self.domain is not None and self.domain.alive

    @property
    def paused(self) -> bool:
        return self.domain is not None and self.domain.held

    def start(self) -> None:
        if self.up:
            return
        self.lives += 1
        self._trace.note(self.name, "start", detail=f"life {self.lives}")
        domain = self.domain = Domain(self.name)
        source = stream(self._seed, f"process/{self.name}/{self.lives}")
        environment = Environment(
            name=self.name,
            address=self.address,
            domain=domain,
            clock=self.clock,
            random=source,
            ids=RandomIds(stream(self._seed, f"ids/{self.name}/{self.lives}")),
            transport=self._network.transport(self.name, domain),
            durable=self.durable,
            serve=lambda dispatcher: self._network.listen(self.address, self.name, domain, dispatcher),
        )
        self._loop.create_task(self._main(environment), name=f"main of {self.name}", context=domain.context.copy())

    async def _main(self, environment: Environment) -> None:
        running = await self._program(environment)
        if environment.domain.alive:
            self.running = running

    def crash(self) -> None:
        if self.domain is None or not self.domain.alive:
            return
        self._trace.note(self.name, "crash")
        self.running = None
        self._network.gone(self.address, self.domain)
        self._loop.kill(self.domain)

    def pause(self) -> None:
        if self.domain is not None and self.domain.alive and not self.domain.held:
            self._trace.note(self.name, "pause")
            self._loop.hold(self.domain)

    def resume(self) -> None:
        if self.domain is not None and self.domain.held:
            self._trace.note(self.name, "resume")
            self._loop.release(self.domain)

    async def stop(self) -> list[str]:
        """Stops gracefully and answers the names of the tasks that are still there afterwards."""
        domain, running = self.domain, self.running
        if domain is None or not domain.alive:
            return []
        if self._stopping is not None:
            # Told twice: whoever told it first sees what it leaves behind.
            await self._stopping.wait()
            return []
        if running is None:
            self.crash()
            return []
        self._trace.note(self.name, "stop")
        self._stopping = asyncio.Event()
        try:
            return await self._stop(domain, running)
        finally:
            self._stopping.set()
            self._stopping = None

    async def _stop(self, domain: Domain, running: Running) -> list[str]:
        self._network.refuse(self.address, domain)
        stopping = self._loop.create_task(running.stop(), name=f"stop of {self.name}", context=domain.context.copy())
        # It may be killed while it stops, and then its stopping never ends.
        while domain.alive and not stopping.done():
            await asyncio.wait((stopping,), timeout=0.1)
        if not stopping.done():
            return []
        stopping.result()
        # What is still being answered is cut off, as a server does when its grace is over.
        for task in [task for task in domain.tasks if task.get_name().startswith("/") and not task.done()]:
            task.cancel()
        # Callbacks of tasks that ended just now may still be queued.
        for _ in range(3):
            await _turn(self._loop)
        leaked = _left(domain)
        until = self._loop.time() + LINGERS
        while leaked and domain.alive and self._loop.time() < until:
            # A request to somebody else that nobody waits for any more ends by itself.
            await asyncio.sleep(0.1)
            leaked = _left(domain)
        self.running = None
        self._network.gone(self.address, domain)
        self._loop.kill(domain)
        return leaked

    def move_wall_clock(self, seconds: float) -> None:
        self._trace.note(self.name, "wall-clock", detail=f"{seconds:+.3f} s")
        self.clock.move(seconds)


def _left(domain: Domain) -> list[str]:
    return [task.get_name() for task in domain.tasks if not task.done()]


def _turn(loop: SimulationLoop) -> Awaitable[None]:
    future = loop.create_future()
    loop.call_soon(future.set_result, None)
    return future
