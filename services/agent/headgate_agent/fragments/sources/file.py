"""The FILE source.

Promises: every record of every file is emitted once, in order within a file, across crashes and restarts, as the
position that is stored with the rows says where each file is read to. Where it follows files, it cannot promise records
that were removed before it has seen them (a file cut, or renamed away and deleted, faster than it is read, or while the
agent was down); such a loss is noted as far as it can be known. A soft stop reads followed files to where they end at
that moment, or for a few steps more if that is far.

It works in steps, each of about `step_bytes`. Steps are read one after the other, a few ahead of what is emitted, and
decoded beside each other; they are emitted in the order in which they were read, each with the position after it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa

from headgate_agent.errors import PLAN_UNSUPPORTED
from headgate_agent.fragments.config import FragmentConfig
from headgate_agent.fragments.edges import ErrorRow
from headgate_agent.fragments.formats.columnar import arrow_batches, parquet_batches
from headgate_agent.fragments.formats.csv_decode import CsvDecoder, CsvOptions
from headgate_agent.fragments.formats.json_decode import JsonDecoder
from headgate_agent.fragments.formats.rows import Decoder, RowFault
from headgate_agent.fragments.paths import Roots
from headgate_agent.fragments.sources.files import BoundedFiles, Files, FollowedFiles
from headgate_agent.fragments.sources.open_file import Block, Buffers, ColumnarFile, MakeOpenFile, OpenFile, TextFile
from headgate_agent.fragments.sources.positions import FilePosition, FileState
from headgate_agent.fragments.sources.source import Counters, Emitted, OnError, error_rows, wait_or_stop
from headgate_agent.fragments.types import Column
from headgate_agent.work import Work
from headgate_common.clock import Clock
from headgate_common.durations import parse_duration
from headgate_common.errors import HeadgateError

Shape = Callable[[pa.RecordBatch], pa.RecordBatch]

# How many steps a followed file is read on when it is to stop.
_LAST_STEPS = 16
# Files whose sizes are looked at to say how far behind the source is.
_LOOKED_AT = 100


def behind(files: Sequence[FileState]) -> int:
    """How many bytes of files that are being read are still to come, of those that can be seen."""
    total = 0
    for state in files[:_LOOKED_AT]:
        with suppress(OSError):
            total += max(0, Path(state.path).stat().st_size - state.offset)
    return total


@dataclass(frozen=True, slots=True)
class _Step:
    """What was read at once: blocks, each with the path it is of, and the position after them. `states` are those of
    the position's files as they change on."""

    blocks: Sequence[tuple[Block, str]]
    position: FilePosition
    states: Sequence[FileState]
    ended: bool


@dataclass(frozen=True, slots=True)
class _Decoded:
    """The rows of a step that go to the edge, and malformed ones; how many records each of its blocks had."""

    step: _Step
    batches: Sequence[pa.RecordBatch]
    errors: Sequence[ErrorRow]
    records: Sequence[int]
    rows: int
    behind: int


def text_decoder(columns: Sequence[Column], parser: Mapping[str, str]) -> Decoder:
    """The decoder of a parser for streams of bytes."""
    match parser.get("type", ""):
        case "CSV":
            return CsvDecoder(columns, CsvOptions.read(parser))
        case "JSON":
            return JsonDecoder(columns, parser)
        case other:
            raise HeadgateError(PLAN_UNSUPPORTED, f"this agent has no parser {other!r} for a stream of bytes")


