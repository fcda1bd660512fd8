"""Requests and responses between bytes and values, by the schemas of kio.

A request is read into kio's dataclass of its version. A response is given as plain values by field name, for the newest
version; `Schema.encode` writes those fields that the version has, and takes the schema's default for what is not given.
So a handler is written once for all versions.
"""

from __future__ import annotations

import dataclasses
import io
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from types import NoneType
from typing import Any, get_args, get_origin

from kio.index import UnknownAPIKey, UnknownEntity, load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError
from kio.static.constants import EntityType

from headgate_agent.kafka.walk import Items, Malformed, readable, skip_tags

Values = Mapping[str, Any]

_HEAD = struct.Struct(">hhih")
_CORRELATION = struct.Struct(">i")


class Unsupported(Exception):
    """A request, or a version of one, for which there is no schema."""


@dataclass(frozen=True, slots=True)
class Header:
    """The head of a request. `body` is where the rest begins if the request is not of a flexible version."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    body: int


def read_header(frame: memoryview) -> Header:
    """The part of a request's header that is the same for all versions."""
    if len(frame) < _HEAD.size:
        raise Malformed(f"{len(frame)} bytes are too few for a request")
    api_key, version, correlation_id, length = _HEAD.unpack_from(frame)
    end = _HEAD.size + max(length, 0)
    if length < -1 or end > len(frame):
        raise Malformed(f"a client id of {length} bytes in a request of {len(frame)}")
    try:
        client_id = None if length < 0 else str(frame[_HEAD.size : end], "utf-8")
    except UnicodeDecodeError:
        raise Malformed("a client id that is not UTF-8") from None
    return Header(api_key, version, correlation_id, client_id, end)


@dataclass(frozen=True, slots=True)
class Schema:
    """One version of one request and its response."""

    request_type: type[Any]
    response_type: type[Any]
    flexible_header: bool
    flexible_response_header: bool

    def body(self, frame: memoryview, header: Header, items: Items) -> int:
        """Where the request begins, after all of its header."""
        return skip_tags(frame, header.body, items) if self.flexible_header else header.body

    def decode(self, frame: memoryview, header: Header, items: Items) -> Any:
        position = self.body(frame, header, items)
        # What follows is ignored, as Kafka does: librdkafka sends some bytes too many with Metadata.
        body = readable(self.request_type, frame, position, items)
        try:
            request, _ = entity_reader(self.request_type)(body, 0)
        except (SerialError, ValueError, OverflowError) as error:
            raise Malformed(f"{type(error).__name__}: {error}") from error
        return request

    def head(self, correlation_id: int) -> bytes:
        """The header of a response."""
        return _CORRELATION.pack(correlation_id) + (b"\0" if self.flexible_response_header else b"")

    def encode(self, correlation_id: int, values: Values) -> bytes:
        return self.encode_entity(correlation_id, build(self.response_type, values))

    def encode_entity(self, correlation_id: int, entity: Any) -> bytes:
        buffer = io.BytesIO()
        buffer.write(self.head(correlation_id))
        entity_writer(self.response_type)(buffer, entity)
        return buffer.getvalue()


@cache
def schema(api_key: int, version: int) -> Schema:
    """Raises `Unsupported` if kio does not know it."""
    try:
        request: type[Any] = load_request_schema(api_key, version)
        response: type[Any] = load_response_schema(api_key, version)
    except (UnknownAPIKey, UnknownEntity) as error:
        raise Unsupported(str(error)) from None
    return Schema(
        request,
        response,
        request.__header_schema__.__version__ >= 2,
        response.__header_schema__.__version__ >= 1,
    )


def nearest_version(api_key: int, version: int) -> int | None:
    """The version with a schema that is closest to the one asked for; None if there is no such request."""
    name = api_key_map.get(api_key)
    known = [one for one, types in schema_name_map.get(name or "", {}).items() if EntityType.request in types]
    return min(known, key=lambda one: abs(one - version), default=None)


