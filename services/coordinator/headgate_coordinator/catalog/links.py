"""Directed network links between agents. Where none is declared, every agent reaches every other."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Select, bindparam, delete, insert, literal, or_, select, update

from headgate.catalog import v1 as catalog
from headgate_common.errors import INVALID_ARGUMENT, HeadgateError
from headgate_coordinator.catalog import references
from headgate_coordinator.catalog.agent_rows import agent_by_uid, agent_uid
from headgate_coordinator.catalog.pages import page
from headgate_coordinator.catalog.schema import agents, fragments, network_links, queries, query_links
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.catalog.wire import AnyRow, timestamp
from headgate_coordinator.errors import ALREADY_EXISTS, LINK_IN_USE, NETWORK_LINK_NOT_FOUND
from headgate_coordinator.query.transitions import QUERY_ENDED
from headgate_coordinator.sql.names import fold

_sending = agents.alias("sending")
_receiving = agents.alias("receiving")
_LINKS = (
    select(
        network_links.c.uid,
        network_links.c.from_uid,
        network_links.c.to_uid,
        network_links.c.time,
        network_links.c.revision,
        _sending.c.name.label("from_agent"),
        _receiving.c.name.label("to_agent"),
    )
    .join(_sending, _sending.c.uid == network_links.c.from_uid)
    .join(_receiving, _receiving.c.uid == network_links.c.to_uid)
)
_from, _to = fragments.alias("from_fragment"), fragments.alias("to_fragment")
# Queries that have not ended with a fragment on each of two agents.
_BETWEEN = (
    select(queries.c.uid, queries.c.plan, _from.c.ordinal.label("from_ordinal"), _to.c.ordinal.label("to_ordinal"))
    .join(_from, _from.c.query_uid == queries.c.uid)
    .join(_to, _to.c.query_uid == queries.c.uid)
    .where(
        _from.c.agent_uid == bindparam("from_"),
        _to.c.agent_uid == bindparam("to_"),
        queries.c.state.not_in(QUERY_ENDED),
    )
)


def create_network_link(tx: Tx, request: catalog.CreateNetworkLinkRequest) -> catalog.NetworkLink:
    """Adds a link. Whether the topology may have it is checked at the commit (`topology.check`)."""
    sending, receiving = fold(request.from_agent), fold(request.to_agent)
    if sending == receiving:
        raise HeadgateError(
            INVALID_ARGUMENT, f"a link leads from agent {sending} to itself", metadata={"field": "to_agent"}
        )
    from_uid = agent_uid(tx, sending)
    to_uid = agent_uid(tx, receiving)
    if _find(tx, sending, receiving) is not None:
        raise HeadgateError(
            ALREADY_EXISTS,
            f"there is a link from {sending} to {receiving}",
            metadata={"kind": "network link", "name": link_name(sending, receiving)},
        )
    before = agent_by_uid(tx, from_uid)
    created = insert_link(tx, from_uid, sending, to_uid, receiving)
    _take_for_running(tx, created.uid, from_uid, to_uid)
    _touch(tx, from_uid, before)
    return created


def insert_link(tx: Tx, from_uid: str, sending: str, to_uid: str, receiving: str) -> catalog.NetworkLink:
    """Writes and records a link between two agents that are there. The caller records what it does to the agents."""
    uid = tx.ids.uid("link")
    tx.connection.execute(
        insert(network_links).values(uid=uid, from_uid=from_uid, to_uid=to_uid, time=tx.now, revision=tx.revision)
    )
    created = catalog.NetworkLink(
        from_agent=sending, to_agent=receiving, uid=uid, create_time=timestamp(tx.now), revision=tx.revision
    )
    tx.record("NETWORK_LINK", link_name(sending, receiving), uid, None, created)
    return created


def drop_network_link(tx: Tx, request: catalog.DropNetworkLinkRequest) -> catalog.NetworkLink | None:
    """Deletes a link that no query sends data along."""
    sending, receiving = fold(request.from_agent), fold(request.to_agent)
    row = _find(tx, sending, receiving)
    if row is None:
        if request.allow_missing:
            return None
        raise _not_found(sending, receiving)
    using = references.find(
        tx,
        "query",
        select(queries.c.name, queries.c.state)
        .join(query_links, query_links.c.query_uid == queries.c.uid)
        .where(query_links.c.link_uid == row.uid, queries.c.state.not_in(QUERY_ENDED)),
    )
    if using is not None:
        raise references.in_use(LINK_IN_USE, f"the link from {sending} to {receiving}", [using])
    # Ended queries send nothing: they only remember that they did.
    tx.connection.execute(delete(query_links).where(query_links.c.link_uid == row.uid))
    before = agent_by_uid(tx, row.from_uid)
    dropped = _delete(tx, row)
    _touch(tx, row.from_uid, before)
    return dropped


def delete_links_of(tx: Tx, uid: str) -> None:
    """Deletes every link from and to an agent that is gone for good, though queries were placed along them."""
    rows = tx.connection.execute(
        _LINKS.where(or_(network_links.c.from_uid == uid, network_links.c.to_uid == uid)).order_by(network_links.c.uid)
    ).all()
    for row in rows:
        before = agent_by_uid(tx, row.from_uid)
        tx.connection.execute(delete(query_links).where(query_links.c.link_uid == row.uid))
        _delete(tx, row)
        _touch(tx, row.from_uid, before)


def take_links(tx: Tx, query_uid: str, plan: catalog.QueryPlan) -> None:
    """Notes the links that the data of a query takes; `plan` has its fragments where they are now."""
    placed = {fragment.ordinal: fragment.agent for fragment in plan.fragments}
    ways = {(placed[edge.from_fragment], placed[edge.to_fragment]) for edge in plan.edges}
    tx.connection.execute(delete(query_links).where(query_links.c.query_uid == query_uid))
    taken = [row.uid for row in all_links(tx) if (row.from_agent, row.to_agent) in ways]
    if taken:
        tx.connection.execute(insert(query_links), [{"query_uid": query_uid, "link_uid": uid} for uid in taken])


def _take_for_running(tx: Tx, link_uid: str, from_uid: str, to_uid: str) -> None:
    """Notes the new link for queries that send data that way already: they were placed when no link was declared."""
    using = dict.fromkeys(
        row.uid
        for row in tx.connection.execute(_BETWEEN, {"from_": from_uid, "to_": to_uid})
        if any(
            (edge.from_fragment, edge.to_fragment) == (row.from_ordinal, row.to_ordinal)
            for edge in catalog.QueryPlan.FromString(row.plan).edges
        )
    )
    if using:
        tx.connection.execute(insert(query_links), [{"query_uid": uid, "link_uid": link_uid} for uid in using])


def get_network_link(tx: Tx, request: catalog.GetNetworkLinkRequest) -> catalog.NetworkLink:
    sending, receiving = fold(request.from_agent), fold(request.to_agent)
    row = _find(tx, sending, receiving)
    if row is None:
        raise _not_found(sending, receiving)
    return message(row)


def list_network_links(tx: Tx, request: catalog.ListNetworkLinksRequest) -> catalog.ListNetworkLinksResponse:
    filters = []
    if request.agent:
        name = fold(request.agent)
        filters.append(or_(_sending.c.name == name, _receiving.c.name == name))
    key = [_LINKS.selected_columns.from_agent, _LINKS.selected_columns.to_agent]
    found = page(tx, request, _LINKS, key, filters)
    return catalog.ListNetworkLinksResponse(
        network_links=[message(row) for row in found.rows],
        next_page_token=found.next_page_token,
        revision=tx.revision,
    )


_ALL = _LINKS.order_by(_sending.c.name, _receiving.c.name)


def all_links(tx: Tx) -> Iterable[AnyRow]:
    """Every link, with the uids and names of its agents."""
    return tx.connection.execute(_ALL)


def names_of(uid: str) -> Select[str, str]:
    """Selects the names of the links from and to an agent, each with an empty state."""
    return (
        select((_sending.c.name + "->" + _receiving.c.name).label("name"), literal(""))
        .select_from(network_links)
        .join(_sending, _sending.c.uid == network_links.c.from_uid)
        .join(_receiving, _receiving.c.uid == network_links.c.to_uid)
        .where(or_(network_links.c.from_uid == uid, network_links.c.to_uid == uid))
    )


def link_name(sending: str, receiving: str) -> str:
    """What a link is called in the watch history and in errors."""
    return f"{sending}->{receiving}"


def message(row: AnyRow) -> catalog.NetworkLink:
    return catalog.NetworkLink(
        from_agent=row.from_agent,
        to_agent=row.to_agent,
        uid=row.uid,
        create_time=timestamp(row.time),
        revision=row.revision,
    )


def _find(tx: Tx, sending: str, receiving: str) -> AnyRow | None:
    return tx.connection.execute(_LINKS.where(_sending.c.name == sending, _receiving.c.name == receiving)).one_or_none()


def _delete(tx: Tx, row: AnyRow) -> catalog.NetworkLink:
    dropped = message(row)
    tx.connection.execute(delete(network_links).where(network_links.c.uid == row.uid))
    tx.record("NETWORK_LINK", link_name(row.from_agent, row.to_agent), row.uid, dropped, None)
    return dropped


def _touch(tx: Tx, uid: str, before: catalog.Agent) -> None:
    """Records that the peers of the sending agent changed."""
    tx.connection.execute(update(agents).where(agents.c.uid == uid).values(revision=tx.revision))
    tx.record("AGENT", before.name, uid, before, agent_by_uid(tx, uid))


def _not_found(sending: str, receiving: str) -> HeadgateError:
    return HeadgateError(
        NETWORK_LINK_NOT_FOUND,
        f"there is no link from {sending} to {receiving}",
        metadata={"kind": "network link", "name": link_name(sending, receiving)},
    )
