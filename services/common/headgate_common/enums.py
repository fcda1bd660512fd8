"""Numbers of enums that mean nothing: protobuf keeps them, and whoever filters by one would silently find nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message

# Fields of a type that are enums or lead to one, by the type's full name.
_LEADING: dict[str, tuple[FieldDescriptor, ...]] = {}


def undefined_enums(message: Message) -> Iterator[tuple[str, str]]:
    """The path and a description of each field whose number its enum does not have."""
    return _in_message(message, "")


def _in_message(message: Message, prefix: str) -> Iterator[tuple[str, str]]:
    descriptor: Any = message.DESCRIPTOR
    for field in _leading(descriptor):
        if field.is_repeated:
            values = getattr(message, field.name)
            if not values:
                continue
            value = _value_of(field)
            numbered = (
                ((f'["{key}"]' if isinstance(key, str) else f"[{key}]", values[key]) for key in values)
                if isinstance(values, Mapping)
                else ((f"[{index}]", one) for index, one in enumerate(values))
            )
            for subscript, one in numbered:
                yield from _in_value(value, one, f"{prefix}{field.name}{subscript}")
        elif field.enum_type is not None or message.HasField(field.name):
            yield from _in_value(field, getattr(message, field.name), f"{prefix}{field.name}")


def _in_value(field: FieldDescriptor, value: Any, path: str) -> Iterator[tuple[str, str]]:
    enum: EnumDescriptor | None = field.enum_type
    if enum is None:
        yield from _in_message(value, f"{path}.")
    elif value not in enum.values_by_number:
        yield path, f"{value} is no value of {enum.name}"


def _value_of(field: FieldDescriptor) -> FieldDescriptor:
    """The field itself, or the one of the values of a map."""
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        return entry.fields_by_name["value"]
    return field


def _leading(descriptor: Descriptor) -> tuple[FieldDescriptor, ...]:
    known = _LEADING.get(descriptor.full_name)
    if known is None:
        known = tuple(field for field in descriptor.fields if _leads(_value_of(field), set()))
        _LEADING[descriptor.full_name] = known
    return known


def _leads(field: FieldDescriptor, seen: set[str]) -> bool:
    """Whether the field is an enum or has one below it. Types may contain themselves: each is looked at once."""
    if field.enum_type is not None:
        return True
    message = field.message_type
    if message is None or message.full_name in seen:
        return False
    seen.add(message.full_name)
    return any(_leads(_value_of(one), seen) for one in message.fields)
