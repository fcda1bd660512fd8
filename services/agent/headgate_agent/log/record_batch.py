"""Kafka record batches (magic 2) as the log sees them: headers only, records never.

A client's batch is stored as it came. The leader patches two fields of the header that the CRC does not cover, the base
offset and the leader epoch; everything else, compression included, is the client's.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from crc32c import crc32c

# baseOffset, batchLength, partitionLeaderEpoch, magic, crc, attributes, lastOffsetDelta, baseTimestamp, maxTimestamp,
# producerId, producerEpoch, baseSequence, recordsCount
_HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = _HEADER.size
_LENGTH_AT = 8
_LENGTH_COUNTS_FROM = 12
_CRC_COVERS_FROM = 21
_OFFSET = struct.Struct(">q")
_EPOCH = struct.Struct(">i")
_EPOCH_AT = 12
MAGIC = 2
_CODEC_MASK = 0x07
_LOG_APPEND_TIME = 0x08
_DELETE_HORIZON = 0x40
_CONTROL = 0x20
_TRANSACTIONAL = 0x10


class CorruptBatch(ValueError):
    """Bytes that are not whole record batches; the message says what is wrong and where."""


@dataclass(frozen=True, slots=True)
class BatchHeader:
    """What the log needs to know of a batch. `position` is where it begins in the bytes it was read from."""

    position: int
    size: int
    base_offset: int
    leader_epoch: int
    attributes: int
    last_offset_delta: int
    max_timestamp: int
    base_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int
    crc: int

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compressed(self) -> bool:
        return bool(self.attributes & _CODEC_MASK)

    @property
    def append_time(self) -> bool:
        """Whether all of its records have its largest timestamp."""
        return bool(self.attributes & _LOG_APPEND_TIME)

    @property
    def transactional(self) -> bool:
        return bool(self.attributes & (_TRANSACTIONAL | _CONTROL))

    @property
    def first_timestamp(self) -> int | None:
        """That of its first record, where the header says it."""
        if self.append_time:
            return self.max_timestamp
        return None if self.attributes & _DELETE_HORIZON else self.base_timestamp

    @property
    def last_sequence(self) -> int:
        """The sequence of its last record; sequences wrap at 2^31."""
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF


def headers(data: bytes | bytearray | memoryview) -> Iterator[BatchHeader]:
    """The headers of whole batches that follow each other; raises `CorruptBatch` where they do not."""
    position, end = 0, len(data)
    while position < end:
        header = header_at(data, position)
        if position + header.size > end:
            raise CorruptBatch(
                f"batch at byte {position} is cut off: {header.size} bytes declared, {end - position} there"
            )
        yield header
        position += header.size


def header_at(data: bytes | bytearray | memoryview, position: int) -> BatchHeader:
    if len(data) - position < HEADER_BYTES:
        raise CorruptBatch(f"{len(data) - position} bytes at byte {position} are too few for a batch header")
    (
        base_offset,
        length,
        leader_epoch,
        magic,
        crc,
        attributes,
        last_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    ) = _HEADER.unpack_from(data, position)
    if magic != MAGIC:
        raise CorruptBatch(f"batch at byte {position} has magic {magic}; only {MAGIC} is understood")
    size = length + _LENGTH_COUNTS_FROM
    if size < HEADER_BYTES:
        raise CorruptBatch(f"batch at byte {position} declares {length} bytes, fewer than its header")
    if count < 0 or last_delta < 0 or count > last_delta + 1:
        raise CorruptBatch(f"batch at byte {position} declares {count} records over {last_delta + 1} offsets")
    return BatchHeader(
        position,
        size,
        base_offset,
        leader_epoch,
        attributes,
        last_delta,
        max_timestamp,
        base_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
        crc,
    )


def check_crc(data: bytes | bytearray | memoryview, header: BatchHeader) -> None:
    """Raises `CorruptBatch` unless the batch is as its producer made it."""
    found = crc32c(memoryview(data)[header.position + _CRC_COVERS_FROM : header.position + header.size])
    if found != header.crc:
        raise CorruptBatch(f"batch at byte {header.position}: CRC is {found:#010x}, its header says {header.crc:#010x}")


def placed(data: bytes | bytearray | memoryview, header: BatchHeader, base_offset: int, leader_epoch: int) -> bytes:
    """A copy of the batch with its place in the log."""
    whole = memoryview(data)[header.position : header.position + header.size]
    head = bytearray(whole[:HEADER_BYTES])
    patch(head, 0, base_offset, leader_epoch)
    return b"".join((head, whole[HEADER_BYTES:]))


def patch(data: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int) -> None:
    """Gives the batch at `position` its place in the log."""
    _OFFSET.pack_into(data, position, base_offset)
    _EPOCH.pack_into(data, position + _EPOCH_AT, leader_epoch)


def encode(
    body: bytes,
    count: int,
    *,
    timestamp: int,
    max_timestamp: int | None = None,
    attributes: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytearray:
    """A batch around already encoded records, at offset 0; `producer` is id, epoch and base sequence."""
    latest = timestamp if max_timestamp is None else max_timestamp
    return bytearray().join(_framed((body,), count, (timestamp, latest), attributes, producer))


def encode_parts(parts: Sequence[bytes | bytearray | memoryview], count: int, timestamp: int, latest: int) -> bytes:
    """The same around records in pieces, each of which is copied once."""
    return b"".join(_framed(parts, count, (timestamp, latest), 0, (-1, -1, -1)))


def finish_in_place(made: memoryview, count: int, timestamp: int) -> None:
    """Writes the header of a batch whose records follow it already."""
    size = len(made) - _LENGTH_COUNTS_FROM
    _HEADER.pack_into(made, 0, 0, size, -1, MAGIC, 0, 0, count - 1, timestamp, timestamp, -1, -1, -1, count)
    struct.pack_into(">I", made, 17, crc32c(made[_CRC_COVERS_FROM:]))


def _framed(
    parts: Sequence[bytes | bytearray | memoryview],
    count: int,
    times: tuple[int, int],
    attributes: int,
    producer: tuple[int, int, int],
) -> list[bytes | bytearray | memoryview]:
    size = HEADER_BYTES + sum(map(len, parts))
    header = bytearray(HEADER_BYTES)
    _HEADER.pack_into(
        header, 0, 0, size - _LENGTH_COUNTS_FROM, -1, MAGIC, 0, attributes, count - 1, *times, *producer, count
    )
    crc = crc32c(memoryview(header)[_CRC_COVERS_FROM:])
    for part in parts:
        crc = crc32c(part, crc)
    struct.pack_into(">I", header, 17, crc)
    return [header, *parts]
