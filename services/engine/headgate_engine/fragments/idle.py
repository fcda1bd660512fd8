"""Inputs that are silent: after a while they no longer hold back the others.

Spark's watermark is that of the slowest input. An input without rows for `timeout` gets a mark that brings its own
watermark up to the slowest of those that have rows; rows that it brings later and that are behind are late, and are
counted as such. Rows without an event time move no watermark, and are none here.

The mark of an edge is one file that is replaced. Those of a topic are files that Spark reads each once and writes down
in its checkpoint, so they come at most once a `pace`: windows of the others wait so much longer.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from headgate_common.clock import Clock
from headgate_engine.executor.reading import FAR_FUTURE_US
from headgate_engine.fragments.control import write_mark
from headgate_engine.fragments.progress import Counts
from headgate_engine.fragments.read import Input
from headgate_engine.spark import SparkHost


class IdleInputs:
    """Writes marks for the inputs of one run: `executor/reading.py` reads them for edges, `read.py` for topics."""

    def __init__(
        self, inputs: tuple[Input, ...], timeout: float, clock: Clock, host: SparkHost, *, mark_interval: float
    ) -> None:
        self._inputs = [entry for entry in inputs if entry.plan.event_time]
        self._host = host
        self._timeout = timeout
        self._clock = clock
        # The last batch in which each input was seen to have rows.
        self._spoke: dict[str, int] = {}
        began = clock.monotonic()
        self._active = {entry.observation: began for entry in self._inputs}
        self._written: dict[str, int] = {}
        self._pace = max(mark_interval, timeout / 4)
        self._due = dict.fromkeys(self._active, began)

    def look(self, counts: Counts) -> None:
        if self._timeout <= 0 or len(self._inputs) < 2:
            return
        now = self._clock.monotonic()
        for name, batch in counts.spoke.items():
            if batch != self._spoke.get(name):
                self._spoke[name] = batch
                self._active[name] = now
        silent = [one for one in self._inputs if now - self._active[one.observation] >= self._timeout]
        speaking = [one for one in self._inputs if one not in silent and one.observation in self._spoke]
        if not silent or not speaking:
            return
        reached = min(counts.latest_us[one.observation] - one.plan.lateness_us for one in speaking)
        for one in silent:
            if now >= self._due[one.observation] and self._write(one, reached + one.plan.lateness_us) and one.control:
                self._due[one.observation] = now + self._pace

    def end(self, epoch: int, inputs: Collection[Input]) -> bool:
        """Marks the end of inputs of which all that is there was read; later than an earlier run may have done, which
        Spark's watermarks do not know of. Whether there was anything to mark."""
        ended = [one for one in self._inputs if one in inputs]
        return sum(self._write(one, FAR_FUTURE_US + epoch) for one in ended) > 0

    def _write(self, entry: Input, mark_us: int) -> bool:
        """Whether there was anything to write."""
        if mark_us <= self._written.get(entry.observation, 0):
            return False
        self._written[entry.observation] = mark_us
        if entry.control:
            write_mark(self._host.root, entry.control, mark_us)
            return True
        marks = Path(entry.marks)
        beside = marks.with_suffix(".new")
        beside.write_text(str(mark_us))
        beside.replace(marks)
        return True
