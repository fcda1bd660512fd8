"""Values out of Kafka record batches (magic 2), for executors: what pyarrow and the standard library can unpack.

Headers are read batch by batch. Inside of a batch records have lengths in front and must be walked, so the walk is one
tight loop that takes the values and nothing else: no object is made for a record, a key or a header.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headgate_engine.executor.wire import EdgeError

# baseOffset, batchLength, partitionLeaderEpoch, magic, crc, attributes, lastOffsetDelta, baseTimestamp, maxTimestamp,
# producerId, producerEpoch, baseSequence, recordsCount
_HEADER = struct.Struct(">qiibIhiqqqhii")
_LENGTH_COUNTS_FROM = 12
_MAGIC = 2
_CODEC_MASK = 0x07
_CONTROL = 0x20
_CODECS = {1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER = 16
# Wide enough for gzip and zlib headers.
_ANY_WINDOW = 47
# A small batch cannot make a large process.
_MOST_UNPACKED = 256 << 20


@dataclass(frozen=True, slots=True)
class Header:
    """What a reader needs to know of a batch. Its records are the bytes from `begin` to `end`."""

    base_offset: int
    next_offset: int
    count: int
    attributes: int
    begin: int
    end: int

    @property
    def control(self) -> bool:
        """Whether it is for brokers and has no records of a producer."""
        return bool(self.attributes & _CONTROL)

    @property
    def dense(self) -> bool:
        """Whether every offset of it has a record."""
        return self.count == self.next_offset - self.base_offset


def headers(data: bytes | memoryview) -> Iterator[Header]:
    """The batches that follow each other in what an agent answered."""
    at, end = 0, len(data)
    while at < end:
        if end - at < _HEADER.size:
            raise _corrupt(f"{end - at} bytes are too few for a batch header")
        base, length, _, magic, _, attributes, last_delta, *_, count = _HEADER.unpack_from(data, at)
        until = at + length + _LENGTH_COUNTS_FROM
        if magic != _MAGIC or until > end or until < at + _HEADER.size or not 0 <= count <= last_delta + 1:
            raise _corrupt(f"batch at byte {at} of {end}: magic {magic}, {length} bytes, {count} records")
        yield Header(base, base + last_delta + 1, count, attributes, at + _HEADER.size, until)
        at = until


def records_of(data: bytes | memoryview, header: Header, start: int, until: int) -> tuple[list[Any], list[int] | range]:
    """(values, offsets) of the records of one batch from `start` on, before `until`. A value may be None."""
    if header.control or header.next_offset <= start or header.base_offset >= until:
        return [], []
    stored = memoryview(data)[header.begin : header.end]
    body = unpacked(header.attributes & _CODEC_MASK, stored)
    try:
        values, deltas = _walk(body, header.count, dense=header.dense)
    except IndexError:
        raise _corrupt("a record is cut off") from None
    base = header.base_offset
    if header.dense:
        first, last = max(0, start - base), min(header.count, until - base)
        return values[first:last], range(base + first, base + last)
    kept = [(value, base + delta) for value, delta in zip(values, deltas, strict=True) if start <= base + delta < until]
    return [value for value, _ in kept], [offset for _, offset in kept]


def _walk(body: bytes, count: int, *, dense: bool) -> tuple[list[Any], list[int]]:
    """The values of records, and their distances from the first offset unless these are 0, 1, 2, ..."""
    values: list[Any] = []
    deltas: list[int] = []
    keep = values.append
    size = len(body)
    at = 0
    for _ in range(count):
        # Lengths are zigzag varints: even numbers are twice the length, 1 stands for none.
        number = body[at]
        at += 1
        if number > 0x7F:
            number, at = _rest(body, at, number)
        end = at + (number >> 1)
        # Attributes, then how much later than the first record.
        at += 1
        while body[at] > 0x7F:
            at += 1
        at += 1
        if dense:
            while body[at] > 0x7F:
                at += 1
            at += 1
        else:
            number, at = _rest(body, at + 1, body[at]) if body[at] > 0x7F else (body[at], at + 1)
            deltas.append(number >> 1)
        number = body[at]
        at += 1
        if number > 0x7F:
            number, at = _rest(body, at, number)
        if not number & 1:
            at += number >> 1
        number = body[at]
        at += 1
        if number > 0x7F:
            number, at = _rest(body, at, number)
        keep(None if number & 1 else body[at : at + (number >> 1)])
        at = end
    if at > size:
        raise IndexError
    return values, deltas


def _rest(body: bytes, at: int, number: int) -> tuple[int, int]:
    """A varint whose first byte says that more follow."""
    number &= 0x7F
    shift = 7
    while True:
        byte = body[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7


def unpacked(codec: int, stored: memoryview) -> bytes:
    """The records of a batch as they were before compression."""
    if codec == 0:
        return bytes(stored)
    name = _CODECS.get(codec, "")
    if not name or (name != "gzip" and not pa.Codec.is_available(name)):
        raise EdgeError("PLAN_UNSUPPORTED", f"records are compressed with {name or codec}, which executors cannot read")
    try:
        found = _UNPACK[name](stored)
    except (pa.ArrowException, OSError, zlib.error, struct.error, IndexError) as error:
        raise _corrupt(f"records do not unpack: {error}") from error
    if len(found) > _MOST_UNPACKED:
        raise _corrupt(f"records take more than {_MOST_UNPACKED} bytes when unpacked")
    return found


def _gzip(stored: memoryview) -> bytes:
    return zlib.decompressobj(_ANY_WINDOW).decompress(stored, _MOST_UNPACKED + 1)


def _streamed(name: str, stored: memoryview) -> bytes:
    with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(stored)), name) as stream:
        return bytes(stream.read(_MOST_UNPACKED + 1))


def _snappy(stored: memoryview) -> bytes:
    if bytes(stored[: len(_XERIAL)]) != _XERIAL:
        return _snappy_block(stored)
    parts = []
    at = _XERIAL_HEADER
    while at < len(stored):
        (length,) = struct.unpack_from(">I", stored, at)
        parts.append(_snappy_block(stored[at + 4 : at + 4 + length]))
        at += 4 + length
    return b"".join(parts)


def _snappy_block(stored: memoryview) -> bytes:
    """One block, which begins with its length before compression."""
    raw = bytes(stored[:5])
    size = _rest(raw, 1, raw[0])[0] if raw[0] > 0x7F else raw[0]
    if size > _MOST_UNPACKED:
        raise _corrupt(f"records take more than {_MOST_UNPACKED} bytes when unpacked")
    return bytes(pa.Codec("snappy").decompress(pa.py_buffer(stored), decompressed_size=size, asbytes=True))


_UNPACK: dict[str, Callable[[memoryview], bytes]] = {
    "gzip": _gzip,
    "snappy": _snappy,
    "lz4": lambda stored: _streamed("lz4", stored),
    "zstd": lambda stored: _streamed("zstd", stored),
}


def _corrupt(what: str) -> EdgeError:
    return EdgeError("CORRUPT_BATCH", what)
