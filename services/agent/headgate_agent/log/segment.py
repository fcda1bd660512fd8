"""The form of a segment: a closed run of one partition's record batches, as it lies in the object store.

    magic     4 bytes   HGS1
    block     n times   whole record batches one after the other, LZ4 where that helps
    index               for each block, as varints of differences: offset, position, stored size, size, timestamp
    footer    64 bytes  base and next offset, records, smallest and largest timestamp, where the index is, CRCs, magic

A reader fetches the footer and index with one range read of the tail, then only the blocks it needs. Batches that the
client compressed are not compressed again.

A stage of an edge has the same form but for the magic of its footer, HGT1: its offsets count from 0 and its batches
have no epoch, because where they will be is known only to the commit that names it. Whoever reads it as a segment
places them (`Index.at`, `place`).
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import lz4.block
from crc32c import crc32c

from headgate_agent.log.record_batch import BatchHeader, headers, patch

MAGIC = b"HGS1"
STAGE_MAGIC = b"HGT1"
# base_offset, next_offset, records, min_timestamp, max_timestamp, index position, index size, blocks, CRC of the index,
# CRC of the footer before it, magic
_FOOTER = struct.Struct(">qqqqqqIII")
_FOOTER_TAIL = struct.Struct(">I4s")
FOOTER_BYTES = _FOOTER.size + _FOOTER_TAIL.size
DEFAULT_BLOCK_BYTES = 256 * 1024


class CorruptSegment(ValueError):
    """Bytes that are not a segment, or not the one that was written."""


@dataclass(frozen=True, slots=True)
class Block:
    """Whole batches from `base_offset` on, in `stored` bytes at `position`; `size` of them once unpacked."""

    base_offset: int
    position: int
    stored: int
    size: int
    max_timestamp: int

    @property
    def packed(self) -> bool:
        return self.stored != self.size


@dataclass(frozen=True, slots=True)
class Index:
    """What a segment holds and where."""

    base_offset: int
    next_offset: int
    records: int
    min_timestamp: int
    max_timestamp: int
    blocks: tuple[Block, ...]
    # Of a stage: its offsets are those of no partition yet, or were moved by `shift`.
    staged: bool = False
    shift: int = 0

    def at(self, base_offset: int) -> Index:
        """The index of a stage that was committed at an offset."""
        shift = base_offset - self.base_offset
        blocks = tuple(replace(block, base_offset=block.base_offset + shift) for block in self.blocks)
        end = self.next_offset + shift
        return replace(self, base_offset=base_offset, next_offset=end, blocks=blocks, shift=self.shift + shift)

    def from_offset(self, offset: int) -> tuple[Block, ...]:
        """The blocks from the one that holds `offset` on."""
        if offset >= self.next_offset:
            return ()
        starts = [block.base_offset for block in self.blocks]
        return self.blocks[max(0, bisect_right(starts, offset) - 1) :]

    def from_timestamp(self, timestamp: int, offset: int = 0) -> tuple[Block, ...]:
        """The blocks that may hold a record of at least that time, at or after an offset."""
        return tuple(block for block in self.from_offset(offset) if block.max_timestamp >= timestamp)


class SegmentWriter:
    """Gathers batches, in offset order, and yields the bytes of the segment. Not for use after `finish`."""

    def __init__(self, block_bytes: int = DEFAULT_BLOCK_BYTES, *, staged: bool = False) -> None:
        self._block_bytes = block_bytes
        self._footer_magic = STAGE_MAGIC if staged else MAGIC
        self._parts: list[bytes] = [MAGIC]
        self._position = len(MAGIC)
        self._blocks: list[Block] = []
        self._pending: list[bytes | memoryview] = []
        self._pending_bytes = 0
        self._pending_base = 0
        self._pending_time = -1
        self._pending_packed = False
        self.base_offset: int | None = None
        self.next_offset = 0
        self.records = 0
        self.min_timestamp: int | None = None
        self.max_timestamp = -1

    @property
    def size(self) -> int:
        return self._position + self._pending_bytes

    def add(self, batch: bytes | memoryview, header: BatchHeader) -> None:
        if self.base_offset is not None and header.base_offset < self.next_offset:
            raise ValueError(f"offset {header.base_offset} after {self.next_offset}: batches come in order")
        # A block is packed as a whole, so what the client compressed does not share one with what it did not.
        if self._pending and self._pending_packed != header.compressed:
            self._close_block()
        if not self._pending:
            self._pending_base = header.base_offset
            self._pending_packed = header.compressed
        self._pending.append(batch)
        self._pending_bytes += len(batch)
        self._pending_time = max(self._pending_time, header.max_timestamp)
        if self.base_offset is None:
            self.base_offset = header.base_offset
        self.next_offset = header.next_offset
        self.records += header.count
        if self.min_timestamp is None or header.base_timestamp < self.min_timestamp:
            self.min_timestamp = header.base_timestamp
        self.max_timestamp = max(self.max_timestamp, header.max_timestamp)
        if self._pending_bytes >= self._block_bytes:
            self._close_block()

    def finish(self) -> list[bytes]:
        """The segment, as the buffers to upload one after the other."""
        if self.base_offset is None or self.min_timestamp is None:
            raise ValueError("a segment holds at least one batch")
        if self._pending:
            self._close_block()
        index = _encode_index(self._blocks)
        fixed = _FOOTER.pack(
            self.base_offset,
            self.next_offset,
            self.records,
            self.min_timestamp,
            self.max_timestamp,
            self._position,
            len(index),
            len(self._blocks),
            crc32c(index),
        )
        return [*self._parts, index, fixed, _FOOTER_TAIL.pack(crc32c(fixed), self._footer_magic)]

    def _close_block(self) -> None:
        # A batch that is a block of its own, as those of edges are, is only read: nothing copies it.
        data = cast(bytes, self._pending[0]) if len(self._pending) == 1 else b"".join(self._pending)
        stored = data
        if not self._pending_packed:
            packed = lz4.block.compress(data, store_size=False)
            if len(packed) < len(data):
                stored = packed
        # The CRC guards what the object store gave back; the batches inside carry the client's own.
        crc = struct.pack(">I", crc32c(stored))
        self._blocks.append(Block(self._pending_base, self._position, len(stored), len(data), self._pending_time))
        self._parts += [stored, crc]
        self._position += len(stored) + len(crc)
        self._pending, self._pending_bytes, self._pending_time = [], 0, -1


def read_index(tail: bytes, segment_bytes: int) -> Index | int:
    """The index, given the last bytes of a segment; or, if `tail` is too short for it, how many bytes are needed."""
    if len(tail) < FOOTER_BYTES:
        return FOOTER_BYTES
    footer = tail[-FOOTER_BYTES:]
    fixed = footer[: _FOOTER.size]
    crc, magic = _FOOTER_TAIL.unpack(footer[_FOOTER.size :])
    if magic not in (MAGIC, STAGE_MAGIC) or crc != crc32c(fixed):
        raise CorruptSegment("the footer is not a segment's, or is damaged")
    base, following, records, oldest, newest, at, size, blocks, index_crc = _FOOTER.unpack(fixed)
    if at + size + FOOTER_BYTES != segment_bytes or at < len(MAGIC):
        raise CorruptSegment(f"the footer speaks of {at + size + FOOTER_BYTES} bytes, the object has {segment_bytes}")
    needed = size + FOOTER_BYTES
    if len(tail) < needed:
        return int(needed)
    index = tail[len(tail) - needed : len(tail) - FOOTER_BYTES]
    if crc32c(index) != index_crc:
        raise CorruptSegment("the index is damaged")
    return Index(base, following, records, oldest, newest, _decode_index(index, blocks), staged=magic == STAGE_MAGIC)


def stored_range(block: Block) -> tuple[int, int]:
    """Where a block and its CRC lie in the object: first byte and length."""
    return block.position, block.stored + 4


def unpack_block(block: Block, data: bytes) -> bytes:
    """The batches of a block, given the bytes of its stored range."""
    if len(data) != block.stored + 4:
        raise CorruptSegment(f"block at {block.position}: {len(data)} bytes instead of {block.stored + 4}")
    stored = data[: block.stored]
    if crc32c(stored) != struct.unpack(">I", data[block.stored :])[0]:
        raise CorruptSegment(f"block at {block.position} is damaged")
    if not block.packed:
        return stored
    try:
        return bytes(lz4.block.decompress(stored, uncompressed_size=block.size))
    except lz4.block.LZ4BlockError as error:
        raise CorruptSegment(f"block at {block.position} does not unpack: {error}") from error


def place(data: bytes, shift: int, leader_epoch: int) -> bytes:
    """The batches of a block of a stage, where they were committed."""
    placed = bytearray(data)
    for header in headers(data):
        patch(placed, header.position, header.base_offset + shift, leader_epoch)
    return bytes(placed)


def batches_from(data: bytes, offset: int) -> memoryview:
    """What is left of a block's batches after those that end before `offset`."""
    for header in headers(data):
        if header.next_offset > offset:
            return memoryview(data)[header.position :]
    return memoryview(b"")


