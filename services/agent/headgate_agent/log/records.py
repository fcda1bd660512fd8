"""Plain records and the batches that hold them: for people and SDKs that do not speak Kafka's format themselves.

The log itself never looks into a batch. Here batches are made of records, and records are taken out of them, whatever
codec the client used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from headgate_agent.log.codecs import unpack
from headgate_agent.log.record_batch import HEADER_BYTES, BatchHeader, CorruptBatch, encode_parts, headers

_CODEC_MASK = 0x07
_LOG_APPEND_TIME = 0x08
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


def unpack_batches(data: bytes | memoryview) -> Iterator[PlainRecord]:
    """The records of whole batches, in order. Control batches hold none."""
    for header in headers(data):
        yield from unpack_batch(data, header)


def unpack_batch(data: bytes | memoryview, header: BatchHeader) -> Iterator[PlainRecord]:
    if header.transactional and header.attributes & 0x20:
        return
    stored = bytes(memoryview(data)[header.position + HEADER_BYTES : header.position + header.size])
    body = unpack(header.attributes & _CODEC_MASK, stored)
    append_time = header.max_timestamp if header.attributes & _LOG_APPEND_TIME else None
    at = 0
    for _ in range(header.count):
        length, at = _varint(body, at)
        end = at + length
        if length < 0 or end > len(body):
            raise CorruptBatch("a record is cut off")
        yield _record(body, at, header, append_time)
        at = end


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


def _record(body: bytes, at: int, header: BatchHeader, append_time: int | None) -> PlainRecord:
    time_delta, at = _varint(body, at + 1)
    offset_delta, at = _varint(body, at)
    key, at = _bytes(body, at)
    value, at = _bytes(body, at)
    count, at = _varint(body, at)
    found: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, at = _bytes(body, at)
        content, at = _bytes(body, at)
        found.append(((name or b"").decode(errors="replace"), content))
    timestamp = header.base_timestamp + time_delta if append_time is None else append_time
    return PlainRecord(key, value, timestamp, tuple(found), header.base_offset + offset_delta)


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


def first_at(records: Iterable[PlainRecord], timestamp: int) -> PlainRecord | None:
    """The first record that is not older than `timestamp`."""
    return next((record for record in records if record.timestamp >= timestamp), None)
