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
    """How long rows that have come may wait for more, and how many bytes are enough not to wait."""

    seconds: float
    enough_bytes: int


AT_ONCE = Lingering(0.0, 0)


async def run_source(
    source: Source,
    edge: EdgeWriter,
    stopping: asyncio.Event,
    opened: Callable[[], None] = lambda: None,
    lingering: Lingering = AT_ONCE,
) -> Outcome:
    """Moves rows from a source to its edge until the source ends or `stopping` is set; then marks the end of the edge.
    The source is at most one append ahead of what the edge has taken. `opened` is told when it can be read.

    Cancelling it is a hard stop: nothing more is appended, and no end is marked. A run that finds the edge ended
    already does nothing.
    """
    stored = await edge.stored()
    if stored is not None and stored.ended:
        return Outcome.ENDED
    position = stored.position if stored is not None else None
    upcoming: asyncio.Task[Emitted | None] | None = None
    try:
        await source.open(position)
        opened()
        upcoming = asyncio.create_task(source.next(stopping))
        while True:
            await upcoming
            parts, upcoming = await _gather(source, upcoming, stopping, lingering)
            last = parts[-1]
            if last is not None:
                position = last.position
            ended = last is None or last.ended
            found = [part for part in parts if part is not None]
            await edge.append(
                _together([batch for part in found for batch in part.batches if batch.num_rows]),
                position if position is not None else b"",
                errors=[error for part in found for error in part.errors],
                end=ended,
            )
            if ended:
                return Outcome.STOPPED if last is None else Outcome.ENDED
    finally:
        if upcoming is not None:
            upcoming.cancel()
            await asyncio.wait((upcoming,))
            # An error that nobody waited for is of a step that was given up.
            if not upcoming.cancelled():
                upcoming.exception()
        await source.close()


async def _gather(
    source: Source, upcoming: asyncio.Task[Emitted | None], stopping: asyncio.Event, lingering: Lingering
) -> tuple[list[Emitted | None], asyncio.Task[Emitted | None]]:
    """What has come and what follows soon, to be appended as one; None stands for the end that was asked for. The task
    that is answered with it is one step ahead: decoding goes on while the edge makes rows durable."""
    parts = [upcoming.result()]
    size = 0
    deadline = asyncio.get_running_loop().time() + lingering.seconds
    while True:
        last = parts[-1]
        if last is None or last.ended:
            return parts, upcoming
        upcoming = asyncio.create_task(source.next(stopping))
        size += sum(batch.nbytes for batch in last.batches)
        left = deadline - asyncio.get_running_loop().time()
        if size >= lingering.enough_bytes or left <= 0:
            return parts, upcoming
        await asyncio.wait((upcoming,), timeout=left)
        if not upcoming.done() or upcoming.exception() is not None:
            # What is here is good; an error is met by whoever waits for the step itself.
            return parts, upcoming
        parts.append(upcoming.result())


def _together(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Small batches as one: each costs everybody on its way the same."""
    if len(batches) < 2:
        return batches
    return list(pa.Table.from_batches(batches).combine_chunks().to_batches())


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


def error_rows(
    faults: Sequence[RowFault], on_error: OnError, counters: Counters, place: Callable[[RowFault], str]
) -> list[ErrorRow]:
    """Malformed rows as the edge takes them; MALFORMED_ROW for the first one where the source is told to fail."""
    if faults and on_error is OnError.FAIL:
        first = faults[0]
        raise HeadgateError(MALFORMED_ROW, f"{place(first)}: {first.reason}")
    counters.rows_malformed += len(faults)
    return [ErrorRow(_text(fault.raw), fault.reason, place(fault)) for fault in faults]


def _text(raw: bytes) -> str:
    """The beginning of a row, without the end of its line."""
    return raw[:MAX_RAW_BYTES].decode(errors="replace").rstrip("\r\n")
