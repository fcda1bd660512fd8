"""Executors take the same values out of record batches as the log does, whatever packed them."""

from __future__ import annotations

import struct
import zlib

import cramjam
import lz4.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate_agent.log.record_batch import HEADER_BYTES, encode
from headgate_agent.log.records import PlainRecord, pack, unpack_batches
from headgate_engine.executor.batches import headers, records_of
from headgate_engine.executor.wire import EdgeError


def _xerial(data: bytes) -> bytes:
    half = len(data) // 2
    blocks = [bytes(cramjam.snappy.compress_raw(part)) for part in (data[:half], data[half:])]
    head = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    return head + b"".join(struct.pack(">I", len(block)) + block for block in blocks)


GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
PACKERS = [
    pytest.param(0, bytes, id="plain"),
    pytest.param(GZIP, lambda data: zlib.compress(data, wbits=31), id="gzip"),
    pytest.param(SNAPPY, lambda data: bytes(cramjam.snappy.compress_raw(data)), id="snappy block"),
    pytest.param(SNAPPY, _xerial, id="snappy in frames"),
    pytest.param(LZ4, lz4.frame.compress, id="lz4"),
    pytest.param(ZSTD, lambda data: bytes(cramjam.zstd.compress(data)), id="zstd"),
]
RECORD = st.builds(
    PlainRecord,
    key=st.none() | st.binary(max_size=200),
    value=st.none() | st.binary(max_size=300),
    timestamp=st.integers(0, 2**41),
    headers=st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)), max_size=2).map(tuple),
)


def at_offset(batch: bytes, base: int) -> bytes:
    return struct.pack(">q", base) + batch[8:]


def read(data: bytes, start: int, until: int) -> list[tuple[bytes | None, int]]:
    found: list[tuple[bytes | None, int]] = []
    for header in headers(data):
        values, offsets = records_of(data, header, start, until)
        found += zip(values, offsets, strict=True)
    return found


@given(st.lists(RECORD, min_size=1, max_size=150), st.integers(0, 2**40), st.integers(-5, 160), st.integers(-5, 160))
@pytest.mark.slow
def test_any_part_of_any_batches_comes_out_as_the_log_reads_it(
    records: list[PlainRecord], base: int, start: int, length: int
) -> None:
    data, at = b"", base
    for batch in pack(records, 2000):
        data += at_offset(batch, at)
        at += struct.unpack_from(">i", batch, 23)[0] + 1
    first, until = base + start, base + start + length
    wanted = [(one.value, one.offset) for one in unpack_batches(data) if first <= one.offset < until]
    assert read(data, first, until) == wanted
    assert [one.next_offset for one in headers(data)][-1] == at


@pytest.mark.parametrize(("codec", "packer"), PACKERS)
@pytest.mark.slow
def test_every_codec_of_kafka_is_read(codec: int, packer: object) -> None:
    records = [PlainRecord(None, b'{"n": %d}' % n * 20, n) for n in range(3000)]
    (plain,) = pack(records, 2**30)
    packed = encode(packer(plain[HEADER_BYTES:]), len(records), timestamp=0, attributes=codec)  # type: ignore[operator]
    assert read(bytes(packed), 10, 2990) == [(one.value, at) for at, one in enumerate(records)][10:2990]


def test_offsets_that_a_compacted_batch_lacks_are_not_made_up() -> None:
    (plain,) = pack([PlainRecord(None, b"%d" % n, n) for n in range(3)], 2**20)
    body = bytearray(plain[HEADER_BYTES:])
    # Each record is 8 bytes; the offset delta, the fourth, becomes 0, 5, 9 as a zigzag varint.
    for at, delta in zip((3, 11, 19), (0, 5, 9), strict=True):
        body[at] = delta * 2
    batch = bytearray(encode(bytes(body), 3, timestamp=0))
    struct.pack_into(">i", batch, 23, 9)
    assert read(bytes(batch), 0, 10) == [(b"0", 0), (b"1", 5), (b"2", 9)]
    assert read(bytes(batch), 1, 9) == [(b"1", 5)]


def test_control_batches_have_no_records_and_what_cannot_be_read_is_refused_by_name() -> None:
    (plain,) = pack([PlainRecord(None, b"x", 1)], 2**20)
    body = plain[HEADER_BYTES:]
    assert read(bytes(encode(body, 1, timestamp=0, attributes=0x20)), 0, 9) == []
    with pytest.raises(EdgeError, match=r"PLAN_UNSUPPORTED.*compressed with 5"):
        read(bytes(encode(body, 1, timestamp=0, attributes=5)), 0, 9)
    for broken in (plain[:-1], plain[:20], plain[:16] + b"\x01" + plain[17:]):
        with pytest.raises(EdgeError, match="CORRUPT_BATCH"):
            read(broken, 0, 9)
    with pytest.raises(EdgeError, match="CORRUPT_BATCH"):
        read(bytes(encode(b"\x7f\x00", 1, timestamp=0)), 0, 9)
    with pytest.raises(EdgeError, match="CORRUPT_BATCH"):
        read(bytes(encode(b"noise", 1, timestamp=0, attributes=ZSTD)), 0, 9)
