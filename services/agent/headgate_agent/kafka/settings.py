"""Settings of topics under Kafka's names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from google.protobuf.duration_pb2 import Duration
from kio.schema.errors import ErrorCode

from headgate.log import v1 as log
from headgate_agent.kafka.errors import KafkaError

# Kafka's numbers for the types of values.
_STRING, _INT, _LONG = 2, 3, 5
# And for where a value comes from: it is the topic's own, stands in the agent's configuration, is the default.
OF_TOPIC, OF_BROKER, BY_DEFAULT = 1, 4, 5
_FOREVER = -1
_DURABILITY_PREFIX = "DURABILITY_"
_GROUP_LENGTH = 63
GROUP = "headgate.group"


@dataclass(frozen=True, slots=True)
class TopicSetting:
    """`field` is what AlterTopic calls it, unless it is `fixed`. `read` puts a value into the creation of a topic."""

    name: str
    field: str
    kafka_type: int
    documentation: str
    show: Callable[[log.Topic], str]
    read: Callable[[log.CreateTopicRequest, str], None]
    fixed: bool = False


@dataclass(frozen=True, slots=True)
class FixedSetting:
    """A setting of Kafka's that has one value here."""

    name: str
    value: str
    documentation: str


def _milliseconds(field: str, *, zero_is_forever: bool) -> tuple[Callable[..., str], Callable[..., None]]:
    def show(topic: log.Topic) -> str:
        span: Duration = getattr(topic.settings, field)
        value = span.ToMilliseconds()
        return str(_FOREVER if zero_is_forever and value == 0 else value)

    def read(wanted: log.CreateTopicRequest, text: str) -> None:
        value = _whole(text)
        if zero_is_forever and value == _FOREVER:
            value = 0
        elif zero_is_forever and value == 0:
            raise ValueError("0 would delete everything; -1 keeps records for good")
        getattr(wanted.settings, field).FromMilliseconds(value)

    return show, read


def _number(field: str, *, zero_is_forever: bool) -> tuple[Callable[..., str], Callable[..., None]]:
    def show(topic: log.Topic) -> str:
        value: int = getattr(topic.settings, field)
        return str(_FOREVER if zero_is_forever and value == 0 else value)

    def read(wanted: log.CreateTopicRequest, text: str) -> None:
        value = _whole(text)
        if zero_is_forever and value == 0:
            raise ValueError("0 would delete everything; -1 keeps records for good")
        setattr(wanted.settings, field, 0 if zero_is_forever and value == _FOREVER else value)

    return show, read


