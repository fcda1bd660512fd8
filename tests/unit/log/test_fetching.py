"""A fetch of many partitions: one that fails does not fail the others, and no more is read than is wanted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from headgate_agent.log.access import Bounds, FetchedPart, FetchPart
from headgate_agent.log.contract import NotLeader, PartitionKey
from headgate_agent.log.fetching import Fetching, divide
from headgate_agent.log.metrics import LogMetrics
from headgate_common.errors import HeadgateError

KIB = 1024
HANGS = -1


class Readers:
    def __init__(self) -> None:
        self.readers: set[Callable[[], None]] = set()


class FakeLed:
    """A partition of which only segments hold something: so many bytes; `HANGS` if they cannot be read."""

    def __init__(self, stored: int) -> None:
        self.stored = stored
        self.partition = Readers()
        self.asked: list[int] = []
        self.bounds = Bounds(0, 10, 1)
        self.on_read: Callable[[], None] = lambda: None

    def in_memory(self, offset: int, max_bytes: int) -> list[bytes] | None:
        return None

    def check(self, offset: int) -> None:
        return

    async def read(self, offset: int, max_bytes: int) -> Sequence[bytes]:
        self.asked.append(max_bytes)
        self.on_read()
        if self.stored == HANGS:
            await asyncio.Event().wait()
        await asyncio.sleep(0)
        return [b"x" * min(self.stored, max_bytes)]


class Leads(dict[PartitionKey, FakeLed]):
    def __call__(self, key: PartitionKey) -> Any:
        if key not in self:
            raise NotLeader("another leads it")
        return self[key]


def bench(*stored: int, timeout: float = 5.0) -> tuple[Fetching, Leads, list[FetchPart]]:
    leads = Leads({PartitionKey("t", index): FakeLed(size) for index, size in enumerate(stored)})
    parts = [FetchPart(key, 0, 1 << 30) for key in leads]
    return Fetching(leads, LogMetrics(CollectorRegistry()), timeout), leads, parts


def sizes(answer: Sequence[FetchedPart]) -> list[int]:
    return [sum(map(len, part.batches)) for part in answer]


async def test_segments_that_cannot_be_read_in_time_are_told_to_be_asked_for_again_and_the_others_come() -> None:
    fetching, _, parts = bench(100, HANGS, 100, timeout=0.05)
    async with asyncio.timeout(60):
        answer = await fetching.fetch(parts, max_wait=0.01, min_bytes=1, max_bytes=1 << 20)
    assert sizes(answer) == [100, 0, 100]
    error = answer[1].error
    assert isinstance(error, HeadgateError) and error.reason.name == "DEADLINE_EXCEEDED"


async def test_a_read_that_ends_badly_because_leadership_ended_says_so() -> None:
    fetching, leads, parts = bench(HANGS, timeout=0.05)
    leads[parts[0].key].on_read = leads.clear
    (part,) = await fetching.fetch(parts, max_wait=0, min_bytes=1, max_bytes=1 << 20)
    assert isinstance(part.error, NotLeader)


async def test_a_partition_lost_while_others_are_read_does_not_fail_the_fetch() -> None:
    # The first takes all there is room for, so the second is not read; meanwhile it is lost.
    fetching, leads, parts = bench(100 * KIB, 100)
    leads[parts[0].key].on_read = lambda: leads.pop(parts[1].key) and None
    first, second = await fetching.fetch(parts, max_wait=0, min_bytes=1, max_bytes=64 * KIB)
    assert sizes([first]) == [64 * KIB]
    assert second.batches == ()


@pytest.mark.parametrize("partitions", [1, 2, 5, 40])
async def test_partitions_that_are_read_at_once_are_asked_for_no_more_than_the_answer_may_hold(partitions: int) -> None:
    fetching, leads, parts = bench(*([64 << 20] * partitions))
    most = 8 << 20
    answer = await fetching.fetch(parts, max_wait=0, min_bytes=1, max_bytes=most)
    assert sum(sum(led.asked) for led in leads.values()) <= most
    assert sum(sizes(answer)) > most - partitions


async def test_one_partition_gets_all_and_what_small_limits_leave_goes_to_the_others() -> None:
    assert divide(100, [1000]) == [100]
    assert divide(100, [10, 1000, 1000]) == [10, 45, 45]
    assert divide(100, [1000, 10]) == [90, 10]


@given(st.integers(0, 1000), st.lists(st.integers(0, 1000), min_size=1, max_size=20))
def test_shares_never_exceed_the_whole_or_what_is_wanted_and_waste_nothing(total: int, wanted: list[int]) -> None:
    shares = divide(total, wanted)
    assert all(0 <= share <= most for share, most in zip(shares, wanted, strict=True))
    assert sum(shares) == min(total, sum(wanted))


class Room:
    """Gives what it has, and knows what is kept; nothing at all if it has none."""

    def __init__(self, free: int) -> None:
        self.free, self.kept = free, 0

    async def take(self, wanted: int, within: float) -> int:
        if not self.free:
            await asyncio.sleep(within)
            raise TimeoutError
        return min(wanted, self.free)

    def keep(self, size: int) -> None:
        self.kept = size


async def test_no_more_is_read_than_there_is_room_for_and_what_was_read_is_kept() -> None:
    fetching, leads, parts = bench(1 << 20)
    room = Room(100 * KIB)
    answer = await fetching.fetch(parts, max_wait=0, min_bytes=1, max_bytes=1 << 20, room=room)
    assert leads[parts[0].key].asked == [100 * KIB]
    assert sizes(answer) == [100 * KIB] and room.kept == 100 * KIB


async def test_a_fetch_that_finds_no_room_in_time_is_answered_without_records_and_without_an_error() -> None:
    fetching, leads, parts = bench(100, timeout=0.05)
    room = Room(0)
    (part,) = await fetching.fetch(parts, max_wait=0, min_bytes=1, max_bytes=1 << 20, room=room)
    assert (part.batches, part.error, room.kept) == ((), None, 0)
    assert leads[parts[0].key].asked == []


async def test_what_was_read_before_is_answered_if_there_is_no_room_to_read_again() -> None:
    fetching, leads, parts = bench(100)
    room = Room(1000)
    led = leads[parts[0].key]
    fetch = asyncio.ensure_future(fetching.fetch(parts, max_wait=0.2, min_bytes=5000, max_bytes=10_000, room=room))
    while room.kept == 0:  # noqa: ASYNC110
        await asyncio.sleep(0)
    room.free = 0
    for tell in tuple(led.partition.readers):
        tell()
    assert sizes(await fetch) == [100]
    assert room.kept == 100
