"""The feed: every revision once and in order, publishing never waits, and who lags too far is cut off."""

from __future__ import annotations

import asyncio

import pytest

from headgate_common.errors import HeadgateError
from headgate_coordinator.catalog.changes import ChangeFeed, Revision
from headgate_coordinator.errors import REVISION_COMPACTED, WATCHER_TOO_SLOW


def revisions(*numbers: int, size: int = 1) -> list[Revision]:
    return [Revision(number, 0, (), size) for number in numbers]


def numbers(subscription_items: list[Revision]) -> list[int]:
    return [revision.number for revision in subscription_items]


async def test_a_subscription_begins_after_the_position_of_the_feed() -> None:
    feed = ChangeFeed()
    assert feed.publish(revisions(1, 2))
    subscription = feed.subscribe()
    assert subscription.position == 2
    feed.publish(revisions(3, 4))
    assert numbers(await subscription.get_all()) == [3, 4]
    assert subscription.position == 4
    assert subscription.get_nowait() is None


async def test_what_was_published_before_is_dropped_and_a_gap_is_reported() -> None:
    feed = ChangeFeed(position=5)
    subscription = feed.subscribe()
    assert feed.publish(revisions(4, 5, 6))
    assert not feed.publish(revisions(8))
    assert feed.position == 6
    assert feed.publish(revisions(6, 7, 8))
    assert numbers(await subscription.get_all()) == [6, 7, 8]


async def test_waiting_is_woken_by_the_next_revision_and_safe_to_cancel() -> None:
    feed = ChangeFeed()
    subscription = feed.subscribe()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(subscription.get(), 0.01)
    waiting = asyncio.create_task(subscription.get())
    await asyncio.sleep(0)
    feed.publish(revisions(1, 2))
    assert (await waiting).number == 1
    assert (await subscription.get()).number == 2


async def test_one_that_lags_too_far_is_cut_off_and_the_others_are_not() -> None:
    feed = ChangeFeed()
    slow, quick = feed.subscribe(max_revisions=3), feed.subscribe()
    feed.publish(revisions(1))
    assert (await slow.get()).number == 1
    feed.publish(revisions(2, 3, 4, 5))
    with pytest.raises(HeadgateError) as cut:
        await slow.get()
    assert cut.value.reason is WATCHER_TOO_SLOW
    assert cut.value.metadata == {"revision": "1"}
    assert numbers(await quick.get_all()) == [1, 2, 3, 4, 5]
    assert feed.subscribers == 1


async def test_the_limit_counts_bytes_too_but_one_revision_always_fits() -> None:
    feed = ChangeFeed()
    subscription = feed.subscribe(max_bytes=10)
    feed.publish(revisions(1, size=100))
    assert (await subscription.get()).number == 1
    feed.publish(revisions(2, 3, size=6))
    with pytest.raises(HeadgateError) as cut:
        await subscription.get()
    assert cut.value.reason is WATCHER_TOO_SLOW


async def test_history_that_is_gone_ends_every_subscription_and_the_feed_goes_on() -> None:
    feed = ChangeFeed()
    waiting = asyncio.create_task(feed.subscribe().get())
    await asyncio.sleep(0)
    feed.skip_to(10)
    with pytest.raises(HeadgateError) as gone:
        await waiting
    assert gone.value.reason is REVISION_COMPACTED
    after = feed.subscribe()
    assert feed.publish(revisions(11))
    assert (await after.get()).number == 11


async def test_a_closed_subscription_keeps_nothing() -> None:
    feed = ChangeFeed()
    with feed.subscribe() as subscription:
        feed.publish(revisions(1))
    feed.publish(revisions(2))
    assert feed.subscribers == 0
    assert subscription.get_nowait() is None
