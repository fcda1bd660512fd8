"""Looking an offset up by time finds the first record at or after the start, wherever the start is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.log import v1 as api
from headgate_agent.log.block_cache import BlockCache
from headgate_agent.log.contract import Durability, PartitionKey, SegmentInfo
from headgate_agent.log.led import Led
from headgate_agent.log.record_batch import header_at, patch
from headgate_agent.log.records import PlainRecord, pack
from headgate_agent.log.segment import SegmentWriter
from headgate_agent.log.segment_reader import SegmentReader
from headgate_agent.log.segments import Segments
from headgate_agent.log.unpacking import Unpacking
from headgate_agent.work import Inline
from tests.examples import examples
from tests.unit.log.test_partition import KEY, Bench, Objects

PER_BATCH = 3


class Listed:
    """A catalog that knows these segments."""

    def __init__(self, infos: Sequence[SegmentInfo]) -> None:
        self.infos = infos

    async def segments(self, key: PartitionKey, from_offset: int, until: int, *, wanted: Any) -> list[SegmentInfo]:
        return [info for info in self.infos if info.next_offset > from_offset]


class CountedObjects(Objects):
    reads = 0

    async def read(self, key: str, start: int, length: int) -> bytes:
        self.reads += 1
        return await super().read(key, start, length)


def one_batch(times: Sequence[int]) -> bytes:
    (made,) = pack([PlainRecord(None, b"v" * 20, time) for time in times], 1 << 20)
    return made


async def led_with(
    segments: Sequence[Sequence[int]], tail: Sequence[int], log_start: int
) -> tuple[Led, CountedObjects]:
    """A partition whose records have these times, in segments of small blocks and in memory."""
    bench, infos, offset = Bench(Durability.WAL), [], 0
    bench.objects = objects = CountedObjects()
    for times in segments:
        writer, base = SegmentWriter(block_bytes=300), offset
        for at in range(0, len(times), PER_BATCH):
            data = bytearray(one_batch(times[at : at + PER_BATCH]))
            patch(data, 0, offset, 1)
            writer.add(bytes(data), header_at(data, 0))
            offset = writer.next_offset
        buffers = writer.finish()
        await objects.create(f"k{base}", buffers)
        infos.append(SegmentInfo(f"s{base}", f"k{base}", base, offset, sum(map(len, buffers)), 0, max(times), 1))
    bench.catalog.committed = bench.catalog.reserved = offset
    bench.catalog.log_start = min(log_start, offset)
    partition = await bench.lead(segment_age=1000.0)
    for at in range(0, len(tail), PER_BATCH):
        await partition.produce(one_batch(tail[at : at + PER_BATCH]))
    partition.trim(log_start)
    catalog: Any = Listed(infos)
    known = Segments(catalog, KEY, partition.log_start, offset)
    reader = SegmentReader(objects, BlockCache(1 << 20))
    return Led(api.Topic(name="orders"), partition, known, (), reader=reader, unpacking=Unpacking(Inline())), objects


@pytest.mark.parametrize(("time", "found"), [(100, 700), (700, 700), (701, 701), (2400, 2400), (4799, 4799)])
async def test_a_time_before_the_start_finds_the_start_within_its_segment(time: int, found: int) -> None:
    led, objects = await led_with([range(2400), range(2400, 4800)], (), 700)
    answer = await led.offset_at(time)
    assert answer is not None and (answer.offset, answer.timestamp) == (found, found)
    assert objects.reads <= 4, "indexes and the blocks that hold it, not the whole partition"


async def test_a_segment_that_is_too_old_does_not_end_the_search() -> None:
    # What is young enough in the first segment is before the start, and the second one is old.
    led, _ = await led_with([[9, 9, 9, 1, 1, 1], [2, 2, 2], [9, 9, 9]], (), 3)
    answer = await led.offset_at(5)
    assert answer is not None and answer.offset == 9


TIMES = st.lists(st.integers(0, 9), min_size=1, max_size=12)


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(TIMES, max_size=4), st.lists(st.integers(0, 9), max_size=8), st.data())
@pytest.mark.slow
async def test_whatever_the_times_are_the_first_record_from_the_start_on_is_found(
    segments: list[list[int]], tail: list[int], data: st.DataObject
) -> None:
    times = [time for one in (*segments, tail) for time in one]
    start = data.draw(st.integers(0, len(times)), "start")
    led, _ = await led_with(segments, tail, start)
    for wanted in range(11):
        expected = next((at for at in range(start, len(times)) if times[at] >= wanted), None)
        found = await led.offset_at(wanted)
        assert (None if found is None else found.offset) == expected
