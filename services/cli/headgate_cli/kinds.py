"""The kinds of resources: what they are called on the command line, which calls they have, and how a table shows them.

The API names its calls and messages by one rule (GetSink, ListSinks, DropSink; `sink`, `sinks`), so that one row here
is all that a kind needs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import typer
from google.protobuf.message import Message

from headgate.catalog import v1 as catalog
from headgate.log import v1 as log
from headgate_cli import durations, sizes

Cell = Callable[[Any], str]


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind. `name` is the field of `Resource` that carries it."""

    name: str
    plural: str
    service: str
    number: int
    columns: tuple[tuple[str, Cell], ...]
    aliases: tuple[str, ...] = ()
    # Whether it can be got by name and dropped; fragments come and go with their query, partitions with their topic.
    addressable: bool = True

    @property
    def title(self) -> str:
        return self.name.replace("_", " ")

    @property
    def camel(self) -> str:
        return "".join(part.capitalize() for part in self.name.split("_"))

    @property
    def list_method(self) -> str:
        return "List" + "".join(part.capitalize() for part in self.plural.split("_"))

    def message(self, name: str) -> Any:
        """The class of a message of the API, such as GetSinkRequest."""
        return of_api(name)

    def row(self, resource: Message) -> list[str]:
        return [cell(resource) for _, cell in self.columns]

    @property
    def titles(self) -> list[str]:
        return [title for title, _ in self.columns]

    def name_of(self, resource: Any) -> str:
        if self.name == "network_link":
            return f"{resource.from_agent}:{resource.to_agent}"
        if self.name == "fragment":
            return f"{resource.query}#{resource.ordinal}"
        if self.name in ("partition", "transfer"):
            return f"{resource.topic}/{resource.index}"
        return str(resource.name)

    def reference(self, name: str) -> dict[str, str]:
        """The fields that name one resource of this kind in a request."""
        if self.name != "network_link":
            return {"name": name}
        sending, separator, receiving = name.partition(":")
        if not separator:
            raise typer.BadParameter(f"a network link is named FROM:TO, such as a:b; not {name!r}")
        return {"from_agent": sending, "to_agent": receiving}


def of_api(name: str) -> Any:
    """A message or enum of the API, whichever package has it."""
    return getattr(catalog, name) if hasattr(catalog, name) else getattr(log, name)


def short(enum: Any, value: int) -> str:
    """The name of an enum's value without its prefix: RUNNING for QUERY_STATE_RUNNING; empty where it is not said."""
    if not value:
        return ""
    full: str = enum.Name(value) if value in enum.values() else str(value)
    prefix = _prefix(enum)
    return full.removeprefix(prefix)


def long(enum: Any, name: str) -> str:
    """The full name of an enum's value, from the short or the full one in any case; a usage error for any other."""
    prefix = _prefix(enum)
    full = name.upper().replace("-", "_")
    if not full.startswith(prefix):
        full = prefix + full
    if full not in enum.keys():  # noqa: SIM118 - not a mapping
        known = ", ".join(key.removeprefix(prefix) for key in enum.keys()[1:])
        raise typer.BadParameter(f"{name!r} is not one of {known}")
    return full


def _prefix(enum: Any) -> str:
    return str(enum.keys()[0]).removesuffix("UNSPECIFIED")


def schema_text(schema: catalog.Schema) -> str:
    return ", ".join(f"{f.name} {f.type}{' NOT NULL' if f.not_null else ''}" for f in schema.fields)


def options_text(options: Any) -> str:
    return ", ".join(f"{key}={value!r}" for key, value in sorted(options.items()))


def age(resource: Any, now: datetime | None = None) -> str:
    """How long ago it was created, in one unit, by the clocks of coordinator and reader."""
    created = resource.create_time.ToDatetime(tzinfo=UTC)
    elapsed = max(0, int(((now or datetime.now(UTC)) - created).total_seconds()))
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if elapsed >= 2 * size:
            return f"{elapsed // size}{unit}"
    return f"{elapsed}s"


