"""The simulated store: production's groups, and what becomes of them when a commit fails or is the last thing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from headgate_common.errors import HeadgateError
from headgate_coordinator.catalog.store import StoreSettings
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.errors import ALREADY_EXISTS, CATALOG_UNAVAILABLE, CATALOG_UNCERTAIN
from headgate_simulation.calls import CAUSE
from headgate_simulation.database import FastDatabase
from headgate_simulation.loop import SimulationError, SimulationLoop
from headgate_simulation.plan import Weather
from headgate_simulation.processes import Environment, Process
from headgate_simulation.store import Commit, SimulatedStore, StoreFaults
from headgate_simulation.streams import stream
from headgate_simulation.trace import Trace
from headgate_simulation.transport import Network
from tests.integration.catalog.kit import create, names


class Bench:
    """One coordinator that has nothing but a store, and what the run is told of its commits."""

    def __init__(self, seed: int = 1) -> None:
        self.loop = SimulationLoop(stream(seed, "loop"))  # type: ignore[abstract]
        self.database = FastDatabase()
        self.faults = StoreFaults()
        self.told: list[Commit] = []
        # How many were told when each commit was complete, and which names there were with each.
        self.groups: list[int] = []
        self.seen: list[list[str]] = []
        trace = Trace(self.loop.time)
        self.process = Process(
            name="c1",
            address="c1:1",
            program=self._start,
            durable=None,
            loop=self.loop,
            network=Network(self.loop, trace, seed),
            trace=trace,
            seed=seed,
        )

    async def _start(self, environment: Environment) -> Any:
        self.store = SimulatedStore(
            self.database,
            environment,
            self.faults,
            weather=Weather(store_delay=0.01),
            settings=StoreSettings(),
            committed=self._committed,
            settled=lambda: self.groups.append(len(self.told)),
            die=self.process.crash,
        )
        await self.store.start()
        return self

    async def stop(self) -> None:
        await self.store.close()

    def _committed(self, commit: Commit) -> None:
        self.told.append(commit)
        self.seen.append(self.names())

    def names(self) -> list[str]:
        return [name for (name,) in self.database.raw.execute("SELECT name FROM logical_sources ORDER BY name")]

    @property
    def revisions(self) -> list[int | None]:
        return [None if commit.revision is None else commit.revision.number for commit in self.told]

    def write(self, *operations: Callable[[Tx], Any], first: str = "first") -> asyncio.Task[list[Any]]:
        """By the process: one that is alone, and while it is committed all others, which share the next commit."""
        assert self.process.domain is not None
        store = self.store

        async def write(number: int, operation: Callable[[Tx], Any]) -> Any:
            CAUSE.set(f"o{number}")
            return await store.write(operation)

        async def all_of_them() -> list[Any]:
            writing = [
                asyncio.create_task(write(number, one)) for number, one in enumerate((create(first), *operations))
            ]
            return await asyncio.gather(*writing, return_exceptions=True)

        return self.loop.create_task(all_of_them(), context=self.process.domain.context.copy())

    async def committing(self) -> None:
        """Until the first is answered: all others are a group then."""
        await self.store.changes.subscribe().get()


def simulate(test: Callable[[Bench], Coroutine[Any, Any, None]], seed: int = 1) -> None:
    bench = Bench(seed)
    bench.process.start()

    async def main() -> None:
        await asyncio.sleep(0.1)
        await test(bench)

    try:
        bench.loop.run_until_complete(main())
        assert bench.loop.errors == []
    finally:
        bench.loop.close()
        bench.database.close()


def refusing(name: str) -> Callable[[Tx], Any]:
    """Writes, and is refused then."""

    def operation(tx: Tx) -> None:
        create(name)(tx)
        raise HeadgateError(ALREADY_EXISTS, "there was one before")

    return operation


def reasons(outcomes: list[Any]) -> list[Any]:
    return [outcome.reason if isinstance(outcome, HeadgateError) else None for outcome in outcomes]


def test_what_waits_while_a_commit_is_under_way_shares_the_next() -> None:
    async def test(bench: Bench) -> None:
        outcomes = await bench.write(create("a"), create("b"), create("c"))
        assert [made.revision for made in outcomes] == [1, 2, 3, 4]
        assert bench.groups == [1, 4]
        assert bench.revisions == [1, 2, 3, 4]
        assert [commit.cause for commit in bench.told] == ["o0", "o1", "o2", "o3"]
        assert bench.store.changes.position == 4

    simulate(test)


def test_each_is_told_with_the_catalog_as_it_left_it() -> None:
    async def test(bench: Bench) -> None:
        await bench.write(create("a"), refusing("x"), create("b"))
        assert bench.seen == [["first"], ["a", "first"], ["a", "b", "first"]]

    simulate(test)


def test_one_that_is_refused_takes_nothing_but_itself_back() -> None:
    async def test(bench: Bench) -> None:
        outcomes = await bench.write(create("a"), refusing("x"), create("a"), create("b"))
        assert reasons(outcomes) == [None, None, ALREADY_EXISTS, ALREADY_EXISTS, None]
        assert bench.names() == ["a", "b", "first"]
        assert (bench.revisions, bench.groups) == ([1, 2, 3], [1, 3])
        assert await bench.store.read(names) == ["a", "b", "first"]

    simulate(test)


def test_a_commit_that_fails_before_it_took_effect_fails_for_all_and_nothing_is_there() -> None:
    async def test(bench: Bench) -> None:
        writing = bench.write(create("a"), create("first"), create("b"))
        await bench.committing()
        bench.faults.fails_before = 1.0
        assert reasons(await writing) == [None, *[CATALOG_UNCERTAIN] * 3]
        assert (bench.names(), bench.revisions) == (["first"], [1])
        bench.faults.fails_before = 0.0
        assert [made.revision for made in await bench.write(create("a"), first="again")] == [2, 3]

    simulate(test)


def test_a_commit_that_fails_after_it_took_effect_fails_for_all_and_everything_is_there() -> None:
    async def test(bench: Bench) -> None:
        listening = bench.store.changes.subscribe()
        writing = bench.write(create("a"), create("first"), create("b"))
        await bench.committing()
        bench.faults.fails_after = 1.0
        assert reasons(await writing) == [None, *[CATALOG_UNCERTAIN] * 3]
        assert (bench.names(), bench.revisions) == (["a", "b", "first"], [1, 2, 3])
        await asyncio.sleep(1.0)
        assert [revision.number for revision in await listening.get_all()] == [1, 2, 3]

    simulate(test)


def test_a_database_out_of_reach_has_done_nothing() -> None:
    async def test(bench: Bench) -> None:
        writing = bench.write(create("a"), create("b"))
        await bench.committing()
        bench.faults.unreachable = 1
        assert reasons(await writing) == [None, CATALOG_UNAVAILABLE, CATALOG_UNAVAILABLE]
        with pytest.raises(HeadgateError):
            await bench.store.read(names)
        assert bench.names() == ["first"]

    simulate(test)


@pytest.mark.parametrize("seed", range(1, 9))
def test_a_crash_before_a_commit_leaves_nothing_of_its_group(seed: int) -> None:
    """In the middle of it, between two of its members or at its end: the seeds do all of that."""

    async def test(bench: Bench) -> None:
        bench.write(create("a"), create("b"), create("c"))
        await bench.committing()
        bench.faults.dies = "before"
        await asyncio.sleep(1.0)
        assert not bench.process.up
        assert (bench.names(), bench.revisions, bench.groups) == (["first"], [1], [1])
        bench.process.start()
        await asyncio.sleep(0.1)
        assert [made.revision for made in await bench.write(create("a"), first="again")] == [2, 3]

    simulate(test, seed)


def test_a_crash_after_a_commit_leaves_all_of_its_group() -> None:
    async def test(bench: Bench) -> None:
        bench.write(create("a"), refusing("x"), create("b"))
        await bench.committing()
        bench.faults.dies = "after"
        await asyncio.sleep(1.0)
        assert not bench.process.up
        assert (bench.names(), bench.revisions, bench.groups) == (["a", "b", "first"], [1, 2, 3], [1, 3])
        bench.process.start()
        await asyncio.sleep(0.1)
        assert bench.store.changes.position == 3

    simulate(test)


def test_a_caller_that_gives_up_while_it_waits_has_done_nothing() -> None:
    async def test(bench: Bench) -> None:
        writing = bench.write(create("a"), create("b"))
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
        await asyncio.sleep(1.0)
        assert bench.names() == []

    simulate(test)


def test_other_threads_are_still_refused() -> None:
    async def test(bench: Bench) -> None:
        with pytest.raises(SimulationError, match="no threads"):
            await asyncio.to_thread(bench.names)

    simulate(test)
