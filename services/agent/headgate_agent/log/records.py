"""Plain records and the batches that hold them: for people and SDKs that do not speak Kafka's format themselves.

The log itself never looks into a batch. Here batches are made of records, and records are taken out of them, whatever
codec the client used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from headgate_agent.log.codecs import DEFAULT_UNPACKED, unpack
from headgate_agent.log.record_batch import (
    HEADER_BYTES,
    BatchHeader,
    CorruptBatch,
    encode_parts,
    finish_in_place,
    headers,
)

_CODEC_MASK = 0x07
_CONTROL = 0x20
# Its length, attributes, time, offset, no key, no value, no headers: a byte each.
_LEAST_RECORD = 7
_LAST_TIME = (1 << 63) - 1
# Values from so many bytes on are not copied until their batch is put together.
_LARGE = 1 << 16
_SEED = 0x9747B28C
_M = 0x5BD1E995


@dataclass(frozen=True, slots=True)
class PlainRecord:
    """Timestamps in milliseconds since 1970."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[tuple[str, bytes | None], ...] = ()
    offset: int = 0

    @property
    def size(self) -> int:
        """About how many bytes it takes in a batch."""
        headers = sum(len(name.encode()) + len(value or b"") + 10 for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers + 30


def pack(records: Sequence[PlainRecord], largest: int) -> list[bytes]:
    """Uncompressed batches of at most `largest` bytes where records allow it, in order."""
    groups: list[list[PlainRecord]] = []
    size = 0
    for record in records:
        if not groups or size + record.size > largest:
            groups.append([])
            size = HEADER_BYTES
        groups[-1].append(record)
        size += record.size
    return [_pack(group) for group in groups]


def pack_in_place(size: int, write: Callable[[memoryview], None], timestamp: int) -> memoryview:
    """One batch of one record without a key, whose value of `size` bytes `write` puts where it belongs: all of them, as
    the memory is not cleared before."""
    before, length = bytearray(b"\0\0\0"), bytearray()
    _put(before, -1)
    _put(before, size)
    _put(length, len(before) + size + 1)
    start = HEADER_BYTES + len(length) + len(before)
    made = np.empty(start + size + 1, np.uint8).data
    made[HEADER_BYTES:start] = length + before
    write(made[start : start + size])
    # It has no headers.
    made[-1] = 0
    finish_in_place(made, 1, timestamp)
    return made


def unpack_batches(data: bytes | memoryview, limit: int = DEFAULT_UNPACKED) -> Iterator[PlainRecord]:
    """The records of whole batches, in order. Control batches hold none."""
    for header in headers(data):
        yield from unpack_batch(data, header, limit)


def unpack_batch(data: bytes | memoryview, header: BatchHeader, limit: int = DEFAULT_UNPACKED) -> Iterator[PlainRecord]:
    walk = open_batch(data, header, limit)
    while not walk.ended:
        yield walk.take()


def open_batch(data: bytes | memoryview, header: BatchHeader, limit: int) -> Walk:
    """The batch unpacked, before its first record. `UnpackedTooLarge` beyond so many bytes."""
    stored = bytes(memoryview(data)[header.position + HEADER_BYTES : header.position + header.size])
    return Walk(unpack(header.attributes & _CODEC_MASK, stored, limit), header)


class Walk:
    """Goes through the records of one batch, in steps as long as its walker likes. `CorruptBatch` where there is none.

    A record has the offset of its place in the batch, whatever it says itself: so a reader always comes further.
    """

    __slots__ = ("_at", "_body", "_count", "header", "index")

    def __init__(self, body: bytes, header: BatchHeader) -> None:
        self.header = header
        self.index = 0
        self._body = body
        self._at = 0
        # Control batches have records of another kind.
        self._count = 0 if header.transactional and header.attributes & _CONTROL else header.count
        if self._count * _LEAST_RECORD > len(body):
            raise CorruptBatch(f"a batch of {header.count} records in {len(body)} bytes")

    @property
    def offset(self) -> int:
        """Of the next record."""
        return self.header.base_offset + self.index

    @property
    def ended(self) -> bool:
        return self.index >= self._count

    @property
    def size(self) -> int:
        return len(self._body)

    @property
    def next_size(self) -> int:
        """Bytes of the next record, as it says."""
        return _varint(self._body, self._at)[0]

    def skip(self, offset: int, most: int) -> None:
        """Passes records before an offset, at most so many."""
        body, at = self._body, self._at
        last = min(self._count, offset - self.header.base_offset, self.index + most)
        try:
            for _ in range(self.index, last):
                length = body[at]
                if length < 0x80:
                    at += 1 + (length >> 1) if not length & 1 else len(body)
                else:
                    length, at = _varint(body, at)
                    at += length if length >= 0 else len(body)
        except IndexError:
            raise _cut_off() from None
        if at > len(body):
            raise _cut_off()
        self._at, self.index = at, max(self.index, last)

    def first_at(self, timestamp: int, most: int) -> tuple[int, int] | None:
        """Offset and timestamp of the next record that is not older, which is passed too; None if it is not among so
        many."""
        body, at = self._body, self._at
        wanted = timestamp - self.header.base_timestamp
        last = min(self._count, self.index + most)
        found: tuple[int, int] | None = None
        try:
            for index in range(self.index, last):
                length = body[at]
                if length < 0x80:
                    at, end = at + 1, at + 1 + (length >> 1) if not length & 1 else len(body) + 1
                else:
                    length, at = _varint(body, at)
                    end = at + length if length >= 0 else len(body) + 1
                # Behind the attributes, which say nothing.
                delta = body[at + 1]
                delta = (delta >> 1) ^ -(delta & 1) if delta < 0x80 else _varint(body, at + 1)[0]
                at = end
                if delta >= wanted:
                    last = index + 1
                    found = self.header.base_offset + index, _in_range(self.header.base_timestamp + delta)
                    break
        except IndexError:
            raise _cut_off() from None
        if at > len(body):
            raise _cut_off()
        self._at, self.index = at, max(self.index, last)
        return found

    def take(self) -> PlainRecord:
        """The next record, which is passed."""
        length, at = _varint(self._body, self._at)
        end = at + length
        if length < 0 or end > len(self._body):
            raise _cut_off()
        record = _record(self._body, at, self.header, self.offset)
        self._at, self.index = end, self.index + 1
        return record


def partition_of_key(key: bytes, partitions: int) -> int:
    """The partition that the Java client's default partitioner would choose."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """Murmur2, 32 bits, with the seed of the Java client."""
    length = len(data)
    value = (_SEED ^ length) & 0xFFFFFFFF
    whole = length - length % 4
    for at in range(0, whole, 4):
        part = int.from_bytes(data[at : at + 4], "little") * _M & 0xFFFFFFFF
        part = (part ^ part >> 24) * _M & 0xFFFFFFFF
        value = (value * _M & 0xFFFFFFFF) ^ part
    rest = data[whole:]
    if rest:
        value = (value ^ int.from_bytes(rest, "little")) * _M & 0xFFFFFFFF
    value = (value ^ value >> 13) * _M & 0xFFFFFFFF
    return value ^ value >> 15


def _pack(records: Sequence[PlainRecord]) -> bytes:
    first = records[0].timestamp
    parts: list[bytes | bytearray] = [bytearray()]
    for delta, record in enumerate(records):
        before, after, value = bytearray(b"\0"), bytearray(), record.value or b""
        _put(before, record.timestamp - first)
        _put(before, delta)
        _put_bytes(before, record.key)
        _put(before, -1 if record.value is None else len(value))
        _put(after, len(record.headers))
        for name, content in record.headers:
            _put_bytes(after, name.encode())
            _put_bytes(after, content)
        length = bytearray()
        _put(length, len(before) + len(value) + len(after))
        if len(value) < _LARGE:
            parts[-1] += length + before + value + after
        else:
            parts[-1] += length + before
            parts += [value, after]
    return encode_parts(parts, len(records), first, max(record.timestamp for record in records))


def _record(body: bytes, at: int, header: BatchHeader, offset: int) -> PlainRecord:
    time_delta, at = _varint(body, at + 1)
    _, at = _varint(body, at)
    key, at = _bytes(body, at)
    value, at = _bytes(body, at)
    count, at = _varint(body, at)
    found: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, at = _bytes(body, at)
        content, at = _bytes(body, at)
        found.append(((name or b"").decode(errors="replace"), content))
    timestamp = header.max_timestamp if header.append_time else _in_range(header.base_timestamp + time_delta)
    return PlainRecord(key, value, timestamp, tuple(found), offset)


def _in_range(timestamp: int) -> int:
    """A sum of two numbers of a client as 64 bits hold it."""
    return min(timestamp, _LAST_TIME)


def _cut_off() -> CorruptBatch:
    return CorruptBatch("a record is cut off")


def _put(out: bytearray, value: int) -> None:
    value = value << 1 if value >= 0 else (-value << 1) - 1
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _put_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        _put(out, -1)
    else:
        _put(out, len(value))
        out += value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise CorruptBatch("a number in a record is cut off")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7


def _bytes(data: bytes, at: int) -> tuple[bytes | None, int]:
    length, at = _varint(data, at)
    if length < 0:
        return None, at
    if at + length > len(data):
        raise CorruptBatch("a field of a record is cut off")
    return data[at : at + length], at + length
