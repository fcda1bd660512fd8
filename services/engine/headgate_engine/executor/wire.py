"""The messages of `headgate.log.v1.EdgeService` by hand: executors need no protobuf.

A unit test compares every message with the generated classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class EdgeError(Exception):
    """What an agent answered: its reason, which callers may rely on, a sentence, and where the leader is if it said."""

    def __init__(self, reason: str, message: str, leader_address: str = "") -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message
        self.leader_address = leader_address

    def __reduce__(self) -> tuple[Any, ...]:
        return EdgeError, (self.reason, self.message, self.leader_address)


def put_varint(value: int) -> bytes:
    value &= 0xFFFF_FFFF_FFFF_FFFF
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def put(number: int, value: int | bytes | str) -> bytes:
    """One field. Zero and empty are left out, as proto3 does."""
    if isinstance(value, int):
        return put_varint(number << 3 | _VARINT) + put_varint(value) if value else b""
    raw = value.encode() if isinstance(value, str) else value
    return put_item(number, raw) if raw else b""


def put_item(number: int, raw: bytes) -> bytes:
    """One element of a repeated field, or a message: present also where it is empty."""
    return put_varint(number << 3 | _BYTES) + put_varint(len(raw)) + raw


def put_packed(number: int, values: Sequence[int]) -> bytes:
    return put(number, b"".join(put_varint(value) for value in values))


def take_varint(raw: bytes | memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = raw[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def take(raw: bytes | memoryview) -> Iterator[tuple[int, Any]]:
    """The fields of a message, in order: numbers as signed 64-bit integers, the rest as views on the bytes."""
    view = memoryview(raw)
    at = 0
    while at < len(view):
        key, at = take_varint(view, at)
        kind = key & 7
        if kind == _VARINT:
            value, at = take_varint(view, at)
            yield key >> 3, value - (1 << 64) if value >> 63 else value
        elif kind == _BYTES:
            length, at = take_varint(view, at)
            yield key >> 3, view[at : at + length]
            at += length
        elif kind in (_FIXED64, _FIXED32):
            at += 8 if kind == _FIXED64 else 4
        else:
            raise EdgeError("INTERNAL", f"a message with wire type {kind} cannot be read")


def writer_ref(fragment_uid: str, epoch: int) -> bytes:
    return put(1, fragment_uid) + put(2, epoch)


@dataclass(frozen=True, slots=True)
class Partition:
    """What GetEdge says of one partition."""

    log_start: int = 0
    high_watermark: int = 0
    bytes: int = 0
    ended: bool = False

    @property
    def data_end(self) -> int:
        """Where records end: the end of the partition is a record without bytes."""
        return self.high_watermark - 1 if self.ended else self.high_watermark


def read_partition(raw: memoryview) -> Partition:
    fields = dict(take(raw))
    return Partition(fields.get(1, 0), fields.get(2, 0), fields.get(3, 0), bool(fields.get(4, 0)))
