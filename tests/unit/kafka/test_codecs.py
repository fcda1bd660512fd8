"""The codecs written by hand and kio agree on every version, in both directions."""

from __future__ import annotations

import io
import uuid
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer

from headgate_agent.kafka.apis import APIS, FETCH, PRODUCE
from headgate_agent.kafka.codec import build, parts, read_header, schema
from headgate_agent.kafka.fetch_codec import FIRST_WITH_IDS, FetchResult, read_fetch, write_fetch
from headgate_agent.kafka.leader_hints import LeaderHint
from headgate_agent.kafka.produce_codec import ProduceResult, read_produce, write_produce
from headgate_agent.kafka.walk import Items, Malformed, read_uvarint, uvarint

# The machine may be busy.
patient = settings(deadline=None)
INT16 = st.integers(-(2**15), 2**15 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
NAMES = st.text(max_size=40)
RECORDS = st.binary(max_size=300)
HINTS = st.none() | st.builds(
    LeaderHint,
    node_id=st.integers(0, 2**31 - 1),
    epoch=st.integers(0, 2**31 - 1),
    host=st.text(max_size=20),
    port=st.integers(0, 65535),
    rack=st.none() | st.text(max_size=10),
)


def _leader(partition: Any) -> tuple[int, int]:
    return partition.current_leader.leader_id, partition.current_leader.leader_epoch


def _told(hint: LeaderHint | None) -> tuple[int, int]:
    return (-1, -1) if hint is None else (hint.node_id, hint.epoch)


def _endpoints(response: Any) -> dict[int, tuple[str, int, str | None]]:
    return {one.node_id: (one.host, one.port, one.rack) for one in response.node_endpoints}


def _expected(hints: Iterable[LeaderHint | None]) -> dict[int, tuple[str, int, str | None]]:
    return {one.node_id: (one.host, one.port, one.rack) for one in hints if one is not None}


def written(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


@patient
@given(data=st.data(), version=st.integers(PRODUCE.first, PRODUCE.last))
@pytest.mark.slow
def test_produce_requests_of_kio_are_read_as_they_were_written(data: st.DataObject, version: int) -> None:
    topics = data.draw(
        st.lists(st.tuples(NAMES, st.lists(st.tuples(INT32, st.none() | RECORDS), max_size=3)), max_size=3)
    )
    transactional_id, acks = data.draw(st.none() | NAMES), data.draw(INT16)
    timeout = data.draw(st.integers(0, 2**31 - 1))
    request = build(
        schema(0, version).request_type,
        {
            "transactional_id": transactional_id,
            "acks": acks,
            "timeout": timeout,
            "topic_data": [
                {"name": name, "partition_data": [{"index": i, "records": r} for i, r in partitions]}
                for name, partitions in topics
            ],
        },
    )
    before = b"\xff" * 7
    read = read_produce(memoryview(before + written(request)), len(before), version, Items(1000))
    assert (read.transactional_id, read.acks, read.timeout_ms) == (transactional_id, acks, timeout)
    flat = [(name, index, records) for name, partitions in topics for index, records in partitions]
    found = [(one.topic, one.partition, None if one.records is None else bytes(one.records)) for one in read.parts]
    assert found == flat


@patient
@given(data=st.data(), version=st.integers(PRODUCE.first, PRODUCE.last))
@pytest.mark.slow
def test_produce_responses_are_read_by_kio_as_they_were_written(data: st.DataObject, version: int) -> None:
    names = data.draw(st.lists(NAMES, unique=True, max_size=3))
    results = [
        ProduceResult(
            name, data.draw(INT32), data.draw(st.sampled_from([0, 6, 7])), data.draw(INT64), data.draw(INT64), m
        )
        for name in names
        for m in data.draw(st.lists(st.none() | NAMES, min_size=1, max_size=3))
    ]
    for one in results:
        one.leader = data.draw(HINTS)
    response_type = schema(0, version).response_type
    raw = write_produce(b"", version, results)
    response, size = entity_reader(response_type)(memoryview(raw), 0)
    assert size == len(raw)
    assert written(response) == raw
    found = [(topic.name, one) for topic in response.responses for one in topic.partition_responses]
    assert [(n, one.index, one.error_code, one.base_offset) for n, one in found] == [
        (one.topic, one.partition, one.error_code, one.base_offset) for one in results
    ]
    if version >= 5:
        assert [one.log_start_offset for _, one in found] == [one.log_start for one in results]
    if version >= 10:
        assert [_leader(one) for _, one in found] == [_told(one.leader) for one in results]
        assert _endpoints(response) == _expected(one.leader for one in results)
    if version >= 8:
        assert [one.error_message for _, one in found] == [one.message for one in results]


@patient
@given(data=st.data(), version=st.integers(FETCH.first, FETCH.last))
@pytest.mark.slow
def test_fetch_requests_of_kio_are_read_as_they_were_written(data: st.DataObject, version: int) -> None:
    by_id = version >= FIRST_WITH_IDS
    topic_names: Any = st.uuids().filter(lambda one: one.int != 0) if by_id else NAMES
    item = st.tuples(INT32, INT32, INT64, INT32, INT32)
    topics = data.draw(st.lists(st.tuples(topic_names, st.lists(item, max_size=3)), max_size=3))
    forgotten = data.draw(st.lists(st.tuples(topic_names, st.lists(INT32, max_size=3)), max_size=2))
    wait, least, most = data.draw(st.tuples(st.integers(0, 2**31 - 1), INT32, INT32))
    session_id, session_epoch = data.draw(st.tuples(INT32, INT32))
    name = "topic_id" if by_id else "topic"
    request = build(
        schema(1, version).request_type,
        {
            "max_wait": wait,
            "min_bytes": least,
            "max_bytes": most,
            "session_id": session_id,
            "session_epoch": session_epoch,
            "rack_id": data.draw(NAMES),
            "cluster_id": data.draw(st.none() | NAMES) if version >= 12 else None,
            "topics": [
                {
                    name: topic,
                    "partitions": [
                        {
                            "partition": partition,
                            "current_leader_epoch": current,
                            "fetch_offset": offset,
                            "last_fetched_epoch": last,
                            "partition_max_bytes": most_bytes,
                        }
                        for partition, current, offset, last, most_bytes in partitions
                    ],
                }
                for topic, partitions in topics
            ],
            "forgotten_topics_data": [{name: topic, "partitions": indexes} for topic, indexes in forgotten],
        },
    )
    read = read_fetch(memoryview(written(request)), 0, version, Items(1000))
    assert (read.max_wait_ms, read.min_bytes, read.max_bytes) == (wait, least, most)
    assert (read.session_id, read.session_epoch) == ((session_id, session_epoch) if version >= 7 else (0, -1))
    expected = [
        (topic, partition, current if version >= 9 else -1, offset, last if version >= 12 else -1, most_bytes)
        for topic, partitions in topics
        for partition, current, offset, last, most_bytes in partitions
    ]
    assert [
        (one.topic, one.partition, one.current_epoch, one.offset, one.last_epoch, one.max_bytes) for one in read.items
    ] == expected


@patient
@given(data=st.data(), version=st.integers(FETCH.first, FETCH.last))
@pytest.mark.slow
def test_fetch_responses_are_read_by_kio_as_they_were_written(data: st.DataObject, version: int) -> None:
    names: Any = st.uuids().filter(lambda one: one.int != 0) if version >= FIRST_WITH_IDS else NAMES
    results = [
        FetchResult(
            topic, data.draw(INT32), data.draw(st.sampled_from([0, 1, 6])), data.draw(INT64), data.draw(INT64), batches
        )
        for topic in data.draw(st.lists(names, unique=True, max_size=3))
        for batches in data.draw(st.lists(st.lists(RECORDS.filter(bool), max_size=3), min_size=1, max_size=3))
    ]
    for one in results:
        one.leader = data.draw(HINTS)
    error = data.draw(st.sampled_from([0, 70]))
    raw = b"".join(write_fetch(b"", version, results, error))
    response, size = entity_reader(schema(1, version).response_type)(memoryview(raw), 0)
    assert size == len(raw)
    assert written(response) == raw
    if version >= 12:
        told = [_leader(one) for topic in response.responses for one in topic.partitions]
        assert told == [_told(one.leader) for one in results]
    if version >= 16:
        assert _endpoints(response) == _expected(one.leader for one in results)
    if version >= 7:
        assert (response.error_code, response.session_id) == (error, 0)
    found = [
        (topic.topic_id if version >= FIRST_WITH_IDS else topic.topic, one)
        for topic in response.responses
        for one in topic.partitions
    ]
    assert [
        (
            topic,
            one.partition_index,
            one.error_code,
            one.high_watermark,
            one.last_stable_offset,
            bytes(one.records or b""),
        )
        for topic, one in found
    ] == [
        (r.topic, r.partition, r.error_code, r.high_watermark, r.high_watermark, b"".join(r.batches)) for r in results
    ]


@patient
@given(st.integers(0, 2**32 - 1))
def test_numbers_of_variable_length_are_read_as_they_were_written(value: int) -> None:
    raw = b"\xff" + uvarint(value)
    assert read_uvarint(memoryview(raw), 1) == (value, len(raw))


@patient
@given(st.binary(max_size=80), st.integers(PRODUCE.first, PRODUCE.last), st.integers(FETCH.first, FETCH.last))
def test_any_bytes_are_a_request_or_malformed(raw: bytes, produce: int, fetch: int) -> None:
    def outcome(read: Any) -> None:
        try:
            read()
        except Malformed:
            return

    frame = memoryview(raw)
    outcome(lambda: read_header(frame))
    outcome(lambda: read_produce(frame, 0, produce, Items(1000)))
    outcome(lambda: read_fetch(frame, 0, fetch, Items(1000)))


@patient
@given(st.binary(max_size=60), st.data())
@pytest.mark.slow
def test_any_bytes_are_a_request_of_kio_or_malformed(raw: bytes, data: st.DataObject) -> None:
    api = data.draw(st.sampled_from(list(APIS.values())))
    version = data.draw(st.integers(api.first, api.last))
    head = api.key.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\0\0\0\1\xff\xff"
    frame = memoryview(head + raw)
    try:
        schema(api.key, version).decode(frame, read_header(frame), Items(1000))
    except Malformed:
        return


def test_a_huge_array_in_a_small_request_is_malformed() -> None:
    for key in APIS:
        layout = schema(key, APIS[key].first)
        head = key.to_bytes(2, "big") + APIS[key].first.to_bytes(2, "big") + b"\0\0\0\1\xff\xff"
        frame = memoryview(head + b"\x7f\xff\xff\xf0" * 3)
        if parts(layout.request_type):
            with pytest.raises(Malformed):
                layout.decode(frame, read_header(frame), Items(1000))


def test_a_misspelt_field_of_a_response_is_an_error() -> None:
    with pytest.raises(KeyError):
        build(schema(3, 12).response_type, {"topcis": []})


def test_topic_ids_are_derived_from_uids() -> None:
    from headgate_agent.kafka.topics import topic_id

    assert topic_id("topic-a") == topic_id("topic-a") != topic_id("topic-b")
    assert isinstance(topic_id("topic-a"), uuid.UUID)
