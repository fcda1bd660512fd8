"""Fetch requests and responses, read and written by hand: a response is a list of buffers in which the records stand as
the log has them, so that they are copied by nobody before the socket.

The same bytes as kio's schemas make; tests/unit/kafka compares the two.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field

from headgate_agent.kafka.leader_hints import LeaderHint, endpoint_tags, leader_tags
from headgate_agent.kafka.walk import Items, Malformed, skip_tags
from headgate_agent.kafka.wire import INT, LONG, SHORT, read_count, read_length, read_text, size, text

FIRST_FLEXIBLE = 12
# Topics are named by their id from here on.
FIRST_WITH_IDS = 13
_WITH_LOG_START = 5
# From here on a response can have an error of its own, and there are sessions.
FIRST_WITH_ERROR = _WITH_SESSIONS = 7
_WITH_EPOCH = 9
_WITH_RACK = 11
_WITH_LAST_EPOCH = 12
_WITHOUT_REPLICA = 15
_WITH_ENDPOINTS = 16
_LEADER_TAG = 1

# max_wait, min_bytes, max_bytes, isolation_level
_LIMITS = struct.Struct(">iiib")
_SESSION = struct.Struct(">ii")
_SESSION_HEAD = struct.Struct(">ihi")
# partition_index, error_code, high_watermark, last_stable_offset
_RESULT = struct.Struct(">ihqq")
_ID_BYTES = 16

TopicName = str | uuid.UUID


@dataclass(slots=True)
class FetchItem:
    topic: TopicName
    partition: int
    current_epoch: int
    offset: int
    last_epoch: int
    max_bytes: int


@dataclass(slots=True)
class FetchRequest:
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    session_id: int
    session_epoch: int
    # In the order of the request; those of one topic follow each other.
    items: list[FetchItem]


@dataclass(slots=True)
class FetchResult:
    topic: TopicName
    partition: int
    error_code: int = 0
    high_watermark: int = -1
    log_start: int = -1
    batches: Sequence[bytes | memoryview] = field(default_factory=tuple)
    leader: LeaderHint | None = None


def _item_layout(version: int) -> struct.Struct:
    fields = ">i"
    fields += "i" if version >= _WITH_EPOCH else ""
    fields += "q"
    fields += "i" if version >= _WITH_LAST_EPOCH else ""
    fields += "q" if version >= _WITH_LOG_START else ""
    return struct.Struct(fields + "i")


_ITEMS = {version: _item_layout(version) for version in range(4, 19)}


def read_fetch(frame: memoryview, position: int, version: int, items: Items) -> FetchRequest:
    try:
        request, _ = _read(frame, position, version, items)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise Malformed(f"fetch: {error}") from None
    return request


def _read(frame: memoryview, position: int, version: int, items: Items) -> tuple[FetchRequest, int]:
    flexible = version >= FIRST_FLEXIBLE
    if version < _WITHOUT_REPLICA:
        position += 4
    max_wait, min_bytes, max_bytes, _ = _LIMITS.unpack_from(frame, position)
    position += _LIMITS.size
    session_id, session_epoch = 0, -1
    if version >= _WITH_SESSIONS:
        session_id, session_epoch = _SESSION.unpack_from(frame, position)
        position += _SESSION.size
    found: list[FetchItem] = []
    layout = _ITEMS[version]
    topics, position = read_count(frame, position, flexible, items)
    for _ in range(topics):
        topic, position = _topic(frame, position, version)
        count, position = read_count(frame, position, flexible, items)
        for _ in range(count):
            found.append(_item(topic, layout.unpack_from(frame, position), version))
            position += layout.size
            if flexible:
                position = skip_tags(frame, position, items)
        if flexible:
            position = skip_tags(frame, position, items)
    if version >= _WITH_SESSIONS:
        position = _skip_forgotten(frame, position, version, items)
    if version >= _WITH_RACK:
        length, position = read_length(frame, position, flexible, SHORT)
        position += max(length, 0)
    if flexible:
        position = skip_tags(frame, position, items)
    return FetchRequest(max_wait, min_bytes, max_bytes, session_id, session_epoch, found), position


def _item(topic: TopicName, values: tuple[int, ...], version: int) -> FetchItem:
    if version >= _WITH_LAST_EPOCH:
        partition, current, offset, last, _, max_bytes = values
        return FetchItem(topic, partition, current, offset, last, max_bytes)
    if version >= _WITH_EPOCH:
        partition, current, offset, _, max_bytes = values
        return FetchItem(topic, partition, current, offset, -1, max_bytes)
    return FetchItem(topic, values[0], -1, values[1], -1, values[-1])


def _skip_forgotten(frame: memoryview, position: int, version: int, items: Items) -> int:
    flexible = version >= FIRST_FLEXIBLE
    topics, position = read_count(frame, position, flexible, items)
    for _ in range(topics):
        _, position = _topic(frame, position, version)
        count, position = read_count(frame, position, flexible, items)
        position += 4 * count
        if flexible:
            position = skip_tags(frame, position, items)
    return position


def _topic(frame: memoryview, position: int, version: int) -> tuple[TopicName, int]:
    if version >= FIRST_WITH_IDS:
        end = position + _ID_BYTES
        if end > len(frame):
            raise Malformed("a topic id goes beyond its request")
        return uuid.UUID(bytes=bytes(frame[position:end])), end
    name, position = read_text(frame, position, version >= FIRST_FLEXIBLE)
    if name is None:
        raise Malformed("a topic without a name")
    return name, position


def write_fetch(
    head: bytes, version: int, results: Sequence[FetchResult], error_code: int = 0
) -> list[bytes | memoryview]:
    """A response as buffers; the results of one topic follow each other."""
    flexible = version >= FIRST_FLEXIBLE
    buffers: list[bytes | memoryview] = []
    out = bytearray(head)
    if version >= _WITH_SESSIONS:
        out += _SESSION_HEAD.pack(0, error_code, 0)
    else:
        out += INT.pack(0)
    topics: list[list[FetchResult]] = []
    for result in results:
        if not topics or topics[-1][0].topic != result.topic:
            topics.append([])
        topics[-1].append(result)
    out += size(len(topics), flexible, INT)
    for topic in topics:
        out += _name(topic[0].topic, flexible)
        out += size(len(topic), flexible, INT)
        for result in topic:
            out = _write_result(out, buffers, result, version, flexible)
        if flexible:
            out.append(0)
    if flexible:
        out += endpoint_tags(result.leader for result in results) if version >= _WITH_ENDPOINTS else b"\0"
    buffers.append(bytes(out))
    return buffers


def _write_result(
    out: bytearray, buffers: list[bytes | memoryview], result: FetchResult, version: int, flexible: bool
) -> bytearray:
    out += _RESULT.pack(result.partition, result.error_code, result.high_watermark, result.high_watermark)
    if version >= _WITH_LOG_START:
        out += LONG.pack(result.log_start)
    # No aborted transactions: null, which only the flexible form and version 4 and later allow.
    out += b"\0" if flexible else INT.pack(-1)
    if version >= _WITH_RACK:
        out += INT.pack(-1)
    out += size(sum(map(len, result.batches)), flexible, INT)
    if result.batches:
        buffers.append(bytes(out))
        buffers.extend(result.batches)
        out = bytearray()
    if flexible:
        out += leader_tags(_LEADER_TAG, result.leader)
    return out


def _name(topic: TopicName, flexible: bool) -> bytes:
    return topic.bytes if isinstance(topic, uuid.UUID) else text(topic, flexible)
