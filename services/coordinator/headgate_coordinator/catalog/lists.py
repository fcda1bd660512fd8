"""Lists of what queries consist of and of what happened to them."""

from __future__ import annotations

from headgate.catalog import v1 as catalog
from headgate_common.errors import HeadgateError
from headgate_coordinator.catalog import fragments, query_rows, story
from headgate_coordinator.catalog.pages import page, page_size, position, token
from headgate_coordinator.catalog.schema import fragments as fragments_table
from headgate_coordinator.catalog.schema import queries
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.catalog.wire import short
from headgate_coordinator.errors import QUERY_NOT_FOUND
from headgate_coordinator.sql.names import fold


def list_fragments(tx: Tx, request: catalog.ListFragmentsRequest) -> catalog.ListFragmentsResponse:
    """Ordered by the name of the query, then by ordinal."""
    filters = []
    if request.query:
        filters.append(queries.c.name == fold(request.query))
    if request.agent:
        filters.append(fragments_table.c.agent_name == fold(request.agent))
    if request.state:
        filters.append(fragments_table.c.state == short(catalog.FragmentState, request.state))
    statement = fragments.select_fragments()
    key = [statement.selected_columns.query_name, fragments_table.c.ordinal]
    found = page(tx, request, statement, key, filters)
    return catalog.ListFragmentsResponse(
        fragments=[fragments.opened(row).message() for row in found.rows],
        next_page_token=found.next_page_token,
        revision=tx.revision,
    )


def get_story(tx: Tx, request: catalog.GetStoryRequest) -> catalog.GetStoryResponse:
    """Oldest first. A query that was dropped is found by its uid, for as long as its story is kept."""
    if request.query:
        name = fold(request.query)
        row = query_rows.query_row(tx, name)
        if row is None:
            raise query_rows.not_found(name)
        uid = row.uid
    else:
        uid = request.uid
        if not story.known(tx, uid):
            raise HeadgateError(
                QUERY_NOT_FOUND, f"there is no story of a query with the uid {uid}", metadata={"uid": uid}
            )
    last = position(request, (int, int)) or (-1, -1)
    size = page_size(request)
    found = story.entries_of(tx, uid, (int(last[0]), int(last[1])), size + 1)
    more = len(found) > size
    found = found[:size]
    return catalog.GetStoryResponse(
        entries=[entry for _, entry in found],
        next_page_token=token(request, (found[-1][1].revision, found[-1][0])) if more else "",
    )
