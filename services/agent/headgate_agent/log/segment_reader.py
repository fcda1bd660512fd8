"""Reads record batches out of segments: the index first, then only the blocks that are needed, by range.

Blocks that lie side by side are fetched with one request; readers that want the same bytes at the same time share one
fetch. What is read is checked (see `segment.py`) before anyone sees it, and before it is kept on the disk. What turns
out to be damaged there is read once more from the object store.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from headgate_agent.log.block_cache import BlockCache, BlockKey
from headgate_agent.log.disk_cache import DiskCache
from headgate_agent.log.objects import Objects
from headgate_agent.log.segment import (
    Block,
    CorruptSegment,
    Index,
    batches_from,
    place,
    read_index,
    stored_range,
    unpack_block,
)
from headgate_agent.shared_fetches import SharedFetches
from headgate_agent.work import Inline, Work

log = logging.getLogger(__name__)

T = TypeVar("T")

# A first guess at the size of footer and index together: enough for a segment of some hundred blocks.
_TAIL_GUESS = 4096
# Smaller runs of blocks are unpacked on the event loop: a thread would cost more.
_UNPACK_INLINE = 128 * 1024


@dataclass(frozen=True, slots=True)
class SegmentRef:
    """A segment as the catalog knows it."""

    key: str
    size: int
    base_offset: int
    next_offset: int
    # Of the leader that committed it; batches of a stage get it when they are read.
    epoch: int = 0


class SegmentReader:
    def __init__(
        self,
        objects: Objects,
        cache: BlockCache,
        *,
        disk: DiskCache | None = None,
        work: Work | None = None,
        most_indexes: int = 10_000,
    ) -> None:
        """`disk` holds what was read of the object store; without it every miss in memory is a request."""
        self._objects = objects
        self._cache = cache
        self._disk = disk
        self._work = work or Inline()
        self._most_indexes = most_indexes
        self._indexes: OrderedDict[str, Index] = OrderedDict()
        self._index_fetches: SharedFetches[str, Index] = SharedFetches()
        self._block_fetches: SharedFetches[tuple[str, int, int], Sequence[bytes]] = SharedFetches()

    async def index(self, segment: SegmentRef) -> Index:
        known = self._indexes.get(segment.key)
        if known is not None:
            self._indexes.move_to_end(segment.key)
            return known
        return await self._index_fetches.get(segment.key, lambda: self._fetch_index(segment))

    async def read(self, segment: SegmentRef, offset: int, max_bytes: int) -> list[memoryview]:
        """Whole batches from the one that holds `offset` on: at least one, then while they fit into `max_bytes`."""
        index = await self.index(segment)
        blocks = _enough(index.from_offset(offset), max_bytes)
        parts = [batches_from(data, offset) for data in await self._blocks(segment, index, blocks)]
        return [part for part in parts if len(part)]

    async def batches_since(self, segment: SegmentRef, timestamp: int, offset: int) -> AsyncGenerator[bytes, None]:
        """The blocks that may hold a record of at least that time at or after an offset, in order. One at a time:
        whoever has found what it looks for asks for no more."""
        index = await self.index(segment)
        for block in index.from_timestamp(timestamp, offset):
            for data in await self._blocks(segment, index, (block,)):
                yield data

    async def _fetch_index(self, segment: SegmentRef) -> Index:
        wanted = min(_TAIL_GUESS, segment.size)
        for _ in range(2):
            answer = await self._range(segment.key, segment.size - wanted, wanted, partial(self._index_in, segment))
            if isinstance(answer, Index):
                return answer
            wanted = answer
        raise CorruptSegment(f"{segment.key}: the footer does not say how long the index is")

    async def _index_in(self, segment: SegmentRef, tail: bytes) -> Index | int:
        """As `read_index`."""
        answer = read_index(tail, segment.size)
        return self._remember(segment, answer) if isinstance(answer, Index) else answer

    def _remember(self, segment: SegmentRef, index: Index) -> Index:
        if index.staged:
            # A stage is committed once, so where it is never changes.
            index = index.at(segment.base_offset)
        if (index.base_offset, index.next_offset) != (segment.base_offset, segment.next_offset):
            raise CorruptSegment(
                f"{segment.key} holds {index.base_offset} to {index.next_offset}, "
                f"the catalog says {segment.base_offset} to {segment.next_offset}"
            )
        self._indexes[segment.key] = index
        while len(self._indexes) > self._most_indexes:
            self._indexes.popitem(last=False)
        return index

    async def _blocks(self, segment: SegmentRef, index: Index, blocks: Sequence[Block]) -> list[bytes]:
        key = segment.key
        found = {block.position: self._cache.get(BlockKey(key, block.position)) for block in blocks}
        for run in _runs([block for block in blocks if found[block.position] is None]):
            start = run[0].position
            end = sum(stored_range(run[-1]))
            fetched = await self._block_fetches.get((key, start, end), partial(self._fetch, segment, index, run))
            for block, data in zip(run, fetched, strict=True):
                found[block.position] = data
        return [data for data in found.values() if data is not None]

    async def _fetch(self, segment: SegmentRef, index: Index, run: Sequence[Block]) -> Sequence[bytes]:
        start = run[0].position
        length = sum(stored_range(run[-1])) - start
        unpacked = await self._range(segment.key, start, length, partial(self._unpacked, segment, index, run))
        for block, data in zip(run, unpacked, strict=True):
            self._cache.put(BlockKey(segment.key, block.position), data)
        return unpacked

    async def _unpacked(self, segment: SegmentRef, index: Index, run: Sequence[Block], raw: bytes) -> Sequence[bytes]:
        unpack = partial(_unpack_run, run, raw, (index.shift, segment.epoch) if index.staged else None)
        return unpack() if len(raw) <= _UNPACK_INLINE else await self._work.run(unpack)

    async def _range(self, key: str, start: int, length: int, checked: Callable[[bytes], Awaitable[T]]) -> T:
        """What `checked` makes of a range; it raises `CorruptSegment` if that is damaged."""
        disk = self._disk
        found = await disk.get(key, start, length) if disk is not None else None
        if disk is not None and found is not None:
            try:
                return await checked(found)
            except CorruptSegment as error:
                log.warning("the disk cache is damaged", extra={"object": key, "position": start, "error": str(error)})
                await disk.forget(key, start, length)
        found = await self._objects.read(key, start, length)
        made = await checked(found)
        if disk is not None:
            await disk.put(key, start, found)
        return made


def _unpack_run(run: Sequence[Block], raw: bytes, placing: tuple[int, int] | None) -> list[bytes]:
    """`placing` is where the batches of a stage were committed, and by which epoch."""
    start = run[0].position
    unpacked: list[bytes] = []
    for block in run:
        at, length = stored_range(block)
        data = unpack_block(block, raw[at - start : at - start + length])
        unpacked.append(place(data, *placing) if placing is not None else data)
    return unpacked


def _enough(blocks: Sequence[Block], max_bytes: int) -> Sequence[Block]:
    """The first blocks, as many as fit, and one at least."""
    size = 0
    for count, block in enumerate(blocks):
        size += block.size
        if size > max_bytes:
            return blocks[: max(count, 1)]
    return blocks


def _runs(blocks: Sequence[Block]) -> list[list[Block]]:
    """Blocks that lie side by side, together."""
    runs: list[list[Block]] = []
    for block in blocks:
        if runs and sum(stored_range(runs[-1][-1])) == block.position:
            runs[-1].append(block)
        else:
            runs.append([block])
    return runs
