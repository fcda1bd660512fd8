"""Watching the catalog: a snapshot, then every change after it, for as long as the caller listens.

What a watcher may rely on, whichever process of the cluster it asks:

- ordered: revisions only grow, and events of one revision come in the order in which they were made;
- unique: no event comes twice;
- atomic: all that one transaction changed comes in one message;
- reliable: no event is left out between two that are sent;
- resumable: whoever resumes after the last revision it saw gets exactly what it would have got;
- bookmarkable: a bookmark says that everything up to its revision has been sent;
- filterable: entering a filter is CREATE, leaving it is DROP, and a resource outside of it is never seen.

A watcher lives in two phases. While it is behind it reads the history from the database, at its own pace. Once it is
close it subscribes to the feed, and is cut off with WATCHER_TOO_SLOW if it lets more pile up than its limit. Messages
are made once for all watchers with the same filter.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Hashable, Iterable
from contextlib import aclosing
from dataclasses import dataclass

from google.protobuf.message import Message

from headgate.catalog.v1 import resources_pb2, statement_service_pb2, watch_service_pb2
from headgate.log.v1 import resources_pb2 as log_pb
from headgate_common.clock import Clock
from headgate_coordinator.catalog.changes import Revision, Subscription, history
from headgate_coordinator.catalog.store import Store
from headgate_coordinator.catalog.tx import KINDS, LOG_KINDS, Tx

Resource = statement_service_pb2.Resource
WatchResponse = watch_service_pb2.WatchResponse
CREATE = watch_service_pb2.WATCH_OPERATION_CREATE
UPDATE = watch_service_pb2.WATCH_OPERATION_UPDATE
DROP = watch_service_pb2.WATCH_OPERATION_DROP

# All resources of the given kinds, as one transaction sees them.
SnapshotReader = Callable[[Tx, tuple[str, ...]], Iterable[tuple[str, Message]]]


@dataclass(frozen=True, slots=True)
class WatchFilter:
    """Which resources a watcher sees, and what of them. `spec` tells apart the functions of two filters.

    `name` is that of any resource but those of the log, whose names keep their case: they have the name of `topic`.

    `matches` says whether a resource belongs; `project` makes what is shown of it. Both are pure. An update that
    changes nothing of what is shown is not shown.
    """

    kinds: tuple[str, ...] = KINDS
    name: str = ""
    topic: str = ""
    matches: Callable[[Message], bool] | None = None
    project: Callable[[Message], Message] | None = None
    spec: Hashable = None

    @property
    def key(self) -> Hashable:
        return self.kinds, self.name, self.topic, self.spec

    def seen(self, kind: str, message: Message | None) -> Message | None:
        """What is shown of a resource; None if it is none of this watcher's."""
        if message is None or kind not in self.kinds:
            return None
        wanted = self.topic if kind in LOG_KINDS else self.name
        if wanted and name_of(message) != wanted:
            return None
        if self.matches is not None and not self.matches(message):
            return None
        return message if self.project is None else self.project(message)


def name_of(message: Message) -> str:
    """The name that a watcher filters by: for a fragment its query's, for a partition its topic's, for a link both."""
    if isinstance(message, resources_pb2.Fragment):
        return message.query
    if isinstance(message, resources_pb2.NetworkLink):
        return f"{message.from_agent}->{message.to_agent}"
    if isinstance(message, log_pb.Partition | log_pb.Transfer):
        return message.topic
    name: str = message.name  # type: ignore[attr-defined]
    return name


@dataclass(frozen=True, slots=True)
class WatchSettings:
    """Times in seconds."""

    # A watcher that was sent nothing for this long gets a bookmark.
    bookmark_interval: float = 10.0
    # How much may pile up for one watcher before it is cut off.
    max_revisions: int = 1000
    max_bytes: int = 16 << 20
    # Size of one part of a snapshot.
    part_resources: int = 500
    part_bytes: int = 1 << 20
    # Revisions read from the history at once.
    history_revisions: int = 200
    # Snapshots that are read at the same time.
    concurrent_snapshots: int = 2


@dataclass(frozen=True, slots=True)
class _Snapshot:
    revision: int
    parts: tuple[WatchResponse, ...]


