"""How often rows of a slow source are appended, and which of them wait for more."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence

import pyarrow as pa
import pytest

from headgate_agent.fragments.edges import ErrorRow, Stored
from headgate_agent.fragments.sources.source import Counters, Emitted, Lingering, run_source
from tests.unit.fragments.kit import simulated

LINGERING = Lingering(seconds=0.05, enough_bytes=1000)
SMALL, LARGE = 1, 200


class Timed:
    """A source that gives so many rows at each of some times."""

    def __init__(self, *parts: tuple[float, int]) -> None:
        self.counters = Counters()
        self._parts = list(parts)

    async def open(self, position: bytes | None) -> None:
        return

    async def next(self, stopping: asyncio.Event) -> Emitted | None:
        at, rows = self._parts.pop(0)
        await asyncio.sleep(at - asyncio.get_running_loop().time())
        batch = pa.record_batch({"a": pa.array(range(rows), pa.int64())})
        return Emitted([batch], b"%d" % len(self._parts), ended=not self._parts)

    async def close(self) -> None:
        return


class Edge:
    """Keeps when appends were made, and of how many rows."""

    waiting = ""

    def __init__(self) -> None:
        self.appends: list[tuple[float, int]] = []

    async def stored(self) -> Stored | None:
        return None

    async def append(
        self, batches: Sequence[pa.RecordBatch], position: bytes, *, errors: Sequence[ErrorRow] = (), end: bool = False
    ) -> None:
        self.appends.append((asyncio.get_running_loop().time(), sum(batch.num_rows for batch in batches)))


def appended(*parts: tuple[float, int]) -> list[tuple[float, int]]:
    edge = Edge()

    async def run() -> None:
        begin = asyncio.get_running_loop().time()
        source = Timed(*((begin + at, rows) for at, rows in parts))
        await run_source(source, edge, asyncio.Event(), lingering=LINGERING, appends=3)
        edge.appends = [(round(at - begin, 4), rows) for at, rows in edge.appends]

    simulated(run())
    return edge.appends


def test_rows_after_a_pause_are_appended_at_once() -> None:
    assert appended((1.0, SMALL), (2.0, SMALL), (3.0, SMALL)) == [(1.0, SMALL), (2.0, SMALL), (3.0, SMALL)]


def test_the_last_rows_of_much_are_appended_at_once() -> None:
    assert appended((1.0, LARGE), (1.001, LARGE), (1.002, SMALL), (5.0, SMALL)) == [
        (1.0, LARGE),
        (1.001, LARGE),
        (1.002, SMALL),
        (5.0, SMALL),
    ]


def test_small_appends_of_rows_that_keep_coming_are_as_far_apart_as_they_should_be() -> None:
    appends = appended(*((1.0 + number / 1000, SMALL) for number in range(500)), (9.0, SMALL))
    times = [at for at, _ in appends[:-1]]
    assert sum(rows for _, rows in appends) == 501
    assert [later - earlier for earlier, later in itertools.pairwise(times)] == pytest.approx([0.05] * 10)


def test_rows_that_wait_are_appended_as_soon_as_they_are_enough() -> None:
    assert appended((1.0, SMALL), (1.01, SMALL), (1.02, LARGE), (9.0, SMALL)) == [
        (1.0, SMALL),
        (1.02, SMALL + LARGE),
        (9.0, SMALL),
    ]
