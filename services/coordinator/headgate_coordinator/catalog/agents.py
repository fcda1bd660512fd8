"""Agents: declared by a user or registered by themselves, to the same row."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import bindparam, delete, or_, select, update

from headgate.catalog import v1 as catalog
from headgate_common.errors import INVALID_ARGUMENT, HeadgateError
from headgate_coordinator.catalog import endings, links, references
from headgate_coordinator.catalog.addresses import check_address
from headgate_coordinator.catalog.agent_rows import agent_by_uid, fence, insert_agent, messages, not_found, update_agent
from headgate_coordinator.catalog.fragments import release_agent
from headgate_coordinator.catalog.pages import page
from headgate_coordinator.catalog.schema import (
    agents,
    fragments,
    physical_sources,
    queries,
    sinks,
)
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.catalog.wire import short
from headgate_coordinator.errors import AGENT_IN_USE, ALREADY_EXISTS, UID_MISMATCH
from headgate_coordinator.sql.names import fold

ALL_ROLES = ("LOG", "FRAGMENTS")

_TAKEN = select(agents.c.name, agents.c.address).where(
    or_(agents.c.name == bindparam("name_"), agents.c.address == bindparam("address_"))
)
_NAMED = select(agents.c.name, agents.c.uid).where(agents.c.name.in_(bindparam("names_", expanding=True)))


def create_agent(tx: Tx, request: catalog.CreateAgentRequest) -> catalog.Agent:
    """Declares an agent, with a link to each of its peers. It is UNREACHABLE until its first answer."""
    name = fold(request.name)
    address = check_address(request.address)
    refuse_taken(tx, name, address)
    peers = peer_uids(tx, name, request.peers)
    roles = tuple(dict.fromkeys(short(catalog.AgentRole, role) for role in request.roles)) or ALL_ROLES
    uid = insert_agent(
        tx,
        name=name,
        address=address,
        slots=request.slots,
        zone=request.zone,
        group=request.group,
        labels=request.labels,
        roles=roles,
        has_engine=not request.without_engine,
    )
    for peer_uid, peer in peers:
        links.insert_link(tx, uid, name, peer_uid, peer)
    created = agent_by_uid(tx, uid)
    tx.record("AGENT", name, uid, None, created)
    return created


def refuse_taken(tx: Tx, name: str, address: str) -> None:
    """Refuses a name or an address that another agent has."""
    found = tx.connection.execute(_TAKEN, {"name_": name, "address_": address}).first()
    if found is None:
        return
    if found.name == name:
        raise HeadgateError(
            ALREADY_EXISTS, f"there is an agent {name}", metadata={"kind": "agent", "name": name, "field": "name"}
        )
    raise HeadgateError(
        ALREADY_EXISTS,
        f"agent {found.name} has the address {address} already",
        metadata={"kind": "agent", "name": found.name, "field": "address"},
    )


def drop_agent(tx: Tx, request: catalog.DropAgentRequest) -> catalog.Agent | None:
    """Deletes an agent that nothing refers to. Its process cannot come back under it without starting anew. What it led
    in the log passes on when its session has run out, because that process may be alive.

    With `force` it is declared gone for good: its fragments count as gone, which returns their slots and lets queries
    that wait for it go on or, where only this agent could run a fragment, fail with AGENT_GONE; its links go with it.
    Sources and sinks on it, and queries that refer to those, are the user's to drop: while there are any the row stays,
    shut out, and `state_reason` says so.
    """
    name = fold(request.name)
    row = tx.connection.execute(select(agents).where(agents.c.name == name)).one_or_none()
    if row is None:
        if request.allow_missing:
            return None
        raise not_found(name)
    if request.uid and request.uid != row.uid:
        raise HeadgateError(
            UID_MISMATCH,
            f"agent {name} has the uid {row.uid}, not {request.uid}",
            metadata={"kind": "agent", "name": name, "uid": row.uid},
        )
    before = messages(tx, [row])[0]
    fence(tx, row.name, row.incarnation)
    if row.session_uid is not None:
        endings.let_run_out(tx, row.session_uid)
    if request.force:
        release_agent(tx, row.uid)
        links.delete_links_of(tx, row.uid)
    refers = _references(tx, row.uid, placed_only=request.force)
    if refers and not request.force:
        raise references.in_use(AGENT_IN_USE, f"agent {name}", refers)
    # What is gone from the agent needs it no longer: it keeps the agent's name for people to read.
    tx.connection.execute(update(fragments).where(fragments.c.agent_uid == row.uid).values(agent_uid=None))
    if refers:
        reason = "declared gone for good; the row stays for " + " and ".join(group.sentence() for group in refers)
        return update_agent(
            tx,
            row.uid,
            state="UNREACHABLE",
            state_reason=reason,
            state_time=tx.now,
            incarnation="",
        )
    tx.connection.execute(delete(agents).where(agents.c.uid == row.uid))
    tx.record("AGENT", name, row.uid, before, None)
    return before


def _references(tx: Tx, uid: str, *, placed_only: bool) -> list[references.References]:
    found = [
        references.find(
            tx,
            "physical source",
            select(physical_sources.c.name, physical_sources.c.type).where(physical_sources.c.agent_uid == uid),
        ),
        references.find(tx, "sink", select(sinks.c.name, sinks.c.type).where(sinks.c.agent_uid == uid)),
    ]
    if not placed_only:
        on_agent = (
            select(queries.c.name, queries.c.state)
            .join(fragments, fragments.c.query_uid == queries.c.uid)
            .where(fragments.c.agent_uid == uid, fragments.c.slots_held)
            .distinct()
        )
        found.append(references.find(tx, "query", on_agent))
        found.append(references.find(tx, "network link", links.names_of(uid)))
    return [group for group in found if group is not None]


def get_agent(tx: Tx, request: catalog.GetAgentRequest) -> catalog.Agent:
    name = fold(request.name)
    row = tx.connection.execute(select(agents).where(agents.c.name == name)).one_or_none()
    if row is None:
        raise not_found(name)
    return messages(tx, [row])[0]


def list_agents(tx: Tx, request: catalog.ListAgentsRequest) -> catalog.ListAgentsResponse:
    filters = []
    if request.state:
        filters.append(agents.c.state == short(catalog.AgentState, request.state))
    if request.address:
        filters.append(agents.c.address == check_address(request.address))
    if request.min_free_slots:
        filters.append(agents.c.slots - agents.c.slots_used >= request.min_free_slots)
    if request.group:
        filters.append(agents.c.group_name == request.group)
    if request.zone:
        filters.append(agents.c.zone == request.zone)
    found = page(tx, request, select(agents), [agents.c.name], filters)
    return catalog.ListAgentsResponse(
        agents=messages(tx, found.rows), next_page_token=found.next_page_token, revision=tx.revision
    )


def peer_uids(tx: Tx, name: str, peers: Iterable[str]) -> list[tuple[str, str]]:
    folded = list(dict.fromkeys(fold(peer) for peer in peers))
    if name in folded:
        raise HeadgateError(
            INVALID_ARGUMENT, f"agent {name} cannot be its own peer", metadata={"field": "peers", "name": name}
        )
    if not folded:
        return []
    known = {row.name: row.uid for row in tx.connection.execute(_NAMED, {"names_": folded})}
    missing = [peer for peer in folded if peer not in known]
    if missing:
        raise not_found(missing[0])
    return [(known[peer], peer) for peer in folded]
