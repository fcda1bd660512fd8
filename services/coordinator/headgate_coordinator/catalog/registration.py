"""Agents that say themselves that they are here, or leave.

A process is known by its incarnation. Under one name there is one at a time: a second is refused while the first
answers polls, and afterwards unless it names the first as the one that it replaces. It learns that name from a refusal,
so it lived when the other was the last one: a call that was sent before, by a process that is gone by now, comes late
and replaces nobody. A process that restarts at the same address answers the next poll in its predecessor's place, and
is taken then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, select

from headgate.catalog import v1 as catalog
from headgate.cluster import v1 as cluster
from headgate_common.errors import HeadgateError
from headgate_coordinator.catalog import agent_rows, endings, identity, links, sessions
from headgate_coordinator.catalog.addresses import check_address
from headgate_coordinator.catalog.agent_status import mark_unreachable
from headgate_coordinator.catalog.agents import ALL_ROLES, peer_uids, refuse_taken
from headgate_coordinator.catalog.schema import agents
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.catalog.wire import AnyRow, json_array, json_object, short
from headgate_coordinator.errors import (
    ADDRESS_MISMATCH,
    AGENT_DROPPED,
    AGENT_NAME_TAKEN,
    PROTOCOL_VERSION_UNSUPPORTED,
    REPLACES_MISMATCH,
    SESSION_EXPIRED,
)
from headgate_coordinator.sql.names import fold

# Versions of the cluster protocol that this coordinator speaks.
PROTOCOL_VERSIONS = range(1, 2)

_BY_NAME = select(agents).where(agents.c.name == bindparam("name_"))


@dataclass(frozen=True, slots=True)
class Registered:
    agent: catalog.Agent
    session: sessions.Session
    catalog_uid: str
    # Whether it has had this session before.
    again: bool = False


def register_agent(tx: Tx, request: cluster.RegisterAgentRequest, session_ttl: float) -> Registered:
    """Writes who the agent is now, with a session of its own. The same process again gets the same session again.

    What the process says of itself replaces what was declared. It cannot offer fewer slots than are in use on it: then
    it has as many as are in use, until it registers again. CATALOG_MISMATCH, before anything else, if its data is of
    another catalog.
    """
    identity.require(tx, request.catalog_uid)
    name = fold(request.name)
    address = check_address(request.address)
    kafka_address = check_address(request.kafka_address) if request.kafka_address else ""
    if request.protocol_version not in PROTOCOL_VERSIONS:
        spoken = f"{PROTOCOL_VERSIONS.start} to {PROTOCOL_VERSIONS.stop - 1}"
        raise HeadgateError(
            PROTOCOL_VERSION_UNSUPPORTED,
            f"agent {name} speaks version {request.protocol_version} of the protocol, this coordinator {spoken}",
            metadata={"name": name, "versions": spoken},
        )
    row = tx.connection.execute(_BY_NAME, {"name_": name}).one_or_none()
    _refuse_dropped(tx, name, request, row)
    if row is None:
        refuse_taken(tx, name, address)
    else:
        _refuse_other(row, address, request)
        if row.incarnation != request.incarnation:
            # What it has sent and what arrives late must not bring it back in the place of this one.
            agent_rows.fence(tx, name, row.incarnation)
    catalog_uid = identity.settle(tx)
    session = _session(tx, row, request.incarnation, name, address, session_ttl)
    again = row is not None and row.session_uid == session.uid
    roles = tuple(dict.fromkeys(short(catalog.AgentRole, role) for role in request.roles if role)) or ALL_ROLES
    if row is None:
        uid = agent_rows.insert_agent(
            tx,
            name=name,
            address=address,
            slots=request.slots,
            zone=request.zone,
            group=request.group,
            labels=request.labels,
            roles=roles,
            has_engine=request.has_engine,
            incarnation=request.incarnation,
            protocol_version=request.protocol_version,
            volume_id=request.volume_id,
            session_uid=session.uid,
            kafka_address=kafka_address,
        )
        for peer_uid, peer in peer_uids(tx, name, request.peers):
            links.insert_link(tx, uid, name, peer_uid, peer)
        created = agent_rows.agent_by_uid(tx, uid)
        tx.record("AGENT", name, uid, None, created)
        return Registered(created, session, catalog_uid)
    values: dict[str, Any] = {
        "slots": max(request.slots, row.slots_used),
        "zone": request.zone,
        "group_name": request.group or agent_rows.DEFAULT_GROUP,
        "labels": json_object(request.labels),
        "roles": json_array(sorted(roles)),
        "has_engine": request.has_engine,
        "incarnation": request.incarnation,
        "protocol_version": request.protocol_version,
        "volume_id": request.volume_id,
        "session_uid": session.uid,
        "kafka_address": kafka_address,
    }
    if all(row._mapping[column] == value for column, value in values.items()):
        return Registered(agent_rows.agent_by_uid(tx, row.uid), session, catalog_uid, again)
    return Registered(agent_rows.update_agent(tx, row.uid, **values), session, catalog_uid, again)


def leave_cluster(tx: Tx, request: cluster.LeaveClusterRequest) -> None:
    """The agent is UNREACHABLE at once and its session ends, if it is this process that the name belongs to."""
    name = fold(request.name)
    row = tx.connection.execute(_BY_NAME, {"name_": name}).one_or_none()
    if row is None or row.incarnation != request.incarnation:
        return
    if row.session_uid is not None:
        endings.end_session(tx, row.session_uid)
    mark_unreachable(tx, row.uid, "it has left")


def _refuse_dropped(tx: Tx, name: str, request: cluster.RegisterAgentRequest, row: AnyRow | None) -> None:
    if agent_rows.fenced(tx, request.incarnation):
        raise HeadgateError(
            AGENT_DROPPED,
            f"agent {name} was dropped while this process ran under it, or another process has taken its place; it "
            "must stop everything and start anew",
            metadata={"name": name, "incarnation": request.incarnation},
        )
    if request.fragments and (row is None or not row.incarnation):
        raise HeadgateError(
            AGENT_DROPPED,
            f"nothing is known to run on agent {name}, and this process still has {request.fragments} fragments; "
            "it must stop them before it registers",
            metadata={"name": name, "incarnation": request.incarnation, "fragments": str(request.fragments)},
        )


def _refuse_other(row: AnyRow, address: str, request: cluster.RegisterAgentRequest) -> None:
    if row.address != address:
        raise HeadgateError(
            ADDRESS_MISMATCH,
            f"agent {row.name} is known at {row.address}, not at {address}; drop it first, or use another name",
            metadata={"name": row.name, "address": row.address},
        )
    known = {"name": row.name, "incarnation": row.incarnation}
    if row.state == "ACTIVE" and row.incarnation not in ("", request.incarnation):
        raise HeadgateError(
            AGENT_NAME_TAKEN,
            f"process {row.incarnation} answers as agent {row.name}; if it is gone, the next poll shows it",
            metadata=known,
        )
    if row.incarnation not in ("", request.incarnation, request.replaces):
        raise HeadgateError(
            REPLACES_MISMATCH,
            f"process {row.incarnation} was the last to register as agent {row.name}, and the request replaces "
            f"{request.replaces or 'nobody'}",
            metadata=known,
        )


def _session(tx: Tx, row: AnyRow | None, incarnation: str, name: str, address: str, ttl: float) -> sessions.Session:
    holder = agent_rows.holder(name, incarnation)
    if row is not None and row.session_uid is not None:
        # By whom the session was opened decides, not whom the agent's row names: a poll may have found the process
        # before it came to register, and what its predecessor was granted is not its own.
        try:
            session = sessions.get_session(tx, row.session_uid)
            if session.holder == holder:
                return session
            endings.end_session(tx, row.session_uid)
        except HeadgateError as error:
            if error.reason is not SESSION_EXPIRED:
                raise
    return sessions.open_session(tx, holder, address, ttl)
