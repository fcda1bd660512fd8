"""Types of sinks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from headgate.catalog import v1 as catalog
from headgate_coordinator.catalog.descriptors.kafka import (
    BOOTSTRAP_SERVERS,
    KAFKA_TOPIC,
    SECURITY,
    security_faults,
)
from headgate_coordinator.catalog.descriptors.options import Fault, Option, OptionType
from headgate_coordinator.sql.names import new_topic_fault


@dataclass(frozen=True, slots=True)
class SinkDescriptor:
    """A type of sink.

    `takes_updates` says whether a sink with these options has a use for a row that replaces an earlier one, which an
    aggregation without a window makes.
    """

    type: catalog.SinkType.ValueType
    name: str
    meaning: str
    options: tuple[Option, ...]
    node_local: bool
    takes_updates: Callable[[Mapping[str, str]], bool]
    faults: Callable[[Mapping[str, str]], list[Fault]] = field(default=lambda options: [])


def _row_format(meaning: str, default: str | None) -> Option:
    return Option(
        "input_format",
        OptionType.CHOICE,
        meaning,
        default=default,
        synonyms=("format", "output_format", "type"),
        choices=("CSV", "JSON"),
    )


def _record_format() -> Option:
    return Option(
        "input_format",
        OptionType.CHOICE,
        "`JSON`: one record a row, which any client reads; `ARROW`: one record a batch",
        default="JSON",
        synonyms=("format", "output_format", "type"),
        choices=("JSON", "ARROW"),
    )


def _key_faults(options: Mapping[str, str]) -> list[Fault]:
    if "key_column" in options and options.get("input_format") == "ARROW":
        return [Fault("SINK", "key_column", "an ARROW record holds many rows and has no key of a row: use JSON")]
    return []


KEY_COLUMN = Option(
    "key_column",
    OptionType.TEXT,
    "the column whose value is the record's key; with one, the sink takes updates by key",
    synonyms=("key",),
    max_length=255,
)


FILE = SinkDescriptor(
    catalog.SINK_TYPE_FILE,
    "FILE",
    "A file on an agent's node. Every row is in it exactly once, also after a crash.",
    (
        Option("file_path", OptionType.TEXT, "the file", required=True, synonyms=("path", "file")),
        _row_format("how a row is written; known by the file's name where not said, else `CSV`", None),
        Option(
            "append",
            OptionType.BOOL,
            "whether to keep what the file has; otherwise a query's first start empties it, a recovery never does",
            default="true",
        ),
        Option(
            "field_delimiter",
            OptionType.TEXT,
            "CSV: what stands between two values",
            default=",",
            synonyms=("delimiter", "separator"),
            max_length=8,
        ),
        Option("header", OptionType.BOOL, "CSV: whether an empty file gets a first line with names", default="false"),
        Option(
            "null_string",
            OptionType.TEXT,
            "CSV: the text that stands for NULL",
            default="",
            synonyms=("null", "null_value"),
            min_length=0,
            max_length=64,
        ),
    ),
    node_local=True,
    takes_updates=lambda options: False,
)
PRINT = SinkDescriptor(
    catalog.SINK_TYPE_PRINT,
    "PRINT",
    "The standard output of an agent.",
    (_row_format("how a row is written", "CSV"),),
    node_local=True,
    takes_updates=lambda options: True,
)
KAFKA = SinkDescriptor(
    catalog.SINK_TYPE_KAFKA,
    "KAFKA",
    "A topic of an Apache Kafka cluster, written in transactions.",
    (BOOTSTRAP_SERVERS, KAFKA_TOPIC, _record_format(), KEY_COLUMN, *SECURITY),
    node_local=False,
    takes_updates=lambda options: "key_column" in options,
    faults=lambda options: security_faults("SINK", options) + _key_faults(options),
)
TOPIC = SinkDescriptor(
    catalog.SINK_TYPE_TOPIC,
    "TOPIC",
    "A topic of Headgate's own log.",
    (
        Option("topic", OptionType.TEXT, "the topic", required=True, synonyms=("topic_name",), check=new_topic_fault),
        _record_format(),
        KEY_COLUMN,
    ),
    node_local=False,
    takes_updates=lambda options: "key_column" in options,
    faults=_key_faults,
)
VOID = SinkDescriptor(
    catalog.SINK_TYPE_VOID,
    "VOID",
    "Nowhere: rows are counted and dropped. For measurements.",
    (),
    node_local=False,
    takes_updates=lambda options: True,
)
# What a temporary query has instead of a sink; it is not among those that can be created.
RESULT = SinkDescriptor(
    catalog.SINK_TYPE_RESULT,
    "RESULT",
    "Whoever asked for the rows.",
    (Option("limit", OptionType.INTEGER, "how many rows end the query"),),
    node_local=False,
    takes_updates=lambda options: True,
)

SINKS: dict[catalog.SinkType.ValueType, SinkDescriptor] = {
    descriptor.type: descriptor for descriptor in (FILE, PRINT, KAFKA, TOPIC, VOID)
}
