"""Every mutation of the API as one function over a transaction, found by the type of its request.

SQL statements, bundles and RPCs take this one path. `settle` is called once at the end of the transaction, for what
must hold then and not at every step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import Message

from headgate.catalog import v1 as catalog
from headgate.log import v1 as log
from headgate_coordinator.catalog import agents, links, queries, sinks, sources, topology
from headgate_coordinator.catalog.descriptors.brokers import with_brokers
from headgate_coordinator.catalog.log import groups, topics
from headgate_coordinator.catalog.log.settings import TopicRules
from headgate_coordinator.catalog.queries import PlannedQuery
from headgate_coordinator.catalog.tx import Change, Tx
from headgate_coordinator.sql.types.schema import SchemaLimits


@dataclass(frozen=True, slots=True)
class Rules:
    """What operations need of the configuration."""

    schema: SchemaLimits
    deployment_deadline_us: int
    drain_deadline_us: int
    refuse_cycles: bool
    # How many queries one transaction creates at most.
    bundle_queries: int = 100
    topics: TopicRules = field(default_factory=TopicRules)
    # Of KAFKA sources and sinks that name none.
    kafka_brokers: str = ""


@dataclass(frozen=True, slots=True)
class Operation:
    """`verb` is what the SQL statement begins with; `apply` answers the resource, or None for nothing."""

    verb: str
    response: type[Message]
    # The response's field, and the resource's in `Resource`.
    field: str
    apply: Callable[[Tx, Any, Rules], Message | None]


OPERATIONS: dict[type[Message], Operation] = {
    catalog.CreateAgentRequest: Operation(
        "CREATE AGENT", catalog.CreateAgentResponse, "agent", lambda tx, request, _: agents.create_agent(tx, request)
    ),
    catalog.DropAgentRequest: Operation(
        "DROP AGENT", catalog.DropAgentResponse, "agent", lambda tx, request, _: agents.drop_agent(tx, request)
    ),
    catalog.CreateNetworkLinkRequest: Operation(
        "CREATE NETWORK LINK",
        catalog.CreateNetworkLinkResponse,
        "network_link",
        lambda tx, request, _: links.create_network_link(tx, request),
    ),
    catalog.DropNetworkLinkRequest: Operation(
        "DROP NETWORK LINK",
        catalog.DropNetworkLinkResponse,
        "network_link",
        lambda tx, request, _: links.drop_network_link(tx, request),
    ),
    catalog.CreateLogicalSourceRequest: Operation(
        "CREATE LOGICAL SOURCE",
        catalog.CreateLogicalSourceResponse,
        "logical_source",
        lambda tx, request, rules: sources.create_logical_source(tx, request, rules.schema),
    ),
    catalog.DropLogicalSourceRequest: Operation(
        "DROP LOGICAL SOURCE",
        catalog.DropLogicalSourceResponse,
        "logical_source",
        lambda tx, request, _: sources.drop_logical_source(tx, request),
    ),
    catalog.CreatePhysicalSourceRequest: Operation(
        "CREATE PHYSICAL SOURCE",
        catalog.CreatePhysicalSourceResponse,
        "physical_source",
        lambda tx, request, rules: sources.create_physical_source(tx, with_brokers(request, rules.kafka_brokers)),
    ),
    catalog.DropPhysicalSourceRequest: Operation(
        "DROP PHYSICAL SOURCE",
        catalog.DropPhysicalSourceResponse,
        "physical_source",
        lambda tx, request, _: sources.drop_physical_source(tx, request),
    ),
    catalog.CreateSinkRequest: Operation(
        "CREATE SINK",
        catalog.CreateSinkResponse,
        "sink",
        lambda tx, request, rules: sinks.create_sink(tx, with_brokers(request, rules.kafka_brokers), rules.schema),
    ),
    catalog.DropSinkRequest: Operation(
        "DROP SINK", catalog.DropSinkResponse, "sink", lambda tx, request, _: sinks.drop_sink(tx, request)
    ),
    catalog.StopQueryRequest: Operation(
        "STOP QUERY",
        catalog.StopQueryResponse,
        "query",
        lambda tx, request, rules: queries.stop_query(tx, request, rules.drain_deadline_us),
    ),
    catalog.DropQueryRequest: Operation(
        "DROP QUERY",
        catalog.DropQueryResponse,
        "query",
        lambda tx, request, rules: queries.drop_query(tx, request, rules.drain_deadline_us),
    ),
    log.CreateTopicRequest: Operation(
        "CREATE TOPIC",
        log.CreateTopicResponse,
        "topic",
        lambda tx, request, rules: topics.create_topic(tx, request, rules.topics),
    ),
    log.AlterTopicRequest: Operation(
        "ALTER TOPIC",
        log.AlterTopicResponse,
        "topic",
        lambda tx, request, rules: topics.alter_topic(tx, request, rules.topics),
    ),
    log.DropTopicRequest: Operation(
        "DROP TOPIC", log.DropTopicResponse, "topic", lambda tx, request, _: topics.drop_topic(tx, request)
    ),
    log.DropGroupRequest: Operation(
        "DROP GROUP", log.DropGroupResponse, "group", lambda tx, request, _: groups.drop_group(tx, request)
    ),
}


def create_query_operation(planned: PlannedQuery) -> Operation:
    """The acceptance of a query that was planned before."""
    return Operation(
        "CREATE QUERY",
        catalog.CreateQueryResponse,
        "query",
        lambda tx, request, rules: queries.create_query(
            tx, request, planned, rules.deployment_deadline_us, rules.topics
        ),
    )


def respond(operation: Operation, resource: Message | None) -> Any:
    """The response of an operation: its resource, where there is one."""
    if resource is None:
        return operation.response()
    return operation.response(**{operation.field: resource})


def settle(tx: Tx, rules: Rules, since: Sequence[Change] | None = None) -> None:
    """What must hold when the transaction ends. The metadata `uid` of an error names what is at fault, if it can.

    `since` is what has changed since it was called before, where a transaction plays several one after the other.
    """
    changed = tx.changes if since is None else since
    sources.settle(tx, changed)
    if any(change.kind in ("AGENT", "NETWORK_LINK") for change in changed):
        topology.check(tx, refuse_cycles=rules.refuse_cycles)