def retention_text(settings: log.TopicSettings) -> str:
    """Until when records are kept: by age, by size, or for good."""
    limits = []
    if span := settings.retention.ToMilliseconds():
        limits.append(durations.text(span))
    if settings.retention_bytes:
        limits.append(sizes.text(settings.retention_bytes))
    return " or ".join(limits) or "for good"


def waiting_text(query: catalog.Query) -> str:
    """Why a query is not where it should be, in one line."""
    if query.HasField("failure"):
        return f"{query.failure.reason}: {query.failure.message}"
    if query.HasField("waiting"):
        return f"{short(catalog.WaitingReason, query.waiting.reason)}: {query.waiting.message}"
    if query.drain_abandoned:
        return "stopped hard after the drain deadline"
    return ""


AGENT = Kind(
    "agent",
    "agents",
    "AgentService",
    catalog.RESOURCE_KIND_AGENT,
    (
        ("NAME", lambda a: a.name),
        ("STATE", lambda a: short(catalog.AgentState, a.state)),
        ("SLOTS", lambda a: f"{a.slots_used}/{a.slots}"),
        ("ADDRESS", lambda a: a.address),
        ("ENGINE", lambda a: "yes" if a.has_engine else "no"),
        ("GROUP", lambda a: a.group),
        ("ZONE", lambda a: a.zone),
        ("REASON", lambda a: a.state_reason),
    ),
)
NETWORK_LINK = Kind(
    "network_link",
    "network_links",
    "AgentService",
    catalog.RESOURCE_KIND_NETWORK_LINK,
    (("FROM", lambda link: link.from_agent), ("TO", lambda link: link.to_agent)),
    aliases=("link", "links"),
)
LOGICAL_SOURCE = Kind(
    "logical_source",
    "logical_sources",
    "SourceService",
    catalog.RESOURCE_KIND_LOGICAL_SOURCE,
    (("NAME", lambda s: s.name), ("COLUMNS", lambda s: schema_text(s.schema))),
    aliases=("logical", "source", "sources"),
)
PHYSICAL_SOURCE = Kind(
    "physical_source",
    "physical_sources",
    "SourceService",
    catalog.RESOURCE_KIND_PHYSICAL_SOURCE,
    (
        ("NAME", lambda s: s.name),
        ("LOGICAL SOURCE", lambda s: s.logical_source),
        ("TYPE", lambda s: short(catalog.SourceType, s.type)),
        ("AGENT", lambda s: s.agent),
        ("OPTIONS", lambda s: options_text(s.options)),
    ),
    aliases=("physical",),
)
SINK = Kind(
    "sink",
    "sinks",
    "SinkService",
    catalog.RESOURCE_KIND_SINK,
    (
        ("NAME", lambda s: s.name),
        ("TYPE", lambda s: short(catalog.SinkType, s.type)),
        ("AGENT", lambda s: s.agent),
        ("COLUMNS", lambda s: schema_text(s.schema)),
        ("OPTIONS", lambda s: options_text(s.options)),
    ),
)
QUERY = Kind(
    "query",
    "queries",
    "QueryService",
    catalog.RESOURCE_KIND_QUERY,
    (
        ("NAME", lambda q: q.name),
        ("STATE", lambda q: short(catalog.QueryState, q.state)),
        ("WANTED", lambda q: short(catalog.DesiredState, q.desired_state)),
        ("FRAGMENTS", lambda q: str(q.fragment_count)),
        ("SINKS", lambda q: ", ".join(q.sinks)),
        ("AGE", age),
        ("WAITING", waiting_text),
    ),
)
FRAGMENT = Kind(
    "fragment",
    "fragments",
    "QueryService",
    catalog.RESOURCE_KIND_FRAGMENT,
    (
        ("QUERY", lambda f: f.query),
        ("#", lambda f: str(f.ordinal)),
        ("KIND", lambda f: short(catalog.FragmentKind, f.kind)),
        ("AGENT", lambda f: f.agent),
        ("STATE", lambda f: short(catalog.FragmentState, f.state)),
        ("EPOCH", lambda f: str(f.epoch)),
        ("SLOTS", lambda f: f"{f.slots}{'' if f.slots_held else ' (returned)'}"),
        ("LAST ERROR", lambda f: f.last_error),
    ),
    addressable=False,
)
TOPIC = Kind(
    "topic",
    "topics",
    "TopicService",
    catalog.RESOURCE_KIND_TOPIC,
    (
        ("NAME", lambda t: t.name),
        ("PARTITIONS", lambda t: str(t.partitions)),
        ("DURABILITY", lambda t: short(log.Durability, t.settings.durability)),
        ("FORMAT", lambda t: short(log.TopicFormat, t.settings.format)),
        ("RETENTION", lambda t: retention_text(t.settings)),
        ("GROUP", lambda t: t.group),
        ("AGE", age),
    ),
)
PARTITION = Kind(
    "partition",
    "partitions",
    "TopicService",
    catalog.RESOURCE_KIND_PARTITION,
    (
        ("TOPIC", lambda p: p.topic),
        ("#", lambda p: str(p.index)),
        ("LEADER", lambda p: p.leader),
        ("EPOCH", lambda p: str(p.epoch)),
        ("FROM OFFSET", lambda p: str(p.offsets.log_start)),
        ("IN SEGMENTS TO", lambda p: str(p.offsets.committed)),
        ("BYTES", lambda p: str(p.offsets.bytes)),
        ("HOLES", lambda p: ", ".join(f"{hole.from_offset}-{hole.to_offset - 1}" for hole in p.offsets.holes)),
        ("WAITING", lambda p: p.waiting),
    ),
    addressable=False,
)
TRANSFER = Kind(
    "transfer",
    "transfers",
    "TopicService",
    catalog.RESOURCE_KIND_TRANSFER,
    (
        ("TOPIC", lambda t: t.topic),
        ("#", lambda t: str(t.index)),
        ("FROM AGENT", lambda t: t.from_agent),
        ("TO AGENT", lambda t: t.to_agent),
        ("STATE", lambda t: short(log.TransferState, t.state)),
        ("REASON", lambda t: t.reason),
    ),
    addressable=False,
)

