"""Logical sources, and the physical sources that feed them.

Messages carry options with their secrets redacted; there is no function here that makes one of them otherwise. What
plans need unredacted is read by `planner_view` alone.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import bindparam, delete, insert, select, update

from headgate.catalog import v1 as catalog
from headgate_common.errors import HeadgateError
from headgate_coordinator.catalog import built_in_sources, references
from headgate_coordinator.catalog.descriptors import (
    built_in_source,
    redact_source,
    source_descriptor,
    source_locus,
    validate_source,
)
from headgate_coordinator.catalog.pages import page, prefix_filter
from headgate_coordinator.catalog.placing import choose_agent
from headgate_coordinator.catalog.schema import agents, logical_sources, physical_sources, queries, query_sources
from headgate_coordinator.catalog.tx import Change, Tx
from headgate_coordinator.catalog.wire import AnyRow, from_json_object, json_object, number, short, timestamp
from headgate_coordinator.errors import (
    ALREADY_EXISTS,
    INVALID_CONFIG,
    LOGICAL_SOURCE_IN_USE,
    LOGICAL_SOURCE_NOT_FOUND,
    NAME_RESERVED,
    PHYSICAL_SOURCE_IN_USE,
    PHYSICAL_SOURCE_NOT_FOUND,
    UID_MISMATCH,
)
from headgate_coordinator.sql.names import fold
from headgate_coordinator.sql.types.schema import SchemaLimits, validate_schema

LOGICAL = select(logical_sources)
PHYSICAL = (
    select(
        physical_sources.c.uid,
        physical_sources.c.name,
        physical_sources.c.logical_uid,
        physical_sources.c.agent_uid,
        physical_sources.c.type,
        physical_sources.c.locus,
        physical_sources.c.options,
        physical_sources.c.parser_options,
        physical_sources.c.time,
        physical_sources.c.revision,
        logical_sources.c.name.label("logical_source"),
        agents.c.name.label("agent"),
    )
    .join(logical_sources, logical_sources.c.uid == physical_sources.c.logical_uid)
    .outerjoin(agents, agents.c.uid == physical_sources.c.agent_uid)
)
_LOGICAL_BY_NAME = LOGICAL.where(logical_sources.c.name == bindparam("name_"))
_PHYSICAL_BY_NAME = PHYSICAL.where(physical_sources.c.name == bindparam("name_"))
_PHYSICAL_BY_UID = PHYSICAL.where(physical_sources.c.uid == bindparam("uid_"))
_INSERT_LOGICAL, _INSERT_PHYSICAL = insert(logical_sources), insert(physical_sources)
_SET_LOCUS = (
    update(physical_sources).where(physical_sources.c.uid == bindparam("uid_")).values(locus=bindparam("locus_"))
)
# Another physical source in the same place.
_SAME = select(physical_sources.c.name).where(
    physical_sources.c.logical_uid == bindparam("logical_uid_"),
    physical_sources.c.type == bindparam("type_"),
    physical_sources.c.locus == bindparam("locus_"),
    physical_sources.c.uid != bindparam("uid_"),
)
# Stands before the locus of a physical source until its transaction settles.
_UNSETTLED = "unsettled "


def create_logical_source(
    tx: Tx, request: catalog.CreateLogicalSourceRequest, limits: SchemaLimits
) -> catalog.LogicalSource:
    name = fold(request.name)
    _refuse_built_in(name, "choose another name")
    schema = validate_schema(request.schema, limits)
    if _logical_row(tx, name) is not None:
        raise _exists("logical source", name)
    uid = tx.ids.uid("logical-source")
    tx.connection.execute(
        _INSERT_LOGICAL,
        {
            "uid": uid,
            "name": name,
            "schema": schema.SerializeToString(deterministic=True),
            "time": tx.now,
            "revision": tx.revision,
        },
    )
    created = catalog.LogicalSource(
        name=name, uid=uid, schema=schema, create_time=timestamp(tx.now), revision=tx.revision
    )
    tx.record("LOGICAL_SOURCE", name, uid, None, created)
    return created


def drop_logical_source(tx: Tx, request: catalog.DropLogicalSourceRequest) -> catalog.LogicalSource | None:
    """Deletes a logical source that no physical one feeds."""
    name = fold(request.name)
    _refuse_built_in(name, "it cannot be dropped")
    row = _logical_row(tx, name)
    if row is None:
        if request.allow_missing:
            return None
        raise logical_not_found(name)
    _require_uid("logical source", row, request.uid)
    feeding = references.find(
        tx,
        "physical source",
        select(physical_sources.c.name, physical_sources.c.type).where(physical_sources.c.logical_uid == row.uid),
    )
    if feeding is not None:
        raise references.in_use(LOGICAL_SOURCE_IN_USE, f"logical source {name}", [feeding])
    dropped = logical_message(row)
    tx.connection.execute(delete(logical_sources).where(logical_sources.c.uid == row.uid))
    tx.record("LOGICAL_SOURCE", name, row.uid, dropped, None)
    return dropped


def get_logical_source(tx: Tx, request: catalog.GetLogicalSourceRequest) -> catalog.LogicalSource:
    """A logical source by its name. A built-in one is answered too, though it is in no list: it is not the user's."""
    name = fold(request.name)
    built_in = built_in_source(name)
    if built_in is not None:
        return built_in
    row = _logical_row(tx, name)
    if row is None:
        raise logical_not_found(name)
    return logical_message(row)


