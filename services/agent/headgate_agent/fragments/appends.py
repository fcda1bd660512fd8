"""Appends of a source on their way to its edge, wherever that is: kept in order, and written several at once.

Rows are packed off the event loop while those before them are being written. Appends that are packed by then are
written with one commit, with the position of the last.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from headgate_agent.fragments.edges import ErrorRow
from headgate_agent.work import Work
from headgate_common.clock import Clock


@dataclass(frozen=True, slots=True)
class Packed:
    """What an append writes: of rows, and of error rows."""

    rows: Sequence[bytes | memoryview]
    errors: Sequence[memoryview]


@dataclass(slots=True)
class Append:
    """Rows on their way to the edge."""

    position: bytes
    end: bool
    malformed: int
    packed: asyncio.Future[Packed]
    written: bool = False

    @property
    def size(self) -> int:
        return sum(map(len, self.packed.result().rows))

    @property
    def is_packed(self) -> bool:
        return self.packed.done() and not self.packed.cancelled() and self.packed.exception() is None


class GroupedWriter:
    """The `append` of an `EdgeWriter`; where rows go is for those that inherit it to say."""

    def __init__(self, *, keeps_errors: bool, most_bytes: int, clock: Clock, work: Work) -> None:
        """Appends are written together up to `most_bytes`."""
        self.waiting = ""
        # Malformed rows of all runs of the source, as of the last append.
        self.malformed = 0
        self._keeps_errors = keeps_errors
        self._most_bytes = most_bytes
        self._clock = clock
        self._work = work
        # Appends that are not written yet, in order; whoever has the turn writes the first of them.
        self._queue: deque[Append] = deque()
        self._turn = asyncio.Lock()
        self._failed: Exception | None = None

    async def append(
        self,
        batches: Sequence[pa.RecordBatch],
        position: bytes,
        *,
        errors: Sequence[ErrorRow] = (),
        end: bool = False,
    ) -> None:
        now = int(self._clock.wall().timestamp() * 1000)
        told = errors if self._keeps_errors else ()
        packing = asyncio.ensure_future(self._work.run(partial(self._pack, batches, told, now)))
        mine = Append(position, end, len(errors), packing)
        self._queue.append(mine)
        try:
            async with self._turn:
                if not mine.written:
                    if self._failed is not None:
                        raise self._failed
                    await packing
                    await self._room()
                    await self._write_first()
        except BaseException as error:
            # Also where the caller gives up: those behind must not be there without it.
            self._failed = self._failed or (
                error if isinstance(error, Exception) else RuntimeError("an append before it was given up")
            )
            raise
        finally:
            if not packing.done():
                packing.cancel()
                await asyncio.wait((packing,))
            if not packing.cancelled():
                packing.exception()

    async def close(self) -> None:
        """Lets go of what the run has open; nothing may be appended any more."""

    async def _write_first(self) -> None:
        """Writes the first append, and those behind it that are ready."""
        group = [self._queue.popleft()]
        size = group[0].size
        while self._queue and self._queue[0].is_packed and size + self._queue[0].size <= self._most_bytes:
            size += self._queue[0].size
            group.append(self._queue.popleft())
        malformed = self.malformed + sum(one.malformed for one in group)
        await self._write(group, size, malformed)
        self.malformed = malformed
        for one in group:
            one.written = True

    def _pack(self, batches: Sequence[pa.RecordBatch], errors: Sequence[ErrorRow], now: int) -> Packed:
        """In a thread of its own. `now` is in milliseconds since 1970."""
        raise NotImplementedError

    async def _room(self) -> None:
        """Returns when the query is not too far behind; `waiting` says so until then."""
        raise NotImplementedError

    async def _write(self, group: Sequence[Append], size: int, malformed: int) -> None:
        """Makes all of a group durable at once, with the position of the last and the number of malformed rows."""
        raise NotImplementedError