KINDS = (
    AGENT,
    NETWORK_LINK,
    LOGICAL_SOURCE,
    PHYSICAL_SOURCE,
    SINK,
    QUERY,
    FRAGMENT,
    TOPIC,
    PARTITION,
    TRANSFER,
)
_BY_NAME = {name: kind for kind in KINDS for name in (kind.name, kind.plural, *kind.aliases)}


def find(word: str) -> Kind:
    """The kind of that name: singular or plural, with '-' or '_', in any case. A usage error for any other."""
    kind = _BY_NAME.get(word.lower().replace("-", "_").replace(" ", "_"))
    if kind is None:
        known = ", ".join(kind.plural.replace("_", "-") for kind in KINDS)
        raise typer.BadParameter(f"there is no kind {word!r}; the kinds are {known}")
    return kind


def parse_reference(word: str, name: str | None) -> tuple[Kind, str | None]:
    """`query x`, `query/x` or `queries` as a kind and, where one is given, a name."""
    kind_word, separator, inner = word.partition("/")
    if separator and name is not None:
        raise typer.BadParameter(f"{word!r} names a resource already; {name!r} is one too many")
    return find(kind_word), (inner if separator else name)


def of_resource(resource: catalog.Resource) -> tuple[Kind, Any]:
    """The kind and the message inside a `Resource`."""
    field = resource.WhichOneof("resource")
    assert field is not None
    return _BY_NAME[field], getattr(resource, field)


def is_internal(resource: catalog.Resource) -> bool:
    """Whether it is a topic that a query made for itself, or a partition of one."""
    return bool(getattr(of_resource(resource)[1], "internal", False))


def complete_kind(incomplete: str) -> list[str]:
    """For the shell's completion."""
    return [kind.name for kind in KINDS if kind.name.startswith(incomplete)]