class WatchHub:
    """All watchers of one process."""

    def __init__(
        self, store: Store, snapshot: SnapshotReader, *, clock: Clock, settings: WatchSettings | None = None
    ) -> None:
        self._store = store
        self._reader = snapshot
        self._clock = clock
        self._settings = settings or WatchSettings()
        self._reading: dict[Hashable, asyncio.Task[_Snapshot]] = {}
        self._turns = asyncio.Semaphore(self._settings.concurrent_snapshots)
        self._watchers = 0

    @property
    def watchers(self) -> int:
        return self._watchers

    async def watch(self, chosen: WatchFilter, from_revision: int = 0) -> AsyncGenerator[WatchResponse, None]:
        """Never ends by itself. REVISION_COMPACTED or REVISION_IN_FUTURE where it cannot resume."""
        self._watchers += 1
        try:
            last = from_revision
            if from_revision == 0:
                snapshot = await self._snapshot(chosen)
                for part in snapshot.parts:
                    yield part
                last = snapshot.revision
            async with aclosing(self._follow(chosen, last, known=from_revision == 0)) as responses:
                async for response in responses:
                    yield response
        finally:
            self._watchers -= 1

    async def _follow(self, chosen: WatchFilter, last: int, known: bool) -> AsyncGenerator[WatchResponse, None]:
        """Everything after `last`, which has happened for certain if it is `known`."""
        settings = self._settings
        feed = self._store.changes
        sent = self._clock.monotonic()
        subscription: Subscription | None = None
        start = last
        try:
            while True:
                if subscription is None and known and feed.position - last <= settings.history_revisions:
                    subscription = feed.subscribe(max_revisions=settings.max_revisions, max_bytes=settings.max_bytes)
                    start = subscription.position
                if subscription is not None and last >= start:
                    break
                part = await self._history(last)
                known = True
                for revision in part:
                    last = revision.number
                    if (response := view(revision, chosen)) is not None:
                        yield response
                        sent = self._clock.monotonic()
                if self._clock.monotonic() - sent >= settings.bookmark_interval:
                    yield bookmark(last)
                    sent = self._clock.monotonic()
            while True:
                following = await self._next(subscription, sent + settings.bookmark_interval)
                response = None
                if following is not None and following.number > last:
                    last = following.number
                    response = view(following, chosen)
                if response is None and self._clock.monotonic() - sent >= settings.bookmark_interval:
                    response = bookmark(last)
                if response is not None:
                    yield response
                    sent = self._clock.monotonic()
        finally:
            if subscription is not None:
                subscription.close()

    async def _next(self, subscription: Subscription, bookmark_due: float) -> Revision | None:
        """The next revision, or None when a bookmark is due."""
        return await subscription.get_within(bookmark_due - self._clock.monotonic())

    async def _history(self, after: int) -> list[Revision]:
        return await self._store.read(lambda tx: history(tx, after, self._settings.history_revisions))

    async def _snapshot(self, chosen: WatchFilter) -> _Snapshot:
        """A snapshot that has everything this process knew of when it was asked for; shared by all who ask at once."""
        wanted = self._store.changes.position
        while True:
            task = self._reading.get(chosen.key)
            if task is None:
                task = asyncio.create_task(self._read_snapshot(chosen), name="watch-snapshot")
                self._reading[chosen.key] = task
            found = await asyncio.shield(task)
            if found.revision >= wanted:
                return found

    async def _read_snapshot(self, chosen: WatchFilter) -> _Snapshot:
        try:
            async with self._turns:
                return await self._store.read(lambda tx: self._parts(tx, chosen))
        finally:
            del self._reading[chosen.key]

    def _parts(self, tx: Tx, chosen: WatchFilter) -> _Snapshot:
        settings = self._settings
        parts = []
        part = WatchResponse(snapshot=watch_service_pb2.WatchSnapshot(revision=tx.revision))
        size = 0
        for kind, message in self._reader(tx, chosen.kinds):
            shown = chosen.seen(kind, message)
            if shown is None:
                continue
            resource = as_resource(kind, shown)
            if len(part.snapshot.resources) >= settings.part_resources or size >= settings.part_bytes:
                parts.append(part)
                part = WatchResponse(snapshot=watch_service_pb2.WatchSnapshot(revision=tx.revision))
                size = 0
            part.snapshot.resources.append(resource)
            size += resource.ByteSize()
        part.snapshot.complete = True
        return _Snapshot(tx.revision, (*parts, part))


def view(revision: Revision, chosen: WatchFilter) -> WatchResponse | None:
    """What a watcher with that filter is told of a revision; None if nothing. Made once for each filter."""
    key = chosen.key
    if key not in revision.views:
        revision.views[key] = _view(revision, chosen)
    made = revision.views[key]
    assert made is None or isinstance(made, WatchResponse)
    return made


def _view(revision: Revision, chosen: WatchFilter) -> WatchResponse | None:
    events = []
    for change in revision.changes:
        before = chosen.seen(change.kind, change.before)
        after = chosen.seen(change.kind, change.after)
        event = _event(change.kind, before, after)
        if event is not None and not (chosen.project and event.current == event.previous):
            events.append(event)
    if not events:
        return None
    told = watch_service_pb2.WatchEvents(revision=revision.number, events=events)
    told.time.FromMicroseconds(revision.time)
    return WatchResponse(events=told)


def _event(kind: str, before: Message | None, after: Message | None) -> watch_service_pb2.WatchEvent | None:
    if before is None and after is None:
        return None
    event = watch_service_pb2.WatchEvent(operation=CREATE if before is None else DROP if after is None else UPDATE)
    if before is not None:
        _fill(event.previous, kind, before)
    if after is not None:
        _fill(event.current, kind, after)
    return event


def as_resource(kind: str, message: Message) -> Resource:
    resource = Resource()
    _fill(resource, kind, message)
    return resource


def _fill(resource: Resource, kind: str, message: Message) -> None:
    getattr(resource, kind.lower()).CopyFrom(message)


def bookmark(revision: int) -> WatchResponse:
    return WatchResponse(bookmark=watch_service_pb2.WatchBookmark(revision=revision))
