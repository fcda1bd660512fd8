"""Plain records in batches: what goes in comes out, in every codec; keys fall where the Java client puts them."""

from __future__ import annotations

import gzip
import struct

import cramjam
import lz4.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate_agent.log.codecs import unpack
from headgate_agent.log.record_batch import HEADER_BYTES, CorruptBatch, check_crc, encode, header_at, headers
from headgate_agent.log.records import PlainRecord, murmur2, pack, pack_in_place, partition_of_key, unpack_batches

# From the tests of the Java client's Utils.murmur2.
VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}

BYTES = st.none() | st.binary(max_size=50)
RECORDS = st.builds(
    PlainRecord,
    key=BYTES,
    value=BYTES,
    timestamp=st.integers(0, 2**41),
    headers=st.lists(st.tuples(st.text(max_size=10), BYTES), max_size=3).map(tuple),
)


@given(st.lists(RECORDS, min_size=1, max_size=30), st.integers(200, 5000))
@pytest.mark.slow
def test_records_come_back_as_they_were_in_batches_of_the_size_allowed(
    records: list[PlainRecord], largest: int
) -> None:
    batches = pack(records, largest)
    for batch in batches:
        header = header_at(batch, 0)
        check_crc(batch, header)
        assert header.size == len(batch)
        assert len(batch) <= largest or header.count == 1
    back = [record for batch in batches for record in unpack_batches(batch)]
    assert [(one.key, one.value, one.timestamp, one.headers) for one in back] == [
        (one.key, one.value, one.timestamp, one.headers) for one in records
    ]


def test_offsets_and_times_follow_the_batch() -> None:
    (batch,) = pack([PlainRecord(None, b"a", 500), PlainRecord(None, b"b", 400)], 1000)
    header = header_at(batch, 0)
    assert (header.base_timestamp, header.max_timestamp, header.count) == (500, 500, 2)
    moved = bytearray(batch)
    struct.pack_into(">q", moved, 0, 40)
    assert [(one.offset, one.timestamp) for one in unpack_batches(bytes(moved))] == [(40, 500), (41, 400)]


def compressed(codec: int, body: bytes) -> bytes:
    if codec == 1:
        return gzip.compress(body)
    if codec == 2:
        return bytes(cramjam.snappy.compress_raw(body))
    if codec == 3:
        return bytes(lz4.frame.compress(body))
    return bytes(cramjam.zstd.compress(body))


def xerial(body: bytes) -> bytes:
    chunks = [bytes(cramjam.snappy.compress_raw(body[at : at + 100])) for at in range(0, len(body), 100)]
    framed = b"".join(struct.pack(">I", len(chunk)) + chunk for chunk in chunks)
    return b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + framed


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_records_are_read_whatever_codec_the_client_used(codec: int) -> None:
    records = [PlainRecord(b"k%d" % n, b"value " * 50, 1000 + n) for n in range(50)]
    (plain,) = pack(records, 1 << 20)
    body = compressed(codec, plain[HEADER_BYTES:])
    batch = bytes(encode(body, 50, timestamp=1000, max_timestamp=1049, attributes=codec))
    assert [one.key for one in unpack_batches(batch)] == [one.key for one in records]


def test_snappy_is_read_in_the_java_clients_framing_too() -> None:
    body = b"some records " * 100
    assert unpack(2, xerial(body)) == body


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_small_batch_cannot_make_a_large_process(codec: int) -> None:
    bomb = compressed(codec, b"\0" * 2_000_000)
    with pytest.raises(CorruptBatch):
        unpack(codec, bomb, limit=1_000_000)
    assert len(unpack(codec, bomb, limit=2_000_000)) == 2_000_000


@pytest.mark.parametrize("codec", [1, 2, 3, 4, 7])
def test_what_does_not_unpack_is_corrupt(codec: int) -> None:
    with pytest.raises(CorruptBatch):
        unpack(codec, b"certainly not compressed")


@given(st.binary(max_size=300))
def test_garbage_is_corrupt_and_nothing_else(body: bytes) -> None:
    batch = bytes(encode(body, 3, timestamp=1))
    try:
        list(unpack_batches(batch))
    except CorruptBatch:
        return


def test_keys_fall_where_the_java_client_puts_them() -> None:
    for key, expected in VECTORS.items():
        assert murmur2(key) == expected & 0xFFFFFFFF, key
    assert all(0 <= partition_of_key(b"%d" % n, 7) < 7 for n in range(100))
    assert partition_of_key(b"foobar", 10) == (-790332482 & 0x7FFFFFFF) % 10


def test_batches_that_follow_each_other_are_all_read() -> None:
    data = b"".join(pack([PlainRecord(None, b"x" * 100, 1) for _ in range(9)], 300))
    assert len(list(headers(data))) > 2
    assert len(list(unpack_batches(data))) == 9


def test_large_values_stand_between_small_ones_with_a_crc_that_holds() -> None:
    large = bytes(range(256)) * 1024
    values = [b"a", large, None, large, b"", b"z"]
    records = [PlainRecord(b"k", value, 7 + n, (("h", b"v"),)) for n, value in enumerate(values)]
    (batch,) = pack(records, 1 << 30)
    check_crc(batch, header_at(batch, 0))
    found = list(unpack_batches(batch))
    assert [(one.key, one.value, one.timestamp) for one in found] == [(b"k", v, 7 + n) for n, v in enumerate(values)]
    assert all(one.headers == (("h", b"v"),) for one in found)


@given(st.binary(max_size=300), st.integers(0, 2**41))
def test_a_value_that_is_written_in_place_makes_the_batch_that_packing_it_makes(value: bytes, timestamp: int) -> None:
    def write(target: memoryview) -> None:
        target[:] = value

    made = pack_in_place(len(value), write, timestamp)
    check_crc(made, header_at(made, 0))
    assert [bytes(made)] == pack([PlainRecord(None, value, timestamp)], 1)
