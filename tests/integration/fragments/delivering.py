"""An edge whose batches anyone can compute, and the run of a sink on it in a process of its own that may be killed."""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from headgate.catalog import v1 as catalog
from headgate_agent.fragments.config import FragmentConfig
from headgate_agent.fragments.edges import Chunk, EdgeBatch
from headgate_agent.fragments.sinks.build import Reach, build_sink
from headgate_agent.fragments.sinks.sink import run_sink
from headgate_agent.work import Threads
from headgate_common.clock import SystemClock
from tests.unit.fragments.kit import sink_fragment

COLUMNS = "n INT64, k VARCHAR"
SCHEMA = pa.schema([("n", pa.int64()), ("k", pa.string())])
SETTINGS = FragmentConfig(flush_interval=0.01, flush_bytes=4_000, edge_read_bytes=600, edge_read_wait=0.05)
# pyarrow loads pandas when it first makes an array, where there is one: once, before any process is forked.
pa.array([""])


def rows_of(batch: int) -> range:
    """The numbers of the rows of a batch: some have none, some many."""
    sizes = (3, 0, 1, 12, 5)
    whole, rest = divmod(batch, len(sizes))
    first = whole * sum(sizes) + sum(sizes[:rest])
    return range(first, first + sizes[rest])


def batch_at(number: int) -> pa.RecordBatch:
    numbers = rows_of(number)
    keys = pa.array([f"k{n % 7}" for n in numbers], pa.string())
    return pa.RecordBatch.from_arrays([pa.array(numbers, pa.int64()), keys], schema=SCHEMA)


@dataclass(slots=True)
class ComputedEdge:
    """An `EdgeReader` of `count` batches. What is trimmed is in a file, so that it survives this process; every so many
    batches only, because an edge may give more than it must."""

    count: int
    path: Path | None = None
    trimmed: int = 0
    # Seconds that each read takes.
    pace: float = 0.001
    trim_every: int = 100
    reads: int = 0
    # How many batches are there so far; all of them if None.
    shown: int | None = None

    async def start(self) -> int:
        if self.path is not None and self.path.exists():
            self.trimmed = int(self.path.read_text())
        return self.trimmed

    async def read(self, offset: int, *, max_bytes: int, wait: float) -> Chunk:
        assert offset >= self.trimmed, f"{offset} was trimmed: the edge begins at {self.trimmed}"
        self.reads += 1
        await asyncio.sleep(self.pace)
        found: list[EdgeBatch] = []
        size = 0
        end = self.count if self.shown is None else self.shown
        while offset + len(found) < end and size <= max_bytes:
            number = offset + len(found)
            found.append(EdgeBatch(batch_at(number), number + 1))
            size += found[-1].rows.nbytes
        return Chunk(found, ended=offset + len(found) == self.count)

    async def trim(self, offset: int) -> None:
        if offset < self.count and offset // self.trim_every == self.trimmed // self.trim_every:
            return
        self.trimmed = offset
        if self.path is not None:
            written = self.path.with_suffix(".new")
            written.write_text(str(offset))
            written.replace(self.path)


def deliver_to_kafka(folder: Path, identity: str, options: Mapping[str, str], count: int, ready: Path) -> None:
    """Runs a KAFKA sink to the end of the edge; `ready` is there once it has begun."""
    fragment = sink_fragment(catalog.SINK_TYPE_KAFKA, options, COLUMNS)
    reach = Reach(SystemClock(), random.Random(os.getpid()))

    work = Threads(2)
    sink = build_sink(identity, fragment, state=folder, config=SETTINGS, blocking=work, reach=reach)
    ready.touch()

    async def run() -> None:
        await run_sink(sink, ComputedEdge(count, folder / "trimmed", pace=0.01), SETTINGS, SystemClock())
        work.close()

    asyncio.run(run())


def numbers(values: list[bytes]) -> list[int]:
    return [json.loads(value)["n"] for value in values]
