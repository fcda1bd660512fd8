"""What a watcher may rely on, each guarantee by its name, with concurrent writers, on every store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace

import pytest
from google.protobuf.message import Message

from headgate.catalog.v1 import resources_pb2 as pb
from headgate.catalog.v1 import statement_service_pb2, watch_service_pb2
from headgate_common.clock import SystemClock
from headgate_common.errors import HeadgateError
from headgate_coordinator.catalog import changes
from headgate_coordinator.catalog.retention import RetentionSettings, compact
from headgate_coordinator.catalog.store import Store
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.catalog.watch import CREATE, DROP, UPDATE, WatchFilter, WatchHub, WatchSettings
from headgate_coordinator.errors import REVISION_COMPACTED, REVISION_IN_FUTURE, WATCHER_TOO_SLOW
from tests.integration.catalog.kit import Databases, change, create, drop, snapshot, together

SOURCES = WatchFilter(kinds=("LOGICAL_SOURCE",))
SETTINGS = WatchSettings(bookmark_interval=30.0, history_revisions=7)


def hub_of(store: Store, settings: WatchSettings = SETTINGS) -> WatchHub:
    return WatchHub(store, snapshot, clock=SystemClock(), settings=settings)


@dataclass
class View:
    """A watcher that keeps what it was told, as a client would."""

    resources: dict[str, pb.LogicalSource] = field(default_factory=dict)
    snapshot_revision: int = 0
    batches: list[watch_service_pb2.WatchEvents] = field(default_factory=list)
    bookmarks: list[int] = field(default_factory=list)

    def take(self, response: watch_service_pb2.WatchResponse) -> None:
        if response.HasField("snapshot"):
            self.snapshot_revision = response.snapshot.revision
            for resource in response.snapshot.resources:
                assert resource.logical_source.name not in self.resources
                self.resources[resource.logical_source.name] = resource.logical_source
        elif response.HasField("bookmark"):
            assert response.bookmark.revision >= self.last
            self.bookmarks.append(response.bookmark.revision)
        else:
            self.batches.append(response.events)
            for event in response.events.events:
                self._apply(event)

    @property
    def last(self) -> int:
        return max([self.snapshot_revision, *(batch.revision for batch in self.batches), *self.bookmarks])

    def _apply(self, event: watch_service_pb2.WatchEvent) -> None:
        """Every event fits what was told before: nothing was left out and nothing came twice."""
        if event.operation == CREATE:
            assert not event.HasField("previous")
            assert event.current.logical_source.name not in self.resources
        else:
            previous = event.previous.logical_source
            assert self.resources.pop(previous.name) == previous
        if event.operation == DROP:
            assert not event.HasField("current")
        else:
            current = event.current.logical_source
            self.resources[current.name] = current


async def follow(stream: AsyncGenerator[watch_service_pb2.WatchResponse, None], view: View, upto: int) -> View:
    """Takes messages until one speaks of the revision `upto`, then ends the watch."""
    async with asyncio.timeout(60), aclosing(stream) as responses:
        async for response in responses:
            view.take(response)
            complete = not response.HasField("snapshot") or response.snapshot.complete
            if complete and view.last >= upto:
                return view
    raise AssertionError("the watch ended")


async def churn(store: Store, number: int, turns: int) -> None:
    """One writer among many: makes, changes and drops sources of its own, two in one transaction."""
    for turn in range(turns):
        one, two = f"w{number}-{turn}-a", f"w{number}-{turn}-b"
        await store.write(together(create(one), create(two)))
        await store.write(together(change(one, turn % 3 + 1), change(two, turn % 3 + 1)))
        if turn % 2:
            await store.write(together(drop(one), drop(two)))
        # The inline store never makes its caller wait.
        await asyncio.sleep(0)


@asynccontextmanager
async def writers(store: Store, count: int = 8, turns: int = 6) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        for number in range(count):
            group.create_task(churn(store, number, turns))
        yield


def last_of(count: int = 8, turns: int = 6) -> int:
    return count * (turns * 2 + turns // 2)


async def watched(store: Store, watchers: int = 4) -> list[View]:
    """Several watchers that begin at different moments of the writing and see it to its end."""
    hub = hub_of(store)

    async def late(delay: int) -> View:
        with store.changes.subscribe() as subscription:
            while subscription.position < delay * 5:
                await subscription.get()
        return await follow(hub.watch(SOURCES), View(), last_of())

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(late(number)) for number in range(watchers)]
        async with writers(store):
            await asyncio.sleep(0)
    return [task.result() for task in tasks]


async def test_ordered(store: Store) -> None:
    for view in await watched(store):
        revisions = [batch.revision for batch in view.batches]
        assert revisions == sorted(revisions)
        assert all(revision > view.snapshot_revision for revision in revisions)
    made = {revision.number: revision for revision in await store.read(lambda tx: changes.history(tx, 0, 1000))}
    for batch in view.batches:
        told = [
            (event.current if event.HasField("current") else event.previous).logical_source.name
            for event in batch.events
        ]
        assert told == [each.name for each in made[batch.revision].changes]


async def test_unique(store: Store) -> None:
    for view in await watched(store):
        revisions = [batch.revision for batch in view.batches]
        assert len(revisions) == len(set(revisions))


async def test_atomic(store: Store) -> None:
    views = await watched(store)
    for view in views:
        for batch in view.batches:
            assert len(batch.events) == 2, "both sources of a transaction come in one message"
            assert len({event.operation for event in batch.events}) == 1
    assert sum(len(view.batches) for view in views) > 0


async def test_reliable(store: Store) -> None:
    """Dense: every revision from the snapshot to the end; and what was told adds up to what is."""
    views = await watched(store)
    for view in views:
        expected = list(range(view.snapshot_revision + 1, last_of() + 1))
        assert [batch.revision for batch in view.batches] == expected
        now = await store.read(lambda tx: dict(_by_name(tx)))
        assert view.resources == now


async def test_reliable_through_a_process_that_does_not_write(databases: Databases) -> None:
    writing, standing_by = await databases.open(), await databases.open()
    hub = hub_of(standing_by)
    task = asyncio.create_task(follow(hub.watch(SOURCES), View(), last_of()))
    async with writers(writing):
        await asyncio.sleep(0)
    view = await task
    assert [batch.revision for batch in view.batches] == list(range(view.snapshot_revision + 1, last_of() + 1))
    assert view.resources == await writing.read(lambda tx: dict(_by_name(tx)))


async def test_resumable(store: Store) -> None:
    """A watcher cut off after every few revisions that resumes sees exactly what one that never stopped sees."""
    await store.write(create("first"))
    last = last_of() + 1
    hub = hub_of(store)
    whole = asyncio.create_task(follow(hub.watch(SOURCES), View(), last))
    pieces = await follow(hub.watch(SOURCES), View(), 1)

    async def piecewise() -> None:
        while pieces.last < last:
            await follow(hub.watch(SOURCES, pieces.last), pieces, min(pieces.last + 9, last))

    async with writers(store):
        await piecewise()
    full = await whole
    told = {batch.revision: batch for batch in full.batches}
    assert all(told[batch.revision] == batch for batch in pieces.batches if batch.revision > full.snapshot_revision)
    assert [batch.revision for batch in pieces.batches] == list(range(pieces.snapshot_revision + 1, last + 1))
    assert pieces.resources == full.resources


async def test_resumable_only_where_the_history_is(store: Store) -> None:
    for number in range(20):
        await store.write(create(f"s{number}"))
    kept = RetentionSettings(history_age=0.0, min_revisions=5)
    assert await store.write(lambda tx: compact(tx, kept, 100)) in (14, 15)
    hub = hub_of(store)
    view = await follow(hub.watch(SOURCES, 15), View(), 20)
    assert [batch.revision for batch in view.batches] == [16, 17, 18, 19, 20]
    with pytest.raises(HeadgateError) as gone:
        await follow(hub.watch(SOURCES, 3), View(), 20)
    assert gone.value.reason is REVISION_COMPACTED
    with pytest.raises(HeadgateError) as future:
        await follow(hub.watch(SOURCES, 21), View(), 21)
    assert future.value.reason is REVISION_IN_FUTURE
    assert len((await follow(hub.watch(SOURCES), View(), 20)).resources) == 20


async def test_resumable_from_another_process(databases: Databases) -> None:
    first, second = await databases.open(), await databases.open()
    task = asyncio.create_task(follow(hub_of(first).watch(SOURCES), View(), 20))
    async with writers(first):
        view = await task
        await follow(hub_of(second).watch(SOURCES, view.last), view, last_of())
    assert [batch.revision for batch in view.batches] == list(range(view.snapshot_revision + 1, last_of() + 1))
    assert view.resources == await second.read(lambda tx: dict(_by_name(tx)))


async def test_bookmarkable(store: Store) -> None:
    """Bookmarks of a watcher that sees nothing follow the catalog, and resuming at one leaves nothing out."""
    hub = hub_of(store, replace(SETTINGS, bookmark_interval=0.01))
    narrow = replace(SOURCES, name="the-one")
    view = View()

    async def watch_bookmarks() -> None:
        await follow(hub.watch(narrow), view, last_of())

    task = asyncio.create_task(watch_bookmarks())
    async with writers(store):
        await asyncio.sleep(0)
    await task
    assert view.bookmarks == sorted(view.bookmarks)
    assert view.bookmarks[-1] == last_of()
    assert not view.batches
    made = await store.write(create("the-one"))
    await follow(hub.watch(narrow, view.bookmarks[-1]), view, made.revision)
    assert list(view.resources) == ["the-one"]


async def test_bookmarks_come_while_nothing_happens(store: Store) -> None:
    await store.write(create("a"))
    hub = hub_of(store, replace(SETTINGS, bookmark_interval=0.01))
    view = View()
    async with asyncio.timeout(30), aclosing(hub.watch(SOURCES)) as responses:
        async for response in responses:
            view.take(response)
            if len(view.bookmarks) == 3:
                break
    assert view.bookmarks == [1, 1, 1]


def width(resource: statement_service_pb2.Resource) -> int:
    return len(resource.logical_source.schema.fields)


def wide(message: Message) -> bool:
    assert isinstance(message, pb.LogicalSource)
    return len(message.schema.fields) >= 2


def name_only(message: Message) -> Message:
    assert isinstance(message, pb.LogicalSource)
    return pb.LogicalSource(name=message.name)


async def test_filterable(store: Store) -> None:
    """By a condition: entering it is CREATE, leaving it is DROP, and what is outside is never seen."""
    hub = hub_of(store)
    chosen = replace(SOURCES, matches=wide, spec="columns >= 2")
    task = asyncio.create_task(follow(hub.watch(chosen), View(), last_of() + 4))
    async with writers(store):
        await asyncio.sleep(0)
    await store.write(create("x", columns=1))
    await store.write(change("x", 2))
    await store.write(change("x", 3))
    await store.write(change("x", 1))
    view = await task
    about_x = [
        (event.operation, width(event.previous), width(event.current))
        for batch in view.batches
        for event in batch.events
        if "x" in (event.current.logical_source.name, event.previous.logical_source.name)
    ]
    assert about_x == [(CREATE, 0, 2), (UPDATE, 2, 3), (DROP, 3, 0)]
    now = await store.read(lambda tx: {name: each for name, each in _by_name(tx) if wide(each)})
    assert view.resources == now


async def test_filterable_by_kind_name_and_columns(store: Store) -> None:
    hub = hub_of(store)
    narrow = replace(SOURCES, name="w3-1-a", project=name_only, spec="name")
    stream, other = hub.watch(narrow), hub.watch(WatchFilter(kinds=("SINK",)))
    assert list((await anext(stream)).snapshot.resources) == []
    assert list((await anext(other)).snapshot.resources) == []
    nothing = asyncio.create_task(anext(other))
    async with writers(store):
        await asyncio.sleep(0)
    created = await asyncio.wait_for(anext(stream), 30)
    (event,) = created.events.events
    assert (event.operation, event.current.logical_source) == (CREATE, pb.LogicalSource(name="w3-1-a"))
    dropped = await asyncio.wait_for(anext(stream), 30)
    assert [each.operation for each in dropped.events.events] == [DROP], "no chosen column changed in between"
    assert not nothing.done()
    nothing.cancel()


async def test_the_snapshot_comes_in_parts_of_one_revision(store: Store) -> None:
    await store.write(together(*(create(f"s{number}") for number in range(25))))
    hub = hub_of(store, replace(SETTINGS, part_resources=10))
    parts = []
    async with aclosing(hub.watch(SOURCES)) as responses:
        async for response in responses:
            parts.append(response.snapshot)
            if response.snapshot.complete:
                break
            await store.write(create(f"meanwhile{len(parts)}"))
    assert [len(part.resources) for part in parts] == [10, 10, 5]
    assert {part.revision for part in parts} == {1}


async def test_a_slow_watcher_is_cut_off_may_resume_and_slows_nobody(store: Store) -> None:
    hub = hub_of(store, replace(SETTINGS, max_revisions=60))
    slow = hub.watch(SOURCES)
    view = View()
    view.take(await anext(slow))
    await store.write(create("first"))
    view.take(await asyncio.wait_for(anext(slow), 30))
    quick = asyncio.create_task(follow(hub.watch(SOURCES), View(), last_of() + 1))
    async with writers(store):
        await asyncio.sleep(0)
    assert (await quick).last == last_of() + 1
    with pytest.raises(HeadgateError) as cut:
        async with asyncio.timeout(30):
            async for response in slow:
                view.take(response)
    assert cut.value.reason is WATCHER_TOO_SLOW
    assert int(cut.value.metadata["revision"]) == view.last
    await follow(hub.watch(SOURCES, view.last), view, last_of() + 1)
    assert [batch.revision for batch in view.batches] == list(range(1, last_of() + 2))
    assert store.changes.subscribers == 0


async def test_watchers_with_the_same_filter_share_their_messages(store: Store) -> None:
    hub = hub_of(store)
    streams = [hub.watch(SOURCES) for _ in range(3)]
    for stream in streams:
        await anext(stream)
    waiting = [asyncio.create_task(anext(stream)) for stream in streams]
    await asyncio.sleep(0.01)
    await store.write(create("a"))
    told = await asyncio.wait_for(asyncio.gather(*waiting), 30)
    assert told[0] is told[1] is told[2]
    assert hub.watchers == 3


def _by_name(tx: Tx) -> list[tuple[str, pb.LogicalSource]]:
    found = []
    for _, message in snapshot(tx, ("LOGICAL_SOURCE",)):
        assert isinstance(message, pb.LogicalSource)
        found.append((message.name, message))
    return found
