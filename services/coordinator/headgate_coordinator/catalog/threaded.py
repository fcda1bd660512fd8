"""What the stores on SQLite and Postgres share: the queue of writes, grouping, reads on threads, and the feed.

All bookkeeping is done on the event loop; only transactions run on threads: writes on one, so that they are serial, and
reads on a few others. Operations that wait while a commit is under way share the next one.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from headgate_common.clock import Clock
from headgate_common.errors import OVERLOADED, SHUTTING_DOWN, HeadgateError
from headgate_common.ids import Ids
from headgate_coordinator.catalog import changes
from headgate_coordinator.catalog.changes import ChangeFeed
from headgate_coordinator.catalog.store import Operation, Outcome, StoreSettings, StoreStats
from headgate_coordinator.errors import CATALOG_UNCERTAIN, REVISION_COMPACTED

log = logging.getLogger(__name__)

T = TypeVar("T")
Work = tuple[Operation[Any], int | None]

# Revisions read from the history at once when the feed is behind.
CATCH_UP = 256


@dataclass(slots=True)
class _Waiting:
    operation: Operation[Any]
    term: int | None
    answer: asyncio.Future[Any]


class ThreadedStore(ABC):
    """See `Store`. A subclass says how one group is committed and how one read is done, each on a thread."""

    def __init__(self, *, clock: Clock, ids: Ids, settings: StoreSettings) -> None:
        self._clock = clock
        self._ids = ids
        self._settings = settings
        self._stats = StoreStats()
        self._feed = ChangeFeed(max_revisions=settings.feed_revisions, max_bytes=settings.feed_bytes)
        self._queue: deque[_Waiting] = deque()
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="catalog-write")
        self._readers = ThreadPoolExecutor(settings.readers, thread_name_prefix="catalog-read")
        self._reading = 0
        self._group: asyncio.Task[None] | None = None
        self._catching_up: asyncio.Task[None] | None = None
        self._behind = False
        self._polling: asyncio.Task[None] | None = None
        self._closed = False
        # Seconds that an operation has taken of late, its share of the commit included.
        self._pace = 0.001

    @abstractmethod
    def _open_database(self) -> int:
        """Connects, migrates, and returns the last revision. On the writing thread."""

    @abstractmethod
    def _commit_group(self, group: Sequence[Work]) -> list[Outcome]:
        """Runs and commits a group. Raises CATALOG_UNAVAILABLE or CATALOG_UNCERTAIN where it could not."""

    @abstractmethod
    def _read_once(self, operation: Operation[T]) -> T:
        """Runs a read on a snapshot. On a reading thread."""

    @abstractmethod
    def _close_database(self) -> None:
        """Closes every connection. Nothing runs any more."""

    @property
    def changes(self) -> ChangeFeed:
        return self._feed

    @property
    def stats(self) -> StoreStats:
        return self._stats

    async def start(self) -> Self:
        """Opens the database, brings its schema up to date, and begins to follow it."""
        loop = asyncio.get_running_loop()
        try:
            self._feed.position = await loop.run_in_executor(self._writer, self._open_database)
        except BaseException:
            await self.close()
            raise
        if self._settings.poll_interval > 0:
            self._polling = asyncio.create_task(self._poll(), name="catalog-poll")
        return self

    async def write(self, operation: Operation[T], term: int | None = None) -> T:
        self._require_open()
        if len(self._queue) >= self._settings.max_waiting:
            raise self._overloaded(len(self._queue))
        waiting = _Waiting(operation, term, asyncio.get_running_loop().create_future())
        self._queue.append(waiting)
        self._count_waiting()
        self._pump()
        result: T = await waiting.answer
        return result

    async def read(self, operation: Operation[T]) -> T:
        self._require_open()
        if self._reading >= self._settings.max_waiting:
            raise self._overloaded(self._reading)
        self._reading += 1
        self._stats.reads += 1
        self._count_waiting()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._readers, self._read_once, operation)
        finally:
            self._reading -= 1
            self._count_waiting()

    async def close(self) -> None:
        """Finishes the group that is being committed, refuses what waits, and closes the database."""
        if self._closed:
            return
        self._closed = True
        refused = HeadgateError(SHUTTING_DOWN, "the catalog is being closed; nothing was done")
        while self._queue:
            waiting = self._queue.popleft()
            if not waiting.answer.done():
                waiting.answer.set_exception(refused)
        for task in (self._polling, self._catching_up):
            if task is not None:
                task.cancel()
        under_way = [task for task in (self._group, self._polling, self._catching_up) if task is not None]
        await asyncio.gather(*under_way, return_exceptions=True)
        self._feed.fail(HeadgateError(SHUTTING_DOWN, "the catalog is being closed"))
        await asyncio.to_thread(self._end_threads)

    def _end_threads(self) -> None:
        self._readers.shutdown(cancel_futures=True)
        self._writer.submit(self._close_database).result()
        self._writer.shutdown()

    def _pump(self) -> None:
        """Starts the next group, unless one is under way."""
        if self._group is not None:
            return
        group: list[_Waiting] = []
        while self._queue and len(group) < self._settings.max_group:
            waiting = self._queue.popleft()
            if not waiting.answer.done():
                group.append(waiting)
        self._count_waiting()
        if group:
            self._group = asyncio.create_task(self._run(group), name="catalog-group")

    async def _run(self, group: list[_Waiting]) -> None:
        began = self._clock.monotonic()
        work = [(waiting.operation, waiting.term) for waiting in group]
        self._stats.writes += len(group)
        try:
            outcomes = await asyncio.get_running_loop().run_in_executor(self._writer, self._commit_group, work)
        except Exception as failure:
            self._behind = True
            if isinstance(failure, HeadgateError) and failure.reason is CATALOG_UNCERTAIN:
                self._stats.uncertain += len(group)
            else:
                self._stats.unavailable += len(group)
            outcomes = [Outcome(error=failure) for _ in group]
        took = (self._clock.monotonic() - began) / len(group)
        self._pace += (took - self._pace) * 0.1
        self._group = None
        self._publish(outcomes)
        for waiting, outcome in zip(group, outcomes, strict=True):
            self._tell(waiting, outcome)
        self._pump()

    def _publish(self, outcomes: Sequence[Outcome]) -> None:
        made = [outcome.revision for outcome in outcomes if outcome.revision is not None]
        if not self._feed.publish(made) or self._behind:
            self._look()

    def _tell(self, waiting: _Waiting, outcome: Outcome) -> None:
        if outcome.error is not None:
            self._stats.refused += 1
        for callback in outcome.after_commit:
            try:
                callback()
            except Exception:
                log.exception("a callback after a commit failed")
        if waiting.answer.done():
            return
        if outcome.error is not None:
            waiting.answer.set_exception(outcome.error)
        else:
            waiting.answer.set_result(outcome.result)

    def _look(self) -> None:
        """Brings the feed up to date from the history, now and once more if asked meanwhile."""
        self._behind = True
        if self._catching_up is None and not self._closed:
            self._catching_up = asyncio.create_task(self._catch_up(), name="catalog-catch-up")

    async def _catch_up(self) -> None:
        try:
            while self._behind:
                self._behind = False
                while await self._catch_up_once():
                    pass
        except HeadgateError as error:
            # The next poll tries again.
            log.warning("the change feed could not be brought up to date", extra={"error": str(error)})
        finally:
            self._catching_up = None

    async def _catch_up_once(self) -> bool:
        """Publishes the next part of the history. False if that was all of it."""
        after = self._feed.position
        loop = asyncio.get_running_loop()
        try:
            found = await loop.run_in_executor(
                self._readers, self._read_once, lambda tx: changes.history(tx, after, CATCH_UP)
            )
        except HeadgateError as error:
            if error.reason is not REVISION_COMPACTED:
                raise
            self._feed.skip_to(int(error.metadata["revision"]))
            return False
        self._feed.publish(found)
        return len(found) == CATCH_UP

    async def _poll(self) -> None:
        """Asks for revisions of other processes, and for those whose commit was uncertain here."""
        loop = asyncio.get_running_loop()
        failing = False
        while not self._closed:
            await asyncio.sleep(self._settings.poll_interval)
            if self._catching_up is not None:
                continue
            try:
                last = await loop.run_in_executor(self._readers, self._read_once, lambda tx: tx.revision)
            except HeadgateError as error:
                if not failing:
                    log.warning("the catalog cannot be polled", extra={"error": str(error)})
                failing = True
                continue
            failing = False
            if last > self._feed.position:
                self._look()

    def _count_waiting(self) -> None:
        self._stats.waiting = len(self._queue) + max(0, self._reading - self._settings.readers)

    def _overloaded(self, waiting: int) -> HeadgateError:
        delay = min(max(self._pace * waiting, 0.05), 5.0)
        return HeadgateError(
            OVERLOADED,
            f"{waiting} operations wait for the catalog already; nothing was done",
            retry_after=delay,
        )

    def _require_open(self) -> None:
        if self._closed:
            raise HeadgateError(SHUTTING_DOWN, "the catalog is closed; nothing was done")
