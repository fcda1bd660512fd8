"""The PRINT sink: rows as lines on the agent's standard output, or wherever `write` puts them.

Promises: every row at least once, in the order of the edge. Lines since the last flush may be printed again after a
crash. Where rows replace earlier ones, each new version of a row is a line of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import pyarrow as pa

from headgate_agent.errors import SINK_UNAVAILABLE
from headgate_agent.fragments.formats.csv_encode import CsvEncoder
from headgate_agent.fragments.formats.json_encode import JsonEncoder
from headgate_agent.fragments.sinks.sink import Delivered
from headgate_agent.work import Work
from headgate_common.errors import HeadgateError


def to_stdout(content: bytes) -> None:
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


class PrintSink:
    def __init__(
        self, options: Mapping[str, str], *, blocking: Work, write: Callable[[bytes], None] = to_stdout
    ) -> None:
        self.delivered = Delivered()
        self._blocking = blocking
        self._print = write
        self._encoder = JsonEncoder() if options.get("input_format") == "JSON" else CsvEncoder()
        self._next = 0

    async def open(self, first: int) -> int:
        self._next = first
        return first

    async def deliver(self, batches: Sequence[pa.RecordBatch], next_offset: int) -> None:
        content = b"".join([self._encoder.encode(batch) for batch in batches])
        try:
            await self._blocking.run(partial(self._print, content))
        except OSError as error:
            raise HeadgateError(SINK_UNAVAILABLE, f"nothing can be printed: {error.strerror}") from error
        self._next = next_offset
        self.delivered.rows += sum(batch.num_rows for batch in batches)
        self.delivered.bytes += len(content)

    async def flush(self) -> int:
        self.delivered.flushes += 1
        return self._next

    async def close(self) -> None:
        """There is nothing to close: the standard output belongs to the process."""
