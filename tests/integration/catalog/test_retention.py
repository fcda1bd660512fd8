"""What the leader forgets: by age and count, in bounded parts, never what must be kept."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from sqlalchemy import func, select

from headgate_common.clock import SystemClock
from headgate_common.errors import HeadgateError
from headgate_coordinator.catalog import changes, schema, sessions
from headgate_coordinator.catalog.retention import Aged, Retention, RetentionSettings, compact
from headgate_coordinator.catalog.store import LEADER_KEY, LEADER_KIND, Store
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.errors import NOT_LEADER, REVISION_COMPACTED
from tests.integration.catalog.kit import SETTINGS, Databases, create

AGED = RetentionSettings(history_age=-3600.0, min_revisions=10)
YOUNG = RetentionSettings(history_age=3600.0, min_revisions=10)


async def filled(store: Store, count: int = 40) -> None:
    for number in range(count):
        await store.write(create(f"s{number}"))


def stored(tx: Tx) -> tuple[int, int]:
    """The first revision in the history and how many rows there are."""
    row = tx.connection.execute(select(func.min(schema.changes.c.revision), func.count())).one()
    return row[0], row[1]


async def test_old_history_goes_but_the_last_revisions_stay(store: Store) -> None:
    await filled(store)
    assert await store.write(lambda tx: compact(tx, AGED, 100)) == 30
    assert await store.read(stored) == (31, 10)
    assert await store.read(lambda tx: changes.head(tx.connection)) == (40, 30)
    assert await store.write(lambda tx: compact(tx, AGED, 100)) == 0
    with pytest.raises(HeadgateError) as gone:
        await store.read(lambda tx: changes.history(tx, 29, 10))
    assert gone.value.reason is REVISION_COMPACTED
    assert len(await store.read(lambda tx: changes.history(tx, 30, 100))) == 10


async def test_young_history_stays_up_to_the_greatest_count(store: Store) -> None:
    await filled(store)
    assert await store.write(lambda tx: compact(tx, YOUNG, 100)) == 0
    crowded = replace(YOUNG, max_revisions=25)
    assert await store.write(lambda tx: compact(tx, crowded, 100)) == 15
    assert await store.read(stored) == (16, 25)


async def test_history_is_removed_in_bounded_parts_and_takes_no_revision(store: Store) -> None:
    await filled(store)
    assert await store.write(lambda tx: compact(tx, AGED, 7)) == 7
    assert await store.read(stored) == (8, 33)
    retention = Retention(store, replace(AGED, batch=7), clock=SystemClock())
    assert await retention.run_once() == 23
    assert await store.read(lambda tx: changes.head(tx.connection)) == (40, 30)


async def test_only_the_leader_removes_and_a_trim_of_others_runs_too(store: Store) -> None:
    def lead(tx: Tx) -> int:
        session = sessions.open_session(tx, "one", "one:1", 3.0)
        return sessions.acquire(tx, LEADER_KIND, LEADER_KEY, session.uid)

    left, done = [5], asyncio.Event()

    def trim(tx: Tx, age: float, limit: int) -> int:
        removed = min(limit, left[0])

        def removed_now() -> None:
            left[0] -= removed
            if not left[0]:
                done.set()

        tx.after_commit.append(removed_now)
        return removed

    term = await store.write(lead)
    settings = replace(AGED, interval=0.001, batch=2)
    retention = Retention(store, settings, [Aged(0.0, trim)], clock=SystemClock())
    running = asyncio.create_task(retention.run(term))
    await asyncio.wait_for(done.wait(), 30)
    running.cancel()
    with pytest.raises(HeadgateError) as stale:
        await asyncio.wait_for(retention.run(term + 1), 30)
    assert stale.value.reason is NOT_LEADER


async def test_a_feed_that_compaction_overtook_tells_its_subscribers_and_goes_on(databases: Databases) -> None:
    """The one way to fall behind the history: a process that stood still for longer than it is kept."""
    writing = await databases.open()
    standing = await databases.open(replace(SETTINGS, poll_interval=600.0))
    subscription = standing.changes.subscribe()
    await filled(writing)
    await writing.write(lambda tx: compact(tx, AGED, 100))
    await standing.write(create("mine"))
    with pytest.raises(HeadgateError) as overtaken:
        await asyncio.wait_for(subscription.get(), 30)
    assert overtaken.value.reason is REVISION_COMPACTED
    again = standing.changes.subscribe()
    made = await standing.write(create("next"))
    assert (await asyncio.wait_for(again.get(), 30)).number == made.revision
