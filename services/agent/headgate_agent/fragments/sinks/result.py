"""The rows of a temporary query: for whoever reads them, and for nobody else.

Promises: rows are handed over in the order of the edge; the next ones are taken from the edge only when the reader has
taken the last, so a slow reader slows the query. Nothing is remembered beyond the edge: after a crash of the agent rows
that were on their way may come twice. A query that nobody reads ends.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from headgate.catalog import v1 as catalog
from headgate_agent.errors import RESULT_ABANDONED, RESULT_IN_USE, RESULT_NOT_FOUND
from headgate_agent.fragments.sinks.sink import Delivered
from headgate_common.errors import HeadgateError


class Results:
    """The temporary queries whose rows are given here, by the uid of the query."""

    def __init__(self) -> None:
        self._sinks: dict[str, ResultSink] = {}
        self._changed = asyncio.Event()

    def add(self, query_uid: str, sink: ResultSink) -> None:
        self._sinks[query_uid] = sink
        self._changed.set()
        self._changed = asyncio.Event()

    def remove(self, query_uid: str, sink: ResultSink) -> None:
        if self._sinks.get(query_uid) is sink:
            del self._sinks[query_uid]

    async def find(self, query_uid: str, wait: float) -> ResultSink:
        """The sink of a query; RESULT_NOT_FOUND if it does not come in this many seconds."""
        try:
            async with asyncio.timeout(wait):
                while query_uid not in self._sinks:
                    await self._changed.wait()
        except TimeoutError:
            raise HeadgateError(RESULT_NOT_FOUND, f"no rows of the query {query_uid} are given here") from None
        return self._sinks[query_uid]


class ResultSink:
    """`Sink`. `options` may have a `limit`: so many rows, and then the end."""

    def __init__(
        self,
        query_uid: str,
        schema: catalog.Schema,
        options: Mapping[str, str],
        results: Results,
        patience: float,
    ) -> None:
        self.delivered = Delivered()
        self.schema = schema
        # Every row that there is, or was asked for, was given.
        self.complete = False
        self._uid = query_uid
        self._results = results
        self._patience = patience
        self._left = int(options["limit"]) if "limit" in options else None
        # What the reader has not taken yet.
        self._waiting: deque[pa.RecordBatch] = deque()
        self._taken = asyncio.Event()
        # There is something to read, or nothing will follow.
        self._news = asyncio.Event()
        self._ended = asyncio.Event()
        self._read = asyncio.Event()
        self._unread = asyncio.Event()
        self._unread.set()
        self._next = 0

    async def open(self, first: int) -> int:
        self._next = first
        self._results.add(self._uid, self)
        return first

    async def deliver(self, batches: Sequence[pa.RecordBatch], next_offset: int) -> None:
        kept = self._within_limit(batches)
        if kept:
            self._waiting.extend(kept)
            self._taken.clear()
            self._news.set()
            await self._taken.wait()
        if self._left == 0:
            # There is nothing more to give; whoever asked for it ends the query.
            self.complete = True
            self._end()
            await asyncio.Event().wait()
        self._next = next_offset

    async def flush(self) -> int:
        self.delivered.flushes += 1
        return self._next

    async def close(self) -> None:
        """Whether the rows are complete is for `unless_abandoned` to say."""
        self._results.remove(self._uid, self)

    async def unless_abandoned(self, delivering: Coroutine[Any, Any, None]) -> None:
        """Sees a run to its end; RESULT_ABANDONED when nobody has read for too long."""
        run, watch = asyncio.ensure_future(delivering), asyncio.ensure_future(self._abandoned())
        try:
            await asyncio.wait((run, watch), return_when=asyncio.FIRST_COMPLETED)
            for task in (run, watch):
                if task.done():
                    task.result()
            self.complete = True
        finally:
            for task in (run, watch):
                task.cancel()
            await asyncio.gather(run, watch, return_exceptions=True)
            self._end()

    async def _abandoned(self) -> None:
        while True:
            await self._unread.wait()
            try:
                async with asyncio.timeout(self._patience):
                    await self._read.wait()
            except TimeoutError:
                text = f"nobody has read its rows for {self._patience:g} s"
                raise HeadgateError(RESULT_ABANDONED, text) from None

    @contextmanager
    def reading(self) -> Iterator[None]:
        """One reader at a time; RESULT_IN_USE for another."""
        if self._read.is_set():
            raise HeadgateError(RESULT_IN_USE, f"somebody reads the rows of the query {self._uid}")
        self._read.set()
        self._unread.clear()
        try:
            yield
        finally:
            self._read.clear()
            self._unread.set()

    async def rows(self) -> AsyncGenerator[pa.RecordBatch, None]:
        """What comes, until the end. A batch counts as read when the next one is asked for."""
        while True:
            while self._waiting:
                yield self._waiting[0]
                batch = self._waiting.popleft()
                self.delivered.rows += batch.num_rows
                self.delivered.bytes += batch.nbytes
                if not self._waiting:
                    self._taken.set()
            if self._ended.is_set():
                return
            self._news.clear()
            await self._news.wait()

    def _end(self) -> None:
        self._ended.set()
        self._news.set()

    def _within_limit(self, batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
        kept = []
        for batch in batches:
            if self._left is not None:
                batch = batch.slice(0, self._left)
                self._left -= batch.num_rows
            if batch.num_rows:
                kept.append(batch)
        return kept
