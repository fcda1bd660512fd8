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


async def run_source(source: Source, edge: EdgeWriter, stopping: asyncio.Event) -> Outcome:
    """Moves rows from a source to its edge until the source ends or `stopping` is set; then marks the end of the edge.
    The source is at most one step ahead of what the edge has taken.

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
        upcoming = asyncio.create_task(source.next(stopping))
        while True:
            emitted = await upcoming
            if emitted is None:
                await edge.append((), position if position is not None else b"", end=True)
                return Outcome.STOPPED
            if not emitted.ended:
                # One step ahead: decoding goes on while the edge makes the last rows durable.
                upcoming = asyncio.create_task(source.next(stopping))
            position = emitted.position
            batches = [batch for batch in emitted.batches if batch.num_rows]
            await edge.append(batches, position, errors=emitted.errors, end=emitted.ended)
            if emitted.ended:
                return Outcome.ENDED
    finally:
        if upcoming is not None:
            upcoming.cancel()
            await asyncio.wait((upcoming,))
            # An error that nobody waited for is of a step that was given up.
            if not upcoming.cancelled():
                upcoming.exception()
        await source.close()


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
    return [
        ErrorRow(fault.raw[:MAX_RAW_BYTES].decode(errors="replace"), fault.reason, place(fault)) for fault in faults
    ]
