"""Handing partitions over: only as the table of transitions allows, with a new epoch, and never to a gap in fencing."""

from __future__ import annotations

import pytest
from sqlalchemy import select, update
from sqlalchemy.exc import IntegrityError

from headgate.log import v1 as log
from headgate_common.errors import HeadgateError
from headgate_coordinator.catalog.log import transfers
from headgate_coordinator.catalog.log.schema import transfers as transfers_table
from headgate_coordinator.catalog.log.transitions import (
    TRANSFER_ENDED,
    TRANSFER_OPEN,
    TRANSFER_STATES,
    TRANSFER_TRANSITIONS,
)
from headgate_coordinator.catalog.store import Store
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.cluster.transfers import OverdueTransfers
from headgate_coordinator.errors import SESSION_EXPIRED, STALE_EPOCH, TRANSFER_NOT_FOUND
from tests.integration.catalog.log_kit import (
    WAL,
    Member,
    acquire,
    answer,
    changes_since,
    commit,
    commits,
    complete,
    fails,
    gone,
    joined,
    lead,
    leader,
    offsets,
    partitions,
    release,
    reserve,
    revision_of,
    roles,
    start,
    topic,
)

PENDING, ACCEPTED = log.TRANSFER_STATE_PENDING, log.TRANSFER_STATE_ACCEPTED
COMPLETED, REJECTED, FAILED = log.TRANSFER_STATE_COMPLETED, log.TRANSFER_STATE_REJECTED, log.TRANSFER_STATE_FAILED


async def led_topic(store: Store, **settings: object) -> tuple[log.Topic, Member, Member, log.LeaderRef]:
    made, a, b = await topic(store, **settings), await joined(store, "a"), await joined(store, "b")  # type: ignore[arg-type]
    return made, a, b, await lead(store, a, made)


async def state(store: Store, uid: str) -> log.Transfer:
    return await store.read(lambda tx: transfers.message(transfers.rows_by_uid(tx, [uid])[uid]))


async def test_a_hand_over_moves_the_lead_with_a_new_epoch_and_shuts_the_former_leader_out(store: Store) -> None:
    made, a, b, led = await led_topic(store, durability=WAL)
    await reserve(store, a, led, 1000)
    offered = await start(store, a, led, "b")
    assert (offered.state, offered.from_agent, offered.to_agent, offered.epoch) == (PENDING, "a", "b", 1)
    (accepted,) = await answer(store, b, accepted=[offered.uid])
    assert accepted.state == ACCEPTED
    await commits(store, a, commit(led, 0, 7))
    before = await revision_of(store)
    (done,) = await complete(store, a, completed=[offered.uid])
    assert done.state == COMPLETED
    (changes,) = await changes_since(store, before)
    assert sorted(change.kind for change in changes) == ["PARTITION", "TRANSFER"]
    (found,) = await partitions(store, made)
    assert (found.leader, found.epoch, found.waiting, found.volume_id) == ("b", 2, "", "volume-b")
    assert await offsets(store, made) == (0, 7, 7), "all that was acknowledged is in segments"
    await fails(commits(store, a, commit(led, 7, 9)), STALE_EPOCH)
    await commits(store, b, commit(leader(made, 2), 7, 9))


async def test_a_leader_that_begins_anew_gets_a_new_epoch_and_what_it_sent_before_is_refused(store: Store) -> None:
    """It stopped by its own clock, and its session lives on: a commit or a completion may still be on its way."""
    made, a, b, led = await led_topic(store, durability=WAL)
    await reserve(store, a, led, 1000)
    offered = await start(store, a, led, "b")
    await answer(store, b, accepted=[offered.uid])
    (again,) = await acquire(store, a, made, ended={0: 1})
    assert (again.epoch, (await state(store, offered.uid)).state) == (2, FAILED)
    (late,) = await complete(store, a, completed=[offered.uid])
    assert late.state == FAILED
    await fails(commits(store, a, commit(led, 0, 7)), STALE_EPOCH)
    await commits(store, a, commit(leader(made, 2), 0, 7))
    (found,) = await partitions(store, made)
    assert (found.leader, found.epoch, found.volume_id) == ("a", 2, "volume-a")


