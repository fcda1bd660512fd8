"""Processes: what survives a crash, what a pause delays, what a stop must end, and whose clock moves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

from headgate_simulation.loop import SimulationLoop
from headgate_simulation.processes import Environment, Process, Program
from headgate_simulation.streams import stream
from headgate_simulation.trace import Trace
from headgate_simulation.transport import Network


class Ticker:
    """Counts its durable ticks; `leak` leaves its task behind when stopped."""

    def __init__(self, environment: Environment, *, leak: bool = False) -> None:
        self.memory = 0
        self._environment = environment
        self._leak = leak
        self._task = asyncio.ensure_future(self._tick())

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(1)
            self.memory += 1
            self._environment.durable.append((self._environment.clock.monotonic(), self.memory))

    async def stop(self) -> None:
        if not self._leak:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


async def ticker(environment: Environment) -> Ticker:
    return Ticker(environment)


async def leaking(environment: Environment) -> Ticker:
    return Ticker(environment, leak=True)


def simulate(test: Callable[[Process, SimulationLoop], Coroutine[Any, Any, None]], program: Program = ticker) -> None:
    loop = SimulationLoop(stream(1, "loop"))  # type: ignore[abstract]
    trace = Trace(loop.time)
    process = Process(
        name="ticker",
        address="ticker:1",
        program=program,
        durable=[],
        loop=loop,
        network=Network(loop, trace, 1),
        trace=trace,
        seed=1,
    )
    process.start()
    try:
        loop.run_until_complete(test(process, loop))
        assert loop.errors == []
    finally:
        loop.close()


def test_a_restart_finds_what_was_durable_and_nothing_else() -> None:
    async def test(process: Process, loop: SimulationLoop) -> None:
        await asyncio.sleep(3.5)
        process.crash()
        await asyncio.sleep(10)
        assert len(process.durable) == 3
        process.start()
        await asyncio.sleep(2.5)
        assert [memory for _, memory in process.durable] == [1, 2, 3, 1, 2]
        assert process.lives == 2

    simulate(test)


def test_a_paused_process_does_nothing_and_is_then_late() -> None:
    async def test(process: Process, loop: SimulationLoop) -> None:
        await asyncio.sleep(1.5)
        process.pause()
        await asyncio.sleep(10)
        assert len(process.durable) == 1
        process.resume()
        await asyncio.sleep(0.1)
        assert len(process.durable) == 2

    simulate(test)


def test_a_stop_that_leaves_a_task_behind_is_told() -> None:
    async def clean(process: Process, loop: SimulationLoop) -> None:
        await asyncio.sleep(1.5)
        assert await process.stop() == []
        assert not process.up

    async def leaks(process: Process, loop: SimulationLoop) -> None:
        await asyncio.sleep(1.5)
        assert await process.stop() == ["Ticker._tick"]
        count = len(process.durable)
        await asyncio.sleep(5)
        assert len(process.durable) == count

    simulate(clean)
    simulate(leaks, leaking)


def test_a_process_that_is_told_twice_to_stop_stops_once() -> None:
    async def slow(environment: Environment) -> Ticker:
        made = Ticker(environment)
        stop = made.stop

        async def later() -> None:
            await asyncio.sleep(2)
            await stop()

        made.stop = later  # type: ignore[method-assign]
        return made

    async def test(process: Process, loop: SimulationLoop) -> None:
        await asyncio.sleep(1.5)
        first, second = await asyncio.gather(process.stop(), process.stop())
        assert first == [] and second == []
        assert not process.up
        assert 3.5 <= loop.time() < 4.0

    simulate(test, slow)


def test_the_wall_clock_jumps_and_the_monotonic_one_never_does() -> None:
    async def test(process: Process, loop: SimulationLoop) -> None:
        wall, monotonic = process.clock.wall(), process.clock.monotonic()
        process.move_wall_clock(-3600)
        await asyncio.sleep(1.5)
        assert process.clock.wall() - wall == timedelta(seconds=1.5 - 3600)
        assert abs(process.clock.monotonic() - monotonic - 1.5) < 1e-6
        process.crash()
        process.start()
        assert process.clock.monotonic() > monotonic

    simulate(test)
