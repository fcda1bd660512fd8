"""A request is looked over before kio decodes it, which believes what it says of its length, and ends the process."""

from __future__ import annotations

import random
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from kio.serial import entity_reader

from headgate_agent.kafka.codec import read_header, schema
from headgate_agent.kafka.fetch_codec import read_fetch
from headgate_agent.kafka.produce_codec import read_produce
from headgate_agent.kafka.walk import Items, Malformed, TooManyItems, readable, uvarint, walk
from tests.unit.kafka.every_request import framed, make, requests

ROOT = Path(__file__).parents[3]


def test_no_request_of_any_version_is_believed_that_claims_to_be_longer_than_it_is() -> None:
    """In a process of its own, with little memory: what kio cannot allocate ends it."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.kafka.every_request"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout.split()[0]) > 10_000


def test_every_version_of_every_request_is_walked_as_kio_reads_it() -> None:
    for key, version in requests():
        layout = schema(key, version)
        for seed in range(5):
            plain = make(layout.request_type, random.Random(seed))
            items, body = Items(10**6), memoryview(bytes(plain.body))
            assert walk(layout.request_type, body, 0, items) == len(body), (key, version)
            assert items.limit - items.left == plain.items, (key, version)
            request, size = entity_reader(layout.request_type)(body, 0)
            assert size == len(body), (key, version)
            # The same with tagged fields that nobody knows, in every place where there can be some.
            made = make(layout.request_type, random.Random(seed), unknown=True)
            more = memoryview(b"head" + bytes(made.body) + b"and more")
            assert readable(layout.request_type, more, 4, Items(10**6)) == body, (key, version)
            frame = framed(key, version, bytes(made.body))
            assert layout.decode(frame, read_header(frame), Items(10**6)) == request, (key, version)


def test_a_request_may_have_as_many_items_as_are_allowed_and_no_more() -> None:
    source = random.Random(3)
    for key, version in requests():
        layout = schema(key, version)
        made = make(layout.request_type, source)
        frame = framed(key, version, bytes(made.body))
        layout.decode(frame, read_header(frame), Items(made.items))
        if made.items:
            with pytest.raises(TooManyItems):
                layout.decode(frame, read_header(frame), Items(made.items - 1))


def test_produce_and_fetch_count_their_items_too() -> None:
    source = random.Random(4)
    for key, first, last, read in ((0, 3, 12, read_produce), (1, 4, 16, read_fetch)):
        for version in range(first, last + 1):
            layout = schema(key, version)
            made = make(layout.request_type, source)
            frame = framed(key, version, bytes(made.body))

            def answer(items: Items) -> object:
                return read(frame, layout.body(frame, read_header(frame), items), version, items)  # noqa: B023

            counted = Items(10**6)
            answer(counted)
            used = counted.limit - counted.left
            assert used, version
            with pytest.raises(TooManyItems):
                answer(Items(used - 1))


def test_tagged_fields_of_a_header_are_items() -> None:
    head = struct.pack(">hhih", 18, 3, 1, -1)
    frame = memoryview(head + uvarint(1000) + b"\x01\0" * 1000 + b"\1\1\0")
    schema(18, 3).decode(frame, read_header(frame), Items(1000))
    with pytest.raises(TooManyItems):
        schema(18, 3).decode(frame, read_header(frame), Items(999))


def test_a_known_tagged_field_is_as_long_as_it_says() -> None:
    """Else what is decoded would not be what was looked at. Fetch has the id of a cluster as a tagged field."""
    before = bytes(4 * 4 + 1 + 4 + 4) + b"\1\1\1"

    def request(size: int) -> memoryview:
        return memoryview(before + b"\1\0" + bytes([size]) + b"\4abc" + b"beyond")

    assert walk(schema(1, 12).request_type, request(4), 0, Items(10)) == len(before) + 7
    for size in (0, 1, 3, 5, 10, 11, 100):
        with pytest.raises(Malformed):
            walk(schema(1, 12).request_type, request(size), 0, Items(10))


def test_a_tag_of_more_than_32_bits_is_no_way_around_the_look() -> None:
    """A reader that drops the bits beyond would take it for a field that it knows."""
    before = bytes(4 * 4 + 1 + 4 + 4) + b"\1\1\1"
    hidden = b"\1" + b"\x80\x80\x80\x80\x10" + b"\5" + b"\xff\xff\xff\xff\x0f"
    with pytest.raises(Malformed):
        walk(schema(1, 12).request_type, memoryview(before + hidden), 0, Items(10))
