"""The GENERATOR source.

Promises: row n is the same whenever and wherever it is made (but for `now()`), so the position is the number of the
next row, and rows that were not stored before a crash are made again exactly. The rate counts from when the source was
opened, or last had nothing to do: time that passes while the edge takes nothing is not made up for beyond one second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial

import pyarrow as pa

from headgate_agent.fragments.config import FragmentConfig
from headgate_agent.fragments.sources.makers import Rows, maker_of
from headgate_agent.fragments.sources.source import Counters, Emitted, wait_or_stop
from headgate_agent.fragments.types import Column, arrow_schema
from headgate_agent.work import Work
from headgate_common.clock import Clock

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Rows that are due are made this often, or one by one where they are rarer.
_TICK_S = 0.05
_MOST_BEHIND_S = 1.0
_MOST_BATCH_BYTES = 16 * 2**20


class GeneratorSource:
    """A `Source` of rows that are made up."""

    def __init__(
        self,
        options: Mapping[str, str],
        columns: Sequence[Column],
        shape: Callable[[pa.RecordBatch], pa.RecordBatch],
        *,
        config: FragmentConfig,
        clock: Clock,
        blocking: Work,
    ) -> None:
        self.counters = Counters()
        self._shape = shape
        self._clock = clock
        self._blocking = blocking
        self._rate = float(options.get("rate", "10"))
        self._rows = int(options["rows"]) if "rows" in options else None
        seed = int(options.get("seed", "0"))
        makers = {column.name: options[f"field.{column.name.lower()}"] for column in columns}
        self._makers = [maker_of(makers[column.name], column, seed) for column in columns]
        self._schema = arrow_schema(columns)
        width = sum(_width(column, makers[column.name]) for column in columns)
        self._most = max(1, min(config.batch_rows, _MOST_BATCH_BYTES // width))
        self._next = 0
        # When the row `_origin_row` was, or is, due.
        self._origin = 0.0
        self._origin_row = 0

    async def open(self, position: bytes | None) -> None:
        self._next = int(position) if position else 0
        self._origin, self._origin_row = self._clock.monotonic(), self._next

    async def next(self, stopping: asyncio.Event) -> Emitted | None:
        while not stopping.is_set():
            if self._rows is not None and self._next >= self._rows:
                return Emitted((), self._position(), ended=True)
            due = self._due()
            if due:
                batch = await self._blocking.run(partial(self._made, Rows(self._next, due, self._now_us())))
                self._next += due
                self.counters.rows_read += due
                self.counters.rows_kept += batch.num_rows
                return Emitted((batch,), self._position())
            if await wait_or_stop(stopping, self._until_due()):
                break
        return None

    async def close(self) -> None:
        """There is nothing to close."""

    def _due(self) -> int:
        """How many rows are to be made now."""
        now = self._clock.monotonic()
        due = int((now - self._origin) * self._rate) + 1 - (self._next - self._origin_row)
        most = max(1, int(self._rate * _MOST_BEHIND_S))
        if due > most:
            due = most
            self._origin, self._origin_row = now - (most - 1) / self._rate, self._next
        if self._rows is not None:
            due = min(due, self._rows - self._next)
        return min(due, self._most)

    def _until_due(self) -> float:
        at = self._origin + (self._next - self._origin_row) / self._rate
        # Many rows a tick are made together: each batch costs everybody on its way the same.
        return max(at - self._clock.monotonic(), _TICK_S if self._rate * _TICK_S > 1 else 0.001)

    def _position(self) -> bytes:
        return str(self._next).encode()

    def _now_us(self) -> int:
        since = self._clock.wall() - _EPOCH
        return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds

    def _made(self, rows: Rows) -> pa.RecordBatch:
        return self._shape(pa.RecordBatch.from_arrays([make(rows) for make in self._makers], schema=self._schema))


def _width(column: Column, call: str) -> int:
    """About how many bytes a value has."""
    digits = "".join(sign for sign in call if sign.isdigit())
    return int(digits or "8") + 4 if call.strip().lower().startswith("text") else 16
