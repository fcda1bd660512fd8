"""Turns what the catalog holds into a bundle that makes it again.

Order: agents, then links, topics, logical sources, physical sources, sinks, queries, so that nothing is named before it
is there. Queries that have ended, or are asked to, are left out: applying a bundle must not start them again. So are
the topics that queries make for themselves, and what records topics hold.

Agents are processes that join by themselves, and a query is accepted only where its agents answer: a bundle that
declared them could not bring them to life. So they are left out unless asked for, and named at the top, because what is
node-local needs them. An agent or a link that is there already is no error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from google.protobuf import json_format

from headgate.catalog import v1 as catalog
from headgate.log import v1 as log
from headgate_cli import topic_settings
from headgate_cli.kinds import of_resource, short
from headgate_cli.statements import words_of

REDACTED = "[redacted]"
# What a bundle is made of; what belongs to these comes with them.
EXPORTED = (
    catalog.RESOURCE_KIND_AGENT,
    catalog.RESOURCE_KIND_NETWORK_LINK,
    catalog.RESOURCE_KIND_LOGICAL_SOURCE,
    catalog.RESOURCE_KIND_PHYSICAL_SOURCE,
    catalog.RESOURCE_KIND_SINK,
    catalog.RESOURCE_KIND_QUERY,
    catalog.RESOURCE_KIND_TOPIC,
)
_SIMPLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ENDED = (catalog.QUERY_STATE_STOPPED, catalog.QUERY_STATE_TERMINATED, catalog.QUERY_STATE_FAILED)


def ordered(resources: Iterable[catalog.Resource], *, with_agents: bool) -> list[catalog.BundleItem]:
    """One item for each resource, what is referred to before what refers to it."""
    by_kind: dict[str, list[Any]] = {}
    for kind, resource in map(of_resource, resources):
        by_kind.setdefault(kind.name, []).append(resource)
    items: list[catalog.BundleItem] = []
    if with_agents:
        items += [_unless_there(create_agent=_agent(agent)) for agent in by_kind.get("agent", [])]
    items += [
        _unless_there(
            create_network_link=catalog.CreateNetworkLinkRequest(from_agent=link.from_agent, to_agent=link.to_agent)
        )
        for link in by_kind.get("network_link", [])
    ]
    items += [
        catalog.BundleItem(create_topic=_topic(topic)) for topic in by_kind.get("topic", []) if not topic.internal
    ]
    for source in by_kind.get("logical_source", []):
        request = catalog.CreateLogicalSourceRequest(name=source.name, schema=source.schema)
        items.append(catalog.BundleItem(create_logical_source=request))
    items += [catalog.BundleItem(create_physical_source=_physical(s)) for s in by_kind.get("physical_source", [])]
    items += [catalog.BundleItem(create_sink=_sink(sink)) for sink in by_kind.get("sink", [])]
    for query in sorted(by_kind.get("query", []), key=lambda q: (q.create_time.ToNanoseconds(), q.name)):
        if query.desired_state == catalog.DESIRED_STATE_RUNNING and query.state not in _ENDED:
            items.append(catalog.BundleItem(create_query=_query(query)))
    return items


def needed_agents(resources: Iterable[catalog.Resource]) -> list[str]:
    """Names of the agents that node-local sources, sinks and links are bound to."""
    names: set[str] = set()
    for kind, resource in map(of_resource, resources):
        if kind.name in ("physical_source", "sink"):
            names.add(resource.agent)
        elif kind.name == "network_link":
            names |= {resource.from_agent, resource.to_agent}
    return sorted(names - {""})


def _unless_there(**request: Any) -> catalog.BundleItem:
    """A statement, because only statements can say IF NOT EXISTS."""
    return catalog.BundleItem(statement=statement_of(catalog.BundleItem(**request)))


def _agent(agent: catalog.Agent) -> catalog.CreateAgentRequest:
    # Peers become links of their own, after every agent is there.
    return catalog.CreateAgentRequest(
        name=agent.name,
        address=agent.address,
        slots=agent.slots,
        zone=agent.zone,
        group=agent.group,
        labels=agent.labels,
        roles=agent.roles,
        without_engine=not agent.has_engine,
    )


def _topic(topic: log.Topic) -> log.CreateTopicRequest:
    return log.CreateTopicRequest(
        name=topic.name, partitions=topic.partitions, settings=topic.settings, group=topic.group
    )


def _physical(source: catalog.PhysicalSource) -> catalog.CreatePhysicalSourceRequest:
    return catalog.CreatePhysicalSourceRequest(
        name=source.name,
        logical_source=source.logical_source,
        agent=source.agent,
        type=source.type,
        options=source.options,
        parser_options=source.parser_options,
    )


def _sink(sink: catalog.Sink) -> catalog.CreateSinkRequest:
    return catalog.CreateSinkRequest(
        name=sink.name, schema=sink.schema, agent=sink.agent, type=sink.type, options=sink.options
    )


def _query(query: catalog.Query) -> catalog.CreateQueryRequest:
    sink = query.sinks[0] if len(query.sinks) == 1 else ""
    request = catalog.CreateQueryRequest(name=query.name, statement=query.statement, sink=sink)
    if query.HasField("deployment_deadline"):
        request.deployment_deadline.CopyFrom(query.deployment_deadline)
    return request


def as_json(items: Sequence[catalog.BundleItem]) -> str:
    bundle = json_format.MessageToDict(catalog.ApplyBundleRequest(items=items), preserving_proto_field_name=True)
    return json.dumps(bundle or {"items": []}, indent=2, ensure_ascii=False) + "\n"


def as_sql(items: Sequence[catalog.BundleItem], revision: int, agents: Sequence[str] = ()) -> str:
    """The bundle as statements, with the agents at its top that have to be there."""
    head = f"-- The catalog at revision {revision}, in an order that `headgate apply` can follow.\n"
    if agents:
        head += f"-- Start these agents first, queries need them ACTIVE: {', '.join(agents)}.\n"
    return "\n".join([head, *(f"{statement_of(item)};\n" for item in items)])


def statement_of(item: catalog.BundleItem) -> str:
    """The statement that says the same as a request."""
    match item.WhichOneof("item"):
        case "statement":
            return item.statement
        case "create_agent":
            return _agent_sql(item.create_agent)
        case "create_network_link":
            link = item.create_network_link
            return f"CREATE NETWORK LINK IF NOT EXISTS FROM {link.from_agent} TO {link.to_agent}"
        case "create_topic":
            return _topic_sql(item.create_topic)
        case "create_logical_source":
            source = item.create_logical_source
            return f"CREATE LOGICAL SOURCE {source.name} {_columns(source.schema)}"
        case "create_physical_source":
            return _physical_sql(item.create_physical_source)
        case "create_sink":
            sink = item.create_sink
            head = f"CREATE SINK {sink.name} {_columns(sink.schema)} TYPE {short(catalog.SinkType, sink.type)}"
            return head + _on(sink.agent) + _set([("SINK", sink.options)])
        case "create_query":
            return _query_sql(item.create_query)
        case other:
            raise ValueError(f"no export makes {other}")


def _agent_sql(agent: catalog.CreateAgentRequest) -> str:
    parts = [f"CREATE AGENT IF NOT EXISTS {agent.name} AT {text(agent.address)} SLOTS {agent.slots}"]
    if agent.zone:
        parts.append(f"ZONE {text(agent.zone)}")
    if agent.group:
        parts.append(f"GROUP {text(agent.group)}")
    if agent.roles:
        parts.append(f"ROLES ({', '.join(short(catalog.AgentRole, role) for role in agent.roles)})")
    if agent.labels:
        labels = (f"{text(key)} = {text(value)}" for key, value in sorted(agent.labels.items()))
        parts.append(f"LABELS ({', '.join(labels)})")
    if agent.without_engine:
        parts.append("WITHOUT ENGINE")
    return " ".join(parts)


def _topic_sql(topic: log.CreateTopicRequest) -> str:
    parts = [f'CREATE TOPIC "{topic.name}" PARTITIONS {topic.partitions}']
    if topic.group:
        parts.append(f"GROUP {text(topic.group)}")
    settings = [f"{name} = {text(value)}" for name, value in topic_settings.texts(topic.settings)]
    if settings:
        parts.append("WITH (\n  " + ",\n  ".join(settings) + "\n)")
    return " ".join(parts)


def _physical_sql(source: catalog.CreatePhysicalSourceRequest) -> str:
    head = f"CREATE PHYSICAL SOURCE {source.name} FOR {source.logical_source}"
    options = _set([("SOURCE", source.options), ("PARSER", source.parser_options)])
    return f"{head} TYPE {short(catalog.SourceType, source.type)}{_on(source.agent)}{options}"


def _query_sql(query: catalog.CreateQueryRequest) -> str:
    """The statement as it was given, with its name. A sink that only the request named is written before the SELECT."""
    words = words_of(query.statement)
    if words[:2] == ["CREATE", "QUERY"]:
        return query.statement
    into = "" if "INTO" in words or not query.sink else f"INSERT INTO {query.sink}\n"
    return f"CREATE QUERY {query.name} AS\n{into}{query.statement}"


def text(value: str) -> str:
    """A string of the dialect, in which a backslash escapes as in Spark."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\r", "\\r")
    return f"'{escaped.replace(chr(9), chr(92) + 't')}'"


def _column(name: str) -> str:
    return name if _SIMPLE.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def _columns(schema: catalog.Schema) -> str:
    lines = (f"  {_column(f.name)} {f.type}{' NOT NULL' if f.not_null else ''}" for f in schema.fields)
    return "(\n" + ",\n".join(lines) + "\n)"


def _on(agent: str) -> str:
    return f" ON {agent}" if agent else ""


def _set(groups: Sequence[tuple[str, Any]]) -> str:
    lines = [
        f"  {text(value)} AS `{scope}`.{_column(key)}"
        for scope, options in groups
        for key, value in sorted(options.items())
    ]
    return " SET(\n" + ",\n".join(lines) + "\n)" if lines else ""
