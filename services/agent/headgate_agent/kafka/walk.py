"""A look over a request before it is decoded, by the schema that decodes it: every count and every length must fit into
the bytes that are left, and there may be only so many items.

kio takes memory for as many items as an array says it has, before it reads one: a request of twenty bytes that claims
four thousand million would end the process. And each item costs time on the event loop, which all clients share. Tagged
fields that a schema has not are to be ignored, by the protocol; kio knows no way to, so they are taken out here.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable, Mapping
from types import NoneType
from typing import Any, get_args, get_origin

_SHORT = struct.Struct(">h")
_INT = struct.Struct(">i")
_UVARINT_BITS = 28
_UVARINT_LAST = 0x0F

# Bytes of what always takes the same.
_FIXED: Mapping[str, int] = {
    "bool": 1,
    "int8": 1,
    "uint8": 1,
    "int16": 2,
    "uint16": 2,
    "error_code": 2,
    "int32": 4,
    "uint32": 4,
    "timedelta_i32": 4,
    "int64": 8,
    "uint64": 8,
    "float64": 8,
    "timedelta_i64": 8,
    "datetime_i64": 8,
    "uuid": 16,
}


class Malformed(ValueError):
    """Bytes that are no request; the message says where they go wrong."""


class TooManyItems(Malformed):
    """A request that asks for more at once than is allowed."""


class Items:
    """How many items a request may still have: elements of all its arrays, and tagged fields."""

    __slots__ = ("edits", "left", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = self.left = limit
        # What takes unknown tagged fields out of the request: from where to where, and what stands there instead.
        self.edits: list[tuple[int, int, bytes]] = []

    def take(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise TooManyItems(
                f"it has more than {self.limit} items; kafka.limits.request_items says how many are allowed"
            )


# From a position to the one behind the value. It may lie behind the end of the frame: whoever reads on, or ends, sees.
Step = Callable[[memoryview, int, Items], int]


@dataclasses.dataclass(frozen=True, slots=True)
class _Layout:
    """How to get over a value, and how few bytes it can have; `fixed` if it always has as many."""

    step: Step
    least: int
    fixed: bool


def walk(entity_type: type[Any], frame: memoryview, position: int, items: Items) -> int:
    """The position behind a request. Raises `Malformed` if it does not fit into the frame, `TooManyItems` if it has
    more than are left."""
    try:
        end = _entity(entity_type).step(frame, position, items)
    except (struct.error, IndexError):
        raise Malformed(f"{entity_type.__name__} goes beyond its frame") from None
    if end > len(frame):
        raise Malformed(f"{entity_type.__name__} goes beyond its frame")
    return end


def readable(entity_type: type[Any], frame: memoryview, position: int, items: Items) -> memoryview:
    """A request that has been walked, as kio reads it: without the tagged fields that its schema has not."""
    end = walk(entity_type, frame, position, items)
    if not items.edits:
        return frame[position:end].toreadonly()
    out = bytearray()
    for start, stop, instead in sorted(items.edits):
        out += frame[position:start]
        out += instead
        position = stop
    out += frame[position:end]
    return memoryview(bytes(out))


def read_uvarint(frame: memoryview, position: int) -> tuple[int, int]:
    """A number of 32 bits, and where it ends."""
    value = shift = 0
    while True:
        if position >= len(frame):
            raise Malformed("a number without an end")
        byte = frame[position]
        if shift == _UVARINT_BITS and byte > _UVARINT_LAST:
            raise Malformed("a number of more than 32 bits")
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7


def uvarint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def skip_tags(frame: memoryview, position: int, items: Items) -> int:
    """The position after a section of tagged fields, whatever they are."""
    count, position = read_uvarint(frame, position)
    items.take(count)
    for _ in range(count):
        _, position = read_uvarint(frame, position)
        size, position = read_uvarint(frame, position)
        position += size
        if position > len(frame):
            raise Malformed("a tagged field goes beyond its request")
    return position


def _tags(frame: memoryview, position: int, items: Items, known: Mapping[int, Step]) -> int:
    # Nearly always there are none.
    if frame[position] == 0:
        return position + 1
    start = position
    count, position = read_uvarint(frame, position)
    items.take(count)
    counted, unknown = position, 0
    for _ in range(count):
        begin = position
        tag, sized = read_uvarint(frame, position)
        size, position = read_uvarint(frame, sized)
        end = position + size
        if end > len(frame):
            raise Malformed("a tagged field goes beyond its request")
        if tag in known:
            edited = len(items.edits)
            if known[tag](frame, position, items) != end:
                raise Malformed(f"tagged field {tag} is not as long as it says")
            if inner := items.edits[edited:]:
                size -= sum(stop - at - len(instead) for at, stop, instead in inner)
                items.edits.append((sized, position, uvarint(size)))
        else:
            unknown += 1
            items.edits.append((begin, end, b""))
        position = end
    if unknown:
        items.edits.append((start, counted, uvarint(count - unknown)))
    return position


def _entity(entity_type: type[Any]) -> _Layout:
    known = _ENTITIES.get(entity_type)
    if known is None:
        known = _ENTITIES[entity_type] = _compile(entity_type)
    return known


_ENTITIES: dict[type[Any], _Layout] = {}


def _compile(entity_type: type[Any]) -> _Layout:
    flexible: bool = entity_type.__flexible__
    layouts: list[_Layout] = []
    tagged: dict[int, Step] = {}
    for field in dataclasses.fields(entity_type):
        tag = field.metadata.get("tag")
        layout = _field(field, flexible, in_tag=tag is not None)
        if tag is None:
            layouts.append(layout)
        else:
            tagged[int(tag)] = layout.step
    steps = _joined(layouts)
    if flexible:
        steps.append(lambda frame, position, items: _tags(frame, position, items, tagged))

    def over(frame: memoryview, position: int, items: Items) -> int:
        for step in steps:
            position = step(frame, position, items)
        return position

    least = sum(layout.least for layout in layouts) + (1 if flexible else 0)
    return _Layout(over, least, not flexible and all(layout.fixed for layout in layouts))


def _joined(layouts: list[_Layout]) -> list[Step]:
    """The steps over fields that follow each other; those of a fixed size are one."""
    steps: list[Step] = []
    size = 0
    for layout in layouts:
        if layout.fixed:
            size += layout.least
            continue
        if size:
            steps.append(_skip(size))
            size = 0
        steps.append(layout.step)
    if size:
        steps.append(_skip(size))
    return steps


def _field(field: dataclasses.Field[Any], flexible: bool, *, in_tag: bool) -> _Layout:
    inner, optional = _without_none(field.type)
    if get_origin(inner) is not tuple:
        layout = _value(inner, field, flexible)
        # A nullable entity has a mark before it; a tagged field is left out instead.
        return _nullable(layout) if optional and dataclasses.is_dataclass(inner) and not in_tag else layout
    item, _ = _without_none(get_args(inner)[0])
    return _array(_value(item, field, flexible), flexible)


def _value(kind: Any, field: dataclasses.Field[Any], flexible: bool) -> _Layout:
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return _entity(kind)
    kafka_type = field.metadata["kafka_type"]
    if kafka_type in _FIXED:
        return _Layout(_skip(_FIXED[kafka_type]), _FIXED[kafka_type], True)
    assert kafka_type in ("string", "bytes", "records"), f"{kafka_type} is no type that requests are known to have"
    if flexible:
        return _Layout(_compact_run, 1, False)
    packed = _SHORT if kafka_type == "string" else _INT
    return _Layout(_packed_run(packed), packed.size, False)


def _without_none(annotation: Any) -> tuple[Any, bool]:
    options = get_args(annotation)
    if NoneType not in options:
        return annotation, False
    return next(one for one in options if one is not NoneType), True


def _skip(size: int) -> Step:
    return lambda frame, position, items: position + size


def _compact_run(frame: memoryview, position: int, items: Items) -> int:
    """A text or bytes of a flexible version: its length plus one, 0 for null."""
    length = frame[position]
    if length < 0x80:
        position += 1
    else:
        length, position = read_uvarint(frame, position)
    if length > 1:
        position += length - 1
        if position > len(frame):
            raise Malformed(f"{length - 1} bytes go beyond their request")
    return position


def _packed_run(packed: struct.Struct) -> Step:
    """A text or bytes of another version: its length, negative for null."""

    def over(frame: memoryview, position: int, items: Items) -> int:
        (length,) = packed.unpack_from(frame, position)
        position += packed.size
        if length > 0:
            position += length
            if position > len(frame):
                raise Malformed(f"{length} bytes go beyond their request")
        return position

    return over


def _nullable(layout: _Layout) -> _Layout:
    def over(frame: memoryview, position: int, items: Items) -> int:
        null = frame[position] >= 0x80
        return position + 1 if null else layout.step(frame, position + 1, items)

    return _Layout(over, 1, False)


def _array(layout: _Layout, flexible: bool) -> _Layout:
    step, least, fixed = layout.step, max(layout.least, 1), layout.fixed

    def over(frame: memoryview, position: int, items: Items) -> int:
        if flexible:
            count, position = read_uvarint(frame, position)
            count -= 1
        else:
            (count,) = _INT.unpack_from(frame, position)
            position += 4
        if count <= 0:
            return position
        if count * least > len(frame) - position:
            raise Malformed(f"an array of {count} with {len(frame) - position} bytes left")
        items.take(count)
        if fixed:
            return position + count * least
        for _ in range(count):
            position = step(frame, position, items)
        return position

    return _Layout(over, 1 if flexible else 4, False)
