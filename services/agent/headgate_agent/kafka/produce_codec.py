"""Produce requests and responses, read and written by hand: the records stay where they were received.

The same bytes as kio's schemas make, without a Python object for every field; tests/unit/kafka compares the two.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from headgate_agent.kafka.leader_hints import LeaderHint, endpoint_tags, leader_tags
from headgate_agent.kafka.walk import Items, Malformed, skip_tags
from headgate_agent.kafka.wire import INT, LONG, read_count, read_length, read_text, size, text

FIRST_FLEXIBLE = 9
_WITH_LOG_START = 5
_WITH_MESSAGES = 8
_WITH_LEADERS = 10
_LEADER_TAG = 0

_ACKS_TIMEOUT = struct.Struct(">hi")
# index, error_code, base_offset, log_append_time
_RESULT = struct.Struct(">ihqq")


@dataclass(slots=True)
class ProducePart:
    topic: str
    partition: int
    records: memoryview | None


@dataclass(slots=True)
class ProduceRequest:
    transactional_id: str | None
    acks: int
    timeout_ms: int
    # In the order of the request; those of one topic follow each other.
    parts: list[ProducePart]


@dataclass(slots=True)
class ProduceResult:
    topic: str
    partition: int
    error_code: int = 0
    base_offset: int = -1
    log_start: int = -1
    message: str | None = None
    leader: LeaderHint | None = None


def read_produce(frame: memoryview, position: int, version: int, items: Items) -> ProduceRequest:
    try:
        request, _ = _read(frame, position, version >= FIRST_FLEXIBLE, items)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise Malformed(f"produce: {error}") from None
    return request


def _read(frame: memoryview, position: int, flexible: bool, items: Items) -> tuple[ProduceRequest, int]:
    transactional_id, position = read_text(frame, position, flexible)
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(frame, position)
    topics, position = read_count(frame, position + _ACKS_TIMEOUT.size, flexible, items)
    parts: list[ProducePart] = []
    for _ in range(topics):
        topic, position = read_text(frame, position, flexible)
        if topic is None:
            raise Malformed("a topic without a name")
        count, position = read_count(frame, position, flexible, items)
        for _ in range(count):
            (index,) = INT.unpack_from(frame, position)
            records, position = _bytes(frame, position + 4, flexible)
            if flexible:
                position = skip_tags(frame, position, items)
            parts.append(ProducePart(topic, index, records))
        if flexible:
            position = skip_tags(frame, position, items)
    if flexible:
        position = skip_tags(frame, position, items)
    return ProduceRequest(transactional_id, acks, timeout_ms, parts), position


def _bytes(frame: memoryview, position: int, flexible: bool) -> tuple[memoryview | None, int]:
    length, position = read_length(frame, position, flexible, INT)
    if length < 0:
        return None, position
    end = position + length
    if end > len(frame):
        raise Malformed("records go beyond their request")
    return frame[position:end], end


def write_produce(head: bytes, version: int, results: Sequence[ProduceResult]) -> bytes:
    """A response; the results of one topic follow each other."""
    flexible = version >= FIRST_FLEXIBLE
    out = bytearray(head)
    topics: list[list[ProduceResult]] = []
    for result in results:
        if not topics or topics[-1][0].topic != result.topic:
            topics.append([])
        topics[-1].append(result)
    out += size(len(topics), flexible, INT)
    for topic in topics:
        out += text(topic[0].topic, flexible)
        out += size(len(topic), flexible, INT)
        for result in topic:
            out += _RESULT.pack(result.partition, result.error_code, result.base_offset, -1)
            if version >= _WITH_LOG_START:
                out += LONG.pack(result.log_start)
            if version >= _WITH_MESSAGES:
                out += size(0, flexible, INT)
                out += text(result.message, flexible)
            if flexible:
                out += leader_tags(_LEADER_TAG, result.leader if version >= _WITH_LEADERS else None)
        if flexible:
            out.append(0)
    out += INT.pack(0)
    if flexible:
        out += endpoint_tags(result.leader for result in results) if version >= _WITH_LEADERS else b"\0"
    return bytes(out)