class FileSource:
    """A `Source` of files. `shape` filters and projects what was decoded."""

    def __init__(
        self,
        options: Mapping[str, str],
        parser: Mapping[str, str],
        columns: Sequence[Column],
        shape: Shape,
        *,
        config: FragmentConfig,
        clock: Clock,
        blocking: Work,
    ) -> None:
        self.counters = Counters()
        self._shape = shape
        self._config = config
        self._clock = clock
        self._blocking = blocking
        self._roots = Roots(config.file_roots)
        self._location = self._roots.locate(options["file_path"])
        self._follow = options.get("follow") == "true"
        self._poll = parse_duration(options.get("poll_interval", "1 s")) / 1e6
        self._on_error = OnError(parser.get("on_error", "skip"))
        self._make = self._opener(columns, parser)
        # Positions in columnar files are no offsets of bytes.
        self._bytes = parser.get("type") not in ("PARQUET", "ARROW")
        self._files: Files | None = None
        self._last_steps = _LAST_STEPS
        # Steps that were read, in order; an error stands where the step would that it prevented.
        self._ahead: deque[asyncio.Future[_Decoded]] = deque()
        self._all_read = False

    async def open(self, position: bytes | None) -> None:
        known = FilePosition.decoded(position)
        if self._follow:
            self._files = FollowedFiles(self._location, self._roots, self._make, self._config, known, self.counters)
        else:
            self._files = BoundedFiles(self._location, self._roots, self._make, self._config, known)

    async def next(self, stopping: asyncio.Event) -> Emitted | None:
        files = self._files
        if files is None:
            raise RuntimeError("the source is not open")
        while not stopping.is_set() or self._may_finish():
            await self._read_ahead(files)
            if self._ahead:
                decoded = await self._ahead[0]
                self._ahead.popleft()
                return await self._emitted(decoded)
            if stopping.is_set():
                break
            self.counters.waiting = f"nothing new at {self._location.path}"
            await wait_or_stop(stopping, self._poll)
        return None

    def _may_finish(self) -> bool:
        """Whether to read on though it is to stop: what was appended before is read, unless that is very much."""
        self._last_steps -= 1
        return self._follow and self._last_steps >= 0

    async def close(self) -> None:
        for decoding in self._ahead:
            decoding.cancel()
        if self._ahead:
            await asyncio.wait(self._ahead)
        for decoding in self._ahead:
            # What was read ahead and not emitted is read again by whoever goes on, errors included.
            if not decoding.cancelled():
                decoding.exception()
        self._ahead.clear()
        if self._files is not None:
            await self._blocking.run(self._files.close)
            self._files = None

    async def _read_ahead(self, files: Files) -> None:
        """Reads until enough steps are being decoded, or there is nothing more to read now."""
        while not self._all_read and len(self._ahead) < self._config.steps_ahead:
            try:
                step = await self._blocking.run(partial(self._read, files))
            except HeadgateError as error:
                self._all_read = True
                failed: asyncio.Future[_Decoded] = asyncio.get_running_loop().create_future()
                failed.set_exception(error)
                self._ahead.append(failed)
                return
            if step is None:
                return
            self._all_read = step.ended
            self._ahead.append(asyncio.ensure_future(self._blocking.run(partial(self._decoded, step))))

    def _read(self, files: Files) -> _Step | None:
        """A few blocks at a time, if they are small: each hand-over between threads costs the same for more."""
        blocks: list[tuple[Block, str]] = []
        size, ended = 0, False
        while not blocks or size < self._config.step_bytes // 2:
            taken = files.take(self._clock.monotonic())
            if taken is None:
                break
            if taken.block is None:
                ended = True
                break
            blocks.append((taken.block, taken.path))
            size += taken.block.size
        if not blocks and not ended:
            return None
        return _Step(blocks, files.position.copied(), tuple(files.position.files), ended)

    def _decoded(self, step: _Step) -> _Decoded:
        batches: list[pa.RecordBatch] = []
        errors: list[ErrorRow] = []
        records: list[int] = []
        rows = 0
        for block, path in step.blocks:
            decoded = block.decode()

            def place(fault: RowFault, path: str = path, start: int = block.start) -> str:
                return f"{path} at byte {start + fault.offset}"

            errors += error_rows(decoded.faults, self._on_error, place)
            batches.append(self._shape(decoded.batch))
            records.append(decoded.batch.num_rows + len(decoded.faults))
            rows += decoded.batch.num_rows
        left = behind(step.position.files) if self._bytes and not step.ended else 0
        return _Decoded(step, batches, errors, records, rows, left)

    async def _emitted(self, decoded: _Decoded) -> Emitted:
        step, counters = decoded.step, self.counters
        for (block, _), records in zip(step.blocks, decoded.records, strict=True):
            counters.bytes_read += block.size
            block.state.rows += records if block.uncounted else 0
        counters.rows_read += decoded.rows
        counters.rows_kept += sum(batch.num_rows for batch in decoded.batches)
        counters.rows_malformed += len(decoded.errors)
        counters.behind = decoded.behind
        counters.waiting = ""
        if self._bytes:
            # They are counted only here, as steps are decoded in any order.
            for told, state in zip(step.position.files, step.states, strict=True):
                told.rows = state.rows
        if len(step.states) > _LOOKED_AT:
            position = await self._blocking.run(step.position.encoded)
        else:
            position = step.position.encoded()
        return Emitted(decoded.batches, position, decoded.errors, ended=step.ended)

    def _opener(self, columns: Sequence[Column], parser: Mapping[str, str]) -> MakeOpenFile:
        config = self._config
        if parser.get("type") in ("PARQUET", "ARROW"):
            read = parquet_batches if parser["type"] == "PARQUET" else arrow_batches

            def columnar(state: FileState, descriptor: int) -> OpenFile:
                return ColumnarFile(state, descriptor, columns, read, config.batch_rows)

            return columnar
        decoder = text_decoder(columns, parser)
        buffers = Buffers(config.block_bytes, config.steps_ahead + 1)

        def text(state: FileState, descriptor: int) -> OpenFile:
            return TextFile(state, descriptor, decoder, config, buffers)

        return text