@dataclass(frozen=True, slots=True)
class Part:
    """A field of a schema, and how to make its value from a plain one."""

    name: str
    nested: type[Any] | None
    array: bool
    optional: bool
    make: Callable[[Any], Any] | None
    absent: Any


def parts(entity_type: type[Any]) -> tuple[Part, ...]:
    """The fields of a schema in order."""
    known = _PARTS.get(entity_type)
    if known is None:
        known = _PARTS[entity_type] = _find_parts(entity_type)
    return known


_PARTS: dict[type[Any], tuple[Part, ...]] = {}


def _find_parts(entity_type: type[Any]) -> tuple[Part, ...]:
    found: list[Part] = []
    for field in dataclasses.fields(entity_type):
        inner, optional = _without_none(field.type)
        array = get_origin(inner) is tuple
        item = get_args(inner)[0] if array else inner
        nested: type[Any] | None = item if isinstance(item, type) and dataclasses.is_dataclass(item) else None
        kafka_type = field.metadata.get("kafka_type", "")
        make = None if array or nested else _MAKERS.get(kafka_type)
        if field.default is not dataclasses.MISSING:
            absent = field.default
        elif array:
            absent = ()
        elif nested is not None and not optional:
            absent = build(nested, {})
        else:
            absent = None if optional else _ABSENT.get(kafka_type)
        found.append(Part(field.name, nested, array, optional, make, absent))
    return tuple(found)


def _without_none(annotation: Any) -> tuple[Any, bool]:
    options = get_args(annotation)
    if NoneType not in options:
        return annotation, False
    return next(one for one in options if one is not NoneType), True


def build(entity_type: type[Any], values: Values) -> Any:
    """A dataclass of kio from plain values. What this version has not is left out; what no version has is an error."""
    made: dict[str, Any] = {}
    found = parts(entity_type)
    for name in values.keys() - {part.name for part in found}:
        if name not in _names(entity_type.__api_key__):
            raise KeyError(f"{entity_type.__name__} has no {name!r} in any version")
    for part in found:
        if part.name not in values:
            made[part.name] = part.absent
            continue
        value = values[part.name]
        if value is not None:
            if part.nested is not None and part.array:
                nested = part.nested
                value = tuple(build(nested, one) for one in value)
            elif part.nested is not None:
                value = build(part.nested, value)
            elif part.array:
                value = tuple(value)
            elif part.make is not None:
                value = part.make(value)
        made[part.name] = value
    return entity_type(**made)


@cache
def _names(api_key: int) -> frozenset[str]:
    """The names of all fields that a request and its response have in any version."""
    found: set[str] = set()
    for version in schema_name_map[api_key_map[api_key]]:
        layout = schema(api_key, version)
        todo: list[type[Any]] = [layout.request_type, layout.response_type]
        while todo:
            for part in parts(todo.pop()):
                found.add(part.name)
                if part.nested is not None:
                    todo.append(part.nested)
    return frozenset(found)


def milliseconds(value: timedelta | None) -> int:
    """A duration of a request; kio reads them as timedelta."""
    return -1 if value is None else round(value.total_seconds() * 1000)


def _duration(value: int) -> timedelta:
    return timedelta(milliseconds=value)


_MAKERS: Mapping[str, Callable[[Any], Any]] = {
    "timedelta_i32": _duration,
    "timedelta_i64": _duration,
    "error_code": ErrorCode,
}
_ABSENT: Mapping[str, Any] = {
    "string": "",
    "bytes": b"",
    "bool": False,
    "int8": 0,
    "int16": 0,
    "int32": 0,
    "int64": 0,
    "uint8": 0,
    "uint16": 0,
    "uint32": 0,
    "float64": 0.0,
    "datetime_i64": datetime.fromtimestamp(0, UTC),
    "timedelta_i32": timedelta(0),
    "timedelta_i64": timedelta(0),
    "error_code": ErrorCode.none,
}
