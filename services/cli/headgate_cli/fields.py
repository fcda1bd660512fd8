"""Shows any message of the API to a person, field by field, in the order of the proto."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from headgate.catalog import v1 as catalog
from headgate_cli.kinds import schema_text


def lines(message: Message, indent: str = "") -> Iterator[tuple[str, str]]:
    """Pairs of a title and a text. What is not set is left out; nested messages follow their title, indented."""
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        title = f"{indent}{field.name.replace('_', ' ')}"
        if field.has_presence and not message.HasField(field.name):
            continue
        if isinstance(value, catalog.Schema):
            yield title, schema_text(value)
        elif isinstance(value, Message) and not isinstance(value, Timestamp | Duration):
            yield title, ""
            yield from lines(value, indent + "  ")
        elif is_map(field):
            if value:
                yield title, ", ".join(f"{key}={item!r}" for key, item in sorted(value.items()))
        elif field.is_repeated:
            if value:
                yield title, ", ".join(text(field, item) for item in value)
        elif value or field.cpp_type not in (FieldDescriptor.CPPTYPE_STRING, FieldDescriptor.CPPTYPE_ENUM):
            yield title, text(field, value)


def is_map(field: Any) -> bool:
    return bool(field.message_type is not None and field.message_type.GetOptions().map_entry)


def text(field: Any, value: Any) -> str:
    """One value in one line."""
    if field.enum_type is not None:
        prefix = field.enum_type.values[0].name.removesuffix("UNSPECIFIED")
        known = field.enum_type.values_by_number.get(value)
        return known.name.removeprefix(prefix) if known is not None else str(value)
    if isinstance(value, Timestamp):
        return value.ToDatetime(tzinfo=UTC).isoformat(timespec="milliseconds")
    if isinstance(value, Duration):
        return f"{value.ToNanoseconds() / 1e9:g} s"
    if isinstance(value, Message):
        return " ".join(part for _, part in lines(value) if part)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
