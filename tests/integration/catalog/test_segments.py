"""Segments: visible all or none, next to each other, only under the epoch that leads, and once."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import event

from headgate.log import v1 as log
from headgate_common.errors import INVALID_ARGUMENT
from headgate_coordinator.catalog.log import counters, segments, topics
from headgate_coordinator.catalog.store import Store
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.errors import OFFSET_CONFLICT, OFFSET_OUT_OF_RANGE, PARTITION_NOT_FOUND, STALE_EPOCH
from tests.integration.catalog.log_kit import (
    WAL,
    Member,
    acquire,
    commit,
    commits,
    fails,
    gone,
    joined,
    lead,
    leader,
    listed,
    offsets,
    partitions,
    recover,
    ref,
    reserve,
    revision_of,
    segment,
    topic,
    trim,
)


async def test_segments_become_visible_one_after_the_other_and_are_no_revision(store: Store) -> None:
    made, a = await topic(store), await joined(store, "a")
    led = await lead(store, a, made)
    before = await revision_of(store)
    await commits(store, a, commit(led, 0, 5), commit(led, 5, 9))
    await commits(store, a, commit(led, 9, 10))
    assert [(each.base_offset, each.next_offset) for each in await listed(store, made)] == [(0, 5), (5, 9), (9, 10)]
    assert await offsets(store, made) == (0, 10, 0)
    assert (await partitions(store, made))[0].offsets.bytes == 100
    assert await revision_of(store) == before


async def test_a_segment_that_does_not_begin_where_the_partition_ends_is_refused(store: Store) -> None:
    made, a = await topic(store), await joined(store, "a")
    led = await lead(store, a, made)
    await commits(store, a, commit(led, 0, 5))
    for base, following in ((4, 9), (6, 9), (0, 5)):
        await fails(commits(store, a, commit(led, base, following, f"another-{base}")), OFFSET_CONFLICT)
    assert await offsets(store, made) == (0, 5, 0)


async def test_all_commits_of_a_call_happen_or_none(store: Store) -> None:
    made, a = await topic(store, partitions=3), await joined(store, "a")
    first, second, third = [
        leader(made, got.epoch, index) for index, got in enumerate(await acquire(store, a, made, range(3)))
    ]
    bad = leader(made, second.epoch + 1, 1)
    await fails(commits(store, a, commit(first, 0, 5), commit(bad, 0, 5), commit(third, 0, 5)), STALE_EPOCH)
    await fails(commits(store, a, commit(first, 0, 5), commit(second, 1, 5)), OFFSET_CONFLICT)
    assert [each.offsets.committed for each in await partitions(store, made)] == [0, 0, 0]


async def test_a_former_leader_makes_nothing_visible_and_nothing_gone(store: Store) -> None:
    made, a, b = await topic(store), await joined(store, "a"), await joined(store, "b")
    old = await lead(store, a, made)
    await commits(store, a, commit(old, 0, 5))
    await gone(store, a)
    new = await lead(store, b, made)
    await fails(commits(store, a, commit(old, 5, 9)), STALE_EPOCH)
    await fails(trim(store, a, old, 5), STALE_EPOCH)
    await fails(replace(store, a, old, ["x"], segment(0, 5, old.epoch, "m")), STALE_EPOCH)
    await fails(commits(store, a, commit(new, 5, 9)), STALE_EPOCH)
    await fails(commits(store, Member("x", "session-forged"), commit(new, 5, 9)), STALE_EPOCH)
    assert await offsets(store, made) == (0, 5, 0)
    await commits(store, b, commit(new, 5, 9))


async def test_a_commit_may_be_repeated_even_by_a_leader_that_has_lost_the_lead_since(store: Store) -> None:
    made, a = await topic(store), await joined(store, "a")
    led = await lead(store, a, made)
    await commits(store, a, commit(led, 0, 5))
    await commits(store, a, commit(led, 0, 5), commit(led, 5, 7))
    assert await offsets(store, made) == (0, 7, 0)
    assert (await partitions(store, made))[0].offsets.bytes == 70
    await gone(store, a)
    await commits(store, a, commit(led, 5, 7))


async def test_a_uid_is_that_of_one_segment(store: Store) -> None:
    made, a = await topic(store), await joined(store, "a")
    led = await lead(store, a, made)
    await commits(store, a, commit(led, 0, 5, "u"))
    await fails(commits(store, a, commit(led, 5, 9, "u")), OFFSET_CONFLICT)
    await fails(commits(store, a, commit(led, 5, 9, "v"), commit(led, 9, 12, "v")), INVALID_ARGUMENT)
    assert await offsets(store, made) == (0, 5, 0)


@pytest.mark.parametrize(("base", "following"), [(0, 0), (5, 3)])
async def test_a_segment_ends_after_it_begins(store: Store, base: int, following: int) -> None:
    made, a = await topic(store), await joined(store, "a")
    led = await lead(store, a, made)
    await fails(commits(store, a, commit(led, base, following, bytes=1)), INVALID_ARGUMENT)


async def test_a_segment_carries_the_epoch_of_its_leader(store: Store) -> None:
    made, a = await topic(store), await joined(store, "a")
    led = await lead(store, a, made)
    forged = log.SegmentCommit(leader=led, segment=segment(0, 5, led.epoch + 1))
    await fails(commits(store, a, forged), INVALID_ARGUMENT)


async def test_two_that_commit_at_once_from_one_offset_do_not_both_succeed(store: Store) -> None:
    made, a = await topic(store), await joined(store, "a")
    led = await lead(store, a, made)
    outcomes = await asyncio.gather(
        *(commits(store, a, commit(led, 0, 5, f"u{number}")) for number in range(5)), return_exceptions=True
    )
    assert sum(outcome is None for outcome in outcomes) == 1
    assert len(await listed(store, made)) == 1


async def test_a_commit_above_what_was_reserved_raises_the_reservation(store: Store) -> None:
    made, a = await topic(store, durability=WAL), await joined(store, "a")
    led = await lead(store, a, made)
    await reserve(store, a, led, 10)
    await commits(store, a, commit(led, 0, 20))
    assert await offsets(store, made) == (0, 20, 20)


async def test_the_next_leader_learns_producers_epochs_and_offsets(store: Store) -> None:
    made, a, b = await topic(store), await joined(store, "a"), await joined(store, "b")
    led = await lead(store, a, made)
    one = log.ProducerState(producer_id=7, producer_epoch=1, batches=[log.ProducerBatch(last_sequence=4)])
    two = log.ProducerState(producer_id=7, producer_epoch=1, batches=[log.ProducerBatch(last_sequence=8)])
    other = log.ProducerState(producer_id=3, producer_epoch=0)
    await commits(store, a, commit(led, 0, 5, producers=[one]), commit(led, 5, 9, producers=[two, other]))
    await gone(store, a)
    (got,) = await acquire(store, b, made)
    assert list(got.producers) == [other, two]
    assert [(each.epoch, each.offset) for each in got.epochs] == [(1, 0)]
    assert got.state.offsets.committed == 9
    await commits(store, b, commit(leader(made, got.epoch), 9, 12))
    await gone(store, b)
    (got,) = await acquire(store, await joined(store, "c"), made)
    assert [(each.epoch, each.offset) for each in got.epochs] == [(1, 0), (2, 9)]


async def test_segments_are_found_by_offset(store: Store) -> None:
    made, a = await topic(store, durability=WAL), await joined(store, "a")
    led = await lead(store, a, made)
    await commits(store, a, *(commit(led, base, base + 10) for base in range(0, 50, 10)))

    async def bases(from_offset: int, limit: int = 0) -> list[int]:
        return [each.base_offset for each in await listed(store, made, from_offset=from_offset, limit=limit)]

    assert await bases(0) == [0, 10, 20, 30, 40]
    assert await bases(10) == [10, 20, 30, 40]
    assert await bases(19, limit=2) == [10, 20]
    assert await bases(49) == [40]
    assert await bases(50) == []
    await reserve(store, a, led, 100)
    await gone(store, a)
    await recover(store, made.name)
    b = await joined(store, "b")
    await commits(store, b, commit(await lead(store, b, made), 100, 110))
    assert await bases(60) == [100], "the hole holds nothing"
    missing = log.ListSegmentsRequest(partition=log.PartitionRef(topic_uid="topic-none", index=0))
    await fails(store.read(lambda tx: segments.list_segments(tx, missing)), PARTITION_NOT_FOUND)


async def test_a_trim_answers_what_is_gone_and_never_goes_back(store: Store) -> None:
    made, a = await topic(store), await joined(store, "a")
    led = await lead(store, a, made)
    await commits(store, a, *(commit(led, base, base + 10) for base in range(0, 50, 10)))
    assert [each.base_offset for each in await trim(store, a, led, 25)] == [0, 10]
    assert await offsets(store, made) == (25, 50, 0)
    assert (await partitions(store, made))[0].offsets.bytes == 300
    assert await trim(store, a, led, 20) == []
    assert await offsets(store, made) == (25, 50, 0)
    await fails(trim(store, a, led, 51), OFFSET_OUT_OF_RANGE)
    assert len(await trim(store, a, led, 50)) == 3
    assert await offsets(store, made) == (50, 50, 0)
    await commits(store, a, commit(led, 50, 60))


async def test_a_trim_keeps_the_epoch_that_the_first_record_is_of(store: Store) -> None:
    made, a = await topic(store), await joined(store, "a")
    for base in (0, 10, 20):
        led = await lead(store, a, made)
        await commits(store, a, commit(led, base, base + 10))
        await gone(store, a)
        a = await joined(store, "a", incarnation=str(base + 2))
    led = await lead(store, a, made)
    await trim(store, a, led, 15)
    await gone(store, a)
    (got,) = await acquire(store, await joined(store, "b"), made)
    assert [(each.epoch, each.offset) for each in got.epochs] == [(2, 10), (3, 20)]


async def replace(store: Store, member: Member, led: log.LeaderRef, uids: list[str], merged: log.Segment) -> None:
    request = log.ReplaceSegmentsRequest(session_id=member.session, leader=led, segment_uids=uids, segment=merged)
    await store.write(lambda tx: segments.replace_segments(tx, request))


async def test_a_merged_segment_takes_the_place_of_those_it_was_made_of(store: Store) -> None:
    made, a = await topic(store), await joined(store, "a")
    led = await lead(store, a, made)
    await commits(store, a, *(commit(led, base, base + 10, f"u{base}") for base in range(0, 40, 10)))
    merged = segment(10, 30, led.epoch, "merged", bytes=50)
    for uids in (["u10"], ["u10", "u30"], ["u20", "u10"], ["u10", "u20", "u30"], ["u10", "none"]):
        await fails(replace(store, a, led, uids, merged), OFFSET_CONFLICT)
    await replace(store, a, led, ["u10", "u20"], merged)
    await replace(store, a, led, ["u10", "u20"], merged)
    assert [each.uid for each in await listed(store, made)] == ["u0", "merged", "u30"]
    found = (await partitions(store, made))[0].offsets
    assert (found.bytes, found.committed) == (250, 40)


async def test_objects_are_known_while_a_segment_refers_to_them(store: Store) -> None:
    made, a = await topic(store, partitions=2), await joined(store, "a")
    first, second = [leader(made, got.epoch, index) for index, got in enumerate(await acquire(store, a, made, [0, 1]))]
    await commits(
        store, a, commit(first, 0, 5, "u0", key="shared"), commit(second, 0, 5, "u1", key="shared", position=50)
    )

    async def known() -> list[str]:
        request = log.FindObjectsRequest(keys=["orphan", "shared", "shared"])
        return list((await store.read(lambda tx: segments.find_objects(tx, request))).known)

    assert await known() == ["shared"]
    await trim(store, a, first, 5)
    assert await known() == ["shared"], "the other partition is in it too"
    await trim(store, a, second, 5)
    assert await known() == []


async def test_producers_that_write_nothing_are_forgotten_in_time(store: Store) -> None:
    made, a = await topic(store), await joined(store, "a")
    led = await lead(store, a, made)
    states = [log.ProducerState(producer_id=number) for number in range(3)]
    await commits(store, a, commit(led, 0, 5, producers=states))
    assert await store.write(lambda tx: segments.forget_producers(tx, 60.0, 10)) == 0
    assert await store.write(lambda tx: segments.forget_producers(tx, -1.0, 2)) == 2
    assert await store.write(lambda tx: segments.forget_producers(tx, -1.0, 2)) == 1
    (got,) = await acquire(store, a, made)
    assert (list(got.producers), got.producers_forgotten) == ([], 2)


async def test_a_partition_remembers_only_so_many_producers_and_the_silent_ones_go_first(store: Store) -> None:
    made, a = await topic(store, partitions=2), await joined(store, "a")
    first, second = [leader(made, got.epoch, index) for index, got in enumerate(await acquire(store, a, made, [0, 1]))]

    async def write(led: log.LeaderRef, base: int, *producers: int) -> None:
        states = [log.ProducerState(producer_id=number) for number in producers]
        await commits(store, a, commit(led, base, base + 5, producers=states), most_producers=4)

    await write(second, 0, 1, 2, 3)
    await write(first, 0, 10, 11)
    await write(first, 5, 12, 13)
    await write(first, 10, 10)
    await write(first, 15, 14, 15)
    got, other = await acquire(store, a, made, [0, 1])
    assert [each.producer_id for each in got.producers] == [10, 13, 14, 15]
    assert got.producers_forgotten == 12, "none above it was forgotten"
    assert [each.producer_id for each in other.producers] == [1, 2, 3]
    await write(first, 20, 13)
    (got,) = await acquire(store, a, made)
    assert [each.producer_id for each in got.producers] == [10, 13, 14, 15]


async def test_producers_may_be_older_than_a_partition_or_than_a_loss(store: Store) -> None:
    async def producer_id() -> int:
        return await store.write(lambda tx: counters.take(tx, counters.PRODUCER_ID))

    before = await producer_id()
    made, a = await topic(store, durability=WAL), await joined(store, "a")
    (got,) = await acquire(store, a, made)
    assert got.producers_forgotten == before
    later = await producer_id()
    await reserve(store, a, leader(made, got.epoch), 10)
    await gone(store, a)
    await recover(store, made.name)
    (got,) = await acquire(store, await joined(store, "b"), made)
    assert got.producers_forgotten == later


async def test_ids_of_producers_are_given_out_once(store: Store) -> None:
    async def take(count: int) -> int:
        return await store.write(lambda tx: counters.take(tx, counters.PRODUCER_ID, count))

    taken = await asyncio.gather(*(take(10) for _ in range(8)))
    assert sorted(taken) == [1 + 10 * number for number in range(8)]


async def test_a_commit_of_many_partitions_takes_few_statements(store: Store) -> None:
    """Not one more for each: what grows is the number of rows that a statement is given."""
    made, a = await topic(store, partitions=100), await joined(store, "a")
    led = [leader(made, got.epoch, index) for index, got in enumerate(await acquire(store, a, made, range(100)))]

    async def statements(count: int, base: int) -> int:
        seen: list[str] = []
        producer = log.ProducerState(producer_id=base)
        request = log.CommitSegmentsRequest(
            session_id=a.session,
            commits=[commit(each, base, base + 5, producers=[producer]) for each in led[:count]],
        )

        def counted(tx: Tx) -> None:
            def note(*arguments: object) -> None:
                seen.append(str(arguments[2]))

            event.listen(tx.connection, "before_cursor_execute", note)
            try:
                segments.commit_segments(tx, request)
            finally:
                event.remove(tx.connection, "before_cursor_execute", note)

        await store.write(counted)
        return len(seen)

    assert await statements(100, 0) == await statements(1, 5) + 1, "epochs begin with the first commit only"


async def test_a_dropped_topic_takes_its_namesake_nothing(store: Store) -> None:
    made, a = await topic(store), await joined(store, "a")
    led = await lead(store, a, made)
    await commits(store, a, commit(led, 0, 5))
    await store.write(lambda tx: topics.drop_topic(tx, log.DropTopicRequest(name="orders")))
    again = await topic(store)
    assert again.uid != made.uid
    await fails(commits(store, a, commit(led, 5, 9)), STALE_EPOCH)
    (got,) = await acquire(store, a, again)
    assert (got.epoch, got.state.offsets.committed) == (1, 0)
    assert ref(again).topic_uid != ref(made).topic_uid


async def test_segments_on_both_sides_of_a_hole_may_be_merged(store: Store) -> None:
    made, a = await topic(store, durability=WAL), await joined(store, "a")
    led = await lead(store, a, made)
    await reserve(store, a, led, 50)
    await commits(store, a, commit(led, 0, 10, "u0"))
    await gone(store, a)
    await recover(store, made.name)
    b = await joined(store, "b")
    led = await lead(store, b, made)
    await commits(store, b, commit(led, 50, 60, "u50"))
    await fails(replace(store, b, led, ["u50", "u0"], segment(0, 60, led.epoch, "m")), OFFSET_CONFLICT)
    await replace(store, b, led, ["u0", "u50"], segment(0, 60, led.epoch, "m"))
    assert [each.uid for each in await listed(store, made, from_offset=20)] == ["m"]
    (got,) = await partitions(store, made)
    assert [(hole.from_offset, hole.to_offset) for hole in got.offsets.holes] == [(10, 50)], "still told"


async def test_a_trim_of_many_partitions_takes_what_each_asks(store: Store) -> None:
    made, a = await topic(store, partitions=3), await joined(store, "a")
    led = [leader(made, got.epoch, index) for index, got in enumerate(await acquire(store, a, made, range(3)))]
    await commits(store, a, *(commit(each, base, base + 10) for each in led for base in (0, 10)))
    request = log.TrimPartitionsRequest(
        session_id=a.session,
        trims=[log.PartitionTrim(leader=each, log_start=start) for each, start in zip(led, (0, 10, 20), strict=True)],
    )
    removed = (await store.write(lambda tx: segments.trim_partitions(tx, request))).removed
    assert len(removed) == 3
    assert [each.offsets.log_start for each in await partitions(store, made)] == [0, 10, 20]
    assert [len(await listed(store, made, index)) for index in range(3)] == [2, 1, 0]
