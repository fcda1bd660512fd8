"""The API on SQLite files and on PostgreSQL, where transactions run on threads and callers at the same time."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headgate.catalog import v1 as catalog
from headgate_common.clock import SystemClock
from headgate_common.errors import HeadgateError
from headgate_common.ids import RandomIds
from headgate_coordinator import errors
from headgate_coordinator.catalog.connect import connect
from headgate_coordinator.sql.planner import plan_query
from tests.servers.postgres import Postgres
from tests.unit.api.kit import QUERY, Client

SCHEMA = catalog.Schema(fields=[catalog.Field(name="x", type="INT32")])


@pytest.fixture(params=["sqlite", "postgres"])
async def client(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Client]:
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else f"sqlite:///{tmp_path}/c.db"
    store = await connect(url, clock=SystemClock(), ids=RandomIds(random.Random()))
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(2) as planners:
        made = await Client(store, run_planner=lambda work: loop.run_in_executor(planners, work)).lead()
        yield made
        await made.close()


async def outcomes(calls: list[Any], client: Client) -> list[str]:
    """The reason of each call's refusal, or an empty text; all at the same time."""

    async def one(request: Any) -> str:
        try:
            await client.dispatch(request)
        except HeadgateError as error:
            return error.reason.name
        return ""

    return await asyncio.gather(*(one(call) for call in calls))


async def test_one_of_many_creators_of_a_name_wins(client: Client) -> None:
    create = catalog.CreateSinkRequest(name="s", schema=SCHEMA, type=catalog.SINK_TYPE_VOID)
    assert Counter(await outcomes([create] * 32, client)) == {"": 1, "ALREADY_EXISTS": 31}
    await client.cluster()
    query = catalog.CreateQueryRequest(name="q", statement=QUERY)
    assert Counter(await outcomes([query] * 16, client)) == {"": 1, "ALREADY_EXISTS": 15}


async def test_one_request_sent_by_many_is_done_once(client: Client) -> None:
    create = catalog.CreateSinkRequest(name="s", schema=SCHEMA, type=catalog.SINK_TYPE_VOID, request_id="r")
    assert Counter(await outcomes([create] * 32, client)) == {"": 32}
    assert client.store.changes.position == 1
    create.name = "t"
    assert set(await outcomes([create] * 8, client)) == {"REQUEST_ID_CONFLICT"}


async def test_a_query_and_the_drop_of_its_sink_do_not_both_succeed(client: Client) -> None:
    """Planning happens before the transaction; what was used is looked at again inside it."""
    await client.cluster(slots=100)
    for number in range(8):
        name = f"s{number}"
        sink = catalog.CreateSinkRequest(name=name, schema=SCHEMA, type=catalog.SINK_TYPE_VOID)
        await client(sink)
        query = catalog.CreateQueryRequest(name=f"q{number}", statement=f"SELECT highway AS x FROM lrb INTO {name}")
        created, dropped = await outcomes([query, catalog.DropSinkRequest(name=name)], client)
        assert (created, dropped) in [("", "SINK_IN_USE"), ("SINK_NOT_FOUND", ""), ("BIND_ERROR", "")]
        there = {found.name for found in (await client(catalog.ListSinksRequest())).sinks}
        assert (name in there) == (created == "")


async def test_bundles_at_the_same_time_are_each_all_or_nothing(client: Client) -> None:
    def bundle(number: int) -> catalog.ApplyBundleRequest:
        items = [f"CREATE SINK own_{number} (x INT32) TYPE VOID", "CREATE SINK shared (x INT32) TYPE VOID"]
        return catalog.ApplyBundleRequest(items=[catalog.BundleItem(statement=item) for item in items])

    told = await outcomes([bundle(number) for number in range(16)], client)
    assert Counter(told) == {"": 1, "ALREADY_EXISTS": 15}
    names = {sink.name for sink in (await client(catalog.ListSinksRequest())).sinks}
    assert names == {"shared", f"own_{told.index('')}"}


async def test_bundles_that_fight_over_slots_get_what_there_is(client: Client) -> None:
    """Each takes six of twenty, so three are accepted whatever changes while they are planned."""
    await client.cluster(slots=20)

    def bundle(number: int) -> catalog.ApplyBundleRequest:
        items = [
            f"CREATE SINK s{number} (highway INT32, speed FLOAT64) TYPE FILE ON a SET ('/s' AS \"SINK\".FILE_PATH)",
            f"CREATE QUERY q{number} AS SELECT highway, speed FROM lrb INTO s{number}",
            f"CREATE QUERY r{number} AS SELECT highway, speed FROM lrb INTO s{number}",
        ]
        return catalog.ApplyBundleRequest(items=[catalog.BundleItem(statement=item) for item in items])

    told = await outcomes([bundle(number) for number in range(8)], client)
    assert Counter(told) == {"": 3, "INSUFFICIENT_CAPACITY": 5}
    assert (await client(catalog.GetAgentRequest(name="a"))).agent.slots_used == 18
    accepted = {str(number) for number, reason in enumerate(told) if not reason}
    assert {query.name[1:] for query in (await client(catalog.ListQueriesRequest())).queries} == accepted
    assert {sink.name[1:] for sink in (await client(catalog.ListSinksRequest())).sinks} == accepted | {"ut"}


