"""What the fragments of this process have done, all together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields

from headgate_agent.fragments.sinks.sink import Sink
from headgate_agent.fragments.sources.source import Source


@dataclass(frozen=True, slots=True)
class Totals:
    """Counts since the process began."""

    rows_read: int = 0
    rows_kept: int = 0
    rows_malformed: int = 0
    rows_computed: int = 0
    rows_delivered: int = 0
    bytes_read: int = 0
    bytes_delivered: int = 0

    def __add__(self, other: Totals) -> Totals:
        return Totals(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))

    def __sub__(self, other: Totals) -> Totals:
        return Totals(*(getattr(self, one.name) - getattr(other, one.name) for one in fields(self)))


class Tally:
    """Adds up runs that go on and runs that have ended, so that its totals only grow and no row is missed because its
    run ended before anybody looked."""

    def __init__(self) -> None:
        self._ended = Totals()
        self._sources: list[Source] = []
        self._sinks: list[Sink] = []

    @contextmanager
    def reading(self, source: Source) -> Iterator[None]:
        """Counts a source while it runs, and keeps what it has done."""
        self._sources.append(source)
        try:
            yield
        finally:
            self._sources.remove(source)
            self._ended += _of_source(source)

    @contextmanager
    def delivering(self, sink: Sink) -> Iterator[None]:
        """Counts a sink while it runs, and keeps what it has done."""
        self._sinks.append(sink)
        try:
            yield
        finally:
            self._sinks.remove(sink)
            self._ended += _of_sink(sink)

    def computed(self, rows: int) -> None:
        """An engine has read so many more rows for a fragment of this agent."""
        self._ended += Totals(rows_computed=rows)

    def totals(self) -> Totals:
        total = self._ended
        for source in self._sources:
            total += _of_source(source)
        for sink in self._sinks:
            total += _of_sink(sink)
        return total


def _of_source(source: Source) -> Totals:
    counters = source.counters
    return Totals(
        rows_read=counters.rows_read,
        rows_kept=counters.rows_kept,
        rows_malformed=counters.rows_malformed,
        bytes_read=counters.bytes_read,
    )


def _of_sink(sink: Sink) -> Totals:
    return Totals(rows_delivered=sink.delivered.rows, bytes_delivered=sink.delivered.bytes)
