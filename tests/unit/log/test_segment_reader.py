"""Reading costs few requests, shares them, and never shows damaged bytes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from headgate_agent.log.block_cache import BlockCache, BlockKey
from headgate_agent.log.disk_cache import DiskCache
from headgate_agent.log.objects import ObjectMissing, StoredObject
from headgate_agent.log.record_batch import encode, header_at, headers, patch
from headgate_agent.log.segment import CorruptSegment, SegmentWriter
from headgate_agent.log.segment_reader import SegmentReader, SegmentRef


class CountingObjects:
    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.requests = 0

    async def create(self, key: str, buffers: Sequence[bytes]) -> None:
        self.objects[key] = b"".join(buffers)

    async def read(self, key: str, start: int, length: int) -> bytes:
        self.requests += 1
        await asyncio.sleep(0)
        if key not in self.objects:
            raise ObjectMissing(key)
        return self.objects[key][start : start + length]

    async def delete(self, key: str) -> None:
        del self.objects[key]

    def find(self, prefix: str) -> AsyncIterator[StoredObject]:
        raise AssertionError("reading lists nothing")


async def segment(objects: CountingObjects, batches: int = 60, base: int = 100) -> SegmentRef:
    writer = SegmentWriter(block_bytes=400)
    for number in range(batches):
        made = encode(bytes((number * 7 + i) % 256 for i in range(100)), 2, timestamp=number)
        patch(made, 0, base + 2 * number, 1)
        writer.add(bytes(made), header_at(made, 0))
    buffers = writer.finish()
    await objects.create("k", buffers)
    return SegmentRef("k", sum(map(len, buffers)), base, base + 2 * batches)


def offsets(parts: list[memoryview]) -> list[int]:
    return [header.base_offset for part in parts for header in headers(part)]


async def test_a_read_begins_with_the_batch_that_holds_the_offset_and_keeps_to_the_limit() -> None:
    objects = CountingObjects()
    ref = await segment(objects)
    found = await SegmentReader(objects, BlockCache(10**6)).read(ref, 131, 2000)
    assert offsets(found)[0] == 130
    assert offsets(found) == list(range(130, offsets(found)[-1] + 1, 2))
    assert sum(map(len, found)) <= 2000


async def test_one_batch_comes_even_if_it_is_larger_than_the_limit() -> None:
    objects = CountingObjects()
    ref = await segment(objects)
    assert offsets(await SegmentReader(objects, BlockCache(10**6)).read(ref, 100, 1))[0] == 100


async def test_a_whole_segment_costs_one_request_for_the_index_and_one_for_the_blocks() -> None:
    objects = CountingObjects()
    ref = await segment(objects)
    reader = SegmentReader(objects, BlockCache(10**6))
    assert offsets(await reader.read(ref, 100, 10**6)) == list(range(100, 220, 2))
    assert objects.requests == 2
    await reader.read(ref, 100, 10**6)
    assert objects.requests == 2


async def test_readers_at_the_same_time_share_requests() -> None:
    objects = CountingObjects()
    ref = await segment(objects)
    reader = SegmentReader(objects, BlockCache(10**6))
    results = await asyncio.gather(*(reader.read(ref, 100, 10**6) for _ in range(20)))
    assert all(offsets(found) == list(range(100, 220, 2)) for found in results)
    assert objects.requests == 2


async def test_a_reader_that_gives_up_does_not_disturb_the_others() -> None:
    objects = CountingObjects()
    ref = await segment(objects)
    reader = SegmentReader(objects, BlockCache(10**6))
    first = asyncio.ensure_future(reader.read(ref, 100, 10**6))
    second = asyncio.ensure_future(reader.read(ref, 100, 10**6))
    await asyncio.sleep(0)
    first.cancel()
    assert offsets(await second)[0] == 100


async def test_a_failed_read_is_told_and_tried_again_the_next_time() -> None:
    objects = CountingObjects()
    ref = await segment(objects)
    kept = objects.objects.pop("k")
    reader = SegmentReader(objects, BlockCache(10**6))
    with pytest.raises(ObjectMissing):
        await reader.read(ref, 100, 10**6)
    objects.objects["k"] = kept
    assert offsets(await reader.read(ref, 100, 10**6))[0] == 100


async def test_an_object_that_is_not_the_segment_of_the_catalog_is_refused() -> None:
    objects = CountingObjects()
    ref = await segment(objects)
    wrong = SegmentRef(ref.key, ref.size, 0, 50)
    with pytest.raises(CorruptSegment, match="catalog says"):
        await SegmentReader(objects, BlockCache(10**6)).read(wrong, 0, 100)


async def reader_on_disk(objects: CountingObjects, folder: Path) -> SegmentReader:
    """One that has nothing in memory yet, as after a restart."""
    disk = DiskCache(folder, 10**6)
    await disk.open()
    return SegmentReader(objects, BlockCache(10**6), disk=disk)


def ranges(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


async def test_what_one_reader_has_read_the_next_process_finds_on_its_disk(tmp_path: Path) -> None:
    objects = CountingObjects()
    ref = await segment(objects)
    for _ in range(2):
        found = await (await reader_on_disk(objects, tmp_path)).read(ref, 100, 10**6)
        assert offsets(found) == list(range(100, 220, 2))
        assert objects.requests == 2, "the second one asks for nothing"


@pytest.mark.parametrize("damaged", [[0], [1], [0, 1]])
async def test_ranges_that_a_power_failure_left_as_zeros_are_read_and_kept_anew(
    tmp_path: Path, damaged: list[int]
) -> None:
    objects = CountingObjects()
    ref = await segment(objects)
    right = b"".join(await (await reader_on_disk(objects, tmp_path)).read(ref, 100, 10**6))
    paths = ranges(tmp_path)
    assert len(paths) == 2, "the index and the blocks"
    for number in damaged:
        paths[number].write_bytes(bytes(paths[number].stat().st_size))
    for _ in range(2):
        reader = await reader_on_disk(objects, tmp_path)
        assert b"".join(await reader.read(ref, 100, 10**6)) == right
        assert objects.requests == 2 + len(damaged), "once for each that was damaged"
        assert reader._disk is not None and reader._disk.size == sum(path.stat().st_size for path in ranges(tmp_path))


async def test_an_answer_of_the_store_that_is_damaged_is_told_and_not_kept(tmp_path: Path) -> None:
    objects = CountingObjects()
    ref = await segment(objects)
    whole = objects.objects["k"]
    objects.objects["k"] = bytes(len(whole))
    reader = await reader_on_disk(objects, tmp_path)
    with pytest.raises(CorruptSegment):
        await reader.read(ref, 100, 10**6)
    assert objects.requests == 1 and not ranges(tmp_path)
    objects.objects["k"] = whole
    assert offsets(await reader.read(ref, 100, 10**6))[0] == 100


def test_a_long_scan_does_not_evict_what_others_come_back_to() -> None:
    cache = BlockCache(10_000)
    popular = [BlockKey("tail", number) for number in range(5)]
    for key in popular:
        cache.put(key, b"x" * 1000)
        assert cache.get(key) is not None
    for number in range(1000):
        cache.put(BlockKey("history", number), b"y" * 1000)
    assert all(cache.get(key) is not None for key in popular)
    assert cache.size <= 10_000


def test_the_cache_keeps_to_its_capacity_and_refuses_what_is_larger() -> None:
    cache = BlockCache(5_000)
    cache.put(BlockKey("big", 0), b"z" * 6000)
    assert cache.size == 0
    for number in range(50):
        cache.put(BlockKey("k", number), b"x" * 700)
        cache.get(BlockKey("k", number))
        assert cache.size <= 5_000
