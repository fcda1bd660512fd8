"""Types of sources."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from headgate.catalog import v1 as catalog
from headgate_coordinator.catalog.descriptors.generator import maker_fault
from headgate_coordinator.catalog.descriptors.kafka import (
    BOOTSTRAP_SERVERS,
    KAFKA_TOPIC,
    SECURITY,
    security_faults,
)
from headgate_coordinator.catalog.descriptors.options import Fault, Option, OptionType
from headgate_coordinator.sql.names import topic_fault
from headgate_coordinator.sql.starts import parse_start


def _host_fault(value: str) -> str:
    plain = value.replace(".", "a").replace("-", "a").replace("_", "a").replace(":", "a")
    return (
        "" if plain.isascii() and plain.isalnum() and len(value) <= 253 else "it is not the name or address of a host"
    )


START = Option(
    "start",
    OptionType.TEXT,
    "`earliest`, `latest` (where the topic ends when a query is deployed) or an ISO 8601 timestamp: where a query "
    "begins to read, unless it says otherwise",
    default="earliest",
    synonyms=("starting_offsets",),
    convert=parse_start,
)


@dataclass(frozen=True, slots=True)
class SourceDescriptor:
    """A type of source.

    `parsers` are the parsers it takes, none where it makes rows itself; `default_parser` is taken where none is named.
    `records` says that each record is a row, so that rows need no delimiter. `bounded` says whether a source with these
    options ends by itself. `locus` is what must be unique beside logical source and type; None means the agent.
    """

    type: catalog.SourceType.ValueType
    name: str
    meaning: str
    options: tuple[Option, ...]
    parsers: tuple[str, ...]
    node_local: bool
    bounded: Callable[[Mapping[str, str]], bool]
    default_parser: str | None = None
    records: bool = False
    locus: Callable[[Mapping[str, str]], str] | None = None
    faults: Callable[[Mapping[str, str]], list[Fault]] = field(default=lambda options: [])


def _file_faults(options: Mapping[str, str]) -> list[Fault]:
    if options.get("follow") != "true" and options.get("poll_interval", "1 s") != "1 s":
        return [Fault("SOURCE", "poll_interval", "it has no effect without FOLLOW")]
    return []


FILE = SourceDescriptor(
    catalog.SOURCE_TYPE_FILE,
    "FILE",
    "Files on an agent's node. The parser is known by the file's name where none is named.",
    (
        Option(
            "file_path",
            OptionType.TEXT,
            "a path, or a pattern with `*` and `?`, whose files are read in the order of their names",
            required=True,
            synonyms=("path", "file"),
        ),
        Option(
            "follow",
            OptionType.BOOL,
            "whether to wait for rows that are appended and for files that appear, for ever",
            default="false",
        ),
        Option(
            "poll_interval",
            OptionType.DURATION,
            "how often to look for them",
            default="1 s",
            low=10_000,
            high=3_600_000_000,
        ),
    ),
    ("CSV", "JSON", "PARQUET", "ARROW"),
    node_local=True,
    bounded=lambda options: options.get("follow") != "true",
    faults=_file_faults,
)
TCP = SourceDescriptor(
    catalog.SOURCE_TYPE_TCP,
    "TCP",
    "A TCP server that an agent connects to. What was sent before a crash cannot be read again.",
    (
        Option(
            "socket_host", OptionType.TEXT, "host to connect to", required=True, synonyms=("host",), check=_host_fault
        ),
        Option(
            "socket_port",
            OptionType.INTEGER,
            "port to connect to",
            required=True,
            synonyms=("port",),
            low=1,
            high=65_535,
        ),
        Option(
            "connect_timeout",
            OptionType.DURATION,
            "how long one attempt to connect may take",
            default="10 s",
            low=1_000,
            high=600_000_000,
        ),
        Option(
            "reconnect",
            OptionType.BOOL,
            "whether to connect again when the connection ends; otherwise that ends the source",
            default="true",
        ),
    ),
    ("CSV", "JSON"),
    node_local=True,
    bounded=lambda options: options.get("reconnect") == "false",
    default_parser="CSV",
)
GENERATOR = SourceDescriptor(
    catalog.SOURCE_TYPE_GENERATOR,
    "GENERATOR",
    "Rows made up by an agent. The same seed gives the same rows, also after a crash.",
    (
        Option(
            "rate",
            OptionType.NUMBER,
            "rows a second",
            default="10.0",
            synonyms=("rows_per_second", "rows-per-second"),
            low=0.001,
            high=10_000_000,
        ),
        Option(
            "rows",
            OptionType.INTEGER,
            "how many rows, then the source ends; without it, it never does",
            synonyms=("number_of_rows",),
            low=0,
            high=10**15,
        ),
        Option(
            "seed", OptionType.INTEGER, "what the random numbers begin with", default="0", low=-(2**63), high=2**63 - 1
        ),
        Option(
            "field",
            OptionType.TEXT,
            "`field.<column>`: how its values are made, such as `uniform(0, 120)`; see below",
            pattern=True,
            check=maker_fault,
        ),
    ),
    (),
    node_local=True,
    bounded=lambda options: "rows" in options,
)
KAFKA = SourceDescriptor(
    catalog.SOURCE_TYPE_KAFKA,
    "KAFKA",
    "A topic of an Apache Kafka cluster.",
    (BOOTSTRAP_SERVERS, KAFKA_TOPIC, START, *SECURITY),
    ("JSON", "CSV", "ARROW"),
    node_local=False,
    bounded=lambda options: False,
    default_parser="JSON",
    records=True,
    locus=lambda options: f"{options['bootstrap_servers']}/{options['topic']}",
    faults=lambda options: security_faults("SOURCE", options),
)
TOPIC = SourceDescriptor(
    catalog.SOURCE_TYPE_TOPIC,
    "TOPIC",
    "A topic of Headgate's own log.",
    (
        Option("topic", OptionType.TEXT, "the topic", required=True, synonyms=("topic_name",), check=topic_fault),
        START,
        Option(
            "transport",
            OptionType.CHOICE,
            "how an engine reads it: `grpc` from the agents that lead it, `kafka` through their Kafka port with "
            "Spark's Kafka connector, as queries in real time always do",
            default="grpc",
            choices=("grpc", "kafka"),
        ),
    ),
    ("JSON", "CSV", "ARROW"),
    node_local=False,
    bounded=lambda options: False,
    default_parser="JSON",
    records=True,
    locus=lambda options: options["topic"],
)

SOURCES: dict[catalog.SourceType.ValueType, SourceDescriptor] = {
    descriptor.type: descriptor for descriptor in (FILE, TCP, GENERATOR, KAFKA, TOPIC)
}