async def test_asking_again_for_what_was_not_led_since_changes_nothing(store: Store) -> None:
    """The answer was lost, or the request came twice."""
    made, a, _, led = await led_topic(store, durability=WAL)
    offered = await start(store, a, led, "b")
    (again,) = await acquire(store, a, made)
    assert again.epoch == 1
    for _ in range(2):
        (anew,) = await acquire(store, a, made, ended={0: 1})
        assert anew.epoch == 2
    assert (await state(store, offered.uid)).state == FAILED


async def test_every_step_may_be_repeated(store: Store) -> None:
    made, a, b, led = await led_topic(store)
    offered = await start(store, a, led, "b")
    assert (await start(store, a, led, "b")).uid == offered.uid
    for _ in range(2):
        (accepted,) = await answer(store, b, accepted=[offered.uid])
        assert accepted.state == ACCEPTED
    assert (await start(store, a, led, "b")).state == ACCEPTED
    for _ in range(2):
        (done,) = await complete(store, a, completed=[offered.uid])
        assert done.state == COMPLETED
    assert (await partitions(store, made))[0].epoch == 2


async def test_a_transfer_is_completed_only_after_it_was_accepted(store: Store) -> None:
    made, a, _, led = await led_topic(store)
    offered = await start(store, a, led, "b")
    (still,) = await complete(store, a, completed=[offered.uid])
    assert still.state == PENDING
    assert (await partitions(store, made))[0].leader == "a"


async def test_a_rejected_or_given_up_transfer_leaves_the_leader_leading(store: Store) -> None:
    made, a, b, led = await led_topic(store)
    first = await start(store, a, led, "b")
    (rejected,) = await answer(store, b, rejected=[first.uid], reason="disk full")
    assert (rejected.state, rejected.reason) == (REJECTED, "disk full")
    second = await start(store, a, led, "b")
    assert second.uid != first.uid
    await answer(store, b, accepted=[second.uid])
    (failed,) = await complete(store, a, failed=[second.uid], reason="upload failed")
    assert (failed.state, failed.reason) == (FAILED, "upload failed")
    (late,) = await answer(store, b, accepted=[second.uid])
    assert late.state == FAILED, "it has ended"
    await commits(store, a, commit(led, 0, 5))
    assert (await partitions(store, made))[0].epoch == 1


@pytest.mark.parametrize("which", ["a", "b"])
async def test_a_transfer_fails_with_the_session_of_either_side_in_the_same_revision(store: Store, which: str) -> None:
    made, a, b, led = await led_topic(store)
    offered = await start(store, a, led, "b")
    await answer(store, b, accepted=[offered.uid])
    before = await revision_of(store)
    await gone(store, a if which == "a" else b)
    (changes,) = await changes_since(store, before)
    assert "TRANSFER" in {change.kind for change in changes}
    ended = await state(store, offered.uid)
    assert (ended.state, ended.reason) == (FAILED, f"agent {which} is gone")
    if which == "b":
        (still,) = await complete(store, a, completed=[offered.uid])
        assert still.state == FAILED
        assert (await partitions(store, made))[0].leader == "a"
    else:
        await fails(complete(store, a, completed=[offered.uid]), SESSION_EXPIRED)


async def test_giving_a_partition_back_ends_its_transfer(store: Store) -> None:
    _, a, b, led = await led_topic(store)
    offered = await start(store, a, led, "b")
    await answer(store, b, accepted=[offered.uid])
    await release(store, a, led)
    assert (await state(store, offered.uid)).state == FAILED


async def test_an_offer_to_one_that_cannot_lead_fails_at_once_and_is_not_kept(store: Store) -> None:
    made, a, b, led = await led_topic(store, durability=WAL)
    await joined(store, "no-log", roles=roles("FRAGMENTS"))
    await joined(store, "no-volume", volume="")
    await joined(store, "elsewhere", group="other")
    await gone(store, b)
    before = await revision_of(store)
    for name in ("nobody", "b", "a", "no-log", "no-volume", "elsewhere", "x" * 300):
        refused = await start(store, a, led, name)
        assert (refused.state, refused.uid) == (FAILED, ""), name
        assert refused.reason != ""
    assert await revision_of(store) == before
    assert (await partitions(store, made))[0].leader == "a"


