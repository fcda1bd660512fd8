"""What an edge holds back from upload while there is memory: its reader may need none of it in a segment."""

from __future__ import annotations

import asyncio

from headgate.log import v1 as api
from headgate_agent.log.contract import Durability, PartitionSettings
from headgate_agent.log.led import settings_of
from headgate_agent.log.tail import Memory
from tests.unit.log.test_partition import Bench, batch

DATA = batch(b"x" * 139)
SIZE = 200
LIMITS = PartitionSettings(max_unflushed_bytes=1000, hold_bytes=500)


async def some_turns() -> None:
    for _ in range(100):
        await asyncio.sleep(0)


async def test_full_segments_are_held_back_and_what_is_read_meanwhile_is_never_uploaded() -> None:
    assert len(DATA) == SIZE
    bench = Bench(Durability.WAL)
    partition = await bench.lead(segment_age=1000.0, segment_bytes=2 * SIZE, hold_bytes=6 * SIZE)
    for number in range(50):
        await partition.produce(DATA)
        partition.trim(max(0, number - 3))
        await some_turns()
    assert not bench.objects.objects
    assert partition.unflushed_bytes <= 6 * SIZE, "the catalog was told of the trims"


async def test_beyond_what_is_held_back_the_oldest_go_into_segments_of_the_usual_size() -> None:
    bench = Bench(Durability.WAL)
    partition = await bench.lead(segment_age=1000.0, segment_bytes=2 * SIZE, hold_bytes=6 * SIZE)
    for _ in range(5):
        await partition.produce(DATA)
    await some_turns()
    assert not bench.objects.objects
    for _ in range(20):
        await partition.produce(DATA)
        await some_turns()
    sizes = [info.next_offset - info.base_offset for info in bench.catalog.segments]
    assert len(sizes) > 3 and max(sizes) <= 3
    assert 3 * SIZE <= partition.unflushed_bytes < 6 * SIZE


async def test_an_idle_partition_gives_up_full_segments_when_others_take_half_of_the_memory() -> None:
    bench = Bench(Durability.WAL)
    memory = Memory(unsettled=20 * SIZE)
    partition = await bench.lead(memory=memory, segment_age=1000.0, segment_bytes=2 * SIZE, hold_bytes=100 * SIZE)
    for _ in range(5):
        await partition.produce(DATA)
    await some_turns()
    assert not bench.objects.objects
    memory.waits(6 * SIZE)
    await some_turns()
    assert bench.objects.objects, "eleven of twenty wait for upload"
    assert not memory.tight
    partition.lose("it is over")
    assert not memory.tightened and not memory.pressed


async def test_what_is_held_back_is_uploaded_when_its_time_has_come() -> None:
    bench = Bench(Durability.WAL)
    partition = await bench.lead(segment_age=0.01, segment_bytes=2 * SIZE, hold_bytes=100 * SIZE)
    await partition.produce(DATA)
    async with asyncio.timeout(60):
        while partition.committed < 1:
            await partition._tenure.wait()
    assert [offset for offset, _ in bench.stored()] == [0]


def test_only_edges_in_the_write_ahead_log_hold_anything_back() -> None:
    def held(durability: api.Durability.ValueType, internal: bool) -> tuple[int, int]:
        topic = api.Topic(internal=internal, settings=api.TopicSettings(durability=durability))
        made = settings_of(topic, LIMITS)
        return made.hold_bytes, made.max_unflushed_bytes

    assert held(api.DURABILITY_WAL, True) == (500, 1500)
    assert held(api.DURABILITY_WAL, False) == (0, 1000)
    assert held(api.DURABILITY_OBJECT, True) == (0, 1000)
