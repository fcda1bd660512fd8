"""Production's journal on the simulated disk: what a crash leaves of it, and what the next process reads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from headgate_agent.errors import JOURNAL_UNAVAILABLE
from headgate_agent.fragments.journal import FileJournal
from headgate_common.errors import HeadgateError
from headgate_simulation.journal_disk import Access, JournalDisk, JournalFaults, SimulatedJournal
from headgate_simulation.loop import SimulationLoop
from headgate_simulation.processes import Environment, Process
from headgate_simulation.streams import stream
from headgate_simulation.trace import Trace
from headgate_simulation.transport import Network

SEEDS = range(1, 31)


class Bench:
    """One agent that has nothing but a journal."""

    def __init__(self, seed: int) -> None:
        self.loop = SimulationLoop(stream(seed, "loop"))  # type: ignore[abstract]
        self.seed = seed
        self.disk = JournalDisk()
        self.faults = JournalFaults()
        self.loaded: list[bytes] = []
        # What an append has returned for.
        self.sure: list[bytes] = []
        trace = Trace(self.loop.time)
        self.process = Process(
            name="a1",
            address="a1:1",
            program=self._start,
            durable=None,
            loop=self.loop,
            network=Network(self.loop, trace, seed),
            trace=trace,
            seed=seed,
        )

    async def _start(self, environment: Environment) -> Any:
        torn = stream(self.seed, f"torn/{self.process.lives}")
        access = Access(self.disk, environment, self.faults, torn, self.process.crash)
        self.journal = SimulatedJournal(access, environment.random)
        self.loaded = await self.journal.load()
        return self

    async def stop(self) -> None:
        await self.journal.close()

    def append(self, *records: bytes) -> asyncio.Task[list[Any]]:
        """By the process, all at once."""
        journal = self.journal

        async def append(record: bytes) -> None:
            await journal.append(record)
            self.sure.append(record)

        async def all_of_them() -> list[Any]:
            return await asyncio.gather(*(append(record) for record in records), return_exceptions=True)

        return self._spawn(all_of_them())

    def rewrite(self, *records: bytes) -> asyncio.Task[None]:
        return self._spawn(self.journal.rewrite(records))

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        assert self.process.domain is not None
        return self.loop.create_task(work, context=self.process.domain.context.copy())

    async def restart(self, *, power: bool) -> None:
        self.process.crash()
        if power:
            self.disk.lose_power(stream(self.seed, f"power/{self.process.lives}"))
        self.process.start()
        await asyncio.sleep(0.1)


def simulate(test: Callable[[Bench], Coroutine[Any, Any, Any]], seed: int = 1) -> Any:
    bench = Bench(seed)
    bench.process.start()

    async def main() -> Any:
        await asyncio.sleep(0.1)
        return await test(bench)

    try:
        result = bench.loop.run_until_complete(main())
        assert bench.loop.errors == []
        return result
    finally:
        bench.loop.close()


RECORDS = tuple(bytes([65 + number]) * 40 for number in range(5))


def test_what_an_append_returned_for_is_there_after_a_power_failure_at_any_moment() -> None:
    async def test(bench: Bench) -> tuple[int, int]:
        source = stream(bench.seed, "moments")
        for round_ in range(6):
            bench.append(*(b"%d/%d" % (round_, number) for number in range(4)))
            bench.append(b"%d/late" % round_)
            await asyncio.sleep(source.uniform(0.0, 0.006))
            await bench.restart(power=True)
            assert bench.loaded[: len(bench.sure)] == bench.sure
            bench.sure[:] = bench.loaded
        return len(bench.sure), 6 * 5

    kept = [simulate(test, seed) for seed in SEEDS]
    assert any(count < most for count, most in kept), "what is not synced may be lost"
    assert any(count > most // 2 for count, most in kept), "and may be there"


def test_of_a_group_that_was_written_and_not_synced_all_is_left_or_nothing() -> None:
    async def test(bench: Bench) -> int:
        await bench.append(b"first")
        bench.faults.dies = "unsynced"
        bench.append(*RECORDS)
        await asyncio.sleep(0.1)
        assert not bench.process.up and bench.sure == [b"first"]
        await bench.restart(power=True)
        assert bench.loaded[0] == b"first"
        assert bench.loaded[1:] == list(RECORDS[: len(bench.loaded) - 1])
        # Whatever was left of it, writing goes on behind it.
        await bench.append(b"next")
        before = bench.loaded
        await bench.restart(power=True)
        assert bench.loaded == [*before, b"next"]
        return len(before) - 1

    found = {simulate(test, seed) for seed in SEEDS}
    assert {0, len(RECORDS)} == found


def test_a_process_that_dies_leaves_what_it_has_written() -> None:
    async def test(bench: Bench) -> tuple[bool, bool]:
        bench.append(*RECORDS)
        await asyncio.sleep(stream(bench.seed, "moment").uniform(0.0, 0.004))
        file = bench.disk.shown["fragments.journal"]
        written, synced = file.data.endswith(RECORDS[-1]), file.sure == len(file.data)
        await bench.restart(power=False)
        assert bench.loaded == (list(RECORDS) if written else [])
        return written, synced

    found = {simulate(test, seed) for seed in SEEDS}
    assert {(False, True), (True, False), (True, True)} == found


def test_a_journal_that_is_written_anew_is_the_old_one_or_the_new_one() -> None:
    async def test(bench: Bench) -> bytes:
        await bench.append(b"old", b"old")
        bench.rewrite(b"new", b"new", b"new")
        await asyncio.sleep(stream(bench.seed, "moment").uniform(0.0, 0.004))
        await bench.restart(power=True)
        assert bench.loaded in ([b"old"] * 2, [b"new"] * 3)
        await bench.append(b"next")
        before = bench.loaded
        await bench.restart(power=True)
        assert bench.loaded == [*before, b"next"]
        return before[0]

    assert {simulate(test, seed) for seed in SEEDS} == {b"old", b"new"}


def test_a_full_disk_refuses_and_leaves_nothing_behind() -> None:
    async def test(bench: Bench) -> None:
        await bench.append(b"first")
        bench.faults.full = True
        refused = await bench.append(*RECORDS)
        assert [error.reason for error in refused] == [JOURNAL_UNAVAILABLE] * len(RECORDS)
        bench.faults.full = False
        await bench.append(b"second")
        await bench.restart(power=True)
        assert bench.loaded == [b"first", b"second"]

    for seed in SEEDS:
        simulate(test, seed)


def test_a_journal_that_cannot_be_synced_is_not_trusted_any_more() -> None:
    async def test(bench: Bench) -> None:
        await bench.append(b"first")
        bench.faults.sync_fails = 1.0
        (refused,) = await bench.append(b"second")
        assert isinstance(refused, HeadgateError)
        assert bench.journal.broken.is_set()
        bench.faults.sync_fails = 0.0
        (refused,) = await bench.append(b"third")
        assert isinstance(refused, HeadgateError)

    simulate(test)


def test_what_a_failed_sync_left_is_certain_once_it_has_been_read() -> None:
    async def test(bench: Bench) -> bool:
        await bench.append(b"first")
        bench.faults.sync_fails = 1.0
        await bench.append(b"second")
        bench.faults.sync_fails = 0.0
        await bench.restart(power=stream(bench.seed, "power").random() < 0.5)
        seen = bench.loaded
        assert seen in ([b"first"], [b"first", b"second"])
        await bench.append(b"third")
        await bench.restart(power=True)
        assert bench.loaded == [*seen, b"third"]
        return len(seen) == 2

    assert {simulate(test, seed) for seed in SEEDS} == {False, True}


def test_a_new_file_whose_name_is_not_certain_takes_nothing_more() -> None:
    async def test(bench: Bench) -> bool:
        await bench.append(b"old")
        bench.faults.sync_fails = 0.5
        rewritten = bench.rewrite(b"new")
        await asyncio.wait((rewritten,))
        bench.faults.sync_fails = 0.0
        (refused,) = await bench.append(b"next")
        # Either the old file is in use, or the new one for certain, or nothing is taken.
        before = [b"new" if rewritten.exception() is None else b"old", b"next"]
        await bench.restart(power=True)
        if bench.journal.broken.is_set() or refused is not None:
            assert isinstance(refused, HeadgateError) and rewritten.exception() is not None
            assert bench.loaded in ([b"old"], [b"new"])
            return True
        assert bench.loaded == before
        return False

    assert {simulate(test, seed) for seed in SEEDS} == {False, True}


@pytest.mark.parametrize("when", ("before", "after"))
def test_a_process_dies_at_its_next_write(when: str) -> None:
    async def test(bench: Bench) -> None:
        await bench.append(b"first")
        bench.faults.dies = when
        bench.append(b"second")
        await asyncio.sleep(0.1)
        assert not bench.process.up and bench.sure == [b"first"]
        await bench.restart(power=True)
        assert bench.loaded == [b"first", *([b"second"] if when == "after" else [])]

    simulate(test)


async def test_journals_on_a_real_disk_are_as_they_were(tmp_path: Path) -> None:
    for records in ([], [b"one"], [b"new", b"two"]):
        journal = FileJournal(tmp_path / "journal")
        assert await journal.load() == records
        if records == [b"one"]:
            await journal.rewrite([b"new"])
        await journal.append(b"two" if records else b"one")
        await journal.close()
