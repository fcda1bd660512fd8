"""The FILE source.

Promises: every record of every file is emitted once, in order within a file, across crashes and restarts, as the
position that is stored with the rows says where each file is read to. Where it follows files, it cannot promise records
that were removed before it has seen them (a file cut, or renamed away and deleted, faster than it is read, or while the
agent was down); such a loss is noted as far as it can be known. A soft stop reads followed files to where they end at
that moment, or for a few steps more if that is far.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
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
from headgate_agent.fragments.sources.open_file import Block, ColumnarFile, MakeOpenFile, OpenFile, TextFile
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
            emitted = await self._blocking.run(partial(self._step, files))
            if emitted is not None:
                self.counters.waiting = ""
                return emitted
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
        if self._files is not None:
            await self._blocking.run(self._files.close)
            self._files = None

    def _step(self, files: Files) -> Emitted | None:
        """A few blocks at a time: each hand-over between threads, and each append, costs about the same for more."""
        batches: list[pa.RecordBatch] = []
        errors: list[ErrorRow] = []
        size = 0
        position = b""
        while size < self._config.step_bytes:
            taken = files.take(self._clock.monotonic())
            if taken is None:
                break
            if taken.block is None:
                self.counters.behind = 0
                return Emitted(batches, files.position.encoded(), errors, ended=True)
            batches.append(self._kept(taken.block, taken.path, errors))
            position = files.position.encoded()
            size += taken.block.size
        self.counters.behind = behind(files.position.files) if self._bytes else 0
        return Emitted(batches, position, errors) if batches else None

    def _kept(self, block: Block, path: str, errors: list[ErrorRow]) -> pa.RecordBatch:
        decoded = block.decoded

        def place(fault: RowFault) -> str:
            return f"{path} at byte {block.start + fault.offset}"

        errors += error_rows(decoded.faults, self._on_error, self.counters, place)
        kept = self._shape(decoded.batch)
        self.counters.rows_read += decoded.batch.num_rows
        self.counters.rows_kept += kept.num_rows
        self.counters.bytes_read += block.size
        return kept

    def _opener(self, columns: Sequence[Column], parser: Mapping[str, str]) -> MakeOpenFile:
        config = self._config
        if parser.get("type") in ("PARQUET", "ARROW"):
            read = parquet_batches if parser["type"] == "PARQUET" else arrow_batches

            def columnar(state: FileState, descriptor: int) -> OpenFile:
                return ColumnarFile(state, descriptor, columns, read, config.batch_rows)

            return columnar
        decoder = text_decoder(columns, parser)

        def text(state: FileState, descriptor: int) -> OpenFile:
            return TextFile(state, descriptor, decoder, config)

        return text
