"""Settings of a topic: what each may be, its default, and how SQL spells it.

In SQL a setting has the name of its field, or Kafka's. Durations are written as '24 h' (or, under Kafka's names, as a
number of milliseconds), sizes as '64 MiB' or a number of bytes. Under Kafka's names of retention -1 means no limit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf.duration_pb2 import Duration

from headgate.log import v1 as log
from headgate_common.durations import MAX_DURATION_US, parse_duration, show_duration
from headgate_common.errors import INVALID_ARGUMENT, HeadgateError
from headgate_coordinator.catalog.wire import duration, microseconds, number, short
from headgate_coordinator.errors import INVALID_CONFIG
from headgate_coordinator.sql.errors import did_you_mean, one_of, quoted

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
MAX_INT64 = (1 << 63) - 1
_SIZE = re.compile(r"\s*(\d{1,18})\s*(b|kib|mib|gib|tib|)\s*", re.IGNORECASE)
_SIZE_UNITS = {"": 1, "b": 1, "kib": KIB, "mib": MIB, "gib": GIB, "tib": 1 << 40}


@dataclass(frozen=True, slots=True)
class TopicRules:
    """What the configuration says of topics: the defaults of their settings, how many there may be, and how much is
    kept and told of each partition."""

    partitions: int = 1
    durability: str = "OBJECT"
    retention_us: int = 7 * 86_400_000_000
    retention_bytes: int = 0
    segment_bytes: int = 8 * MIB
    edge_segment_bytes: int = 32 * MIB
    segment_age_us: int = 60_000_000
    linger_us: int = 100_000
    max_message_bytes: int = MIB
    max_topics: int = 10_000
    max_partitions: int = 100_000
    max_topic_partitions: int = 10_000
    max_groups: int = 10_000
    max_producers: int = 10_000
    max_acquired_bytes: int = 4 * MIB


@dataclass(frozen=True, slots=True)
class Setting:
    """`column` is where it is stored; what `least` and `most` mean depends on the kind of value."""

    name: str
    kafka_name: str
    column: str
    meaning: str
    least: int
    most: int
    is_duration: bool


# Those that may change. Durability and format are fixed at creation, and stand by themselves below.
SETTINGS: dict[str, Setting] = {
    each.name: each
    for each in (
        Setting(
            "retention",
            "retention.ms",
            "retention_us",
            "records older than this may be deleted, a segment at a time; 0 keeps them for good",
            0,
            MAX_DURATION_US,
            True,
        ),
        Setting(
            "retention_bytes",
            "retention.bytes",
            "retention_bytes",
            "above this many bytes a partition's oldest segments may be deleted; 0 means no limit",
            0,
            MAX_INT64,
            False,
        ),
        Setting(
            "segment_bytes",
            "segment.bytes",
            "segment_bytes",
            "a segment is closed when it has this many bytes",
            KIB,
            GIB,
            False,
        ),
        Setting(
            "segment_age",
            "segment.ms",
            "segment_age_us",
            "a segment is closed when its first record is this old",
            1_000,
            MAX_DURATION_US,
            True,
        ),
        Setting(
            "linger",
            "headgate.linger.ms",
            "linger_us",
            "an OBJECT topic uploads what it has after this long",
            0,
            60_000_000,
            True,
        ),
        Setting(
            "max_message_bytes",
            "max.message.bytes",
            "max_message_bytes",
            "larger record batches are refused",
            KIB,
            64 * MIB,
            False,
        ),
    )
}
FIXED = {"durability": log.Durability, "format": log.TopicFormat}
# What Kafka has and this log has not.
_INSTEAD = {
    "cleanup.policy": "old records are deleted, never compacted: set retention or retention_bytes",
    "replication.factor": "durability says what an acknowledged record survives",
    "min.insync.replicas": "durability says what an acknowledged record survives",
    "partitions": "write PARTITIONS n before WITH",
    "group": "write GROUP 'name' before WITH",
}
# What else is decided when a topic is created.
_FIXED_TOO = ("partitions", "group", "name")
KAFKA_NAMES = {each.kafka_name: each.name for each in SETTINGS.values()} | {"headgate.durability": "durability"}


def columns_of(settings: log.TopicSettings, rules: TopicRules) -> dict[str, Any]:
    """The columns of a new topic with these settings; defaults where they say nothing. INVALID_CONFIG otherwise."""
    durability = _choice("durability", settings.durability, log.Durability) or rules.durability
    columns = {"durability": durability, "format": _choice("format", settings.format, log.TopicFormat) or "ROWS"}
    return columns | {each.column: _value(settings, each, rules) for each in SETTINGS.values()}


def changed_columns(settings: log.TopicSettings, fields: Iterable[str], rules: TopicRules) -> dict[str, Any]:
    """The columns of the named settings; one that is not set goes back to its default."""
    columns = {}
    for name in fields:
        if name in FIXED:
            raise HeadgateError(
                INVALID_CONFIG, f"{fixed(name)}; create another topic", metadata={"field": f"settings.{name}"}
            )
        if name not in SETTINGS:
            raise HeadgateError(
                INVALID_ARGUMENT,
                f"a topic has no setting {name[:60]!r}; those that may change are {', '.join(SETTINGS)}",
                metadata={"field": "fields"},
            )
        columns[SETTINGS[name].column] = _value(settings, SETTINGS[name], rules)
    return columns


def fixed(key: str) -> str:
    """Why what has this name in SQL never changes; empty for anything else."""
    name = KAFKA_NAMES.get(key, key)
    if name == "partitions":
        return "the number of partitions of a topic is fixed at creation"
    return f"the {name} of a topic is fixed at creation" if name in FIXED or name in _FIXED_TOO else ""


def message(columns: Mapping[Any, Any]) -> log.TopicSettings:
    return log.TopicSettings(
        durability=number(log.Durability, columns["durability"]),
        format=number(log.TopicFormat, columns["format"]),
        retention=duration(columns["retention_us"]),
        retention_bytes=columns["retention_bytes"],
        segment_bytes=columns["segment_bytes"],
        segment_age=duration(columns["segment_age_us"]),
        linger=duration(columns["linger_us"]),
        max_message_bytes=columns["max_message_bytes"],
    )


class BadSetting(ValueError):
    """A setting in SQL that there is not, or with a value that it cannot have."""

    def __init__(self, key: str, message: str, suggestion: str = "") -> None:
        super().__init__(message)
        self.key = key
        self.message = message
        self.suggestion = suggestion


def from_text(options: Mapping[str, str]) -> log.TopicSettings:
    """The settings of `WITH (...)`. `BadSetting` says which is wrong."""
    settings = log.TopicSettings()
    given: dict[str, str] = {}
    for key, text in options.items():
        name = KAFKA_NAMES.get(key, key)
        if name in given:
            raise BadSetting(key, f"{given[name]} and {key} are the same setting")
        given[name] = key
        text = _from_kafka(key, text)
        if name in FIXED:
            _set_choice(settings, name, key, text)
        elif name in SETTINGS and SETTINGS[name].is_duration:
            as_number = key in KAFKA_NAMES and text.isdigit()
            span = _read(key, parse_duration, f"{text} ms" if as_number else text)
            getattr(settings, name).CopyFrom(duration(_in_range(key, SETTINGS[name], span)))
        elif name in SETTINGS:
            setattr(settings, name, _in_range(key, SETTINGS[name], _read(key, parse_size, text)))
        else:
            raise _unknown(key)
    return settings


def _from_kafka(key: str, text: str) -> str:
    """The value under Kafka's name as it is under ours: there -1 is what 0 is here, and 0 would leave nothing."""
    if key not in ("retention.ms", "retention.bytes"):
        return text
    if text == "0":
        raise BadSetting(key, f"{key}: 0 would delete everything", "-1 keeps records for good")
    return "0" if text == "-1" else text


