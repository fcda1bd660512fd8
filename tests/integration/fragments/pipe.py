"""A FILE source, a durable edge in one file, and a FILE sink, in a process of their own that may be killed."""

from __future__ import annotations

import asyncio
import os
import random
import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from headgate.catalog import v1 as catalog
from headgate_agent.fragments.config import FragmentConfig
from headgate_agent.fragments.edges import Chunk, EdgeBatch, ErrorRow, Stored
from headgate_agent.fragments.sinks.build import build_sink
from headgate_agent.fragments.sinks.sink import run_sink
from headgate_agent.fragments.sources.build import Surroundings, build_source
from headgate_agent.fragments.sources.source import run_source
from headgate_agent.work import Threads
from headgate_common.clock import SystemClock
from tests.unit.fragments.kit import sink_fragment, source_fragment

_HEADER = struct.Struct("<III?")
# pyarrow loads pandas when it first makes an array, where there is one: once, before any process is forked.
pa.array([""])


class FileEdge:
    """An edge in one file: each append is one checksummed frame, synced before it is acknowledged."""

    waiting = ""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self._batches: list[pa.RecordBatch] = []
        self._last: Stored | None = None
        self._changed = asyncio.Event()
        content = os.pread(self._descriptor, os.fstat(self._descriptor).st_size, 0)
        at = 0
        while at + _HEADER.size <= len(content):
            checksum, position_size, size, end = _HEADER.unpack_from(content, at)
            body = content[at + _HEADER.size : at + _HEADER.size + position_size + size]
            if len(body) != position_size + size or zlib.crc32(body) != checksum:
                break
            if size:
                self._batches.extend(pa.ipc.open_stream(body[position_size:]))
            self._last = Stored(body[:position_size], end)
            at += _HEADER.size + position_size + size
        os.ftruncate(self._descriptor, at)
        self._end = at

    async def stored(self) -> Stored | None:
        return self._last

    async def append(
        self, batches: Sequence[pa.RecordBatch], position: bytes, *, errors: Sequence[ErrorRow] = (), end: bool = False
    ) -> None:
        rows = b""
        if batches:
            out = pa.BufferOutputStream()
            with pa.ipc.new_stream(out, batches[0].schema) as writer:
                for batch in batches:
                    writer.write_batch(batch)
            rows = out.getvalue().to_pybytes()
        frame = _HEADER.pack(zlib.crc32(position + rows), len(position), len(rows), end) + position + rows
        os.pwrite(self._descriptor, frame, self._end)
        await asyncio.to_thread(os.fdatasync, self._descriptor)
        self._end += len(frame)
        self._batches.extend(batches)
        self._last = Stored(position, end)
        self._changed.set()

    async def start(self) -> int:
        return 0

    async def read(self, offset: int, *, max_bytes: int, wait: float) -> Chunk:
        if offset >= len(self._batches) and not (self._last and self._last.ended):
            self._changed.clear()
            try:
                async with asyncio.timeout(wait):
                    await self._changed.wait()
            except TimeoutError:
                return Chunk(())
        found = [EdgeBatch(rows, offset + n + 1) for n, rows in enumerate(self._batches[offset : offset + 3])]
        at_end = offset + len(found) == len(self._batches)
        return Chunk(found, at_end and self._last is not None and self._last.ended)

    async def trim(self, offset: int) -> None:
        """Everything is kept."""


COLUMNS = "n INT64 NOT NULL, text VARCHAR"


def pump(folder: Path, source_options: Mapping[str, str], sink_options: Mapping[str, str], ready: Path) -> None:
    """Runs to the end of the source. Makes the file `ready` when it begins; `folder/stop` stops it softly."""
    asyncio.run(_pump(folder, source_options, sink_options, ready))


async def _pump(folder: Path, source_options: Mapping[str, str], sink_options: Mapping[str, str], ready: Path) -> None:
    config = FragmentConfig(
        file_roots=(folder,), block_bytes=1_024, step_bytes=2_048, flush_interval=0.005, rotated_grace=0.3
    )
    threads = Threads(2)
    edge = FileEdge(folder / "edge")
    around = Surroundings(config, SystemClock(), threads, random.Random(1))
    source = build_source(source_fragment(catalog.SOURCE_TYPE_FILE, source_options, COLUMNS, {"type": "CSV"}), around)
    fragment = sink_fragment(catalog.SINK_TYPE_FILE, sink_options, COLUMNS)
    sink = build_sink("fragment-1", fragment, state=folder / "state", config=config, blocking=threads)
    stopping = asyncio.Event()
    ready.touch()  # noqa: ASYNC240

    async def watch() -> None:
        while not (folder / "stop").exists():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        stopping.set()

    watching = asyncio.create_task(watch())
    async with asyncio.timeout(60):
        async with asyncio.TaskGroup() as group:
            group.create_task(run_source(source, edge, stopping))
            group.create_task(run_sink(sink, edge, config, SystemClock()))
    watching.cancel()
    threads.close()