def list_logical_sources(tx: Tx, request: catalog.ListLogicalSourcesRequest) -> catalog.ListLogicalSourcesResponse:
    filters = prefix_filter(logical_sources.c.name, request.name_prefix)
    found = page(tx, request, LOGICAL, [logical_sources.c.name], filters)
    return catalog.ListLogicalSourcesResponse(
        logical_sources=[logical_message(row) for row in found.rows],
        next_page_token=found.next_page_token,
        revision=tx.revision,
    )


def logical_message(row: AnyRow) -> catalog.LogicalSource:
    return catalog.LogicalSource(
        name=row.name,
        uid=row.uid,
        schema=catalog.Schema.FromString(row.schema),
        create_time=timestamp(row.time),
        revision=row.revision,
    )


def create_physical_source(tx: Tx, request: catalog.CreatePhysicalSourceRequest) -> catalog.PhysicalSource:
    """Adds a place that feeds a logical source. That it is the only one of its kind there is checked by `settle`."""
    uid = tx.ids.uid("source")
    name = fold(request.name) if request.name else uid
    logical = fold(request.logical_source)
    _refuse_built_in(logical, "nothing else can feed it")
    logical_row = _logical_row(tx, logical)
    if logical_row is None:
        raise logical_not_found(logical)
    schema = catalog.Schema.FromString(logical_row.schema)
    valid = validate_source(request.type, request.options, request.parser_options, schema)
    agent_uid = _agent_for(tx, request)
    if _physical_row(tx, name) is not None:
        raise _exists("physical source", name)
    tx.connection.execute(
        _INSERT_PHYSICAL,
        {
            "uid": uid,
            "name": name,
            "logical_uid": logical_row.uid,
            "agent_uid": agent_uid,
            "type": short(catalog.SourceType, request.type),
            "locus": _UNSETTLED + uid,
            "options": json_object(valid.options),
            "parser_options": json_object(valid.parser_options),
            "time": tx.now,
            "revision": tx.revision,
        },
    )
    row = _physical_row(tx, name)
    assert row is not None
    created = physical_message(row)
    tx.record("PHYSICAL_SOURCE", name, uid, None, created)
    return created


def settle(tx: Tx, changes: Iterable[Change]) -> None:
    """Makes sure that each physical source which was created is the only one of its type and locus.

    At the end, so that a transaction may replace one by another in whichever order.
    """
    for change in changes:
        if change.kind == "PHYSICAL_SOURCE" and change.before is None:
            row = tx.connection.execute(_PHYSICAL_BY_UID, {"uid_": change.uid}).one()
            type_ = number(catalog.SourceType, row.type)
            locus = source_locus(type_, from_json_object(row.options), row.agent_uid or "")
            _refuse_same(tx, row.logical_source, row.logical_uid, row.type, locus, row.agent, uid=row.uid)
            tx.connection.execute(_SET_LOCUS, {"uid_": row.uid, "locus_": locus})


def refuse_same_locus(tx: Tx, request: catalog.CreatePhysicalSourceRequest) -> None:
    """ALREADY_EXISTS if there is a physical source in the place of the one asked for, whatever its name."""
    logical_row = _logical_row(tx, fold(request.logical_source))
    if logical_row is None:
        return
    valid = validate_source(request.type, request.options, request.parser_options)
    locus = source_locus(request.type, valid.options, _agent_for(tx, request) or "")
    type_name = short(catalog.SourceType, request.type)
    _refuse_same(tx, logical_row.name, logical_row.uid, type_name, locus, None, uid="")


def _agent_for(tx: Tx, request: catalog.CreatePhysicalSourceRequest) -> str | None:
    descriptor = source_descriptor(request.type)
    if request.agent and not descriptor.node_local:
        raise HeadgateError(
            INVALID_CONFIG,
            f"a {descriptor.name} source is read by whichever agent computes, so it takes no agent",
            metadata={"field": "agent"},
        )
    return choose_agent(tx, request.agent, descriptor.node_local, f"a {descriptor.name} source")


