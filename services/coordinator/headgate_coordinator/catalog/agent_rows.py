"""Rows of agents and their messages: what agents, links, fragments and membership stand on.

An agent's message lists the agents it can send to, so a change of its links is a change of the agent too. What an agent
reports about its own load lives in the leader's memory, not here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from sqlalchemy import bindparam, delete, insert, select, update

from headgate.catalog import v1 as catalog
from headgate_common.errors import HeadgateError
from headgate_coordinator.catalog.log import counters
from headgate_coordinator.catalog.schema import agents, fenced_incarnations, network_links
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.catalog.wire import AnyRow, from_json_object, json_array, json_object, number, timestamp
from headgate_coordinator.errors import AGENT_NOT_FOUND

DEFAULT_GROUP = "default"
NEVER_ANSWERED = "it has not answered yet"

_BY_UID = select(agents).where(agents.c.uid == bindparam("uid_"))
_UID_OF = select(agents.c.uid).where(agents.c.name == bindparam("name_"))
_INSERT = insert(agents)
# Writes the columns that it is given values for.
_UPDATE = update(agents).where(agents.c.uid == bindparam("uid_"))
_PEERS = (
    select(network_links.c.from_uid, agents.c.name)
    .join(agents, agents.c.uid == network_links.c.to_uid)
    .where(network_links.c.from_uid.in_(bindparam("uids_", expanding=True)))
    .order_by(agents.c.name)
)
_FENCED = select(fenced_incarnations.c.agent_name).where(fenced_incarnations.c.incarnation == bindparam("incarnation_"))
_FENCE = insert(fenced_incarnations)
# Of agents that are there: the process that has taken the place keeps others out as long as it lives.
_REPLACED = (
    select(fenced_incarnations.c.incarnation)
    .where(
        fenced_incarnations.c.time < bindparam("before_"),
        fenced_incarnations.c.agent_name.in_(select(agents.c.name)),
    )
    .order_by(fenced_incarnations.c.time)
    .limit(bindparam("limit_"))
)
_UNFENCE = delete(fenced_incarnations).where(fenced_incarnations.c.incarnation == bindparam("incarnation_"))


def holder(name: str, incarnation: str) -> str:
    """What the sessions of an agent's process are held by."""
    return f"agent/{name}/{incarnation}"


def agent_of(session_holder: str) -> str:
    """The name in what `holder` made."""
    return session_holder.split("/")[1]


def insert_agent(
    tx: Tx,
    *,
    name: str,
    address: str,
    slots: int,
    zone: str,
    group: str,
    labels: Mapping[str, str],
    roles: Sequence[str],
    has_engine: bool,
    incarnation: str = "",
    protocol_version: int = 0,
    volume_id: str = "",
    session_uid: str | None = None,
    kafka_address: str = "",
) -> str:
    """Writes the row of a new agent, UNREACHABLE, and answers its uid. The caller records the change."""
    uid = tx.ids.uid("agent")
    values = {
        "uid": uid,
        "name": name,
        "address": address,
        "slots": slots,
        "slots_used": 0,
        "zone": zone,
        "group_name": group or DEFAULT_GROUP,
        "labels": json_object(labels),
        "roles": json_array(sorted(roles)),
        "has_engine": has_engine,
        "state": "UNREACHABLE",
        "state_reason": NEVER_ANSWERED,
        "state_time": tx.now,
        "incarnation": incarnation,
        "protocol_version": protocol_version,
        "volume_id": volume_id,
        "session_uid": session_uid,
        "kafka_address": kafka_address,
        "node_id": counters.take(tx, counters.NODE_ID),
        "time": tx.now,
        "revision": tx.revision,
    }
    tx.connection.execute(_INSERT, values)
    return uid


def update_agent(tx: Tx, uid: str, **values: Any) -> catalog.Agent:
    """Writes columns of an agent and records the change."""
    row = tx.connection.execute(_BY_UID, {"uid_": uid}).one()
    before = messages(tx, [row])[0]
    changed = {"revision": tx.revision, **values}
    tx.connection.execute(_UPDATE, {"uid_": uid, **changed})
    after = message(SimpleNamespace(**{**row._mapping, **changed}), before.peers)
    tx.record("AGENT", after.name, uid, before, after)
    return after


def fence(tx: Tx, name: str, incarnation: str) -> None:
    """Shuts a process out for good: its agent was dropped, or another process has taken its place."""
    if incarnation and not fenced(tx, incarnation):
        tx.connection.execute(_FENCE, {"incarnation": incarnation, "agent_name": name, "time": tx.now})


def fenced(tx: Tx, incarnation: str) -> bool:
    return tx.connection.execute(_FENCED, {"incarnation_": incarnation}).first() is not None


def forget_replaced(tx: Tx, age: float, limit: int) -> int:
    """Forgets up to `limit` processes that were replaced `age` seconds ago; how many is the answer. Those of dropped
    agents are remembered for good: nothing else would keep them out."""
    values = {"before_": tx.now - round(age * 1_000_000), "limit_": limit}
    found = tx.connection.execute(_REPLACED, values).scalars().all()
    if found:
        tx.connection.execute(_UNFENCE, [{"incarnation_": incarnation} for incarnation in found])
    return len(found)


def agent_by_uid(tx: Tx, uid: str) -> catalog.Agent:
    """An agent that is known to be there."""
    return messages(tx, [tx.connection.execute(_BY_UID, {"uid_": uid}).one()])[0]


def agent_uid(tx: Tx, name: str) -> str:
    """The uid of the agent of that folded name, or AGENT_NOT_FOUND."""
    uid = tx.connection.execute(_UID_OF, {"name_": name}).scalar_one_or_none()
    if uid is None:
        raise not_found(name)
    found: str = uid
    return found


def not_found(name: str) -> HeadgateError:
    return HeadgateError(AGENT_NOT_FOUND, f"there is no agent {name}", metadata={"kind": "agent", "name": name})


def messages(tx: Tx, rows: Iterable[AnyRow]) -> list[catalog.Agent]:
    """The agents of `rows`, which hold every column of the table, with their peers."""
    rows = list(rows)
    peers: dict[str, list[str]] = {row.uid: [] for row in rows}
    for from_uid, peer in tx.connection.execute(_PEERS, {"uids_": list(peers)}) if rows else ():
        peers[from_uid].append(peer)
    return [message(row, peers[row.uid]) for row in rows]


def message(row: Any, peers: Sequence[str]) -> catalog.Agent:
    """The agent of a row that holds every column of the table, or of values like it, where its peers are known."""
    return catalog.Agent(
        name=row.name,
        uid=row.uid,
        address=row.address,
        slots=row.slots,
        slots_used=row.slots_used,
        zone=row.zone,
        group=row.group_name,
        labels=from_json_object(row.labels),
        roles=[number(catalog.AgentRole, role) for role in json.loads(row.roles)],
        state=number(catalog.AgentState, row.state),
        state_reason=row.state_reason,
        incarnation=row.incarnation,
        protocol_version=row.protocol_version,
        peers=peers,
        volume_id=row.volume_id,
        create_time=timestamp(row.time),
        revision=row.revision,
        has_engine=row.has_engine,
        kafka_address=row.kafka_address,
        node_id=row.node_id,
        present=row.session_uid is not None,
    )
