"""Runs that write and read edges, in both databases: who counts, and that a commit is all or nothing."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest

from headgate.log import v1 as log
from headgate_common.errors import INVALID_ARGUMENT, HeadgateError
from headgate_coordinator.catalog.log import edge_runs
from headgate_coordinator.catalog.store import Store
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.errors import OFFSET_CONFLICT, OFFSET_OUT_OF_RANGE, STALE_EPOCH, STALE_RUN
from tests.integration.catalog import log_kit as kit
from tests.integration.catalog.log_kit import Member


async def opened(
    store: Store, member: Member, leaders: Sequence[log.LeaderRef], epoch: int, *, reads: bool = False
) -> log.EdgeRun:
    request = log.OpenEdgeRequest(
        session_id=member.session, leaders=leaders, fragment_uid="f", epoch=epoch, reads=reads
    )
    return (await store.write(lambda tx: edge_runs.open_edge(tx, request))).run


async def committed(
    store: Store,
    member: Member,
    leaders: Sequence[log.LeaderRef],
    epoch: int,
    batch_id: int,
    *commits: log.SegmentCommit,
    position: bytes = b"",
) -> log.CommitStagesResponse:
    writer = log.EdgeRun(fragment_uid="f", epoch=epoch, batch_id=batch_id, position=position)
    request = log.CommitStagesRequest(session_id=member.session, leaders=leaders, writer=writer, commits=commits)
    return await store.write(lambda tx: edge_runs.commit_stages(tx, request))


async def edge(store: Store) -> tuple[Member, log.Topic, list[log.LeaderRef]]:
    member, made = await kit.joined(store, "a"), await kit.topic(store, partitions=2)
    return member, made, [await kit.lead(store, member, made, index) for index in range(2)]


async def test_a_commit_shows_segments_of_all_partitions_and_moves_the_writer_on(store: Store) -> None:
    member, made, leaders = await edge(store)
    assert (await opened(store, member, leaders, 1)).batch_id == -1
    revision = await kit.revision_of(store)
    batch = [kit.commit(leaders[0], 0, 5), kit.commit(leaders[0], 5, 7), kit.commit(leaders[1], 0, 3)]
    answer = await committed(store, member, leaders, 1, 4, *batch, position=b"here")
    assert answer.applied and answer.writer.batch_id == 4
    assert [(await kit.offsets(store, made, index))[1] for index in range(2)] == [7, 3]
    again = await kit.acquire(store, member, made, (0, 1))
    assert [(run.epoch, run.batch_id, run.position) for one in again for run in one.runs] == [(1, 4, b"here")] * 2
    assert await kit.revision_of(store) == revision, "no revision: nothing that is watched has changed"


async def test_the_same_commit_again_is_answered_as_the_first_whoever_writes_or_leads_by_then(store: Store) -> None:
    member, made, leaders = await edge(store)
    await opened(store, member, leaders, 1)
    batch = kit.commit(leaders[0], 0, 5)
    for _ in range(2):
        assert (await committed(store, member, leaders, 1, 0, batch)).applied
    await opened(store, member, leaders, 2)
    assert (await committed(store, member, leaders, 1, 0, batch)).applied
    await kit.gone(store, member)
    assert (await committed(store, member, leaders, 1, 0, batch)).applied
    assert (await kit.offsets(store, made))[1] == 5


async def test_a_batch_that_was_committed_is_not_applied_again_with_other_segments(store: Store) -> None:
    member, made, leaders = await edge(store)
    await opened(store, member, leaders, 1)
    await committed(store, member, leaders, 1, 3, kit.commit(leaders[0], 0, 5))
    for batch_id in (3, 2, 0):
        answer = await committed(store, member, leaders, 1, batch_id, kit.commit(leaders[0], 5, 9))
        assert not answer.applied and answer.writer.batch_id == 3
    assert (await kit.offsets(store, made))[1] == 5


async def test_one_partition_that_does_not_fit_refuses_all(store: Store) -> None:
    member, made, leaders = await edge(store)
    await opened(store, member, leaders, 1)
    bad = [kit.commit(leaders[0], 0, 5), kit.commit(leaders[1], 2, 3)]
    await kit.fails(committed(store, member, leaders, 1, 0, *bad), OFFSET_CONFLICT)
    stale = log.LeaderRef(partition=leaders[1].partition, epoch=leaders[1].epoch + 1)
    good = kit.commit(leaders[0], 0, 5)
    await kit.fails(committed(store, member, [leaders[0], stale], 1, 0, good), STALE_EPOCH)
    await kit.fails(committed(store, member, [leaders[1]], 1, 0, good), INVALID_ARGUMENT)
    assert [(await kit.offsets(store, made, index))[1] for index in range(2)] == [0, 0]
    assert (await opened(store, member, leaders, 1)).batch_id == -1


async def test_an_older_run_is_refused_and_one_that_was_never_opened_too(store: Store) -> None:
    member, made, leaders = await edge(store)
    good = kit.commit(leaders[0], 0, 5)
    await kit.fails(committed(store, member, leaders, 1, 0, good), STALE_RUN)
    await opened(store, member, leaders, 2)
    await kit.fails(opened(store, member, leaders, 1), STALE_RUN)
    for epoch in (1, 3):
        await kit.fails(committed(store, member, leaders, epoch, 0, good), STALE_RUN)
    assert (await kit.offsets(store, made))[1] == 0


async def test_a_run_is_shut_out_everywhere_that_its_fragment_has_opened(store: Store) -> None:
    member, _, leaders = await edge(store)
    other = await kit.topic(store, "errors")
    errors = await kit.lead(store, member, other)
    await opened(store, member, [*leaders, errors], 1)
    await committed(store, member, [*leaders, errors], 1, 0, kit.commit(errors, 0, 1))
    run = await opened(store, member, [leaders[0]], 2)
    assert (run.epoch, run.batch_id) == (2, 0)
    (acquired,) = await kit.acquire(store, member, other)
    assert [(one.epoch, one.batch_id) for one in acquired.runs] == [(2, 0)]


async def test_only_who_leads_may_open(store: Store) -> None:
    member, made, leaders = await edge(store)
    await kit.gone(store, member)
    await kit.fails(opened(store, member, leaders, 1), STALE_EPOCH)
    other = await kit.joined(store, "b")
    taken = [await kit.lead(store, other, made, index) for index in range(2)]
    await kit.fails(opened(store, other, leaders, 1), STALE_EPOCH)
    await opened(store, other, taken, 1)


async def test_readers_and_writers_of_a_fragment_are_apart(store: Store) -> None:
    member, made, leaders = await edge(store)
    await opened(store, member, leaders, 5)
    await opened(store, member, leaders[:1], 2, reads=True)
    await kit.fails(opened(store, member, leaders[:1], 1, reads=True), STALE_RUN)
    (acquired,) = await kit.acquire(store, member, made)
    assert {(run.reads, run.epoch) for run in acquired.runs} == {(False, 5), (True, 2)}
    found = await store.read(
        lambda tx: edge_runs.find_writers(tx, log.FindWritersRequest(fragment_uids=["f", "nobody", "f"]))
    )
    (writer,) = found.writers
    assert (writer.run.fragment_uid, writer.run.epoch) == ("f", 5)
    assert [(one.topic_uid, one.index) for one in writer.partitions] == [(made.uid, 0), (made.uid, 1)]


async def test_a_wal_partition_may_begin_behind_its_segments_up_to_what_is_reserved(store: Store) -> None:
    member, made = await kit.joined(store, "a"), await kit.topic(store, durability=kit.WAL)
    led = await kit.lead(store, member, made)
    await kit.reserve(store, member, led, 100)
    await kit.commits(store, member, kit.commit(led, 0, 10))
    removed = await kit.trim(store, member, led, 60)
    assert [one.base_offset for one in removed] == [0]
    assert await kit.offsets(store, made) == (60, 60, 100)
    await kit.fails(kit.trim(store, member, led, 101), OFFSET_OUT_OF_RANGE)
    await kit.fails(kit.commits(store, member, kit.commit(led, 10, 20)), OFFSET_CONFLICT)
    await kit.commits(store, member, kit.commit(led, 60, 70))
    assert await kit.offsets(store, made) == (60, 70, 100)


async def test_a_commit_that_fails_in_the_database_leaves_nothing(store: Store) -> None:
    member, made, leaders = await edge(store)
    await opened(store, member, leaders, 1)
    writer = log.EdgeRun(fragment_uid="f", epoch=1, batch_id=0)
    commits = [kit.commit(leaders[0], 0, 5), kit.commit(leaders[1], 0, 2)]
    request = log.CommitStagesRequest(session_id=member.session, leaders=leaders, writer=writer, commits=commits)

    def fails_late(asked: log.CommitStagesRequest, tx: Tx) -> None:
        edge_runs.commit_stages(tx, asked)
        raise HeadgateError(INVALID_ARGUMENT, "late")

    with pytest.raises(HeadgateError, match="late"):
        await store.write(partial(fails_late, request))
    assert [(await kit.offsets(store, made, index))[1] for index in range(2)] == [0, 0]
    assert (await opened(store, member, leaders, 1)).batch_id == -1
