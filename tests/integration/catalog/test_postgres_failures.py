"""Postgres that breaks connections, refuses, stands still or is out of reach: what a caller is told is true."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from dataclasses import replace

import psycopg
import pytest

from headgate_common.clock import SystemClock
from headgate_common.errors import HeadgateError
from headgate_common.ids import RandomIds
from headgate_coordinator.catalog import changes
from headgate_coordinator.catalog.postgres import PostgresStore
from headgate_coordinator.catalog.store import StoreSettings
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.errors import CATALOG_UNAVAILABLE, CATALOG_UNCERTAIN
from tests.integration.catalog.kit import SETTINGS, create, names
from tests.integration.catalog.proxy import Proxy, proxied
from tests.integration.catalog.test_requests import create_once


async def opened(url: str, settings: StoreSettings = SETTINGS) -> PostgresStore:
    return await PostgresStore(url, clock=SystemClock(), ids=RandomIds(), settings=settings).start()


@pytest.fixture
async def proxy_and_store(postgres_url: str) -> AsyncIterator[tuple[Proxy, PostgresStore]]:
    async with proxied(postgres_url) as (proxy, url):
        store = await opened(url)
        yield proxy, store
        await store.close()


@pytest.mark.parametrize(("cut", "happened"), [("commit", False), ("after", True)])
async def test_a_connection_lost_in_the_commit_is_uncertain_and_a_retry_by_request_id_is_safe(
    proxy_and_store: tuple[Proxy, PostgresStore], cut: str, happened: bool
) -> None:
    proxy, store = proxy_and_store
    subscription = store.changes.subscribe()
    await store.write(create("before"))
    proxy.cut = cut
    with pytest.raises(HeadgateError) as caught:
        await store.write(create_once("a", "request-1"))
    assert caught.value.reason is CATALOG_UNCERTAIN
    assert proxy.cuts == 1
    assert (await store.read(names) == ["a", "before"]) is happened
    await store.write(create_once("a", "request-1"))
    assert await store.read(names) == ["a", "before"]
    assert await store.read(lambda tx: tx.revision) == 2
    got = [await asyncio.wait_for(subscription.get(), 30) for _ in range(2)]
    assert [revision.number for revision in got] == [1, 2]


async def test_every_operation_of_an_uncertain_group_is_uncertain(
    proxy_and_store: tuple[Proxy, PostgresStore],
) -> None:
    proxy, store = proxy_and_store
    first = asyncio.create_task(store.write(create("first")))
    await asyncio.sleep(0)
    rest = [asyncio.create_task(store.write(create(f"s{number}"))) for number in range(5)]
    await first
    proxy.cut = "commit"
    answers = await asyncio.gather(*rest, return_exceptions=True)
    reasons = {answer.reason for answer in answers if isinstance(answer, HeadgateError)}
    assert reasons == {CATALOG_UNCERTAIN}
    assert await store.read(names) == ["first"]


async def test_a_connection_lost_before_the_commit_is_made_anew_and_the_operation_done_once(
    proxy_and_store: tuple[Proxy, PostgresStore],
) -> None:
    proxy, store = proxy_and_store
    await store.write(create("before"))
    proxy.break_all()
    await store.write(create("a"))
    assert await store.read(names) == ["a", "before"]
    assert store.stats.retries >= 1


async def test_a_backend_ended_in_the_middle_of_an_operation_is_made_anew(postgres_url: str) -> None:
    store = await opened(postgres_url)
    runs: list[int] = []

    def operation(tx: Tx) -> None:
        create("a")(tx)
        pid = tx.connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
        runs.append(pid)
        if len(runs) == 1:
            with psycopg.connect(postgres_url) as other:
                other.execute("SELECT pg_terminate_backend(%s, 10000)", (pid,))
        tx.connection.exec_driver_sql("SELECT 1")

    await store.write(operation)
    assert len(set(runs)) == 2
    assert await store.read(lambda tx: (names(tx), tx.revision)) == (["a"], 1)
    await store.close()


async def test_a_database_out_of_reach_is_unavailable_until_it_is_back(
    proxy_and_store: tuple[Proxy, PostgresStore],
) -> None:
    proxy, store = proxy_and_store
    proxy.refusing = True
    proxy.break_all()
    for attempt in (store.write(create("a")), store.read(names)):
        with pytest.raises(HeadgateError) as caught:
            await attempt
        assert caught.value.reason is CATALOG_UNAVAILABLE
    proxy.refusing = False
    await store.write(create("a"))
    assert await store.read(names) == ["a"]


async def test_the_feed_finds_what_others_committed_while_the_database_was_out_of_reach(postgres_url: str) -> None:
    other = await opened(postgres_url)
    async with proxied(postgres_url) as (proxy, url):
        store = await opened(url)
        subscription = store.changes.subscribe()
        proxy.refusing = True
        proxy.break_all()
        await asyncio.gather(*(other.write(create(f"s{number}")) for number in range(10)))
        await asyncio.sleep(0.1)
        assert subscription.get_nowait() is None
        proxy.refusing = False
        got = [await asyncio.wait_for(subscription.get(), 30) for _ in range(10)]
        assert [revision.number for revision in got] == list(range(1, 11))
        await store.close()
    await other.close()


@pytest.mark.parametrize("state", ["40001", "40P01"])
async def test_a_transaction_that_lost_to_another_is_run_again(postgres_url: str, state: str) -> None:
    store = await opened(postgres_url)
    runs: list[int] = []

    def operation(tx: Tx) -> int:
        runs.append(tx.revision)
        create("a")(tx)
        if len(runs) < 4:
            tx.connection.exec_driver_sql(f"DO $$ BEGIN RAISE 'lost' USING ERRCODE = '{state}'; END $$")
        return len(runs)

    answers = await asyncio.gather(store.write(operation), store.write(create("b")))
    assert answers[0] == 4
    assert store.stats.retries == 3
    assert await store.read(names) == ["a", "b"]
    await store.close()


async def test_a_transaction_that_always_loses_is_given_up_and_nothing_is_done(postgres_url: str) -> None:
    store = await opened(postgres_url, replace(SETTINGS, max_attempts=3))

    def operation(tx: Tx) -> None:
        create("a")(tx)
        tx.connection.exec_driver_sql("DO $$ BEGIN RAISE 'lost' USING ERRCODE = '40001'; END $$")

    with pytest.raises(HeadgateError) as caught:
        await store.write(operation)
    assert caught.value.reason is CATALOG_UNAVAILABLE
    assert await store.read(names) == []
    await store.close()


async def test_a_lock_that_is_never_given_back_makes_writes_unavailable_not_endless(postgres_url: str) -> None:
    store = await opened(postgres_url, replace(SETTINGS, lock_timeout=0.1))
    async with await psycopg.AsyncConnection.connect(postgres_url) as other:
        await other.execute("LOCK TABLE revision IN EXCLUSIVE MODE")
        with pytest.raises(HeadgateError) as caught:
            await store.write(create("a"))
        assert caught.value.reason is CATALOG_UNAVAILABLE
        assert await store.read(names) == [], "reads never wait for a writer"
        await other.rollback()
    await store.write(create("a"))
    await store.close()


async def test_a_process_that_stands_still_in_a_transaction_keeps_the_others_waiting_only_so_long(
    postgres_url: str,
) -> None:
    """As after SIGSTOP: the database ends its transaction, the others go on, and nothing of it happened twice."""
    settings = replace(SETTINGS, idle_transaction_timeout=0.2)
    standing, going = await opened(postgres_url, settings), await opened(postgres_url, settings)
    still, stands = threading.Event(), threading.Event()
    runs: list[int] = []

    def stands_still(tx: Tx) -> int:
        create("late")(tx)
        runs.append(tx.revision)
        stands.set()
        assert still.wait(60)
        return tx.revision

    late = asyncio.create_task(standing.write(stands_still))
    assert await asyncio.to_thread(stands.wait, 30)
    made = await asyncio.wait_for(going.write(create("a")), 30)
    assert made.revision == 1
    still.set()
    assert await late == 2
    assert runs == [1, 2]
    history = await going.read(lambda tx: changes.history(tx, 0, 10))
    assert [[change.name for change in revision.changes] for revision in history] == [["a"], ["late"]]
    await standing.close()
    await going.close()


async def test_what_is_read_and_written_is_guarded_by_serializable_isolation(postgres_url: str) -> None:
    store = await opened(postgres_url)
    level = "SHOW transaction_isolation"
    read_only = "SHOW transaction_read_only"
    assert await store.write(lambda tx: tx.connection.exec_driver_sql(level).scalar_one()) == "serializable"
    assert await store.read(lambda tx: tx.connection.exec_driver_sql(level).scalar_one()) == "repeatable read"
    assert await store.read(lambda tx: tx.connection.exec_driver_sql(read_only).scalar_one()) == "on"
    await store.close()
