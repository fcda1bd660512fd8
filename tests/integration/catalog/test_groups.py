"""Consumer groups: one leader, offsets under its epoch, and a generation that never goes back."""

from __future__ import annotations

import pytest
from sqlalchemy import update
from sqlalchemy.exc import IntegrityError

from headgate.log import v1 as log
from headgate_coordinator.catalog.log import groups
from headgate_coordinator.catalog.log.schema import consumer_groups
from headgate_coordinator.catalog.log.settings import TopicRules
from headgate_coordinator.catalog.store import Store
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.errors import (
    GRANT_CONFLICT,
    GROUP_IN_USE,
    GROUP_LIMIT_EXCEEDED,
    GROUP_NOT_FOUND,
    SESSION_EXPIRED,
    STALE_COMMIT,
    STALE_EPOCH,
    STALE_GENERATION,
)
from tests.integration.catalog.log_kit import (
    Member,
    acquire_group,
    fails,
    gone,
    joined,
    revision_of,
    topic,
)


def at(name: str, partition: int, offset: int, metadata: str = "") -> log.GroupOffset:
    return log.GroupOffset(topic=name, partition=partition, offset=offset, leader_epoch=-1, metadata=metadata)


async def commit_offsets(
    store: Store,
    member: Member,
    epoch: int,
    *offsets: log.GroupOffset,
    generation: int = 1,
    group: str = "g",
    sequence: int = 0,
) -> list[log.GroupOffset]:
    request = log.CommitGroupOffsetsRequest(
        session_id=member.session, group=group, epoch=epoch, generation=generation, offsets=offsets, sequence=sequence
    )
    return list((await store.write(lambda tx: groups.commit_group_offsets(tx, request))).unknown)


async def release_groups(store: Store, member: Member, *names: str, epoch: int = 1) -> None:
    request = log.ReleaseGroupsRequest(
        session_id=member.session, groups=[log.ReleasedGroup(group=name, epoch=epoch) for name in names]
    )
    await store.write(lambda tx: groups.release_groups(tx, request))


async def forget(store: Store, age: float, limit: int = 10) -> int:
    return await store.write(lambda tx: groups.forget(tx, age, limit))


async def group_of(store: Store, name: str = "g") -> log.Group:
    return await store.read(lambda tx: groups.get_group(tx, log.GetGroupRequest(name=name)))


async def drop(store: Store, name: str = "g", **fields: object) -> log.Group | None:
    request = log.DropGroupRequest(name=name, **fields)  # type: ignore[arg-type]
    return await store.write(lambda tx: groups.drop_group(tx, request))


async def test_offsets_are_stored_replaced_and_read_in_order_and_are_no_revision(store: Store) -> None:
    await topic(store, "b", 2)
    await topic(store, "a")
    member = await joined(store, "x")
    before = await revision_of(store)
    led = await acquire_group(store, member)
    assert (led.epoch, led.generation) == (1, 0)
    assert await commit_offsets(store, member, 1, at("b", 1, 5), at("a", 0, 3, "note")) == []
    assert await commit_offsets(store, member, 1, at("b", 0, 7), at("b", 1, 6)) == []
    found = await group_of(store)
    assert list(found.offsets) == [at("a", 0, 3, "note"), at("b", 0, 7), at("b", 1, 6)]
    assert (found.leader, found.epoch, found.generation) == ("x", 1, 1)
    assert await revision_of(store) == before


async def test_what_names_no_partition_is_answered_and_the_rest_is_stored(store: Store) -> None:
    await topic(store, "a")
    member = await joined(store, "x")
    await acquire_group(store, member)
    unknown = await commit_offsets(store, member, 1, at("a", 0, 1), at("a", 1, 1), at("none", 0, 1))
    assert [(each.topic, each.partition) for each in unknown] == [("a", 1), ("none", 0)]
    assert [(each.topic, each.offset) for each in (await group_of(store)).offsets] == [("a", 1)]


