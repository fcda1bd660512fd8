"""The inline store: deterministic, fails where it is told to, and keeps only what was committed."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime, timedelta

import pytest

from headgate_common.errors import SHUTTING_DOWN, HeadgateError
from headgate_common.ids import RandomIds
from headgate_coordinator.catalog.inline import InlineDatabase, InlineStore
from headgate_coordinator.catalog.store import StoreSettings, unavailable, uncertain
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.errors import ALREADY_EXISTS, CATALOG_UNAVAILABLE, CATALOG_UNCERTAIN
from tests.integration.catalog.kit import create, names

SETTINGS = StoreSettings(poll_interval=0.01)


class StandingClock:
    """A clock that moves only when it is told to."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds

    def wall(self) -> datetime:
        return datetime(2030, 1, 1, tzinfo=UTC) + timedelta(seconds=self.seconds)


def opened(database: InlineDatabase, seed: int = 1) -> InlineStore:
    return InlineStore(database, clock=StandingClock(), ids=RandomIds(random.Random(seed)), settings=SETTINGS)


async def test_a_commit_that_fails_before_it_takes_effect_leaves_nothing() -> None:
    store = opened(InlineDatabase())

    async def fail() -> None:
        raise unavailable("simulated")

    store.before_commit = fail
    with pytest.raises(HeadgateError) as caught:
        await store.write(create("a"))
    assert caught.value.reason is CATALOG_UNAVAILABLE
    store.before_commit = None
    assert await store.read(names) == []
    assert (await store.write(create("a"))).revision == 1


async def test_a_commit_that_fails_after_it_took_effect_stands_and_the_feed_learns_of_it_later() -> None:
    store = opened(InlineDatabase())
    subscription = store.changes.subscribe()

    async def fail() -> None:
        raise uncertain("simulated")

    store.after_commit = fail
    with pytest.raises(HeadgateError) as caught:
        await store.write(create("a"))
    assert caught.value.reason is CATALOG_UNCERTAIN
    assert await store.read(names) == ["a"]
    assert subscription.get_nowait() is None
    assert (await asyncio.wait_for(subscription.get(), 60)).number == 1


async def test_an_error_of_the_operation_comes_before_one_of_the_commit() -> None:
    store = opened(InlineDatabase())
    await store.write(create("a"))

    async def fail() -> None:
        raise unavailable("simulated")

    store.before_commit = fail
    with pytest.raises(HeadgateError) as caught:
        await store.write(create("a"))
    assert caught.value.reason is ALREADY_EXISTS


async def test_a_paused_commit_lets_others_pass_and_every_revision_is_published_in_order() -> None:
    store = opened(InlineDatabase())
    subscription = store.changes.subscribe()
    go = asyncio.Event()

    async def pause() -> None:
        store.after_commit = None
        await go.wait()

    store.after_commit = pause
    slow = asyncio.create_task(store.write(create("slow")))
    await asyncio.sleep(0)
    assert (await store.write(create("quick"))).revision == 2
    assert store.changes.position == 2, "published at once, from the history"
    assert [revision.number for revision in await subscription.get_all()] == [1, 2]
    go.set()
    assert (await slow).revision == 1
    assert subscription.get_nowait() is None


async def test_a_crash_keeps_only_what_was_committed() -> None:
    database = InlineDatabase()
    store = opened(database)
    await store.write(create("kept"))
    go = asyncio.Event()

    async def pause() -> None:
        await go.wait()

    store.before_commit = pause
    lost = asyncio.create_task(store.write(create("lost")))
    await asyncio.sleep(0)
    store.crash()
    go.set()
    with pytest.raises(HeadgateError) as caught:
        await lost
    assert caught.value.reason is SHUTTING_DOWN
    again = opened(database, seed=2)
    assert await again.read(names) == ["kept"]
    assert again.changes.position == 1
    assert (await again.write(create("next"))).revision == 2


async def test_a_crash_inside_an_operation_rolls_it_back() -> None:
    class Killed(BaseException):
        pass

    def dies(tx: Tx) -> None:
        create("half")(tx)
        raise Killed

    database = InlineDatabase()
    store = opened(database)
    with pytest.raises(Killed):
        await store.write(dies)
    store.crash()
    assert await opened(database).read(names) == []


async def test_two_stores_on_one_database_see_each_other() -> None:
    database = InlineDatabase()
    first, second = opened(database, 1), opened(database, 2)
    subscription = second.changes.subscribe()
    await first.write(create("a"))
    assert subscription.get_nowait() is None
    assert (await asyncio.wait_for(subscription.get(), 60)).number == 1
    assert (await second.write(create("b"))).revision == 2


async def test_an_image_is_another_database_that_goes_its_own_way() -> None:
    database = InlineDatabase()
    store = opened(database)
    await store.write(create("a"))
    copy = opened(InlineDatabase(database.image()), seed=2)
    await store.write(create("only-here"))
    assert await copy.read(names) == ["a"]
    assert (await copy.write(create("b"))).revision == 2
    with pytest.raises(HeadgateError):
        await copy.write(lambda tx: tx.connection.exec_driver_sql("DELETE FROM revision"))


async def test_the_same_seed_gives_the_same_catalog_to_the_byte() -> None:
    async def run() -> bytes:
        database = InlineDatabase()
        store = opened(database, seed=42)
        for number in range(20):
            await store.write(create(f"s{number}"))
        return database.image()

    assert await run() == await run()


async def test_times_are_those_of_the_clock_passed_in() -> None:
    clock = StandingClock()
    store = InlineStore(InlineDatabase(), clock=clock, ids=RandomIds())
    clock.seconds = 5.0
    assert await store.read(lambda tx: tx.now) == int(clock.wall().timestamp() * 1_000_000)