async def test_only_the_two_sides_have_a_say(store: Store) -> None:
    _, a, b, led = await led_topic(store)
    c = await joined(store, "c")
    offered = await start(store, a, led, "b")
    for member in (a, c):
        await fails(answer(store, member, accepted=[offered.uid]), TRANSFER_NOT_FOUND)
    for member in (b, c):
        await fails(complete(store, member, completed=[offered.uid]), TRANSFER_NOT_FOUND)
    await fails(complete(store, a, failed=["transfer-none"]), TRANSFER_NOT_FOUND)
    await fails(start(store, c, led, "b"), STALE_EPOCH)
    await fails(answer(store, Member("x", "session-forged"), accepted=[offered.uid]), SESSION_EXPIRED)
    assert (await state(store, offered.uid)).state == PENDING


@pytest.mark.parametrize("before", TRANSFER_STATES)
async def test_the_database_allows_only_the_legal_transitions_of_a_transfer(store: Store, before: str) -> None:
    _, a, b, led = await led_topic(store)
    offered = await start(store, a, led, "b")
    if before in ("ACCEPTED", "COMPLETED"):
        await answer(store, b, accepted=[offered.uid])
    if before == "COMPLETED":
        await complete(store, a, completed=[offered.uid])
    elif before == "REJECTED":
        await answer(store, b, rejected=[offered.uid])
    elif before == "FAILED":
        await complete(store, a, failed=[offered.uid])

    class RollBack(Exception):
        pass

    for after in TRANSFER_STATES:
        legal = before == after or (before, after) in TRANSFER_TRANSITIONS

        def attempt(tx: Tx, after: str = after, legal: bool = legal) -> None:
            change = update(transfers_table).values(state=after)
            if legal:
                tx.connection.execute(change)
            else:
                with pytest.raises(IntegrityError, match="no such transition of a transfer"):
                    tx.connection.execute(change)
            raise RollBack

        with pytest.raises(RollBack):
            await store.write(attempt)


def test_open_and_ended_states_are_all_states_and_nothing_follows_an_end() -> None:
    assert {*TRANSFER_OPEN, *TRANSFER_ENDED} == set(TRANSFER_STATES)
    assert not {before for before, _ in TRANSFER_TRANSITIONS} & set(TRANSFER_ENDED)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> object:
        raise AssertionError("no wall clock decides")


async def test_a_transfer_that_takes_too_long_fails_by_the_leaders_own_clock(store: Store) -> None:
    _, a, _, led = await led_topic(store)
    clock = Clock()
    overdue = OverdueTransfers(store, clock=clock, timeout=30.0)  # type: ignore[arg-type]
    offered = await start(store, a, led, "b")
    clock.now = 1000.0
    await overdue.look()
    clock.now = 1029.0
    await overdue.look()
    assert (await state(store, offered.uid)).state == PENDING, "seen for the first time 29 s ago"
    clock.now = 1030.0
    await overdue.look()
    ended = await state(store, offered.uid)
    assert (ended.state, ended.reason) == (FAILED, "it was not completed within 30 s")
    await commits(store, a, commit(led, 0, 5))


async def test_transfers_that_have_ended_are_forgotten_in_time_and_open_ones_are_not(store: Store) -> None:
    _, a, b, led = await led_topic(store)
    ended = await start(store, a, led, "b")
    await answer(store, b, rejected=[ended.uid])
    opened = await start(store, a, led, "b")
    assert await store.write(lambda tx: transfers.forget(tx, 60.0, 10)) == 0
    assert await store.write(lambda tx: transfers.forget(tx, -1.0, 10)) == 1
    left = await store.read(lambda tx: list(tx.connection.execute(select(transfers_table.c.uid)).scalars()))
    assert left == [opened.uid]


async def test_two_cannot_hand_one_partition_over_at_once(store: Store) -> None:
    _, a, _, led = await led_topic(store)
    await joined(store, "c")
    first, second = await start(store, a, led, "b"), await start(store, a, led, "c")
    assert (second.uid, second.to_agent) == (first.uid, "b"), "the open one stays"
    with pytest.raises(HeadgateError):
        await complete(store, Member("a", "session-forged"), completed=[first.uid])
