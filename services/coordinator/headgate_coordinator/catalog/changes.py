"""The history of changes, and the feed that hands every committed revision to whoever listens.

Contract of the feed: a subscription gets every revision after its `position`, each once, in order, after the commit is
durable. Publishing never waits for a subscriber: one that lets more than its limit pile up is cut off, and its next
`get` raises WATCHER_TOO_SLOW; whoever listens then looks at the catalog again, or resumes from the history.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from google.protobuf.message import Message
from sqlalchemy import Connection, bindparam, select

from headgate.catalog.v1 import resources_pb2 as pb
from headgate.log.v1 import resources_pb2 as log_pb
from headgate_common.errors import HeadgateError
from headgate_common.signals import Signal
from headgate_coordinator.catalog import schema
from headgate_coordinator.catalog.tx import Change, Tx
from headgate_coordinator.errors import REVISION_COMPACTED, REVISION_IN_FUTURE, WATCHER_TOO_SLOW

MESSAGES: dict[str, type[Message]] = {
    "AGENT": pb.Agent,
    "NETWORK_LINK": pb.NetworkLink,
    "LOGICAL_SOURCE": pb.LogicalSource,
    "PHYSICAL_SOURCE": pb.PhysicalSource,
    "SINK": pb.Sink,
    "QUERY": pb.Query,
    "FRAGMENT": pb.Fragment,
    "TOPIC": log_pb.Topic,
    "PARTITION": log_pb.Partition,
    "TRANSFER": log_pb.Transfer,
}


@dataclass(frozen=True, slots=True)
class Revision:
    """What one operation changed, as it was committed. Shared by all who listen, so nobody changes it.

    `views` keeps what was made of it for watchers with the same filter; it lives as long as the revision does.
    """

    number: int
    time: int
    changes: tuple[Change, ...]
    # Bytes of the encoded changes.
    size: int
    views: dict[Hashable, object] = field(default_factory=dict, compare=False, repr=False)


class Subscription:
    """One listener's place in the feed. Close it, or use it as a context manager."""

    def __init__(self, feed: ChangeFeed, position: int, max_revisions: int, max_bytes: int) -> None:
        # The last revision that was handed out, or after which it began.
        self.position = position
        self._feed = feed
        self._max_revisions = max_revisions
        self._max_bytes = max_bytes
        self._waiting: deque[Revision] = deque()
        self._bytes = 0
        self._failure: HeadgateError | None = None
        self._news = Signal()

    async def get(self) -> Revision:
        """The next revision. Safe to cancel: nothing is lost."""
        while True:
            found = self.get_nowait()
            if found is not None:
                return found
            await self._wait(None)

    async def get_within(self, seconds: float) -> Revision | None:
        """The same, if it comes within so many seconds."""
        found = self.get_nowait()
        if found is None and seconds > 0:
            await self._wait(seconds)
            found = self.get_nowait()
        return found

    def get_nowait(self) -> Revision | None:
        """The next revision if one is waiting."""
        if self._failure is not None:
            raise self._failure
        if not self._waiting:
            return None
        revision = self._waiting.popleft()
        self._bytes -= revision.size
        self.position = revision.number
        return revision

    async def get_all(self) -> list[Revision]:
        """All that is waiting, at least one."""
        taken = [await self.get()]
        while (revision := self.get_nowait()) is not None:
            taken.append(revision)
        return taken

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> Revision:
        return await self.get()

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        self._feed._forget(self)
        self._waiting.clear()
        self._bytes = 0

    def _put(self, revision: Revision) -> None:
        if len(self._waiting) >= self._max_revisions or (
            self._waiting and self._bytes + revision.size > self._max_bytes
        ):
            self._fail(
                HeadgateError(
                    WATCHER_TOO_SLOW,
                    f"more than {len(self._waiting)} revisions were waiting to be read; "
                    f"resume after revision {self.position}",
                    metadata={"revision": str(self.position)},
                )
            )
            return
        self._waiting.append(revision)
        self._bytes += revision.size
        self._news.set()

    def _fail(self, failure: HeadgateError) -> None:
        self._failure = failure
        self.close()
        self._news.set()

    async def _wait(self, seconds: float | None) -> None:
        self._news.clear()
        await self._news.wait(seconds)


