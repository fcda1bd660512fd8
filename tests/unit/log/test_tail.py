"""The newest batches in memory: found by offset, given back in order, never evicted by a reader."""

from __future__ import annotations

import asyncio

from headgate_agent.log.record_batch import encode, header_at, patch
from headgate_agent.log.tail import Memory, Tail, TailBatch


def batch(offset: int, size: int = 100, count: int = 1) -> TailBatch:
    data = encode(b"x" * (size - 61), count, timestamp=1)
    patch(data, 0, offset, 1)
    return TailBatch(header_at(data, 0), bytes(data), 0, 0.0)


def offsets(tail: Tail, start: int) -> list[int]:
    return [one.header.base_offset for one in tail.from_offset(start)]


def test_batches_are_found_by_any_offset_they_hold() -> None:
    tail = Tail(Memory())
    for offset in (0, 3, 6):
        tail.append(batch(offset, count=3))
    assert offsets(tail, 0) == [0, 3, 6]
    assert offsets(tail, 4) == [3, 6]
    assert offsets(tail, 8) == [6]
    assert offsets(tail, 9) == []


def test_what_is_settled_stays_while_there_is_room_and_leaves_oldest_first_over_all_partitions() -> None:
    memory = Memory(kept=300)
    one, two = Tail(memory), Tail(memory)
    for offset in range(2):
        one.append(batch(offset))
        two.append(batch(offset))
    one.settle(1)
    two.settle(2)
    assert (memory.kept, memory.unsettled) == (300, 100)
    assert one.holds(0) and two.holds(0)
    one.settle(2)
    assert not one.holds(0) and one.holds(1) and two.holds(0)
    assert (memory.kept, memory.unsettled) == (300, 0)


def test_what_no_segment_holds_is_never_evicted() -> None:
    memory = Memory(kept=0)
    tail = Tail(memory)
    for offset in range(5):
        tail.append(batch(offset))
    tail.settle(3)
    assert [one.header.base_offset for one in tail.unsettled()] == [3, 4]
    assert offsets(tail, 3) == [3, 4]
    assert not tail.holds(2)


def test_the_last_one_is_taken_back_first_and_memory_is_counted() -> None:
    memory = Memory()
    tail = Tail(memory)
    tail.append(batch(0))
    tail.append(batch(1))
    assert tail.pop().header.base_offset == 1
    assert (memory.unsettled, len(tail)) == (100, 1)
    tail.settle(1)
    tail.clear()
    assert (memory.unsettled, memory.kept) == (0, 0)


def test_a_long_life_does_not_grow_the_lists() -> None:
    memory = Memory(kept=500)
    tail = Tail(memory)
    for offset in range(10_000):
        tail.append(batch(offset))
        tail.settle(offset + 1)
    assert len(tail._batches) < 5000
    assert offsets(tail, 9_998) == [9_998, 9_999]


async def test_producers_wait_for_room_and_every_partition_is_asked_to_upload() -> None:
    memory = Memory(unsettled=150)
    tail = Tail(memory)
    pressed: list[bool] = []
    memory.pressed.add(lambda: pressed.append(True))
    tail.append(batch(0))
    await asyncio.wait_for(memory.room(), 60)
    tail.append(batch(1))
    waiting = asyncio.ensure_future(memory.room())
    await asyncio.sleep(0.01)
    assert not waiting.done() and pressed
    tail.settle(1)
    await asyncio.wait_for(waiting, 60)


def test_partitions_that_were_given_up_are_forgotten_though_nothing_has_to_leave() -> None:
    memory = Memory()
    stays = Tail(memory)
    stays.append(batch(0))
    stays.settle(1)
    for _ in range(40):
        gone = Tail(memory)
        for offset in range(100):
            gone.append(batch(offset))
        gone.settle(100)
        gone.clear()
    assert memory.kept == 100
    assert len(memory._order) < 2100, "the places of those that are gone are given back"
    assert stays in memory._order and stays.holds(0)
