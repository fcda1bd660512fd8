"""What a source is to the run of its fragment, and that run."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

import pyarrow as pa

from headgate_agent.errors import MALFORMED_ROW
from headgate_agent.fragments.edges import MAX_RAW_BYTES, EdgeWriter, ErrorRow
from headgate_agent.fragments.formats.rows import RowFault
from headgate_common.errors import HeadgateError

log = logging.getLogger(__name__)

_NOTES = 20


class OnError(StrEnum):
    """What a malformed row does: end the fragment, or be counted and told as an error row."""

    FAIL = "fail"
    SKIP = "skip"


@dataclass(slots=True)
class Counters:
    """What a source has done since it was opened. `notes` are sentences about what it could not promise: bytes lost
    with a connection, a file that was cut. `waiting` says what it waits for; empty while it has work."""

    rows_read: int = 0
    rows_kept: int = 0
    rows_malformed: int = 0
    bytes_read: int = 0
    # Bytes that are known to be there and were not read yet.
    behind: int = 0
    waiting: str = ""
    notes: deque[str] = field(default_factory=lambda: deque(maxlen=_NOTES))

    def note(self, sentence: str) -> None:
        self.notes.append(sentence)
        log.warning("source: %s", sentence)


@dataclass(frozen=True, slots=True)
class Emitted:
    """Rows that go to the edge, malformed ones, and the position after both. `ended`: nothing follows."""

    batches: Sequence[pa.RecordBatch]
    position: bytes
    errors: Sequence[ErrorRow] = ()
    ended: bool = False


class Source(Protocol):
    """Rows of one physical source, filtered and projected.

    `open` begins after a position, or at the beginning for None. `next` gives what comes then, waiting for it if need
    be; it returns None if `stopping` is set while it waits or before it begins, and what it has taken by then is
    emitted, not dropped. The same position always continues with the same rows where the source can be read again; what
    a source cannot promise is in its own docstring. Errors are HeadgateErrors.
    """

    counters: Counters

    async def open(self, position: bytes | None) -> None: ...

    async def next(self, stopping: asyncio.Event) -> Emitted | None: ...

    async def close(self) -> None: ...


class Outcome(StrEnum):
    """How a run of a source ended: by itself, or because it was asked to."""

    ENDED = "ended"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Lingering:
    """How far apart appends of fewer than `enough_bytes` are at least: rows that come sooner wait for more."""

    seconds: float
    enough_bytes: int


AT_ONCE = Lingering(0.0, 0)


async def run_source(
    source: Source,
    edge: EdgeWriter,
    stopping: asyncio.Event,
    opened: Callable[[], None] = lambda: None,
    lingering: Lingering = AT_ONCE,
    appends: int = 1,
) -> Outcome:
    """Moves rows from a source to its edge until the source ends or `stopping` is set; then marks the end of the edge.
    Up to `appends` are on their way at once, in order, and the source is one step ahead of the last. `opened` is told
    when it can be read.

    Cancelling it is a hard stop: nothing more is appended, and no end is marked. A run that finds the edge ended
    already does nothing.
    """
    stored = await edge.stored()
    if stored is not None and stored.ended:
        return Outcome.ENDED
    position = stored.position if stored is not None else None
    upcoming: asyncio.Task[Emitted | None] | None = None
    appending = _Appending(edge, appends)
    pace = _Pace(lingering)
    try:
        await source.open(position)
        opened()
        upcoming = asyncio.create_task(source.next(stopping))
        while True:
            await appending.until(upcoming)
            if upcoming.exception() is not None:
                # What came before it is good.
                await appending.done()
            parts, upcoming = await _gather(source, upcoming, stopping, pace)
            last = parts[-1]
            if last is not None:
                position = last.position
            ended = last is None or last.ended
            found = [part for part in parts if part is not None]
            await appending.add(found, position if position is not None else b"", ended)
            if ended:
                await appending.done()
                return Outcome.STOPPED if last is None else Outcome.ENDED
    finally:
        await appending.cancel()
        if upcoming is not None:
            upcoming.cancel()
            await asyncio.wait((upcoming,))
            # An error that nobody waited for is of a step that was given up.
            if not upcoming.cancelled():
                upcoming.exception()
        await source.close()


class _Appending:
    """Appends that are on their way. The first that fails ends the run; those after it fail too, see `EdgeWriter`."""

    def __init__(self, edge: EdgeWriter, most: int) -> None:
        self._edge = edge
        self._most = most
        self._tasks: deque[asyncio.Task[None]] = deque()

    async def add(self, parts: Sequence[Emitted], position: bytes, end: bool) -> None:
        """Begins one; returns when there is room for another."""
        batches = [batch for part in parts for batch in part.batches if batch.num_rows]
        errors = [error for part in parts for error in part.errors]
        self._tasks.append(asyncio.create_task(self._edge.append(batches, position, errors=errors, end=end)))
        while len(self._tasks) >= self._most:
            await self._first()

    async def until(self, upcoming: asyncio.Task[Emitted | None]) -> None:
        """Returns when the step has come; raises if an append fails before."""
        while not upcoming.done():
            await asyncio.wait((upcoming, *self._tasks), return_when=asyncio.FIRST_COMPLETED)
            while self._tasks and self._tasks[0].done():
                await self._first()

    async def done(self) -> None:
        while self._tasks:
            await self._first()

    async def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for task in self._tasks:
            if not task.cancelled():
                task.exception()
        self._tasks.clear()

    async def _first(self) -> None:
        await self._tasks[0]
        self._tasks.popleft()


class _Pace:
    """When small appends may be made. The first after a pause need not wait, nor what is left of much: so the rate of
    small ones is bounded, and nobody waits but for that."""

    def __init__(self, lingering: Lingering) -> None:
        self._lingering = lingering
        self._next_small = 0.0

    def left(self, size: int) -> float:
        """Seconds for which so many bytes wait for more."""
        return 0.0 if self._is_enough(size) else self._next_small - asyncio.get_running_loop().time()

    def appended(self, size: int) -> None:
        if not self._is_enough(size):
            self._next_small = asyncio.get_running_loop().time() + self._lingering.seconds

    def _is_enough(self, size: int) -> bool:
        return size >= self._lingering.enough_bytes


async def _gather(
    source: Source, upcoming: asyncio.Task[Emitted | None], stopping: asyncio.Event, pace: _Pace
) -> tuple[list[Emitted | None], asyncio.Task[Emitted | None]]:
    """What has come and what follows soon, to be appended as one; None stands for the end that was asked for. The task
    that is answered with it is one step ahead: decoding goes on while the edge makes rows durable."""
    parts = [upcoming.result()]
    size = 0
    while True:
        last = parts[-1]
        if last is None or last.ended:
            return parts, upcoming
        upcoming = asyncio.create_task(source.next(stopping))
        size += sum(batch.nbytes for batch in last.batches)
        left = pace.left(size)
        if left > 0:
            await asyncio.wait((upcoming,), timeout=left)
        if left <= 0 or not upcoming.done() or upcoming.exception() is not None:
            # What is here is good; an error is met by whoever waits for the step itself.
            pace.appended(size)
            return parts, upcoming
        parts.append(upcoming.result())


async def wait_or_stop(stopping: asyncio.Event, seconds: float) -> bool:
    """Waits; True as soon as `stopping` is set."""
    if seconds <= 0:
        await asyncio.sleep(0)
        return stopping.is_set()
    try:
        async with asyncio.timeout(seconds):
            await stopping.wait()
    except TimeoutError:
        return False
    return True


def error_rows(faults: Sequence[RowFault], on_error: OnError, place: Callable[[RowFault], str]) -> list[ErrorRow]:
    """Malformed rows as the edge takes them; MALFORMED_ROW for the first one where the source is told to fail."""
    if faults and on_error is OnError.FAIL:
        first = faults[0]
        raise HeadgateError(MALFORMED_ROW, f"{place(first)}: {first.reason}")
    return [ErrorRow(_text(fault.raw), fault.reason, place(fault)) for fault in faults]


def _text(raw: bytes) -> str:
    """The beginning of a row, without the end of its line."""
    return raw[:MAX_RAW_BYTES].decode(errors="replace").rstrip("\r\n")
