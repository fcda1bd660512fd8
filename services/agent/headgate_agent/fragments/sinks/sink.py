"""What a sink is to the run of its fragment, and that run."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from headgate_agent.fragments.config import FragmentConfig
from headgate_agent.fragments.edges import EdgeReader
from headgate_common.clock import Clock

# Shorter waits are not worth it, and may be too short for the clock to move.
_AT_ONCE = 0.001


@dataclass(slots=True)
class Delivered:
    """What a sink has done since it was opened. `waiting` says what it waits for; empty while nothing is in its way."""

    rows: int = 0
    bytes: int = 0
    flushes: int = 0
    waiting: str = ""
    # Told whenever that changes.
    listener: Callable[[str], None] = lambda what: None

    def waits(self, what: str) -> None:
        if what != self.waiting:
            self.waiting = what
            self.listener(what)


class Sink(Protocol):
    """Where rows of an edge end up.

    `open` makes the target ready and answers the offset to read on from: the one that the target itself remembers with
    its last rows, or `first`, the first offset that the edge still has, where a target remembers nothing. `deliver`
    puts rows there; `next_offset` is the one after them. `flush` returns when everything delivered is as safe as the
    sink promises, with the offset after it, and only then may the edge forget those rows. After an error nothing that
    was not flushed counts, and the sink is opened again before it is used again. Errors are HeadgateErrors.

    Whether a row may be delivered twice after a crash is for each sink to say.
    """

    delivered: Delivered

    async def open(self, first: int) -> int: ...

    async def deliver(self, batches: Sequence[pa.RecordBatch], next_offset: int) -> None: ...

    async def flush(self) -> int: ...

    async def close(self) -> None: ...


async def run_sink(
    sink: Sink, edge: EdgeReader, config: FragmentConfig, clock: Clock, opened: Callable[[], None] = lambda: None
) -> None:
    """Delivers an edge until its end. Cancelling it is a hard stop: what was not flushed is delivered again later.
    `opened` is told when rows can be delivered.

    Rows that come after a pause are flushed as soon as the edge has no more; those that follow closely are put
    together, so that flushes are `flush_interval` apart, and none waits for longer than that."""
    try:
        first = await edge.start()
        offset = flushed = await sink.open(first)
        if offset > first:
            # The run before was ended between its last flush and this.
            await edge.trim(offset)
        opened()
        waiting_bytes, last_flush = 0, -math.inf
        # When rows that wait are flushed if nothing more is there, and when although more is.
        flush_at = latest = 0.0
        while True:
            patience = config.edge_read_wait
            if offset > flushed:
                patience = min(patience, max(0.0, flush_at - clock.monotonic()))
            chunk = await edge.read(offset, max_bytes=config.edge_read_bytes, wait=patience)
            if chunk.batches:
                if offset == flushed:
                    latest = clock.monotonic() + config.flush_interval
                    flush_at = min(latest, last_flush + config.flush_interval)
                offset = chunk.batches[-1].next_offset
                await sink.deliver([batch.rows for batch in chunk.batches], offset)
                waiting_bytes += sum(batch.rows.nbytes for batch in chunk.batches)
            due = (latest if chunk.batches else flush_at) - clock.monotonic() < _AT_ONCE
            if offset > flushed and (due or chunk.ended or waiting_bytes >= config.flush_bytes):
                flushed = await sink.flush()
                waiting_bytes, last_flush = 0, clock.monotonic()
                await edge.trim(flushed)
            if chunk.ended:
                return
    finally:
        await sink.close()
