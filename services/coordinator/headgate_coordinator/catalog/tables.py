"""What SHOW and DESCRIBE answer: the resources, and a small table of text made of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from google.protobuf.message import Message
from sqlglot import exp

from headgate.catalog import v1 as catalog
from headgate.log import v1 as log
from headgate_common.errors import HeadgateError
from headgate_coordinator.catalog import (
    agents,
    built_in_sources,
    fragments,
    queries,
    query_rows,
    sinks,
    snapshot,
    sources,
)
from headgate_coordinator.catalog.descriptors import is_built_in
from headgate_coordinator.catalog.log import partitions, settings, topics
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.catalog.watch import as_resource, name_of
from headgate_coordinator.catalog.wire import number, short
from headgate_coordinator.errors import (
    AGENT_NOT_FOUND,
    BIND_ERROR,
    LOGICAL_SOURCE_NOT_FOUND,
    PHYSICAL_SOURCE_NOT_FOUND,
    QUERY_NOT_FOUND,
    SINK_NOT_FOUND,
    TABLE_TOO_LARGE,
    UNSUPPORTED,
)
from headgate_coordinator.sql.conditions import like
from headgate_coordinator.sql.names import fold
from headgate_coordinator.sql.statements import DescribeStatement, ShowKind, ShowStatement

Table = tuple[Sequence[str], Callable[[Any], Sequence[str]]]
Matches = Callable[[Message], bool]

# Rows of a table without LIMIT. More is refused rather than cut off in silence.
MAX_ROWS = 10_000

_KINDS = {
    ShowKind.AGENTS: "AGENT",
    ShowKind.NETWORK_LINKS: "NETWORK_LINK",
    ShowKind.LOGICAL_SOURCES: "LOGICAL_SOURCE",
    ShowKind.PHYSICAL_SOURCES: "PHYSICAL_SOURCE",
    ShowKind.SINKS: "SINK",
    ShowKind.QUERIES: "QUERY",
    ShowKind.FRAGMENTS: "FRAGMENT",
    ShowKind.TOPICS: "TOPIC",
    ShowKind.PARTITIONS: "PARTITION",
    ShowKind.TRANSFERS: "TRANSFER",
}


def show(tx: Tx, statement: ShowStatement, matches: Matches | None) -> catalog.StatementResult:
    """The resources that fulfil the statement. `matches` is its WHERE."""
    kind = _kind(statement.kind)
    named = like(statement.like, ignore_case=True) if statement.like is not None else None
    found: list[Message] = []
    for message in _read(tx, statement):
        if named is not None and not named(name_of(message)):
            continue
        if matches is not None and not matches(message):
            continue
        if statement.limit is not None and len(found) >= statement.limit:
            break
        found.append(message)
        if statement.limit is None and len(found) > MAX_ROWS:
            raise HeadgateError(
                TABLE_TOO_LARGE,
                f"{statement.verb} would answer more than {MAX_ROWS:,} rows; add WHERE or LIMIT, or list them by pages",
            )
    columns, row = _TABLES[kind]
    return catalog.StatementResult(
        statement=statement.text,
        verb=statement.verb,
        resources=[as_resource(kind, message) for message in found],
        table=catalog.ResultTable(columns=columns, rows=[catalog.ResultRow(values=row(message)) for message in found]),
    )


def describe(tx: Tx, statement: DescribeStatement) -> catalog.StatementResult:
    """One resource in full."""
    name = statement.name if statement.kind is ShowKind.TOPICS else fold(statement.name)
    kinds = (statement.kind,) if statement.kind is not None else _SEARCHED
    found: list[tuple[ShowKind, Message]] = []
    for kind in kinds:
        if kind not in _GETTERS:
            raise HeadgateError(UNSUPPORTED, f"DESCRIBE does not know {kind.value}; SHOW {kind.value} lists them")
        try:
            found.append((kind, _GETTERS[kind](tx, name)))
        except HeadgateError as error:
            if error.reason not in _MISSING or statement.kind is not None:
                raise
            continue
    if len(found) > 1:
        named = [_kind(kind).replace("_", " ") for kind, _ in found]
        shown = " and ".join(f"a {kind.lower()}" if kind != "AGENT" else "an agent" for kind in named)
        raise HeadgateError(
            BIND_ERROR,
            f"{name} is {shown}; say which: {' or '.join(f'DESCRIBE {kind} {name}' for kind in named)}",
            metadata={"name": name},
        )
    if found:
        kind, message = found[0]
        columns, rows = _description(tx, message)
        return catalog.StatementResult(
            statement=statement.text,
            verb=statement.verb,
            resources=[as_resource(_kind(kind), message)],
            table=catalog.ResultTable(columns=columns, rows=[catalog.ResultRow(values=row) for row in rows]),
        )
    raise HeadgateError(
        BIND_ERROR, f"there is no logical source, sink, query, physical source or agent {name}", metadata={"name": name}
    )


def resource_kind(kind: ShowKind) -> catalog.ResourceKind.ValueType:
    """The kind of resource that SHOW lists."""
    found: catalog.ResourceKind.ValueType = number(catalog.ResourceKind, _kind(kind))
    return found


def _kind(kind: ShowKind) -> str:
    return _KINDS[kind]


def _read(tx: Tx, statement: ShowStatement) -> Iterator[Message]:
    kind = _kind(statement.kind)
    if kind in ("TOPIC", "PARTITION", "TRANSFER"):
        yield from _read_log(tx, statement, kind)
        return
    owner = fold(statement.owner) if statement.owner is not None else None
    if owner is not None and kind == "FRAGMENT":
        query = query_rows.query_row(tx, owner)
        if query is None:
            raise query_rows.not_found(owner)
        yield from (fragment.message() for fragment in fragments.fragments_of(tx, query.uid))
        return
    if owner is not None and kind == "PHYSICAL_SOURCE":
        logical = sources.get_logical_source(tx, catalog.GetLogicalSourceRequest(name=owner))
        if is_built_in(logical.uid):
            yield from built_in_sources.feeds(tx, owner)
            return
    for _, message in snapshot.read_kinds(tx, (kind,)):
        if owner is None or getattr(message, "logical_source", owner) == owner:
            yield message


def _read_log(tx: Tx, statement: ShowStatement, kind: str) -> Iterator[Message]:
    if statement.owner is not None:
        topics.get_topic(tx, log.GetTopicRequest(name=statement.owner))
    # Topics of queries, and their partitions, are shown to whoever asks for them: by name, or WHERE internal.
    everything = statement.owner is not None or (
        statement.where is not None
        and any(column.name.lower() == "internal" for column in statement.where.find_all(exp.Column))
    )
    if kind == "PARTITION":
        yield from (each for each in partitions.read_all(tx, statement.owner) if everything or not each.internal)
        return
    for _, message in snapshot.read_kinds(tx, (kind,)):
        if isinstance(message, log.Topic) and message.internal and not everything:
            continue
        if statement.owner is None or name_of(message) == statement.owner:
            yield message


def schema_text(schema: catalog.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}{' NOT NULL' if field.not_null else ''}" for field in schema.fields)


def _options_text(options: Any) -> str:
    return ", ".join(f"{key}={options[key]}" for key in sorted(options))


def _why(query: catalog.Query) -> str:
    if query.HasField("failure"):
        return f"{query.failure.reason}: {query.failure.message}"
    if not query.waiting.message and query.drain_abandoned:
        return "stopped hard after the drain deadline"
    return query.waiting.message


def _agent(agent: catalog.Agent) -> Sequence[str]:
    return (
        agent.name,
        short(catalog.AgentState, agent.state),
        agent.address,
        str(agent.slots),
        str(agent.slots_used),
        agent.group,
        agent.zone,
        "yes" if agent.has_engine else "no",
        agent.state_reason,
    )


def _physical_source(source: catalog.PhysicalSource) -> Sequence[str]:
    return (
        source.name,
        source.logical_source,
        short(catalog.SourceType, source.type),
        source.agent,
        _options_text(source.options),
        _options_text(source.parser_options),
    )


def _query(query: catalog.Query) -> Sequence[str]:
    return (
        query.name,
        short(catalog.QueryState, query.state),
        short(catalog.DesiredState, query.desired_state),
        ", ".join(query.sinks),
        str(query.fragment_count),
        _why(query),
    )


def _fragment(fragment: catalog.Fragment) -> Sequence[str]:
    return (
        fragment.query,
        str(fragment.ordinal),
        short(catalog.FragmentKind, fragment.kind),
        fragment.agent,
        short(catalog.FragmentState, fragment.state),
        str(fragment.epoch),
        str(fragment.slots if fragment.slots_held else 0),
        fragment.last_error,
    )


def _topic(topic: log.Topic) -> Sequence[str]:
    shown = dict(settings.shown(topic.settings))
    return (
        topic.name,
        str(topic.partitions),
        shown["durability"],
        shown["format"],
        shown["retention"],
        topic.group,
    )


def _partition(partition: log.Partition) -> Sequence[str]:
    offsets = partition.offsets
    return (
        partition.topic,
        str(partition.index),
        partition.leader,
        str(partition.epoch),
        str(offsets.log_start),
        str(offsets.committed),
        str(offsets.bytes),
        ", ".join(f"{hole.from_offset} to {hole.to_offset - 1}" for hole in offsets.holes),
        partition.waiting,
    )


def _transfer(transfer: log.Transfer) -> Sequence[str]:
    return (
        transfer.topic,
        str(transfer.index),
        transfer.from_agent,
        transfer.to_agent,
        short(log.TransferState, transfer.state),
        transfer.reason,
    )


_TABLES: dict[str, Table] = {
    "AGENT": (("name", "state", "address", "slots", "slots_used", "group", "zone", "engine", "reason"), _agent),
    "NETWORK_LINK": (("from_agent", "to_agent"), lambda link: (link.from_agent, link.to_agent)),
    "LOGICAL_SOURCE": (("name", "schema"), lambda source: (source.name, schema_text(source.schema))),
    "PHYSICAL_SOURCE": (
        ("name", "logical_source", "type", "agent", "options", "parser_options"),
        _physical_source,
    ),
    "SINK": (
        ("name", "type", "agent", "options", "schema"),
        lambda sink: (
            sink.name,
            short(catalog.SinkType, sink.type),
            sink.agent,
            _options_text(sink.options),
            schema_text(sink.schema),
        ),
    ),
    "QUERY": (("name", "state", "desired_state", "sinks", "fragments", "why"), _query),
    "FRAGMENT": (
        ("query", "fragment", "kind", "agent", "state", "epoch", "slots_held", "last_error"),
        _fragment,
    ),
    "TOPIC": (("name", "partitions", "durability", "format", "retention", "group"), _topic),
    "PARTITION": (
        ("topic", "partition", "leader", "epoch", "log_start", "committed", "bytes", "holes", "waiting"),
        _partition,
    ),
    "TRANSFER": (("topic", "partition", "from_agent", "to_agent", "state", "reason"), _transfer),
}

_GETTERS: dict[ShowKind, Callable[[Tx, str], Message]] = {
    ShowKind.LOGICAL_SOURCES: lambda tx, name: sources.get_logical_source(
        tx, catalog.GetLogicalSourceRequest(name=name)
    ),
    ShowKind.SINKS: lambda tx, name: sinks.get_sink(tx, catalog.GetSinkRequest(name=name)),
    ShowKind.QUERIES: lambda tx, name: queries.get_query(tx, catalog.GetQueryRequest(name=name)),
    ShowKind.PHYSICAL_SOURCES: lambda tx, name: sources.get_physical_source(
        tx, catalog.GetPhysicalSourceRequest(name=name)
    ),
    ShowKind.AGENTS: lambda tx, name: agents.get_agent(tx, catalog.GetAgentRequest(name=name)),
    ShowKind.TOPICS: lambda tx, name: topics.get_topic(tx, log.GetTopicRequest(name=name)),
}
# Where DESCRIBE looks for a name without a kind, in this order. Names of topics follow another rule.
_SEARCHED = tuple(kind for kind in _GETTERS if kind is not ShowKind.TOPICS)
_MISSING = (
    LOGICAL_SOURCE_NOT_FOUND,
    SINK_NOT_FOUND,
    QUERY_NOT_FOUND,
    PHYSICAL_SOURCE_NOT_FOUND,
    AGENT_NOT_FOUND,
)


def _description(tx: Tx, message: Message) -> tuple[Sequence[str], Iterable[Sequence[str]]]:
    if isinstance(message, catalog.LogicalSource | catalog.Sink):
        return ("column", "type", "null"), [
            (field.name, field.type, "NO" if field.not_null else "YES") for field in message.schema.fields
        ]
    if isinstance(message, log.Topic):
        return ("property", "value"), [
            ("name", message.name),
            ("uid", message.uid),
            ("partitions", str(message.partitions)),
            ("group", message.group),
            *settings.shown(message.settings),
        ]
    kind = {catalog.Query: "QUERY", catalog.PhysicalSource: "PHYSICAL_SOURCE", catalog.Agent: "AGENT"}[type(message)]
    titles, values = _TABLES[kind]
    rows = list(zip(titles, values(message), strict=True))
    if isinstance(message, catalog.Query):
        rows.append(("statement", message.statement))
        rows.extend(
            (f"fragment {fragment.ordinal}", f"{fragment.kind} on {fragment.agent_name}: {fragment.state}")
            for fragment in fragments.fragments_of(tx, message.uid)
        )
    return ("property", "value"), rows
