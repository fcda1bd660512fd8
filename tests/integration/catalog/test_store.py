"""The contract of `Store`, on every store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
from sqlalchemy import select

from headgate_common.errors import INTERNAL, OVERLOADED, SHUTTING_DOWN, HeadgateError
from headgate_coordinator.catalog import changes, schema, sessions
from headgate_coordinator.catalog.store import LEADER_KEY, LEADER_KIND, Store
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.errors import ALREADY_EXISTS, NOT_LEADER
from tests.integration.catalog.kit import SETTINGS, Databases, change, create, drop, names, together


async def test_a_write_returns_its_result_and_is_read_back(store: Store) -> None:
    made = await store.write(create("a"))
    assert made.revision == 1
    assert await store.read(names) == ["a"]
    assert await store.read(lambda tx: tx.revision) == 1


async def test_an_error_rolls_back_its_own_operation_alone(store: Store) -> None:
    def fails(tx: Tx) -> None:
        create("lost")(tx)
        raise HeadgateError(ALREADY_EXISTS, "no")

    async def refused() -> None:
        with pytest.raises(HeadgateError) as caught:
            await store.write(fails)
        assert caught.value.reason is ALREADY_EXISTS

    await asyncio.gather(*(store.write(create(f"kept{i}")) for i in range(20)), *(refused() for _ in range(20)))
    assert await store.read(names) == sorted(f"kept{i}" for i in range(20))
    assert await store.read(lambda tx: tx.revision) == 20


async def test_an_unforeseen_refusal_of_the_database_is_a_defect_and_spoils_nothing_else(store: Store) -> None:
    def doubled(tx: Tx) -> None:
        row = {"uid": "same", "name": "same", "schema": b"", "time": 0, "revision": 0}
        tx.connection.execute(schema.logical_sources.insert(), row)
        tx.connection.execute(schema.logical_sources.insert(), row)

    answers = await asyncio.gather(
        store.write(create("before")), store.write(doubled), store.write(create("after")), return_exceptions=True
    )
    assert isinstance(answers[1], HeadgateError)
    assert answers[1].reason is INTERNAL
    assert answers[1].metadata["incident"]
    assert await store.read(names) == ["after", "before"]


async def test_an_exception_of_the_operation_reaches_the_caller_unchanged(store: Store) -> None:
    def defect(_: Tx) -> None:
        raise ZeroDivisionError("a defect")

    with pytest.raises(ZeroDivisionError):
        await store.write(defect)
    with pytest.raises(ZeroDivisionError):
        await store.read(defect)
    assert (await store.write(create("a"))).revision == 1


async def test_64_writers_get_dense_revisions_of_their_own(store: Store) -> None:
    async def writer(number: int) -> list[int]:
        return [(await store.write(create(f"w{number}-{turn}"))).revision for turn in range(10)]

    found = await asyncio.gather(*(writer(number) for number in range(64)))
    assert sorted(revision for each in found for revision in each) == list(range(1, 641))
    assert all(each == sorted(each) for each in found)
    assert await store.read(lambda tx: tx.revision) == 640


async def test_64_writers_of_two_processes_take_a_shared_stock_exactly_once(databases: Databases) -> None:
    """A read and a write that depends on it, as slots are taken: nothing is taken twice, nothing is left."""
    first, second = await databases.open(), await databases.open()
    await asyncio.gather(*(first.write(create(f"slot{number}")) for number in range(10)))

    def take(tx: Tx) -> str:
        left = names(tx)
        if not left:
            raise HeadgateError(ALREADY_EXISTS, "nothing left")
        drop(left[0])(tx)
        return left[0]

    answers = await asyncio.gather(
        *((first, second)[number % 2].write(take) for number in range(64)), return_exceptions=True
    )
    taken = [answer for answer in answers if isinstance(answer, str)]
    refused = [answer for answer in answers if isinstance(answer, HeadgateError)]
    assert sorted(taken) == sorted(f"slot{number}" for number in range(10))
    assert len(refused) == 54
    assert first.stats.retries + second.stats.retries == 0, "serial writers never have to try again"
    assert all(error.reason is ALREADY_EXISTS for error in refused)
    assert await second.read(lambda tx: tx.revision) == 20


async def test_what_records_nothing_takes_no_revision_and_is_kept(store: Store) -> None:
    session = await store.write(lambda tx: sessions.open_session(tx, "c1", "host:1", 3.0))
    assert await store.read(lambda tx: tx.revision) == 0
    assert await store.read(lambda tx: sessions.get_session(tx, session.uid)) == session


async def test_a_change_that_was_undone_in_its_own_transaction_takes_no_revision(store: Store) -> None:
    await store.write(together(create("a"), drop("a")))
    assert await store.read(lambda tx: tx.revision) == 0
    revision = await store.write(together(create("a"), change("a", 1), change("a", 2)))
    assert revision == 1
    (only,) = await store.read(lambda tx: changes.history(tx, 0, 10))
    (single,) = only.changes
    assert single.before is None
    assert single.after is not None
    assert len(single.after.schema.fields) == 2  # type: ignore[attr-defined]


@pytest.mark.parametrize("databases", ["sqlite", "postgres"], indirect=True)
async def test_a_read_sees_one_snapshot_while_writers_go_on(databases: Databases) -> None:
    store = await databases.open()
    loop = asyncio.get_running_loop()
    seen: list[list[str]] = []

    def reads_twice(tx: Tx) -> int:
        seen.append(names(tx))
        asyncio.run_coroutine_threadsafe(store.write(create("meanwhile")), loop).result(30)
        seen.append(names(tx))
        return tx.revision

    assert await store.read(reads_twice) == 0
    assert seen == [[], []]
    assert await store.read(names) == ["meanwhile"]


async def test_a_read_cannot_write(store: Store) -> None:
    with pytest.raises(Exception, match=r"(?i)read.?only|wrote"):
        await store.read(create("a"))
    assert await store.read(names) == []


async def test_a_term_that_leads_may_write_and_an_older_one_is_told_who_leads(store: Store) -> None:
    def lead(holder: str) -> Callable[[Tx], tuple[str, int]]:
        def operation(tx: Tx) -> tuple[str, int]:
            session = sessions.open_session(tx, holder, f"{holder}:7000", 3.0)
            return session.uid, sessions.acquire(tx, LEADER_KIND, LEADER_KEY, session.uid)

        return operation

    with pytest.raises(HeadgateError) as nobody:
        await store.write(create("a"), term=1)
    assert nobody.value.reason is NOT_LEADER
    first, term = await store.write(lead("one"))
    await store.write(create("a"), term=term)
    await store.write(lambda tx: sessions.close(tx, first))
    with pytest.raises(HeadgateError) as released:
        await store.write(create("b"), term=term)
    assert released.value.reason is NOT_LEADER
    _, newer = await store.write(lead("two"))
    assert newer == term + 1
    with pytest.raises(HeadgateError) as stale:
        await store.write(create("b"), term=term)
    assert stale.value.reason is NOT_LEADER
    assert stale.value.metadata == {"leader": "two:7000", "term": str(newer)}
    assert await store.read(names) == ["a"]


async def test_callbacks_run_after_the_commit_and_never_after_a_rollback(store: Store) -> None:
    called: list[str] = []

    def works(tx: Tx) -> None:
        create("a")(tx)
        tx.after_commit.append(lambda: called.append("works"))

    def fails(tx: Tx) -> None:
        tx.after_commit.append(lambda: called.append("fails"))
        raise HeadgateError(ALREADY_EXISTS, "no")

    await asyncio.gather(store.write(works), store.write(fails), return_exceptions=True)
    assert called == ["works"]


async def test_the_time_of_a_change_is_written_down(store: Store) -> None:
    await store.write(create("a"))
    now = await store.read(lambda tx: tx.now)
    (revision,) = await store.read(lambda tx: changes.history(tx, 0, 10))
    assert 0 <= now - revision.time < 3600 * 1_000_000


async def test_a_closed_store_refuses_and_its_subscribers_are_told(databases: Databases) -> None:
    store = await databases.open()
    subscription = store.changes.subscribe()
    await store.close()
    with pytest.raises(HeadgateError) as write:
        await store.write(create("a"))
    with pytest.raises(HeadgateError) as read:
        await store.read(names)
    with pytest.raises(HeadgateError) as feed:
        await subscription.get()
    assert {write.value.reason, read.value.reason, feed.value.reason} == {SHUTTING_DOWN}
    assert await (await databases.open()).read(names) == []


@pytest.mark.parametrize("databases", ["sqlite", "postgres"], indirect=True)
async def test_beyond_the_queue_the_answer_is_overloaded_with_a_delay_and_nothing_is_done(
    databases: Databases,
) -> None:
    store = await databases.open(replace(SETTINGS, max_waiting=8, max_group=2))
    answers = await asyncio.gather(*(store.write(create(f"s{i}")) for i in range(100)), return_exceptions=True)
    refused = [answer for answer in answers if isinstance(answer, HeadgateError)]
    done = [answer for answer in answers if not isinstance(answer, BaseException)]
    assert len(refused) + len(done) == 100
    assert len(refused) >= 100 - 8 - 2
    assert all(error.reason is OVERLOADED and error.retry_after for error in refused)
    assert len(await store.read(names)) == len(done)


@pytest.mark.parametrize("databases", ["sqlite", "postgres"], indirect=True)
async def test_operations_that_wait_share_a_commit(databases: Databases) -> None:
    store = await databases.open()
    await asyncio.gather(*(store.write(create(f"s{i}")) for i in range(65)))
    assert store.stats.writes == 65
    assert store.stats.commits <= 3
    revisions = await store.read(lambda tx: changes.history(tx, 0, 100))
    assert [revision.number for revision in revisions] == list(range(1, 66))


@pytest.mark.parametrize("databases", ["sqlite", "postgres"], indirect=True)
async def test_a_caller_that_gives_up_while_it_waits_takes_its_operation_along(databases: Databases) -> None:
    store = await databases.open(replace(SETTINGS, max_group=1))
    first = asyncio.create_task(store.write(create("first")))
    second = asyncio.create_task(store.write(create("second")))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.wait([first, second])
    await store.write(create("third"))
    assert await store.read(names) == ["first", "third"]


async def test_the_feed_hands_out_every_revision_in_order(store: Store) -> None:
    subscription = store.changes.subscribe()
    await asyncio.gather(*(store.write(create(f"s{i}")) for i in range(50)))
    got = [await asyncio.wait_for(subscription.get(), 60) for _ in range(50)]
    assert [revision.number for revision in got] == list(range(1, 51))
    stored = await store.read(lambda tx: changes.history(tx, 0, 100))
    assert got == stored


async def test_the_feed_learns_what_another_process_committed(databases: Databases) -> None:
    first, second = await databases.open(), await databases.open()
    ours, theirs = first.changes.subscribe(), second.changes.subscribe()
    for turn in range(10):
        await asyncio.gather(first.write(create(f"a{turn}")), second.write(create(f"b{turn}")))
    await first.write(create("last"))
    for subscription in (ours, theirs):
        got = [await asyncio.wait_for(subscription.get(), 60) for _ in range(21)]
        assert [revision.number for revision in got] == list(range(1, 22))
        assert got == await first.read(lambda tx: changes.history(tx, 0, 100))


async def test_a_store_opened_again_goes_on_after_the_last_revision(databases: Databases) -> None:
    store = await databases.open()
    await store.write(create("a"))
    await store.close()
    again = await databases.open()
    subscription = again.changes.subscribe()
    assert (await again.write(create("b"))).revision == 2
    assert (await asyncio.wait_for(subscription.get(), 60)).number == 2
    rows = await again.read(lambda tx: tx.connection.execute(select(schema.revision)).all())
    assert [tuple(row) for row in rows] == [(1, 2, 0)]