def _whole(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        raise ValueError("a whole number is expected") from None
    if value < _FOREVER:
        raise ValueError("it is negative")
    return value


def _show_durability(topic: log.Topic) -> str:
    return log.Durability.Name(topic.settings.durability).removeprefix(_DURABILITY_PREFIX)


def _read_durability(wanted: log.CreateTopicRequest, text: str) -> None:
    choices = {name.removeprefix(_DURABILITY_PREFIX): number for name, number in log.Durability.items() if number}
    if text.upper() not in choices:
        raise ValueError(f"it is one of {', '.join(choices)}")
    wanted.settings.durability = choices[text.upper()]


def _show_group(topic: log.Topic) -> str:
    return topic.group


def _read_group(wanted: log.CreateTopicRequest, text: str) -> None:
    if not 0 < len(text) <= _GROUP_LENGTH:
        raise ValueError(f"the name of a group of agents is expected, of 1 to {_GROUP_LENGTH} characters")
    wanted.group = text


SETTINGS: Mapping[str, TopicSetting] = {
    each.name: each
    for each in (
        TopicSetting(
            "retention.ms",
            "retention",
            _LONG,
            "Records older than this may be deleted, a segment at a time; -1 keeps them for good.",
            *_milliseconds("retention", zero_is_forever=True),
        ),
        TopicSetting(
            "retention.bytes",
            "retention_bytes",
            _LONG,
            "Above this many bytes a partition's oldest segments may be deleted; -1 means no limit.",
            *_number("retention_bytes", zero_is_forever=True),
        ),
        TopicSetting(
            "segment.bytes",
            "segment_bytes",
            _INT,
            "A segment is closed when it has this many bytes.",
            *_number("segment_bytes", zero_is_forever=False),
        ),
        TopicSetting(
            "segment.ms",
            "segment_age",
            _LONG,
            "A segment is closed when its first record is this old.",
            *_milliseconds("segment_age", zero_is_forever=False),
        ),
        TopicSetting(
            "max.message.bytes",
            "max_message_bytes",
            _INT,
            "Larger record batches are refused.",
            *_number("max_message_bytes", zero_is_forever=False),
        ),
        TopicSetting(
            "headgate.durability",
            "durability",
            _STRING,
            "What an acknowledged record survives: OBJECT (the loss of the agent with its disk) or WAL (a crash of the "
            "agent). Fixed at creation.",
            _show_durability,
            _read_durability,
            fixed=True,
        ),
        TopicSetting(
            GROUP,
            "group",
            _STRING,
            "The group of agents that lead it; that of the agent which is asked to create it, unless named. Fixed at "
            "creation.",
            _show_group,
            _read_group,
            fixed=True,
        ),
        TopicSetting(
            "headgate.linger.ms",
            "linger",
            _LONG,
            "An OBJECT topic uploads what it has after this long.",
            *_milliseconds("linger", zero_is_forever=False),
        ),
    )
}

# What AlterTopic calls those that may change.
CHANGEABLE = tuple(setting.field for setting in SETTINGS.values() if not setting.fixed)

FIXED: Mapping[str, FixedSetting] = {
    each.name: each
    for each in (
        FixedSetting("cleanup.policy", "delete", "Old segments are deleted; compaction is not supported."),
        FixedSetting("compression.type", "producer", "Batches are stored as their producer compressed them."),
        FixedSetting("message.timestamp.type", "CreateTime", "Timestamps are the producer's."),
        FixedSetting("min.insync.replicas", "1", "There are no replicas: `headgate.durability` says what is promised."),
    )
}


def read(configs: Iterable[tuple[str, str | None]]) -> log.CreateTopicRequest:
    """What Kafka's names and values say of a topic to be created. INVALID_CONFIG names what is wrong."""
    wanted = log.CreateTopicRequest()
    for name, value in configs:
        if name in FIXED:
            _check_fixed(FIXED[name], value)
            continue
        setting = _known(name)
        if value is None:
            raise KafkaError(ErrorCode.invalid_config, f"{name} has no value")
        try:
            setting.read(wanted, value)
        except ValueError as error:
            raise KafkaError(ErrorCode.invalid_config, f"{name} = {value!r}: {error}") from None
    return wanted


def field_of(name: str) -> str | None:
    """The field of a setting that may change; None for one that has a single value."""
    if name in FIXED:
        return None
    setting = _known(name)
    if setting.fixed:
        raise _fixed(name)
    return setting.field


def check_kept(topic: log.Topic, name: str, value: str) -> None:
    """INVALID_CONFIG if a setting that is fixed at creation is given another value than the topic has."""
    wanted = read([(name, value)])
    show = SETTINGS[name].show
    if show(log.Topic(settings=wanted.settings, group=wanted.group)) != show(topic):
        raise _fixed(name)


def _fixed(name: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_config, f"{name} is fixed at creation; create another topic")


def _known(name: str) -> TopicSetting:
    setting = SETTINGS.get(name)
    if setting is None:
        known = ", ".join(sorted((*SETTINGS, *FIXED)))
        raise KafkaError(ErrorCode.invalid_config, f"topics have no setting {name!r}; there are {known}")
    return setting


def _check_fixed(fixed: FixedSetting, value: str | None) -> None:
    if value != fixed.value:
        raise KafkaError(ErrorCode.invalid_config, f"{fixed.name} = {value!r} is not supported, only {fixed.value!r}")