def names_of(keys: Iterable[str]) -> list[str]:
    """The names of settings that may change, as AlterTopic has them. `BadSetting` says which is wrong."""
    given: dict[str, str] = {}
    for key in keys:
        name = KAFKA_NAMES.get(key, key)
        if name not in SETTINGS:
            raise _unknown(key)
        if name in given:
            raise BadSetting(key, f"{given[name]} and {key} are the same setting")
        given[name] = key
    return list(given)


def _unknown(key: str) -> BadSetting:
    known = (*FIXED, *SETTINGS)
    return BadSetting(
        key,
        f"a topic has no setting {quoted(key)}",
        _INSTEAD.get(key) or did_you_mean(key, known) or f"there are {one_of(known)}",
    )


def _in_range(key: str, setting: Setting, value: int) -> int:
    if not setting.least <= value <= setting.most:
        raise BadSetting(key, f"{key} is {_range(setting)}")
    return value


def _range(setting: Setting) -> str:
    show = show_duration if setting.is_duration else show_size
    return f"from {show(setting.least)} to {show(setting.most)}"


def parse_size(text: str) -> int:
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError("a size is a whole number of bytes, or of KiB, MiB, GiB or TiB")
    size = int(match.group(1)) * _SIZE_UNITS[match.group(2).lower()]
    if size > MAX_INT64:
        raise ValueError("the size is larger than 64 bits hold")
    return size


def show_size(size: int) -> str:
    for factor, unit in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size and size % factor == 0:
            return f"{size // factor} {unit}"
    return str(size)


def shown(settings: log.TopicSettings) -> list[tuple[str, str]]:
    """Names and values of all settings, as SQL spells them."""
    pairs = [(name, short(enum, getattr(settings, name))) for name, enum in FIXED.items()]
    for each in SETTINGS.values():
        value = getattr(settings, each.name)
        pairs.append((each.name, show_duration(microseconds(value)) if each.is_duration else show_size(value)))
    return pairs


def _read(key: str, reader: Callable[[str], int], text: str) -> int:
    try:
        return reader(text)
    except ValueError as error:
        raise BadSetting(key, f"{key}: {error}") from None


def _set_choice(settings: log.TopicSettings, name: str, key: str, text: str) -> None:
    enum = FIXED[name]
    choices = [short(enum, each) for each in enum.values() if each]
    if text.upper() not in choices:
        raise BadSetting(key, f"{name} is {one_of(choices)}, not {quoted(text)}")
    setattr(settings, name, number(enum, text.upper()))


def _choice(name: str, value: int, enum: Any) -> str:
    chosen = short(enum, value)
    if value and not chosen:
        raise _bad(name, f"there is no {name} number {value}")
    return chosen


def _value(settings: log.TopicSettings, setting: Setting, rules: TopicRules) -> int:
    default: int = getattr(rules, setting.column)
    if setting.is_duration:
        given = settings.HasField(setting.name)  # type: ignore[arg-type]
        value = _microseconds(setting.name, getattr(settings, setting.name)) if given else default
    elif setting.name == "retention_bytes":
        value = settings.retention_bytes if settings.HasField("retention_bytes") else default
    else:
        value = getattr(settings, setting.name) or default
    if not setting.least <= value <= setting.most:
        raise _bad(setting.name, f"{setting.name} is {_range(setting)}")
    return value


def _microseconds(name: str, length: Duration) -> int:
    if length.seconds < 0 or length.nanos < 0:
        raise _bad(name, f"{name} is negative")
    return microseconds(length)


def _bad(name: str, message: str) -> HeadgateError:
    return HeadgateError(INVALID_CONFIG, message, metadata={"field": f"settings.{name}"})