def _refuse_same(
    tx: Tx, logical: str, logical_uid: str, type_name: str, locus: str, agent: str | None, *, uid: str
) -> None:
    place = {"logical_uid_": logical_uid, "type_": type_name, "locus_": locus, "uid_": uid}
    same = tx.connection.execute(_SAME, place).scalar_one_or_none()
    if same is not None:
        where = f" on agent {agent}" if agent else ""
        raise HeadgateError(
            ALREADY_EXISTS,
            f"logical source {logical} is fed by a {type_name} source{where} already: {same}",
            metadata={"kind": "physical source", "name": same, "uid": uid},
        )


def drop_physical_source(tx: Tx, request: catalog.DropPhysicalSourceRequest) -> catalog.PhysicalSource | None:
    """Deletes a physical source that no query reads; an ended query reads it until it is dropped."""
    name = fold(request.name)
    row = _physical_row(tx, name)
    if row is None:
        if request.allow_missing:
            return None
        raise _physical_not_found(name)
    _require_uid("physical source", row, request.uid)
    reading = references.find(
        tx,
        "query",
        select(queries.c.name, queries.c.state)
        .join(query_sources, query_sources.c.query_uid == queries.c.uid)
        .where(query_sources.c.physical_source_uid == row.uid),
    )
    if reading is not None:
        raise references.in_use(PHYSICAL_SOURCE_IN_USE, f"physical source {name}", [reading])
    dropped = physical_message(row)
    tx.connection.execute(delete(physical_sources).where(physical_sources.c.uid == row.uid))
    tx.record("PHYSICAL_SOURCE", name, row.uid, dropped, None)
    return dropped


def get_physical_source(tx: Tx, request: catalog.GetPhysicalSourceRequest) -> catalog.PhysicalSource:
    name = fold(request.name)
    row = _physical_row(tx, name)
    if row is None:
        raise _physical_not_found(name)
    return physical_message(row)


def list_physical_sources(tx: Tx, request: catalog.ListPhysicalSourcesRequest) -> catalog.ListPhysicalSourcesResponse:
    if request.logical_source and built_in_source(fold(request.logical_source)) is not None:
        return built_in_sources.list_feeds(tx, request)
    filters = []
    if request.logical_source:
        filters.append(logical_sources.c.name == fold(request.logical_source))
    if request.agent:
        filters.append(agents.c.name == fold(request.agent))
    if request.type:
        filters.append(physical_sources.c.type == short(catalog.SourceType, request.type))
    found = page(tx, request, PHYSICAL, [physical_sources.c.name], filters)
    return catalog.ListPhysicalSourcesResponse(
        physical_sources=[physical_message(row) for row in found.rows],
        next_page_token=found.next_page_token,
        revision=tx.revision,
    )


def physical_message(row: AnyRow) -> catalog.PhysicalSource:
    return catalog.PhysicalSource(
        name=row.name,
        uid=row.uid,
        logical_source=row.logical_source,
        agent=row.agent or "",
        type=number(catalog.SourceType, row.type),
        options=redact_source(number(catalog.SourceType, row.type), from_json_object(row.options)),
        parser_options=from_json_object(row.parser_options),
        create_time=timestamp(row.time),
        revision=row.revision,
    )


def logical_not_found(name: str) -> HeadgateError:
    return HeadgateError(
        LOGICAL_SOURCE_NOT_FOUND,
        f"there is no logical source {name}",
        metadata={"kind": "logical source", "name": name},
    )


def _physical_not_found(name: str) -> HeadgateError:
    return HeadgateError(
        PHYSICAL_SOURCE_NOT_FOUND,
        f"there is no physical source {name}",
        metadata={"kind": "physical source", "name": name},
    )


def _refuse_built_in(name: str, what_now: str) -> None:
    built_in = built_in_source(name)
    if built_in is not None:
        same = "" if built_in.name == name else f", another name of {built_in.name}"
        raise HeadgateError(
            NAME_RESERVED,
            f"{name} is a built-in source{same}, which agents feed; {what_now}",
            metadata={"kind": "logical source", "name": name},
        )


def _exists(kind: str, name: str) -> HeadgateError:
    return HeadgateError(ALREADY_EXISTS, f"there is a {kind} {name}", metadata={"kind": kind, "name": name})


def _require_uid(kind: str, row: AnyRow, uid: str) -> None:
    if uid and uid != row.uid:
        raise HeadgateError(
            UID_MISMATCH,
            f"{kind} {row.name} has the uid {row.uid}, not {uid}",
            metadata={"kind": kind, "name": row.name, "uid": row.uid},
        )


def _logical_row(tx: Tx, name: str) -> AnyRow | None:
    return tx.connection.execute(_LOGICAL_BY_NAME, {"name_": name}).one_or_none()


def _physical_row(tx: Tx, name: str) -> AnyRow | None:
    return tx.connection.execute(_PHYSICAL_BY_NAME, {"name_": name}).one_or_none()
