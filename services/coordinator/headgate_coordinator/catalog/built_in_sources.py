"""What feeds the built-in sources, for whoever asks for it by the source's name: no row of the catalog says it."""

from __future__ import annotations

from sqlalchemy import select

from headgate.catalog import v1 as catalog
from headgate_coordinator.catalog import agent_rows, pages
from headgate_coordinator.catalog.descriptors import built_in_source, every_feed
from headgate_coordinator.catalog.schema import agents
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.sql.names import fold

_AGENTS = select(agents).order_by(agents.c.name)


def feeds(tx: Tx, name: str) -> list[catalog.PhysicalSource]:
    """What a query that was created now could read the built-in source from, by name; nothing for other sources."""
    found = built_in_source(fold(name))
    if found is None:
        return []
    return every_feed(found.uid, agent_rows.messages(tx, tx.connection.execute(_AGENTS).all()))


def list_feeds(tx: Tx, request: catalog.ListPhysicalSourcesRequest) -> catalog.ListPhysicalSourcesResponse:
    """Pages and filters as for those that were created."""
    last = pages.position(request, [str])
    size = pages.page_size(request)
    found = [
        feed
        for feed in feeds(tx, request.logical_source)
        if (last is None or feed.name > str(last[0]))
        and (not request.agent or feed.agent == fold(request.agent))
        and request.type in (catalog.SOURCE_TYPE_UNSPECIFIED, feed.type)
    ]
    return catalog.ListPhysicalSourcesResponse(
        physical_sources=found[:size],
        next_page_token=pages.token(request, (found[size - 1].name,)) if len(found) > size else "",
        revision=tx.revision,
    )
