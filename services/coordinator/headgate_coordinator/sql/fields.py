"""The fields of resources as conditions and lists of columns name them: `state`, `waiting.reason`, `labels.rack`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC
from enum import StrEnum
from typing import Any, cast

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from headgate.catalog import v1 as catalog
from headgate.log import v1 as log
from headgate_coordinator.sql.errors import did_you_mean, one_of, quoted

RESOURCES: dict[catalog.ResourceKind.ValueType, type[Message]] = {
    catalog.RESOURCE_KIND_AGENT: catalog.Agent,
    catalog.RESOURCE_KIND_NETWORK_LINK: catalog.NetworkLink,
    catalog.RESOURCE_KIND_LOGICAL_SOURCE: catalog.LogicalSource,
    catalog.RESOURCE_KIND_PHYSICAL_SOURCE: catalog.PhysicalSource,
    catalog.RESOURCE_KIND_SINK: catalog.Sink,
    catalog.RESOURCE_KIND_QUERY: catalog.Query,
    catalog.RESOURCE_KIND_FRAGMENT: catalog.Fragment,
    catalog.RESOURCE_KIND_TOPIC: log.Topic,
    catalog.RESOURCE_KIND_PARTITION: log.Partition,
    catalog.RESOURCE_KIND_TRANSFER: log.Transfer,
}
# What a projected resource keeps in any case: without it nobody could tell which one it is.
IDENTITY = ("name", "uid", "from_agent", "to_agent", "query", "ordinal", "topic", "topic_uid", "index")
_SYNONYMS = {"id": ("name", "uid"), "capacity": ("slots",), "worker": ("agent",), "host_name": ("address",)}


class FieldType(StrEnum):
    """What a field holds."""

    TEXT = "text"
    NUMBER = "number"
    BOOL = "true or false"
    ENUM = "state"
    TIME = "timestamp"
    DURATION = "duration"


# What agents report is added to the answers of some calls; it has no revisions that could be watched or filtered.
_NOT_IN_THE_CATALOG = {("headgate.catalog.v1.Agent", "resources")}


class FieldError(ValueError):
    """A field that there is not, or that cannot be used so."""

    def __init__(self, message: str, suggestion: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.suggestion = suggestion


@dataclass(frozen=True, slots=True)
class Field:
    """A field and how to read it. `read` answers None where it is not set: a message that is unset, a key that a map
    lacks, an enum that is UNSPECIFIED. Times and durations are read as datetime and timedelta."""

    path: str
    type: FieldType
    read: Callable[[Message], Any]
    enum: EnumDescriptor | None = None

    def short_names(self) -> dict[str, int]:
        """Values of an enum by the name that people use: ACTIVE, not AGENT_STATE_ACTIVE."""
        return dict(_short_names(self.enum)) if self.enum is not None else {}


def find_field(kind: catalog.ResourceKind.ValueType, path: Iterable[str]) -> Field:
    """The field of a kind of resource at a path of names, in any case. `FieldError` if there is none."""
    parts = list(path)
    descriptor = _descriptor(kind)
    readers: list[Callable[[Message], Any]] = []
    for depth, part in enumerate(parts):
        field = _lookup(descriptor, part, ".".join(parts[: depth + 1]))
        rest = parts[depth + 1 :]
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            return _map_field(field, parts, rest, readers)
        if field.is_repeated:
            raise FieldError(f"{quoted('.'.join(parts))} is a list, and a condition is over single values")
        if field.message_type is None or field.message_type.full_name in _WELL_KNOWN:
            if rest:
                raise FieldError(f"{quoted(part)} has no fields")
            return _leaf(field, ".".join(parts), readers)
        if not rest:
            inner = one_of(f"{part}.{inner.name}" for inner in field.message_type.fields)
            raise FieldError(f"{quoted(part)} has fields of its own", f"name one of them: {inner}")
        readers.append(_message_reader(field.name))
        descriptor = field.message_type
    raise FieldError("the name of a field is empty")


def project(kind: catalog.ResourceKind.ValueType, columns: Iterable[str]) -> Callable[[Message], Message]:
    """Makes a copy of a resource with these fields and its identity only. `FieldError` for a field there is not."""
    type_, descriptor = RESOURCES[kind], _descriptor(kind)
    kept: set[str] = {name for name in IDENTITY if name in descriptor.fields_by_name}
    nested: dict[str, set[str]] = {}
    for column in columns:
        head, _, rest = column.partition(".")
        field = _lookup(descriptor, head, head)
        if not rest:
            kept.add(field.name)
        elif field.message_type is None:
            raise FieldError(f"{quoted(head)} has no fields")
        elif field.message_type.GetOptions().map_entry:
            nested.setdefault(field.name, set()).add(rest)
        else:
            nested.setdefault(field.name, set()).add(_lookup(field.message_type, rest, column).name)

    def projected(resource: Message) -> Message:
        made = type_()
        for field, value in resource.ListFields():
            if field.name in kept:
                _copy(made, field, value)
            elif field.name in nested:
                _copy_parts(made, field, value, nested[field.name])
        return made

    return projected


def _descriptor(kind: catalog.ResourceKind.ValueType) -> Descriptor:
    return cast(Descriptor, RESOURCES[kind].DESCRIPTOR)


def _copy(target: Message, field: FieldDescriptor, value: Any) -> None:
    if field.message_type is None and not field.is_repeated:
        setattr(target, field.name, value)
    else:
        getattr(target, field.name).MergeFrom(value)


def _copy_parts(target: Message, field: FieldDescriptor, value: Any, parts: set[str]) -> None:
    inside = getattr(target, field.name)
    assert field.message_type is not None
    if field.message_type.GetOptions().map_entry:
        for key in parts:
            if key in value:
                inside[key] = value[key]
        return
    for inner, inner_value in value.ListFields():
        if inner.name in parts:
            _copy(inside, inner, inner_value)


def _lookup(descriptor: Descriptor, name: str, shown: str) -> FieldDescriptor:
    fields = descriptor.fields_by_name
    folded = name.lower()
    if (descriptor.full_name, folded) in _NOT_IN_THE_CATALOG:
        raise FieldError(
            f"{quoted(shown)} is not in the catalog: it changes all the time, and the leader only remembers it",
            "GetAgent and ListAgents show it",
        )
    if folded in fields:
        return fields[folded]
    for synonym in _SYNONYMS.get(folded, ()):
        if synonym in fields:
            return fields[synonym]
    suggestion = did_you_mean(folded, list(fields)) or f"there are {one_of(fields)}"
    raise FieldError(f"unknown field {quoted(shown)}", suggestion)


def _short_names(enum: EnumDescriptor) -> Iterator[tuple[str, int]]:
    unspecified: str = enum.values_by_number[0].name
    prefix = unspecified.removesuffix("UNSPECIFIED")
    for value in enum.values:
        if value.number:
            yield value.name.removeprefix(prefix), value.number


_WELL_KNOWN = {
    Timestamp.DESCRIPTOR.full_name: FieldType.TIME,
    Duration.DESCRIPTOR.full_name: FieldType.DURATION,
}
_TEXTS = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)


def _message_reader(name: str) -> Callable[[Message], Any]:
    return lambda message: getattr(message, name) if message.HasField(name) else None


def _leaf(field: FieldDescriptor, path: str, readers: list[Callable[[Message], Any]]) -> Field:
    name = field.name
    if field.message_type is not None:
        type_ = _WELL_KNOWN[field.message_type.full_name]
        reader = _message_reader(name)
        if type_ is FieldType.TIME:
            return Field(path, type_, _chain([*readers, reader, lambda m: m.ToDatetime(tzinfo=UTC)]))
        return Field(path, type_, _chain([*readers, reader, lambda m: m.ToTimedelta()]))
    if field.enum_type is not None:
        return Field(path, FieldType.ENUM, _chain([*readers, lambda m: getattr(m, name) or None]), field.enum_type)
    if field.type == FieldDescriptor.TYPE_BOOL:
        type_ = FieldType.BOOL
    else:
        type_ = FieldType.TEXT if field.type in _TEXTS else FieldType.NUMBER
    return Field(path, type_, _chain([*readers, lambda m: getattr(m, name)]))


def _map_field(
    field: FieldDescriptor, parts: list[str], rest: list[str], readers: list[Callable[[Message], Any]]
) -> Field:
    if not rest:
        raise FieldError(f"{quoted(field.name)} is a map", f"name a key of it: {field.name}.key")
    name, key = field.name, ".".join(rest)
    return Field(".".join(parts), FieldType.TEXT, _chain([*readers, lambda m: getattr(m, name).get(key)]))


def _chain(readers: list[Callable[[Any], Any]]) -> Callable[[Message], Any]:
    if len(readers) == 1:
        return readers[0]

    def read(message: Message) -> Any:
        value: Any = message
        for reader in readers:
            value = reader(value)
            if value is None:
                return None
        return value

    return read
