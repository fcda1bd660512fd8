"""The event loop: virtual time, determinism, domains, and what it refuses."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import pytest

from headgate_simulation.loop import (
    DOMAIN,
    BusyLoop,
    Deadlock,
    Domain,
    Killed,
    SimulationError,
    SimulationLoop,
)
from headgate_simulation.streams import stream


def run(main: Coroutine[Any, Any, Any], seed: int | None = None) -> Any:
    loop = SimulationLoop(None if seed is None else stream(seed, "loop"))  # type: ignore[abstract]
    try:
        return loop.run_until_complete(main)
    finally:
        loop.close()


def test_a_day_of_timers_passes_without_waiting() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        for _ in range(24 * 60):
            await asyncio.sleep(60)
        return loop.time()

    assert run(main()) == 24 * 3600


def test_timers_fire_in_order_and_cancelled_ones_do_not() -> None:
    async def main() -> list[str]:
        loop = asyncio.get_running_loop()
        seen: list[str] = []
        loop.call_later(3, seen.append, "three")
        loop.call_later(1, seen.append, "one")
        loop.call_later(2, seen.append, "two").cancel()
        await asyncio.sleep(4)
        return seen

    assert run(main()) == ["one", "three"]


def test_asyncio_primitives_work_on_it() -> None:
    async def main() -> list[Any]:
        queue: asyncio.Queue[int] = asyncio.Queue(2)
        lock, event = asyncio.Lock(), asyncio.Event()
        out: list[Any] = []

        async def consume() -> None:
            for _ in range(5):
                async with lock:
                    out.append(await queue.get())
            event.set()

        async with asyncio.TaskGroup() as group:
            group.create_task(consume())
            for n in range(5):
                await queue.put(n)
        await event.wait()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.5):
                await asyncio.Event().wait()
        done, _ = await asyncio.wait([asyncio.ensure_future(asyncio.sleep(i, i)) for i in (3, 2)])
        out.append(sorted(t.result() for t in done))
        out.append(await asyncio.wait_for(asyncio.gather(asyncio.sleep(1, "a"), asyncio.sleep(2, "b")), 5))
        return out

    assert run(main()) == [0, 1, 2, 3, 4, [2, 3], ["a", "b"]]


def test_a_deadlock_is_named_with_its_tasks() -> None:
    async def waits_forever() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        await asyncio.gather(waits_forever())

    with pytest.raises(Deadlock, match="waits_forever"):
        run(main())


def test_a_busy_loop_is_named_with_its_tasks() -> None:
    async def spins() -> None:
        while True:  # noqa: ASYNC110 (it is the point)
            await asyncio.sleep(0)

    async def main() -> None:
        task = asyncio.ensure_future(spins())
        await asyncio.sleep(1)
        task.cancel()

    with pytest.raises(BusyLoop, match="spins"):
        run(main())


def test_threads_are_refused() -> None:
    async def main() -> None:
        with pytest.raises(SimulationError, match="threads"):
            await asyncio.to_thread(print)
        with pytest.raises(SimulationError, match="threads"):
            asyncio.get_running_loop().call_soon_threadsafe(print)

    run(main())


def test_an_exception_that_nobody_takes_is_kept() -> None:
    loop = SimulationLoop()  # type: ignore[abstract]

    async def breaks() -> None:
        raise ValueError("lost")

    async def main() -> None:
        asyncio.get_running_loop().create_task(breaks())
        await asyncio.sleep(1)

    loop.run_until_complete(main())
    loop.close()
    assert any(str(error.get("exception")) == "lost" for error in loop.errors)


def test_one_domain_keeps_its_order_and_several_are_mixed_by_the_seed() -> None:
    def order(seed: int) -> list[tuple[str, int]]:
        loop = SimulationLoop(stream(seed, "loop"))  # type: ignore[abstract]
        seen: list[tuple[str, int]] = []
        for name in ("a", "b", "c"):
            domain = Domain(name)
            for n in range(10):
                loop.call_soon(seen.append, (name, n), context=domain.context.copy())
        loop.run_until_complete(asyncio.sleep(1))
        loop.close()
        return seen

    orders = [order(seed) for seed in range(8)]
    assert orders == [order(seed) for seed in range(8)]
    assert len({tuple(o) for o in orders}) > 1
    for one in orders:
        for name in ("a", "b", "c"):
            assert [n for who, n in one if who == name] == list(range(10))


def test_a_held_domain_is_late_and_nothing_else_is() -> None:
    async def main() -> dict[str, float]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulationLoop)
        held, free = Domain("held"), Domain("free")
        woke: dict[str, float] = {}

        async def sleeper(name: str) -> None:
            await asyncio.sleep(1)
            woke[name] = loop.time()

        tasks = [loop.create_task(sleeper(d.name), context=d.context.copy()) for d in (held, free)]
        await asyncio.sleep(0.5)
        loop.hold(held)
        await asyncio.sleep(4.5)
        loop.release(held)
        await asyncio.gather(*tasks)
        return woke

    assert run(main(), seed=3) == {"free": 1.0, "held": 5.0}


def test_a_killed_domain_runs_nothing_more_and_its_finally_blocks_have_no_effect() -> None:
    async def main() -> list[str]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulationLoop)
        domain = Domain("victim")
        written: list[str] = []

        def write(text: str) -> None:
            current = DOMAIN.get()
            assert current is not None
            current.check()
            written.append(text)

        async def cleaner() -> None:
            try:
                await asyncio.sleep(10)
            finally:
                loop.call_soon(written.append, "scheduled")
                write("from finally")

        async def stubborn() -> None:
            try:
                await asyncio.sleep(10)
            finally:
                await asyncio.sleep(1)
                written.append("after an await in finally")

        async def numbers() -> AsyncIterator[int]:
            try:
                yield 1
                await asyncio.sleep(10)
                yield 2
            finally:
                write("from a generator")

        async def reader() -> None:
            async for number in numbers():
                write(str(number))

        async def endless() -> None:
            while True:
                await asyncio.sleep(0.3)
                write("tick")

        tasks = [loop.create_task(w(), context=domain.context.copy()) for w in (cleaner, stubborn, reader, endless)]
        await asyncio.sleep(1)
        loop.kill(domain)
        at_death = list(written)
        await asyncio.sleep(30)
        assert written == at_death
        assert not [task for task in loop.pending_tasks() if task in tasks]
        with pytest.raises(Killed):
            domain.check()
        return at_death

    assert run(main(), seed=1) == ["1", "tick", "tick", "tick"]


def test_sets_of_tasks_and_strings_of_one_seed_have_one_order_in_every_process() -> None:
    code = """
import asyncio
from headgate_simulation.loop import SimulationLoop
from headgate_simulation.streams import stream
seen = []
async def work(n):
    try:
        await asyncio.sleep(n % 3 + 1 if n else 0.5)
        if n == 0:
            raise ValueError
    finally:
        seen.append(n)
async def main():
    try:
        async with asyncio.TaskGroup() as group:
            for n in range(20):
                group.create_task(work(n))
    except* ValueError:
        pass
loop = SimulationLoop(stream(4, "loop"))
loop.run_until_complete(main())
print(seen)
"""
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for hash_seed in ("1", "2", "77")
    }
    assert len(outputs) == 1
