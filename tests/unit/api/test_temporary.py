"""Temporary queries: made without a sink, and gone some time after their end."""

from __future__ import annotations

from sqlalchemy import update

from headgate.catalog import v1 as catalog
from headgate_common.errors import INVALID_ARGUMENT
from headgate_coordinator.catalog import queries, schema
from headgate_coordinator.errors import BIND_ERROR, QUERY_NOT_FOUND
from tests.unit.api.kit import Client

SELECT = "SELECT highway, speed * 2 FROM lrb LIMIT 3"


def asked(**more: object) -> catalog.CreateQueryRequest:
    return catalog.CreateQueryRequest(statement=SELECT, temporary=True, **more)  # type: ignore[arg-type]


async def test_a_temporary_query_has_no_sink_and_says_so(client: Client) -> None:
    await client.cluster()
    query = (await client(asked())).query
    assert query.temporary and not query.sinks
    assert query.name == query.uid
    assert (await client(catalog.GetQueryRequest(name=query.name))).query.temporary
    kinds = [one.kind for one in (await client(catalog.ListFragmentsRequest(query=query.name))).fragments]
    assert kinds == [catalog.FRAGMENT_KIND_SOURCE, catalog.FRAGMENT_KIND_COMPUTE, catalog.FRAGMENT_KIND_SINK]


async def test_without_being_temporary_a_query_needs_a_sink(client: Client) -> None:
    await client.cluster()
    await client.refused(catalog.CreateQueryRequest(statement="SELECT highway FROM lrb"), BIND_ERROR)


async def test_a_select_without_into_is_explained_as_the_temporary_query_that_it_would_be(client: Client) -> None:
    await client.cluster()
    before = await client.contents()
    shown = []
    for statement in (SELECT, f"EXPLAIN {SELECT}"):
        explained = await client(catalog.ExplainQueryRequest(statement=statement))
        sink = explained.plan.fragments[-1].sink
        assert (sink.type, dict(sink.options)) == (catalog.SINK_TYPE_RESULT, {"limit": "3"})
        shown.append(explained.text.splitlines())
    statement = catalog.ExecuteStatementRequest(statement=f"EXPLAIN {SELECT}")
    rehearsed = catalog.ExecuteStatementRequest(statement=f"DROP SINK out; EXPLAIN {SELECT}", validate_only=True)
    for request in (statement, rehearsed):
        table = (await client(request)).results[-1].table
        shown.append([row.values[0] for row in table.rows])
    assert all(lines == shown[0] for lines in shown)
    assert await client.contents() == before


async def test_a_query_with_a_name_is_not_explained_without_a_sink(client: Client) -> None:
    await client.cluster()
    named = f"CREATE QUERY q AS {SELECT.removesuffix(' LIMIT 3')}"
    for request in (
        catalog.ExplainQueryRequest(statement=named),
        catalog.ExecuteStatementRequest(statement=f"EXPLAIN {named}"),
    ):
        error = await client.refused(request, BIND_ERROR)
        assert "names no sink" in str(error)


async def test_a_temporary_query_is_no_part_of_a_bundle(client: Client) -> None:
    await client.cluster()
    bundle = catalog.ApplyBundleRequest(items=[catalog.BundleItem(create_query=asked())])
    error = await client.refused(bundle, INVALID_ARGUMENT)
    assert "stands alone" in error.message


async def test_one_that_has_ended_is_forgotten_after_its_time_and_no_other(client: Client) -> None:
    await client.cluster()
    temporary, lasting = (await client(asked())).query, "lasting"
    await client(catalog.CreateQueryRequest(name=lasting, statement="SELECT highway, speed FROM lrb INTO out"))

    async def forgotten(age: float) -> int:
        return await client.store.write(lambda tx: queries.forget_temporary(tx, age, 100))

    assert await forgotten(0.0) == 0
    for name in (temporary.name, lasting):
        await client(catalog.StopQueryRequest(name=name, mode=catalog.STOP_MODE_HARD))
    # As the reconciler does once every fragment is gone.
    ended = update(schema.fragments).values(state="STOPPED", slots_held=False)
    await client.store.write(lambda tx: tx.connection.execute(ended))
    for state in ("STOPPING", "STOPPED"):
        moved = update(schema.queries).values(state=state, state_time=0)
        await client.store.write(lambda tx, moved=moved: tx.connection.execute(moved))
    assert await forgotten(10**12) == 0
    assert await forgotten(60.0) == 1
    await client.refused(catalog.GetQueryRequest(name=temporary.name), QUERY_NOT_FOUND)
    assert (await client(catalog.GetQueryRequest(name=lasting))).query.name == lasting
