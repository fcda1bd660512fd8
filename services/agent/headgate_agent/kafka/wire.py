"""The pieces that requests and responses are made of, for what is read and written by hand (`produce_codec`,
`fetch_codec`): in the flexible versions lengths are varints plus one, in the others they are packed."""

from __future__ import annotations

import struct

from headgate_agent.kafka.walk import Items, Malformed, read_uvarint, uvarint

SHORT = struct.Struct(">h")
INT = struct.Struct(">i")
LONG = struct.Struct(">q")


def read_length(frame: memoryview, position: int, flexible: bool, packed: struct.Struct) -> tuple[int, int]:
    """The length of a text (SHORT), bytes or an array (INT), -1 for null; and where it begins."""
    if flexible:
        value, position = read_uvarint(frame, position)
        return value - 1, position
    (length,) = packed.unpack_from(frame, position)
    return length, position + packed.size


def read_count(frame: memoryview, position: int, flexible: bool, items: Items) -> tuple[int, int]:
    """How many an array has; never more than the request has bytes left, or may have items."""
    count, position = read_length(frame, position, flexible, INT)
    if count > len(frame) - position:
        raise Malformed(f"an array of {count} in a request of {len(frame)} bytes")
    count = max(count, 0)
    items.take(count)
    return count, position


def read_text(frame: memoryview, position: int, flexible: bool) -> tuple[str | None, int]:
    length, position = read_length(frame, position, flexible, SHORT)
    if length < 0:
        return None, position
    end = position + length
    if end > len(frame):
        raise Malformed("a text goes beyond its request")
    return str(frame[position:end], "utf-8"), end


def size(value: int, flexible: bool, packed: struct.Struct) -> bytes:
    """A length, as `read_length` reads it."""
    return uvarint(value + 1) if flexible else packed.pack(value)


def text(value: str | None, flexible: bool) -> bytes:
    if value is None:
        return b"\0" if flexible else SHORT.pack(-1)
    encoded = value.encode()
    return size(len(encoded), flexible, SHORT) + encoded
