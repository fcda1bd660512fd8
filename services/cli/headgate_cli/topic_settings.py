"""Settings of topics as people write them: `retention=24h`, `segment-bytes=64MiB`, or under Kafka's names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import typer
from google.protobuf.descriptor import FieldDescriptor

from headgate.log import v1 as log
from headgate_cli import durations, kinds, sizes

_FIELDS: dict[str, FieldDescriptor] = {field.name: field for field in log.TopicSettings.DESCRIPTOR.fields}
_KAFKA_NAMES = {
    "retention.ms": "retention",
    "retention.bytes": "retention_bytes",
    "segment.bytes": "segment_bytes",
    "segment.ms": "segment_age",
    "headgate.linger.ms": "linger",
    "headgate.durability": "durability",
    "max.message.bytes": "max_message_bytes",
}
# The others are fixed when the topic is created.
CHANGEABLE = tuple(name for name in _FIELDS if name not in ("durability", "format"))


def name_of(written: str) -> str:
    """The setting of that name, as the API has it; a usage error if there is none."""
    name = _named(written)
    if name not in _FIELDS:
        raise typer.BadParameter(f"there is no setting {written}; settings are {', '.join(_FIELDS)}")
    return name


def _named(written: str) -> str:
    key = written.strip().lower()
    return _KAFKA_NAMES.get(key, key.replace("-", "_"))


def read(assignments: Iterable[str]) -> log.TopicSettings:
    """The settings of `NAME=VALUE`; a usage error for a name or value that makes no sense."""
    settings = log.TopicSettings()
    for assignment in assignments:
        key, separator, value = assignment.partition("=")
        name = _named(key)
        if not separator or name not in _FIELDS:
            raise typer.BadParameter(f"--set {assignment}: expected NAME=VALUE; settings are {', '.join(_FIELDS)}")
        _set(settings, name, _from_kafka(key, value.strip()), in_milliseconds=key.strip().lower().endswith(".ms"))
    return settings


def _from_kafka(key: str, value: str) -> str:
    """Under Kafka's names of retention -1 means no limit, and 0 would leave nothing."""
    if key.strip().lower() not in ("retention.ms", "retention.bytes"):
        return value
    if value == "0":
        raise typer.BadParameter(f"--set {key}=0 would delete everything; -1 keeps records for good")
    return "0" if value == "-1" else value


def _set(settings: log.TopicSettings, name: str, value: str, *, in_milliseconds: bool) -> None:
    field = _FIELDS[name]
    if field.enum_type is not None:
        enum = kinds.of_api(field.enum_type.name)
        setattr(settings, name, enum.Value(kinds.long(enum, value)))
    elif field.message_type is not None:
        bare = in_milliseconds and value.isdecimal()
        getattr(settings, name).FromNanoseconds(round(durations.seconds(f"{value}ms" if bare else value) * 1e9))
    else:
        setattr(settings, name, sizes.size(value))


def texts(settings: log.TopicSettings) -> Iterator[tuple[str, str]]:
    """Names and values of the settings that are said, as SQL and `read` take them."""
    for name, field in _FIELDS.items():
        value: Any = getattr(settings, name)
        if field.enum_type is not None:
            if value:
                yield name, kinds.short(kinds.of_api(field.enum_type.name), value)
        elif field.message_type is not None:
            if settings.HasField(name):  # type: ignore[arg-type]
                yield name, _duration_text(value)
        elif (field.has_presence and settings.HasField(name)) or value:  # type: ignore[arg-type]
            yield name, str(value)


def _duration_text(value: Any) -> str:
    microseconds = value.ToMicroseconds()
    return durations.text(microseconds // 1000) if microseconds % 1000 == 0 else f"{microseconds}us"
