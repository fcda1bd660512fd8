"""Sinks: where queries write to. Messages carry options with their secrets redacted, as those of sources do."""

from __future__ import annotations

from sqlalchemy import bindparam, delete, insert, select

from headgate.catalog import v1 as catalog
from headgate_common.errors import HeadgateError
from headgate_coordinator.catalog import references
from headgate_coordinator.catalog.descriptors import redact_sink, sink_descriptor, validate_sink
from headgate_coordinator.catalog.pages import page, prefix_filter
from headgate_coordinator.catalog.placing import choose_agent
from headgate_coordinator.catalog.schema import agents, queries, query_sinks, sinks
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.catalog.wire import AnyRow, from_json_object, json_object, number, short, timestamp
from headgate_coordinator.errors import ALREADY_EXISTS, SINK_IN_USE, SINK_NOT_FOUND, UID_MISMATCH
from headgate_coordinator.sql.names import fold
from headgate_coordinator.sql.types.schema import SchemaLimits, validate_schema

SINKS = select(
    sinks.c.uid,
    sinks.c.name,
    sinks.c.agent_uid,
    sinks.c.type,
    sinks.c.schema,
    sinks.c.options,
    sinks.c.time,
    sinks.c.revision,
    agents.c.name.label("agent"),
).outerjoin(agents, agents.c.uid == sinks.c.agent_uid)
_BY_NAME = SINKS.where(sinks.c.name == bindparam("name_"))
_INSERT = insert(sinks)


def create_sink(tx: Tx, request: catalog.CreateSinkRequest, limits: SchemaLimits) -> catalog.Sink:
    name = fold(request.name)
    schema = validate_schema(request.schema, limits)
    options = validate_sink(request.type, request.options, schema)
    descriptor = sink_descriptor(request.type)
    agent_uid = choose_agent(tx, request.agent, descriptor.node_local, f"a {descriptor.name} sink")
    if _row(tx, name) is not None:
        raise HeadgateError(ALREADY_EXISTS, f"there is a sink {name}", metadata={"kind": "sink", "name": name})
    uid = tx.ids.uid("sink")
    tx.connection.execute(
        _INSERT,
        {
            "uid": uid,
            "name": name,
            "agent_uid": agent_uid,
            "type": descriptor.name,
            "schema": schema.SerializeToString(deterministic=True),
            "options": json_object(options),
            "time": tx.now,
            "revision": tx.revision,
        },
    )
    row = _row(tx, name)
    assert row is not None
    created = message(row)
    tx.record("SINK", name, uid, None, created)
    return created


def drop_sink(tx: Tx, request: catalog.DropSinkRequest) -> catalog.Sink | None:
    """Deletes a sink that no query writes to; an ended query writes to it until it is dropped."""
    name = fold(request.name)
    row = _row(tx, name)
    if row is None:
        if request.allow_missing:
            return None
        raise not_found(name)
    if request.uid and request.uid != row.uid:
        raise HeadgateError(
            UID_MISMATCH,
            f"sink {name} has the uid {row.uid}, not {request.uid}",
            metadata={"kind": "sink", "name": name, "uid": row.uid},
        )
    writing = references.find(
        tx,
        "query",
        select(queries.c.name, queries.c.state)
        .join(query_sinks, query_sinks.c.query_uid == queries.c.uid)
        .where(query_sinks.c.sink_uid == row.uid),
    )
    if writing is not None:
        raise references.in_use(SINK_IN_USE, f"sink {name}", [writing])
    dropped = message(row)
    tx.connection.execute(delete(sinks).where(sinks.c.uid == row.uid))
    tx.record("SINK", name, row.uid, dropped, None)
    return dropped


def get_sink(tx: Tx, request: catalog.GetSinkRequest) -> catalog.Sink:
    name = fold(request.name)
    row = _row(tx, name)
    if row is None:
        raise not_found(name)
    return message(row)


def list_sinks(tx: Tx, request: catalog.ListSinksRequest) -> catalog.ListSinksResponse:
    filters = prefix_filter(sinks.c.name, request.name_prefix)
    if request.agent:
        filters.append(agents.c.name == fold(request.agent))
    if request.type:
        filters.append(sinks.c.type == short(catalog.SinkType, request.type))
    found = page(tx, request, SINKS, [sinks.c.name], filters)
    return catalog.ListSinksResponse(
        sinks=[message(row) for row in found.rows], next_page_token=found.next_page_token, revision=tx.revision
    )


def not_found(name: str) -> HeadgateError:
    return HeadgateError(SINK_NOT_FOUND, f"there is no sink {name}", metadata={"kind": "sink", "name": name})


def message(row: AnyRow) -> catalog.Sink:
    return catalog.Sink(
        name=row.name,
        uid=row.uid,
        schema=catalog.Schema.FromString(row.schema),
        agent=row.agent or "",
        type=number(catalog.SinkType, row.type),
        options=redact_sink(number(catalog.SinkType, row.type), from_json_object(row.options)),
        create_time=timestamp(row.time),
        revision=row.revision,
    )


def _row(tx: Tx, name: str) -> AnyRow | None:
    return tx.connection.execute(_BY_NAME, {"name_": name}).one_or_none()