async def test_a_bundle_sent_by_many_with_one_request_id_is_done_once(client: Client) -> None:
    await client.cluster(slots=100)
    request = catalog.ApplyBundleRequest(request_id="r")
    request.items.add(create_query=catalog.CreateQueryRequest(name="q", statement=QUERY))
    before = await client.store.read(lambda tx: tx.revision)
    assert Counter(await outcomes([request] * 16, client)) == {"": 16}
    assert await client.store.read(lambda tx: tx.revision) == before + 1


async def test_a_planner_that_stands_still_keeps_no_other_write_waiting(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, client: Client
) -> None:
    """Whichever thread plans a bundle, it is not the one that holds the writer."""
    await client.cluster()
    loop = asyncio.get_running_loop()
    standing, go_on = asyncio.Event(), threading.Event()
    request.addfinalizer(go_on.set)

    def stand_still(*arguments: Any, **options: Any) -> Any:
        loop.call_soon_threadsafe(standing.set)
        if not go_on.wait(60):
            raise AssertionError("nobody let the planner go on")
        return plan_query(*arguments, **options)

    monkeypatch.setattr("headgate_coordinator.api.planning.plan_query", stand_still)
    bundle = catalog.ApplyBundleRequest()
    bundle.items.add(create_query=catalog.CreateQueryRequest(name="q", statement=QUERY))
    applying = asyncio.create_task(client.dispatch(bundle))
    async with asyncio.timeout(50):
        await standing.wait()
        await client(catalog.CreateSinkRequest(name="s", schema=SCHEMA, type=catalog.SINK_TYPE_VOID))
        assert not applying.done()
        go_on.set()
        await applying
    assert (await client(catalog.GetQueryRequest(name="q"))).query.name == "q"


async def test_what_is_refused_leaves_nothing(client: Client) -> None:
    await client.cluster()
    for request, reason in (
        (catalog.DropSinkRequest(name="ghost", request_id="r"), errors.SINK_NOT_FOUND),
        (catalog.CreateQueryRequest(statement=QUERY, sink="other"), errors.SINK_CONFLICT),
        (catalog.CreateSinkRequest(name="out", schema=SCHEMA, type=catalog.SINK_TYPE_VOID), errors.ALREADY_EXISTS),
        (catalog.DropLogicalSourceRequest(name="lrb"), errors.LOGICAL_SOURCE_IN_USE),
        (catalog.ListSinksRequest(page_token="forged"), errors.INVALID_PAGE_TOKEN),
    ):
        await client.refused(request, reason)
    before = await client.contents()
    await client(catalog.CreateQueryRequest(statement=QUERY, validate_only=True))
    assert await client.contents() == before


NAMES = ["a", "a-b", "a0", "a_b", "ab", "b"]


async def listed(client: Client) -> list[str]:
    """Names of sinks, read page by page."""
    seen: list[str] = []
    request = catalog.ListSinksRequest(page_size=2)
    while True:
        found = await client(request)
        seen += [sink.name for sink in found.sinks]
        if not found.next_page_token:
            return seen
        request.page_token = found.next_page_token


async def create_named(client: Client) -> None:
    for name in reversed(NAMES):
        await client(catalog.CreateSinkRequest(name=name, schema=SCHEMA, type=catalog.SINK_TYPE_VOID))


async def test_pages_hold_every_row_once_in_the_order_of_bytes(client: Client) -> None:
    await create_named(client)
    assert await listed(client) == sorted(NAMES)
    prefixed = await client(catalog.ListSinksRequest(name_prefix="A_"))
    assert [sink.name for sink in prefixed.sinks] == ["a_b"]


async def test_the_order_does_not_depend_on_the_locale_of_the_database(postgres_server: Postgres) -> None:
    with psycopg.connect(postgres_server.url("postgres"), autocommit=True) as connection:
        connection.execute(
            "CREATE DATABASE in_english TEMPLATE template0 ENCODING 'UTF8' LOCALE_PROVIDER icu ICU_LOCALE 'en-US'"
        )
        (order,) = connection.execute("SELECT 'a_b' < 'a0' COLLATE \"en-US-x-icu\"").fetchone() or (False,)
        assert order, "the locale orders these as bytes do, so it shows nothing"
    url = postgres_server.url("in_english")
    client = await Client(await connect(url, clock=SystemClock(), ids=RandomIds(random.Random()))).lead()
    await create_named(client)
    assert await listed(client) == sorted(NAMES)
    await client.close()
    with psycopg.connect(postgres_server.url("postgres"), autocommit=True) as connection:
        connection.execute("DROP DATABASE in_english WITH (FORCE)")