async def test_one_session_leads_a_group_and_a_former_leader_stores_nothing(store: Store) -> None:
    await topic(store, "a")
    one, two = await joined(store, "one"), await joined(store, "two")
    await acquire_group(store, one)
    assert (await acquire_group(store, one)).epoch == 1
    await fails(acquire_group(store, two), GRANT_CONFLICT)
    await commit_offsets(store, one, 1, at("a", 0, 3), generation=4)
    await gone(store, one)
    assert (await group_of(store)).leader == ""
    led = await acquire_group(store, two)
    assert (led.epoch, led.generation) == (2, 4), "the next leader goes on from it"
    await fails(commit_offsets(store, one, 1, at("a", 0, 9), generation=4), STALE_EPOCH)
    await fails(commit_offsets(store, two, 1, at("a", 0, 9), generation=4), STALE_EPOCH)
    await fails(commit_offsets(store, Member("x", "session-forged"), 2, at("a", 0, 9)), STALE_EPOCH)
    assert (await group_of(store)).offsets[0].offset == 3
    await fails(acquire_group(store, one), SESSION_EXPIRED)


async def test_a_commit_that_comes_after_a_later_one_undoes_nothing(store: Store) -> None:
    """It was given up, and the next was acknowledged."""
    await topic(store, "a")
    member = await joined(store, "x")
    assert (await acquire_group(store, member)).sequence == 0
    for _ in range(2):
        await commit_offsets(store, member, 1, at("a", 0, 9), sequence=2)
    await fails(commit_offsets(store, member, 1, at("a", 0, 5), sequence=1), STALE_COMMIT)
    assert list((await group_of(store)).offsets) == [at("a", 0, 9)]
    await release_groups(store, member, "g")
    again = await acquire_group(store, member)
    assert (again.epoch, again.sequence) == (2, 2)
    await commit_offsets(store, member, 2, at("a", 0, 7), sequence=3)
    assert list((await group_of(store)).offsets) == [at("a", 0, 7)], "a consumer may go back"


async def test_there_are_no_more_groups_than_there_may_be(store: Store) -> None:
    member, rules = await joined(store, "x"), TopicRules(max_groups=2)
    for name in ("a", "b"):
        await acquire_group(store, member, name, rules)
    refused = await fails(acquire_group(store, member, "c", rules), GROUP_LIMIT_EXCEEDED)
    assert "2 are allowed" in refused.message
    await acquire_group(store, member, "a", rules)
    led = await acquire_group(store, member, "b", rules)
    await drop(store, "b", session_id=member.session, epoch=led.epoch)
    await acquire_group(store, member, "c", rules)


async def test_a_generation_never_goes_back(store: Store) -> None:
    await topic(store, "a")
    member = await joined(store, "x")
    await acquire_group(store, member)
    await commit_offsets(store, member, 1, at("a", 0, 1), generation=5)
    await fails(commit_offsets(store, member, 1, at("a", 0, 9), generation=4), STALE_GENERATION)
    assert (await group_of(store)).offsets[0].offset == 1
    await commit_offsets(store, member, 1, at("a", 0, 2), generation=-1)
    await commit_offsets(store, member, 1, generation=6)
    found = await group_of(store)
    assert (found.generation, found.offsets[0].offset) == (6, 2)

    def back(tx: Tx) -> None:
        with pytest.raises(IntegrityError, match="only grows"):
            tx.connection.execute(update(consumer_groups).values(generation=5))
        raise KeyError

    with pytest.raises(KeyError):
        await store.write(back)


async def test_a_group_is_dropped_when_nobody_leads_it_or_by_its_leader(store: Store) -> None:
    await topic(store, "a")
    one, two = await joined(store, "one"), await joined(store, "two")
    await acquire_group(store, one)
    await commit_offsets(store, one, 1, at("a", 0, 1))
    await fails(drop(store), GROUP_IN_USE)
    await fails(drop(store, session_id=two.session, epoch=1), STALE_EPOCH)
    await fails(drop(store, session_id=one.session, epoch=2), STALE_EPOCH)
    dropped = await drop(store, session_id=one.session, epoch=1)
    assert dropped is not None and len(dropped.offsets) == 1
    await fails(group_of(store), GROUP_NOT_FOUND)
    await fails(commit_offsets(store, one, 1, at("a", 0, 1)), STALE_EPOCH)
    await fails(drop(store), GROUP_NOT_FOUND)
    assert await drop(store, allow_missing=True) is None
    await acquire_group(store, two)
    assert list((await group_of(store)).offsets) == []
    await gone(store, two)
    assert await drop(store) is not None


