"""The VOID sink: rows are counted and dropped. A row that was counted before a crash may be counted again after it."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from headgate_agent.fragments.sinks.sink import Delivered


class VoidSink:
    def __init__(self) -> None:
        self.delivered = Delivered()
        self._next = 0

    async def open(self, first: int) -> int:
        self._next = first
        return first

    async def deliver(self, batches: Sequence[pa.RecordBatch], next_offset: int) -> None:
        self.delivered.rows += sum(batch.num_rows for batch in batches)
        self.delivered.bytes += sum(batch.nbytes for batch in batches)
        self._next = next_offset

    async def flush(self) -> int:
        self.delivered.flushes += 1
        return self._next

    async def close(self) -> None:
        """There is nothing to close."""
