"""A segment gives back what was put in, and anything damaged is noticed."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate_agent.log.record_batch import CorruptBatch, check_crc, encode, header_at, headers, patch
from headgate_agent.log.segment import (
    FOOTER_BYTES,
    CorruptSegment,
    Index,
    SegmentWriter,
    batches_from,
    read_index,
    stored_range,
    unpack_block,
)
from tests.examples import examples

SNAPPY = 2


def batch(offset: int, count: int = 3, size: int = 50, timestamp: int = 1000, attributes: int = 0) -> bytes:
    made = encode(bytes((offset + i) % 251 for i in range(size)), count, timestamp=timestamp, attributes=attributes)
    patch(made, 0, offset, 7)
    return bytes(made)


def write(batches: list[bytes], block_bytes: int = 200) -> tuple[bytes, Index]:
    writer = SegmentWriter(block_bytes)
    for data in batches:
        writer.add(data, header_at(data, 0))
    segment = b"".join(writer.finish())
    index = read_index(segment, len(segment))
    assert isinstance(index, Index)
    return segment, index


def read(segment: bytes, index: Index, offset: int) -> bytes:
    out = b""
    for block in index.from_offset(offset):
        start, length = stored_range(block)
        out += bytes(batches_from(unpack_block(block, segment[start : start + length]), offset))
    return out


def test_a_large_batch_that_is_not_packed_again_is_uploaded_from_where_it_is() -> None:
    made = encode(random.Random(1).randbytes(1_000), 1, timestamp=1, attributes=SNAPPY)
    writer = SegmentWriter(block_bytes=200)
    view = memoryview(made)
    writer.add(view, header_at(made, 0))
    parts = writer.finish()
    assert any(part is view for part in parts)
    segment = b"".join(parts)
    index = read_index(segment, len(segment))
    assert isinstance(index, Index) and read(segment, index, 0) == made


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 20), st.integers(0, 400), st.integers(0, 10**6), st.sampled_from([0, SNAPPY])),
        min_size=1,
        max_size=25,
    ),
    st.integers(64, 1000),
    st.integers(0, 10**12),
)
def test_reading_from_any_offset_gives_the_batches_that_hold_it_and_all_after(
    shapes: list[tuple[int, int, int, int]], block_bytes: int, base: int
) -> None:
    batches, offset = [], base
    for count, size, timestamp, attributes in shapes:
        batches.append(batch(offset, count, size, timestamp, attributes))
        offset += count
    segment, index = write(batches, block_bytes)
    assert (index.base_offset, index.next_offset) == (base, offset)
    assert index.records == offset - base
    for wanted in {base, (base + offset) // 2, offset - 1}:
        expected = b"".join(b for b in batches if header_at(b, 0).next_offset > wanted)
        assert read(segment, index, wanted) == expected
    assert index.from_offset(offset) == ()


def test_a_short_tail_asks_for_what_it_needs() -> None:
    segment, index = write([batch(i * 3) for i in range(40)])
    needed = read_index(segment[-FOOTER_BYTES:], len(segment))
    assert isinstance(needed, int)
    assert read_index(segment[-needed:], len(segment)) == index
    assert read_index(b"", len(segment)) == FOOTER_BYTES


def test_by_time_lookup_starts_at_the_first_block_that_may_hold_it() -> None:
    _, index = write([batch(i * 3, timestamp=i * 100) for i in range(40)])
    blocks = index.from_timestamp(1950)
    assert blocks[0].max_timestamp >= 1950
    earlier = index.blocks[: len(index.blocks) - len(blocks)]
    assert all(block.max_timestamp < 1950 for block in earlier)
    assert index.from_timestamp(10**9) == ()


def test_what_the_client_compressed_is_not_compressed_again() -> None:
    _, index = write([batch(0, size=5000, attributes=SNAPPY)])
    assert not index.blocks[0].packed
    _, index = write([batch(0, size=5000)])
    assert index.blocks[0].packed


@settings(max_examples=examples(80), deadline=None)
@given(st.data())
def test_a_flipped_bit_anywhere_is_noticed(data: st.DataObject) -> None:
    batches = [batch(i * 3, size=120) for i in range(12)]
    segment, _ = write(batches)
    place = data.draw(st.integers(4, len(segment) - 1))
    damaged = bytearray(segment)
    damaged[place] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(CorruptSegment):
        index = read_index(bytes(damaged), len(damaged))
        assert isinstance(index, Index)
        read(bytes(damaged), index, 0)


def test_a_cut_off_segment_is_noticed() -> None:
    segment, _ = write([batch(i * 3) for i in range(12)])
    with pytest.raises(CorruptSegment):
        read_index(segment[:-1], len(segment) - 1)


def test_batches_out_of_order_are_refused() -> None:
    writer = SegmentWriter()
    writer.add(batch(10), header_at(batch(10), 0))
    with pytest.raises(ValueError, match="in order"):
        writer.add(batch(5), header_at(batch(5), 0))


def test_patching_offsets_leaves_the_crc_valid() -> None:
    made = encode(b"abc", 1, timestamp=5)
    patch(made, 0, 12345, 9)
    header = header_at(made, 0)
    assert (header.base_offset, header.leader_epoch) == (12345, 9)
    check_crc(made, header)
    made[-1] ^= 1
    with pytest.raises(CorruptBatch, match="CRC"):
        check_crc(made, header)


@settings(max_examples=examples(200), deadline=None)
@given(st.binary(max_size=300))
@pytest.mark.slow
def test_random_bytes_are_refused_not_misread(data: bytes) -> None:
    try:
        found = list(headers(data))
    except CorruptBatch:
        return
    assert sum(header.size for header in found) == len(data)
