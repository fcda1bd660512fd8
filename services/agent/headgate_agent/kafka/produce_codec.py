"""Produce requests and responses, read and written by hand: the records stay where they were received.

The same bytes as kio's schemas make, without a Python object for every field; tests/unit/kafka compares the two.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from headgate_agent.kafka.codec import Malformed, read_uvarint, skip_tags, uvarint
from headgate_agent.kafka.leader_hints import LeaderHint, endpoint_tags, leader_tags

FIRST_FLEXIBLE = 9
_WITH_LOG_START = 5
_WITH_MESSAGES = 8
_WITH_LEADERS = 10
_LEADER_TAG = 0

_SHORT = struct.Struct(">h")
_INT = struct.Struct(">i")
_ACKS_TIMEOUT = struct.Struct(">hi")
# index, error_code, base_offset, log_append_time
_RESULT = struct.Struct(">ihqq")
_LONG = struct.Struct(">q")


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


def read_produce(frame: memoryview, position: int, version: int) -> ProduceRequest:
    try:
        request, _ = _read(frame, position, version >= FIRST_FLEXIBLE)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise Malformed(f"produce: {error}") from None
    return request


def _read(frame: memoryview, position: int, flexible: bool) -> tuple[ProduceRequest, int]:
    transactional_id, position = _text(frame, position, flexible)
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(frame, position)
    topics, position = _count(frame, position + _ACKS_TIMEOUT.size, flexible)
    parts: list[ProducePart] = []
    for _ in range(topics):
        topic, position = _text(frame, position, flexible)
        if topic is None:
            raise Malformed("a topic without a name")
        count, position = _count(frame, position, flexible)
        for _ in range(count):
            (index,) = _INT.unpack_from(frame, position)
            records, position = _bytes(frame, position + 4, flexible)
            if flexible:
                position = skip_tags(frame, position)
            parts.append(ProducePart(topic, index, records))
        if flexible:
            position = skip_tags(frame, position)
    if flexible:
        position = skip_tags(frame, position)
    return ProduceRequest(transactional_id, acks, timeout_ms, parts), position


def _length(frame: memoryview, position: int, flexible: bool, wide: bool) -> tuple[int, int]:
    """The length of a text (`wide` is false), bytes or an array, -1 for null; and where it begins."""
    if flexible:
        value, position = read_uvarint(frame, position)
        return value - 1, position
    packed = _INT if wide else _SHORT
    (length,) = packed.unpack_from(frame, position)
    return length, position + packed.size


def _text(frame: memoryview, position: int, flexible: bool) -> tuple[str | None, int]:
    length, position = _length(frame, position, flexible, wide=False)
    if length < 0:
        return None, position
    end = position + length
    if end > len(frame):
        raise Malformed("a text goes beyond its request")
    return str(frame[position:end], "utf-8"), end


def _bytes(frame: memoryview, position: int, flexible: bool) -> tuple[memoryview | None, int]:
    length, position = _length(frame, position, flexible, wide=True)
    if length < 0:
        return None, position
    end = position + length
    if end > len(frame):
        raise Malformed("records go beyond their request")
    return frame[position:end], end


def _count(frame: memoryview, position: int, flexible: bool) -> tuple[int, int]:
    count, position = _length(frame, position, flexible, wide=True)
    if count > len(frame) - position:
        raise Malformed(f"an array of {count} in a request of {len(frame)} bytes")
    return max(count, 0), position


def write_produce(head: bytes, version: int, results: Sequence[ProduceResult]) -> bytes:
    """A response; the results of one topic follow each other."""
    flexible = version >= FIRST_FLEXIBLE
    out = bytearray(head)
    topics: list[list[ProduceResult]] = []
    for result in results:
        if not topics or topics[-1][0].topic != result.topic:
            topics.append([])
        topics[-1].append(result)
    out += _size(len(topics), flexible, _INT)
    for topic in topics:
        name = topic[0].topic.encode()
        out += _size(len(name), flexible, _SHORT)
        out += name
        out += _size(len(topic), flexible, _INT)
        for result in topic:
            out += _RESULT.pack(result.partition, result.error_code, result.base_offset, -1)
            if version >= _WITH_LOG_START:
                out += _LONG.pack(result.log_start)
            if version >= _WITH_MESSAGES:
                out += _size(0, flexible, _INT)
                out += _nullable(result.message, flexible)
            if flexible:
                out += leader_tags(_LEADER_TAG, result.leader if version >= _WITH_LEADERS else None)
        if flexible:
            out.append(0)
    out += _INT.pack(0)
    if flexible:
        out += endpoint_tags(result.leader for result in results) if version >= _WITH_LEADERS else b"\0"
    return bytes(out)


def _size(value: int, flexible: bool, packed: struct.Struct) -> bytes:
    return uvarint(value + 1) if flexible else packed.pack(value)


def _nullable(text: str | None, flexible: bool) -> bytes:
    if text is None:
        return b"\0" if flexible else _SHORT.pack(-1)
    encoded = text.encode()
    return _size(len(encoded), flexible, _SHORT) + encoded
