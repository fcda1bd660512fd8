"""What happened to a partition is told: who led it under which epoch, why that changed, which offsets were lost."""

from __future__ import annotations

import pytest

from headgate.log import v1 as log
from headgate_common.errors import HeadgateError
from headgate_coordinator.catalog.log import partition_story, topics
from headgate_coordinator.catalog.store import Store
from headgate_coordinator.errors import TOPIC_NOT_FOUND
from tests.integration.catalog.log_kit import (
    WAL,
    acquire,
    answer,
    commit,
    commits,
    complete,
    gone,
    joined,
    lead,
    recover,
    release,
    reserve,
    revision_of,
    start,
    topic,
)


async def story(store: Store, made: log.Topic, **fields: object) -> list[log.PartitionStoryEntry]:
    request = log.GetPartitionStoryRequest(topic_uid=made.uid, **fields)  # type: ignore[arg-type]
    return list((await store.read(lambda tx: topics.get_partition_story(tx, request))).entries)


def told(entries: list[log.PartitionStoryEntry]) -> list[tuple[str, str, int]]:
    names = [log.PartitionEvent.Name(entry.event).removeprefix("PARTITION_EVENT_") for entry in entries]
    return [(name, entry.agent, entry.epoch) for name, entry in zip(names, entries, strict=True)]


async def test_every_change_of_lead_is_told_with_its_cause_and_revision(store: Store) -> None:
    made, a, b = await topic(store), await joined(store, "a"), await joined(store, "b")
    led = await lead(store, a, made)
    first = await revision_of(store)
    await lead(store, a, made)
    await release(store, a, led)
    await lead(store, b, made)
    await gone(store, b)
    last = await revision_of(store)
    entries = await story(store, made)
    assert told(entries) == [("LED", "a", 1), ("LEFT", "a", 1), ("LED", "b", 2), ("LEFT", "b", 2)]
    assert [entry.cause for entry in entries] == [
        "it asked for it, the first to do so",
        "agent a gave it back",
        "it asked for it, and nobody led",
        "its leader, agent b, is gone",
    ]
    revisions = [entry.revision for entry in entries]
    assert revisions[0] == first and revisions[-1] == last and revisions == sorted(set(revisions))
    assert all(entry.time.seconds > 0 for entry in entries)


async def test_each_step_of_a_hand_over_is_told(store: Store) -> None:
    made, a, b = await topic(store), await joined(store, "a"), await joined(store, "b")
    led = await lead(store, a, made)
    offered = await start(store, a, led, "b")
    await answer(store, b, rejected=[offered.uid], reason="no room")
    offered = await start(store, a, led, "b")
    await answer(store, b, accepted=[offered.uid])
    await complete(store, a, completed=[offered.uid])
    entries = await story(store, made)
    assert told(entries) == [
        ("LED", "a", 1),
        ("TRANSFER_PENDING", "b", 1),
        ("TRANSFER_REJECTED", "b", 1),
        ("TRANSFER_PENDING", "b", 1),
        ("TRANSFER_ACCEPTED", "b", 1),
        ("TRANSFER_COMPLETED", "b", 1),
        ("LEFT", "a", 1),
        ("LED", "b", 2),
    ]
    assert entries[2].cause == "no room"
    assert {entry.revision for entry in entries[-3:]} == {await revision_of(store)}, "one transaction"
    assert {entry.cause for entry in entries[-2:]} == {"handed over by agent a"}


async def test_a_transfer_that_ends_with_a_session_is_told_before_the_loss_of_the_lead(store: Store) -> None:
    made, a, _ = await topic(store), await joined(store, "a"), await joined(store, "b")
    led = await lead(store, a, made)
    await start(store, a, led, "b")
    await gone(store, a)
    assert told(await story(store, made))[-2:] == [("TRANSFER_FAILED", "b", 1), ("LEFT", "a", 1)]


