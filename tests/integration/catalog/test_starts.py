"""Where fragments begin to read topics, in both databases: kept once, for every run, before anything is read."""

from __future__ import annotations

import asyncio

import pytest

from headgate.catalog import v1 as catalog
from headgate.cluster import v1 as cluster
from headgate_common.errors import INVALID_ARGUMENT
from headgate_coordinator.catalog import fragments, story
from headgate_coordinator.catalog.fragments import Changes, OpenFragment
from headgate_coordinator.catalog.starts import keep_starts
from headgate_coordinator.catalog.store import Store
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.errors import STALE_RUN
from tests.integration.catalog import log_kit as kit
from tests.integration.cluster.kit import create_query, plan_of


class Query:
    """A query on agent `a`, whose second fragment computes."""

    def __init__(self, store: Store, uid: str) -> None:
        self.store, self.uid = store, uid

    async def fragment(self, ordinal: int = 2) -> OpenFragment:
        return (await self.store.read(lambda tx: fragments.fragments_of(tx, self.uid)))[ordinal - 1]

    async def change(self, **values: object) -> None:
        def apply(tx: Tx) -> None:
            changes = Changes(tx)
            changes.set(fragments.fragments_of(tx, self.uid)[1], "test", **values)
            changes.flush()

        await self.store.write(apply)

    async def asking(self, epoch: int, *offsets: int, ordinal: int = 2) -> cluster.KeepStartsRequest:
        one = catalog.TopicStart(physical_source="orders", topic_uid="t1", offsets=offsets)
        return cluster.KeepStartsRequest(uid=(await self.fragment(ordinal)).uid, epoch=epoch, starts=[one])

    async def keep(self, epoch: int, *offsets: int) -> list[list[int]]:
        request = await self.asking(epoch, *offsets)
        answer = await self.store.write(lambda tx: keep_starts(tx, request))
        return [list(one.offsets) for one in answer.starts]


@pytest.fixture
async def query(store: Store) -> Query:
    await kit.joined(store, "a")
    return Query(store, await store.write(lambda tx: create_query(tx, plan_of("a"), "q")))


async def test_what_is_kept_first_is_answered_to_every_run(query: Query) -> None:
    assert await query.keep(1, 5, 0) == [[5, 0]]
    revision = await kit.revision_of(query.store)
    assert await query.keep(1, 6, 2) == [[5, 0]]
    assert await kit.revision_of(query.store) == revision, "nothing has changed"
    await query.change(state="REGISTERED")
    await query.change(state="PENDING", epoch=2)
    assert await query.keep(2, 9, 9) == [[5, 0]]
    (kept,) = (await query.fragment()).message().starts
    assert (kept.physical_source, kept.topic_uid, list(kept.offsets)) == ("orders", "t1", [5, 0])


async def test_of_many_who_ask_at_once_one_is_first(query: Query) -> None:
    answers = await asyncio.gather(*(query.keep(1, number) for number in range(8)))
    assert len({tuple(map(tuple, answer)) for answer in answers}) == 1


async def test_other_changes_leave_it_as_it_is(query: Query) -> None:
    await query.keep(1, 5)
    await query.change(waiting="it warms up")
    await query.change(state="REGISTERED")
    assert [list(one.offsets) for one in (await query.fragment()).message().starts] == [[5]]


async def test_a_run_that_is_not_the_current_one_keeps_nothing(query: Query) -> None:
    await query.change(state="REGISTERED")
    await query.change(state="PENDING", epoch=2)
    for epoch in (1, 3):
        request = await query.asking(epoch, 5)
        await kit.refused(query.store, lambda tx, request=request: keep_starts(tx, request), STALE_RUN)  # type: ignore[misc]
    unknown = cluster.KeepStartsRequest(uid="nobody", epoch=1, starts=[catalog.TopicStart()])
    await kit.refused(query.store, lambda tx: keep_starts(tx, unknown), STALE_RUN)
    await query.change(state="STOPPED")
    ended = await query.asking(2, 5)
    await kit.refused(query.store, lambda tx: keep_starts(tx, ended), STALE_RUN)
    assert (await query.fragment()).starts is None


async def test_only_what_computes_reads_topics(query: Query) -> None:
    source = await query.asking(1, 5, ordinal=1)
    await kit.refused(query.store, lambda tx: keep_starts(tx, source), INVALID_ARGUMENT)


async def test_the_story_tells_where_it_begins_and_not_more_than_can_be_read(query: Query) -> None:
    await query.keep(1, *range(100, 120))

    entries = await query.store.read(lambda tx: story.entries_of(tx, query.uid, (0, 0), 100))
    (told,) = [entry.cause for _, entry in entries if "begins" in entry.cause]
    assert told.startswith("it begins to read at orders 0:100 1:101 ")
    assert told.endswith("15:115 and 4 more")
