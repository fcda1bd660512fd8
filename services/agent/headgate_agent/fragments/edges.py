"""The seam between node-local sources and sinks and the edges of their query.

A source writes one edge, a sink reads one. Both see rows as Arrow record batches and offsets as whole numbers that grow
by one for each batch. What is behind the seam (a native topic, a Kafka topic, memory in a test) they do not know.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

# How much of a malformed row is kept.
MAX_RAW_BYTES = 4_096


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """A row that could not be read: its bytes (the beginning of them, if it is long) as text, why, and where it was."""

    raw: str
    reason: str
    place: str


@dataclass(frozen=True, slots=True)
class Stored:
    """What an edge holds of its writer: the position of the last append, and whether that was the end."""

    position: bytes
    ended: bool = False


@dataclass(frozen=True, slots=True)
class EdgeBatch:
    """A batch of an edge, and the offset after it: where to read on once it is delivered."""

    rows: pa.RecordBatch
    next_offset: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """What a read found: batches in order, and whether nothing will ever follow them."""

    batches: Sequence[EdgeBatch]
    ended: bool = False


class EdgeWriter(Protocol):
    """Where a source puts its rows.

    `append` makes rows, error rows and the source's position durable together, in one append: after a crash either all
    of them are there or none. It returns when that is so, and raises a HeadgateError otherwise; after an error nothing
    is known, and the source begins again from `stored`. Appends are kept in the order in which they were made. One may
    be made before those before it have returned: it is there only once they are, and fails if one of them does. An
    append without rows stores the position alone. After `end` nothing may be appended.

    Back-pressure: `append` waits while the edge is `edge_max_lag` ahead of its consumer. While it waits, `waiting` says
    why in a sentence; otherwise it is empty.

    `stored` gives what the last append stored, by whichever run of the fragment; None before the first.
    """

    async def stored(self) -> Stored | None: ...

    async def append(
        self,
        batches: Sequence[pa.RecordBatch],
        position: bytes,
        *,
        errors: Sequence[ErrorRow] = (),
        end: bool = False,
    ) -> None: ...

    @property
    def waiting(self) -> str: ...


class EdgeReader(Protocol):
    """Where a sink gets its rows.

    `read` gives batches from an offset on: the same ones in the same order whenever it is asked, with a chunk of about
    `max_bytes` at most and one batch at least; it waits up to `wait` seconds for the first, and answers an empty chunk
    if none came. Offset 0 is the beginning; `start` is the first offset that is still there. `trim` says that
    everything before an offset is delivered for good: it may be deleted, and reading from before it is refused
    afterwards. The sink's position is not stored here but by the sink in its target, together with the rows.
    """

    async def start(self) -> int: ...

    async def read(self, offset: int, *, max_bytes: int, wait: float) -> Chunk: ...

    async def trim(self, offset: int) -> None: ...