def _encode_index(blocks: Sequence[Block]) -> bytes:
    out = bytearray()
    last = Block(0, 0, 0, 0, 0)
    for block in blocks:
        _put(out, block.base_offset - last.base_offset)
        _put(out, block.position - last.position)
        _put(out, block.stored)
        _put(out, block.size)
        _put(out, _zigzag(block.max_timestamp - last.max_timestamp))
        last = block
    return bytes(out)


def _decode_index(data: bytes, count: int) -> tuple[Block, ...]:
    blocks: list[Block] = []
    at = 0
    last = Block(0, 0, 0, 0, 0)
    for _ in range(count):
        values: list[int] = []
        for _ in range(5):
            value, at = _take(data, at)
            values.append(value)
        offset, position, stored, size, time = values
        last = Block(
            last.base_offset + offset, last.position + position, stored, size, last.max_timestamp + _unzigzag(time)
        )
        blocks.append(last)
    if at != len(data):
        raise CorruptSegment("the index has bytes too many")
    return tuple(blocks)


def _put(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _take(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise CorruptSegment("the index is cut off")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _zigzag(value: int) -> int:
    return value << 1 if value >= 0 else (-value << 1) - 1


def _unzigzag(value: int) -> int:
    return value >> 1 if not value & 1 else -((value + 1) >> 1)