async def test_groups_are_listed_by_pages(store: Store) -> None:
    member = await joined(store, "x")
    for name in ("g2", "G1", "g1", "ü", "a b"):
        await acquire_group(store, member, name)

    async def page(token: str = "", prefix: str = "") -> log.ListGroupsResponse:
        request = log.ListGroupsRequest(page_size=3, page_token=token, name_prefix=prefix)
        return await store.read(lambda tx: groups.list_groups(tx, request))

    first = await page()
    rest = await page(first.next_page_token)
    assert [each.name for each in (*first.groups, *rest.groups)] == ["G1", "a b", "g1", "g2", "ü"]
    assert [each.name for each in (await page(prefix="g")).groups] == ["g1", "g2"]


async def test_groups_that_nobody_uses_are_forgotten_in_time(store: Store) -> None:
    await topic(store, "a")
    member = await joined(store, "x")
    for name in ("g", "h"):
        epoch = (await acquire_group(store, member, name)).epoch
        await commit_offsets(store, member, epoch, at("a", 0, 1), group=name)
    await release_groups(store, member, "g", "h")
    assert await forget(store, 3600.0) == 0
    assert await forget(store, -1.0, 1) == 1
    assert await forget(store, -1.0) == 1
    await fails(group_of(store), GROUP_NOT_FOUND)


async def test_a_group_that_is_led_is_kept_however_long_nothing_was_committed(store: Store) -> None:
    await topic(store, "a")
    member = await joined(store, "x")
    epoch = (await acquire_group(store, member)).epoch
    await commit_offsets(store, member, epoch, at("a", 0, 7))
    assert await forget(store, -1.0) == 0
    assert (await group_of(store)).offsets[0].offset == 7
    await commit_offsets(store, member, epoch, at("a", 0, 8))


async def test_the_time_without_a_leader_begins_when_a_group_was_given_up_or_its_leader_lost(store: Store) -> None:
    await topic(store, "a")
    for name, lost in (("released", False), ("lost", True)):
        member = await joined(store, f"agent-{name}")
        await acquire_group(store, member, name)
        long_ago = update(consumer_groups).where(consumer_groups.c.name == name).values(time=1)
        await store.write(lambda tx, aged=long_ago: tx.connection.execute(aged))  # type: ignore[misc]
        await (gone(store, member) if lost else release_groups(store, member, name))
        assert await forget(store, 3600.0) == 0, "it was led a moment ago"
        assert await forget(store, -1.0) == 1


async def test_a_group_that_was_forgotten_or_dropped_comes_back_above_every_epoch_it_had(store: Store) -> None:
    await topic(store, "a")
    one, two = await joined(store, "one"), await joined(store, "two")
    assert (await acquire_group(store, one)).epoch == 1
    await release_groups(store, one, "g")
    assert (await acquire_group(store, two)).epoch == 2
    await commit_offsets(store, two, 2, at("a", 0, 1), generation=9)
    await release_groups(store, two, "g", epoch=2)
    assert await forget(store, -1.0) == 1
    again = await acquire_group(store, two)
    assert (again.epoch, again.generation) == (3, 0)
    await fails(commit_offsets(store, two, 2, at("a", 0, 9), generation=9), STALE_EPOCH)
    await drop(store, session_id=two.session, epoch=3)
    assert (await acquire_group(store, two)).epoch == 4
    await fails(commit_offsets(store, two, 3, at("a", 0, 9)), STALE_EPOCH)
    assert list((await group_of(store)).offsets) == []