class ChangeFeed:
    """Committed revisions, in order, to every subscription. Lives on the event loop."""

    def __init__(self, position: int = 0, *, max_revisions: int = 4096, max_bytes: int = 32 << 20) -> None:
        # The last revision that was published.
        self.position = position
        self._max_revisions = max_revisions
        self._max_bytes = max_bytes
        self._subscriptions: dict[Subscription, None] = {}

    def subscribe(self, *, max_revisions: int | None = None, max_bytes: int | None = None) -> Subscription:
        """Begins after `position`."""
        subscription = Subscription(
            self, self.position, max_revisions or self._max_revisions, max_bytes or self._max_bytes
        )
        self._subscriptions[subscription] = None
        return subscription

    @property
    def subscribers(self) -> int:
        return len(self._subscriptions)

    def publish(self, revisions: Iterable[Revision]) -> bool:
        """Hands out those that come next; drops what was published before.

        False if there is a gap before one of them: then that one and the rest are left out, and the caller brings them
        again from the history.
        """
        for revision in revisions:
            if revision.number <= self.position:
                continue
            if revision.number != self.position + 1:
                return False
            self.position = revision.number
            for subscription in tuple(self._subscriptions):
                subscription._put(revision)
        return True

    def skip_to(self, position: int) -> None:
        """Goes on after `position`, where the history between is gone. Everyone who listened is told."""
        self.fail(
            HeadgateError(
                REVISION_COMPACTED,
                f"the history between revisions {self.position} and {position} was compacted before it was read",
                metadata={"revision": str(self.position)},
            )
        )
        self.position = position

    def fail(self, failure: HeadgateError) -> None:
        """Ends every subscription with `failure`."""
        for subscription in tuple(self._subscriptions):
            subscription._fail(failure)

    def _forget(self, subscription: Subscription) -> None:
        self._subscriptions.pop(subscription, None)


_HEAD = select(schema.revision.c.value, schema.revision.c.compacted)
_AFTER = select(
    schema.changes.c.revision,
    schema.changes.c.time,
    schema.changes.c.kind,
    schema.changes.c.name,
    schema.changes.c.uid,
    schema.changes.c.before,
    schema.changes.c.after,
).order_by(schema.changes.c.revision, schema.changes.c.ordinal)
_BETWEEN = _AFTER.where(
    schema.changes.c.revision > bindparam("after_"), schema.changes.c.revision <= bindparam("upto_")
)
_INSERT = schema.changes.insert()
_SET_HEAD = schema.revision.update().where(schema.revision.c.id == 1).values(value=bindparam("head"))


def head(connection: Connection) -> tuple[int, int]:
    """The last revision and the last one whose history is gone."""
    row = connection.execute(_HEAD).one()
    return row.value, row.compacted


Row = dict[str, object]


def encode(number: int, time: int, changes: Sequence[Change]) -> tuple[Revision, list[Row]]:
    """The changes of one operation as a revision, and as rows of the history."""
    rows: list[Row] = []
    size = 0
    for ordinal, change in enumerate(changes):
        before = None if change.before is None else change.before.SerializeToString(deterministic=True)
        after = None if change.after is None else change.after.SerializeToString(deterministic=True)
        size += len(before or b"") + len(after or b"")
        rows.append(
            {
                "revision": number,
                "ordinal": ordinal,
                "time": time,
                "kind": change.kind,
                "name": change.name,
                "uid": change.uid,
                "before": before,
                "after": after,
            }
        )
    return Revision(number, time, tuple(changes), size), rows


def append(connection: Connection, head: int, rows: Sequence[Row]) -> None:
    """Writes rows into the history, if there are any, and makes `head` the last revision."""
    if rows:
        connection.execute(_INSERT, rows)
        connection.execute(_SET_HEAD, {"head": head})


def history(tx: Tx, after: int, limit: int) -> list[Revision]:
    """Up to `limit` revisions after `after`, whole and in order; fewer only if there are no more.

    REVISION_COMPACTED if some of them are gone, REVISION_IN_FUTURE if `after` has not happened.
    """
    last, compacted = head(tx.connection)
    if after > last:
        raise HeadgateError(
            REVISION_IN_FUTURE,
            f"revision {after} has not happened in this catalog, whose last is {last}",
            metadata={"revision": str(last)},
        )
    if after < compacted:
        raise HeadgateError(
            REVISION_COMPACTED,
            f"the history after revision {after} is gone: it begins after {compacted}",
            metadata={"compacted": str(compacted), "revision": str(last)},
        )
    upto = min(last, after + limit)
    rows = tx.connection.execute(_BETWEEN, {"after_": after, "upto_": upto})
    found: dict[int, tuple[int, list[Change], int]] = {}
    for row in rows:
        message = MESSAGES[row.kind]
        before = None if row.before is None else message.FromString(row.before)
        after_message = None if row.after is None else message.FromString(row.after)
        time, changes, size = found.get(row.revision, (row.time, [], 0))
        changes.append(Change(row.kind, row.name, row.uid, before, after_message))
        found[row.revision] = (time, changes, size + len(row.before or b"") + len(row.after or b""))
    return [Revision(number, time, tuple(changes), size) for number, (time, changes, size) in found.items()]