async def test_a_partition_that_waits_for_a_volume_and_its_hole_are_told(store: Store) -> None:
    made, a, b = await topic(store, durability=WAL), await joined(store, "a"), await joined(store, "b")
    led = await lead(store, a, made)
    await commits(store, a, commit(led, 0, 7))
    await reserve(store, a, led, 1000)
    await gone(store, a)
    await acquire(store, b, made)
    await recover(store, made.name)
    await lead(store, b, made)
    entries = await story(store, made)
    assert told(entries) == [
        ("LED", "a", 1),
        ("LEFT", "a", 1),
        ("WAITING", "", 0),
        ("HOLE", "", 1),
        ("WAITING", "", 0),
        ("LED", "b", 2),
    ]
    assert "volume-a" in entries[2].cause
    hole = entries[3]
    assert (hole.from_offset, hole.to_offset, hole.cause) == (
        7,
        1000,
        "leader lost with its disk, loss accepted by an operator",
    )


async def test_an_agent_that_comes_back_with_the_volume_is_told_so(store: Store) -> None:
    made, a = await topic(store, durability=WAL), await joined(store, "a")
    await reserve(store, a, await lead(store, a, made), 10)
    await gone(store, a)
    back = await joined(store, "a", incarnation="2")
    await lead(store, back, made)
    assert (await story(store, made))[-1].cause == "it asked for it, with the volume that it waited for"


async def test_what_is_refused_or_rolled_back_is_not_told(store: Store) -> None:
    made, a, b = await topic(store), await joined(store, "a"), await joined(store, "b")
    led = await lead(store, a, made)
    await acquire(store, b, made)
    with pytest.raises(HeadgateError):
        await release(store, b, led)
    assert told(await story(store, made)) == [("LED", "a", 1)]


async def test_pages_follow_each_other_and_partitions_can_be_chosen(store: Store) -> None:
    made, a = await topic(store, partitions=3), await joined(store, "a")
    await acquire(store, a, made, range(3))
    await gone(store, a)
    request = log.GetPartitionStoryRequest(topic=made.name, page_size=4)
    page = await store.read(lambda tx: topics.get_partition_story(tx, request))
    assert len(page.entries) == 4
    request.page_token = page.next_page_token
    rest = await store.read(lambda tx: topics.get_partition_story(tx, request))
    assert (len(rest.entries), rest.next_page_token) == (2, "")
    assert [*page.entries, *rest.entries] == await story(store, made)
    assert {entry.partition for entry in await story(store, made, partitions=[1])} == {1}
    assert len(await story(store, made, partitions=[0, 2])) == 4


async def test_a_story_outlives_its_topic_and_is_forgotten_in_time(store: Store) -> None:
    made, a = await topic(store), await joined(store, "a")
    await lead(store, a, made)
    await store.write(lambda tx: topics.drop_topic(tx, log.DropTopicRequest(name=made.name)))
    assert told(await story(store, made)) == [("LED", "a", 1)]
    again = await topic(store)
    assert (
        await store.read(lambda tx: topics.get_partition_story(tx, log.GetPartitionStoryRequest(topic=again.name)))
        == log.GetPartitionStoryResponse()
    ), "that of its namesake is another one"
    assert await store.write(lambda tx: partition_story.forget(tx, 3600, 10)) == 0
    assert await store.write(lambda tx: partition_story.forget(tx, -1, 10)) == 1
    with pytest.raises(HeadgateError) as caught:
        await story(store, made)
    assert caught.value.reason is TOPIC_NOT_FOUND


async def test_no_more_is_forgotten_at_once_than_asked_for_and_the_oldest_first(store: Store) -> None:
    made, a = await topic(store, partitions=5), await joined(store, "a")
    for index in range(5):
        await lead(store, a, made, index)
    assert await store.write(lambda tx: partition_story.forget(tx, -1, 2)) == 2
    assert [entry.partition for entry in await story(store, made)] == [2, 3, 4]
