"""Stages in the write-ahead log: what they take of memory and disk is bounded, and no batch is too large for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from headgate_agent.log.contract import NotAccepted, PartitionKey
from headgate_agent.log.tail import Memory
from headgate_agent.log.wal import Place, WalRefused
from headgate_agent.log.wal_edges import WalEdges
from headgate_agent.log.wal_files import DiskFiles
from tests.unit.log.test_edges import KEYS, Agent, batch
from tests.unit.log.test_partition import Files, HangingFiles

FRAGMENT = "f"
# How many files there should be behind the one being written.
FILES = 3


class Bounded(Agent):
    """An agent whose partitions and stages share one memory, as they do in production."""

    memory: Memory

    def __init__(self, *, staged: int = 1 << 20, unsettled: int = 1 << 20) -> None:
        super().__init__()
        self.limits = (1 << 20, unsettled, staged)

    async def start(self) -> WalEdges:
        self.memory = Memory(*self.limits)
        return await super().start()

    def in_memory(self) -> int:
        return sum(len(stage.data or b"") for stage in self.edges.stages.values())

    async def other_writes(self, files: int) -> None:
        """Others write so many files full, and segments hold all of it."""
        until = self.wal.current_file + files
        while self.wal.current_file < until:
            await self.partitions[KEYS[2]].produce(batch("y" * 400))
        await self.partitions[KEYS[2]].flush()

    async def free_wal(self) -> None:
        """As `Upkeep.free_wal`."""
        needed = [one for one in (part.oldest_wal_file for part in self.partitions.values()) if one is not None]
        others = min([*needed, self.wal.current_file])
        staged = self.edges.oldest_wal_file
        keep = others if staged is None else min(others, staged)
        await self.edges.carry_over(keep)
        await self.wal.remove_before(keep)
        await self.edges.carry_over(min(others, self.wal.current_file - FILES))


async def staged(agent: Bounded, count: int, *, prefix: str = "s") -> list[str]:
    """So many stages of 300 bytes and more; answers their ids."""
    for number in range(count):
        value = f"{prefix} {number} " + "x" * 300
        await agent.edges.stage(FRAGMENT, 1, f"{prefix}{number}", KEYS[0], batch(value))
    return [f"{prefix}{number}" for number in range(count)]


def rows(agent: Bounded, key: PartitionKey = KEYS[0]) -> list[str]:
    return [value.replace("x", "").strip() for value in agent.visible(key)]


@pytest.mark.parametrize("limit", [0, 1000])
async def test_a_batch_larger_than_the_memory_for_stages_is_staged_and_committed_whole(limit: int) -> None:
    agent = Bounded(staged=limit)
    edges = await agent.start()
    await edges.open_writer(FRAGMENT, 1, KEYS)
    ids = await staged(agent, 30)
    assert agent.in_memory() == agent.memory.staged <= limit
    assert await edges.commit(FRAGMENT, 1, 0, ids)
    assert rows(agent) == [f"s {number}" for number in range(30)]
    assert agent.memory.staged == 0
    await agent.start()
    assert rows(agent) == [f"s {number}" for number in range(30)]


async def test_a_stage_that_a_commit_names_twice_is_there_once() -> None:
    agent = Bounded()
    edges = await agent.start()
    await edges.open_writer(FRAGMENT, 1, KEYS)
    (only,) = await staged(agent, 1)
    assert await edges.commit(FRAGMENT, 1, 0, [only, only])
    assert rows(agent) == ["s 0"]


async def test_stages_that_were_written_together_are_each_read_back_from_a_real_file(tmp_path: Path) -> None:
    agent = Bounded(staged=0)
    files = agent.files = DiskFiles(tmp_path)  # type: ignore[assignment]
    edges = await agent.start()
    await edges.open_writer(FRAGMENT, 1, KEYS)
    values = [f"{number} " + "." * (17 * number) for number in range(60)]
    await asyncio.gather(*(edges.stage(FRAGMENT, 1, value, KEYS[0], batch(value)) for value in values))
    assert agent.wal.writes < 10 and agent.in_memory() == 0
    for restarted in (False, True):
        edges = await agent.start() if restarted else edges
        assert [(await edges._read(value))[1] for value in values] == [batch(value) for value in values]
    assert await edges.commit(FRAGMENT, 1, 0, values)
    assert agent.visible(KEYS[0]) == values
    with pytest.raises(WalRefused, match="cannot be read"):
        await agent.wal.read(Place(agent.wal.current_file + 1, 16, 100))
    await agent.wal.close()
    files.close()


async def test_what_is_read_back_for_a_commit_counts_until_it_is_written() -> None:
    agent = Bounded(staged=0)
    edges = await agent.start()
    await edges.open_writer(FRAGMENT, 1, KEYS)
    ids = await staged(agent, 5)
    hanging = HangingFiles()
    hanging.files = agent.files.files
    agent.wal._files = hanging
    first = asyncio.ensure_future(agent.partitions[KEYS[1]].produce(batch("first")))
    await asyncio.sleep(0.01)
    before = agent.memory.unsettled
    committing = asyncio.ensure_future(edges.commit(FRAGMENT, 1, 0, ids))
    await asyncio.sleep(0.01)
    assert agent.memory.unsettled - before > 5 * 300
    hanging.go.set()
    await asyncio.gather(first, committing)
    assert agent.memory.unsettled == sum(part.unflushed_bytes for part in agent.partitions.values())


async def test_stages_that_are_found_after_a_restart_take_no_memory_and_can_be_committed_and_repeated() -> None:
    agent = Bounded()
    await (await agent.start()).open_writer(FRAGMENT, 1, KEYS)
    ids = await staged(agent, 20)
    assert agent.memory.staged > 20 * 300
    edges = await agent.start()
    assert agent.in_memory() == agent.memory.staged == 0
    assert await staged(agent, 20) == ids, "the answers were lost"
    with pytest.raises(NotAccepted):
        await edges.stage(FRAGMENT, 1, ids[0], KEYS[0], batch("something else"))
    assert await edges.commit(FRAGMENT, 1, 0, ids)
    assert rows(agent) == [f"s {number}" for number in range(20)]


async def test_commits_later_runs_and_topics_that_go_give_room_back() -> None:
    agent = Bounded()
    edges = await agent.start()
    await edges.open_writer(FRAGMENT, 1, KEYS)
    await staged(agent, 3)
    # The second call came before the first was through.
    await asyncio.gather(*(edges.stage(FRAGMENT, 1, "twice", KEYS[0], batch("twice")) for _ in range(2)))
    assert agent.memory.staged == agent.in_memory() > 900
    await edges.commit(FRAGMENT, 1, 0, ["s0"])
    assert agent.memory.staged == 0
    await staged(agent, 3, prefix="t")
    assert agent.memory.staged > 900
    await edges.open_writer(FRAGMENT, 2, KEYS)
    assert agent.memory.staged == 0
    await edges.stage(FRAGMENT, 2, "last", KEYS[0], batch("last"))
    edges.forget(lambda uid: False)
    assert agent.memory.staged == 0 == agent.memory.unsettled - agent.partitions[KEYS[0]].unflushed_bytes


async def test_one_run_that_is_away_with_all_the_room_holds_up_no_other() -> None:
    agent = Bounded(staged=1000)
    edges = await agent.start()
    await edges.open_writer(FRAGMENT, 1, KEYS)
    await staged(agent, 10)
    await edges.open_writer("other", 1, KEYS)
    for number in range(5):
        await edges.stage("other", 1, f"o{number}", KEYS[1], batch(f"row {number}"))
        await edges.commit("other", 1, number, [f"o{number}"])
    assert agent.visible(KEYS[1]) == [f"row {number}" for number in range(5)]


async def test_a_stage_that_cannot_be_read_back_is_not_committed() -> None:
    agent = Bounded(staged=0)
    edges = await agent.start()
    await edges.open_writer(FRAGMENT, 1, KEYS)
    ids = await staged(agent, 2)
    place = edges.stages["s1"].place
    damaged = agent.files.files[place.file]
    damaged[place.position + place.size - 1] ^= 0xFF
    with pytest.raises(WalRefused, match="damaged"):
        await edges.commit(FRAGMENT, 1, 0, ids)
    assert rows(agent) == [] and agent.memory.unsettled == 0
    damaged[place.position + place.size - 1] ^= 0xFF
    assert await edges.commit(FRAGMENT, 1, 0, ids)
    assert rows(agent) == ["s 0", "s 1"]


async def test_stages_wait_while_too_much_waits_for_upload_and_go_on_when_it_is_uploaded() -> None:
    agent = Bounded(unsettled=500)
    edges = await agent.start()
    await edges.open_writer(FRAGMENT, 1, KEYS)
    agent.objects.fail_before = 1_000_000
    for _ in range(2):
        await agent.partitions[KEYS[2]].produce(batch("z" * 400))
    waiting = asyncio.ensure_future(edges.stage(FRAGMENT, 1, "a", KEYS[0], batch("a")))
    assert not (await asyncio.wait((waiting,), timeout=0.2))[0]
    agent.objects.fail_before = 0
    await asyncio.wait_for(waiting, 20)
    assert await edges.commit(FRAGMENT, 1, 0, ["a"])
    assert agent.visible(KEYS[0]) == ["a"]


async def test_stages_that_wait_for_a_disk_that_hangs_are_bounded_however_often_callers_give_up() -> None:
    agent = Bounded(unsettled=2000)
    edges = await agent.start()
    await edges.open_writer(FRAGMENT, 1, KEYS)
    hanging = HangingFiles()
    hanging.files = agent.files.files
    agent.wal._files = hanging
    data = batch("x" * 300)
    for number in range(100):
        waiting = asyncio.ensure_future(edges.stage(FRAGMENT, 1, f"s{number}", KEYS[0], data))
        for _ in range(5):
            await asyncio.sleep(0)
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting
    assert 2000 < agent.memory.unsettled <= 2000 + len(data)
    hanging.go.set()
    await asyncio.wait_for(edges.stage(FRAGMENT, 1, "last", KEYS[0], data), 20)
    assert agent.memory.unsettled == 0
    assert len(edges.stages) < 10


@pytest.mark.parametrize("limit", [0, 1 << 20])
async def test_files_go_though_a_run_that_is_away_has_staged_in_them_and_it_can_still_commit(limit: int) -> None:
    agent = Bounded(staged=limit)
    edges = await agent.start()
    await edges.open_writer(FRAGMENT, 1, KEYS)
    ids = await staged(agent, 4)
    first = agent.wal.current_file
    for _ in range(20):
        await agent.other_writes(1)
        await agent.free_wal()
        # One more may go at the next turn.
        assert len(agent.files.files) <= FILES + 3
    assert edges.oldest_wal_file is not None and edges.oldest_wal_file > first
    for restarted in (False, True):
        edges = await agent.start() if restarted else edges
        with pytest.raises(NotAccepted):
            await edges.stage(FRAGMENT, 1, ids[0], KEYS[0], batch("something else"))
    assert await edges.commit(FRAGMENT, 1, 0, ids)
    assert rows(agent) == [f"s {number}" for number in range(4)]
    await agent.other_writes(1)
    await agent.free_wal()
    await agent.start()
    assert rows(agent) == [f"s {number}" for number in range(4)]


async def test_telling_stages_again_at_most_doubles_what_is_written() -> None:
    agent = Bounded(staged=0)
    edges = await agent.start()
    await edges.open_writer(FRAGMENT, 1, KEYS)
    told = 0
    for number in range(200):
        before = agent.wal.bytes_written
        await edges.stage(FRAGMENT, 1, f"s{number}", KEYS[0], batch("x" * 300))
        if number % 3 == 0:
            await agent.partitions[KEYS[2]].produce(batch("y" * 300))
            await agent.partitions[KEYS[2]].flush()
        told += agent.wal.bytes_written - before
        await agent.free_wal()
    # (writers are told again too, which is little)
    assert agent.wal.bytes_written <= 2 * told + 5_000


@pytest.mark.parametrize("ending", ["commit", "later run"])
async def test_a_stage_that_is_told_again_behind_what_ended_it_does_not_come_back(ending: str) -> None:
    agent = Bounded()
    edges = await agent.start()
    await edges.open_writer(FRAGMENT, 1, KEYS)
    await staged(agent, 2)
    await agent.other_writes(FILES + 2)
    hanging = HangingFiles()
    hanging.files = agent.files.files
    agent.wal._files = hanging
    # While this is being written the others gather, for one write.
    first = asyncio.ensure_future(agent.partitions[KEYS[1]].produce(batch("first")))
    await asyncio.sleep(0.01)
    ends: Awaitable[object] = (
        edges.commit(FRAGMENT, 1, 0, ["s0"]) if ending == "commit" else edges.open_writer(FRAGMENT, 2, KEYS)
    )
    ended = asyncio.ensure_future(ends)
    await asyncio.sleep(0.01)
    again = asyncio.ensure_future(edges.carry_over(agent.wal.current_file))
    await asyncio.sleep(0.01)
    assert len(agent.wal._waiting) == 2
    hanging.go.set()
    await asyncio.gather(first, ended, again)
    edges = await agent.start()
    assert not edges.stages and edges.oldest_wal_file is None
    assert rows(agent) == (["s 0"] if ending == "commit" else [])


class MovingFiles(Files):
    """Files in which something happens just before a part is read."""

    def __init__(self, before: Callable[[], Awaitable[None]]) -> None:
        super().__init__()
        self.before: Callable[[], Awaitable[None]] | None = before

    async def read_part(self, number: int, position: int, length: int) -> bytes:
        before, self.before = self.before, None
        if before is not None:
            await before()
        return await super().read_part(number, position, length)


async def test_a_stage_that_is_told_again_while_it_is_read_for_its_commit_is_found() -> None:
    agent = Bounded(staged=0)
    edges = await agent.start()
    await edges.open_writer(FRAGMENT, 1, KEYS)
    ids = await staged(agent, 2)
    await agent.other_writes(FILES + 2)

    async def move() -> None:
        for _ in range(2):
            await agent.free_wal()

    moving = MovingFiles(move)
    moving.files = agent.files.files
    agent.wal._files = agent.files = moving
    before = min(moving.files)
    assert await edges.commit(FRAGMENT, 1, 0, ids)
    assert min(moving.files) > before, "the file that it was in is gone"
    assert rows(agent) == ["s 0", "s 1"]
    await agent.start()
    assert rows(agent) == ["s 0", "s 1"]


async def test_a_stage_that_goes_while_it_is_looked_at_for_a_repeated_call_is_staged_anew() -> None:
    agent = Bounded(staged=0)
    edges = await agent.start()
    await edges.open_writer(FRAGMENT, 1, KEYS)
    await staged(agent, 1)

    async def commit_without_it() -> None:
        await edges.commit(FRAGMENT, 1, 0, [])
        await agent.other_writes(1)
        await agent.free_wal()

    moving = MovingFiles(commit_without_it)
    moving.files = agent.files.files
    agent.wal._files = agent.files = moving
    await staged(agent, 1)
    assert await edges.commit(FRAGMENT, 1, 1, ["s0"])
    assert rows(agent) == ["s 0"]
