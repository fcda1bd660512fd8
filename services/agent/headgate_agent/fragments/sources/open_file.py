"""One file being read: blocks of whole records from an offset on, or batches of a columnar file after some rows."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from headgate_agent.errors import SOURCE_CHANGED, SOURCE_MISMATCH
from headgate_agent.fragments.config import FragmentConfig
from headgate_agent.fragments.formats.columnar import ReadBatches
from headgate_agent.fragments.formats.rows import Data, Decoded, Decoder
from headgate_agent.fragments.formats.splitting import BYTE_ORDER_MARK
from headgate_agent.fragments.sources.positions import FileState
from headgate_agent.fragments.types import Column
from headgate_common.errors import HeadgateError


@dataclass(frozen=True, slots=True)
class Block:
    """What was taken of a file: where its records began, how many bytes they were, and how they become rows, which any
    thread may do. `uncounted`: the file's state does not count them yet."""

    decode: Callable[[], Decoded]
    start: int
    size: int
    state: FileState
    uncounted: bool


class OpenFile(Protocol):
    """`read` takes what comes next and moves the state on; None where no whole record is there. With `final`, the end
    of the file is the end of its last record."""

    def read(self, final: bool) -> Block | None: ...

    def close(self) -> None: ...


MakeOpenFile = Callable[[FileState, int], OpenFile]


class Cut(Exception):
    """The file has fewer bytes than were taken of it."""


class Buffers:
    """Memory to read blocks into that was read into before: what is new to the process has to be cleared for it first,
    which takes longer than the reading. Used by several threads."""

    def __init__(self, size: int, most: int) -> None:
        self._size = size
        self._free: deque[bytearray] = deque(maxlen=most)

    def take(self) -> bytearray:
        try:
            return self._free.pop()
        except IndexError:
            return bytearray(self._size)

    def give(self, buffer: bytearray) -> None:
        """Takes one back, if it is worth it and nobody uses it any more."""
        missing = self._size - len(buffer)
        if 0 <= missing <= self._size // 2:
            # Whoever still looks at it keeps it from being made longer.
            with suppress(BufferError):
                buffer += bytes(missing)
                self._free.append(buffer)


class TextFile:
    """A file of CSV or JSON records."""

    def __init__(
        self, state: FileState, descriptor: int, decoder: Decoder, config: FragmentConfig, buffers: Buffers
    ) -> None:
        self._state = state
        self._descriptor = descriptor
        self._decoder = decoder
        self._config = config
        self._buffers = buffers

    def read(self, final: bool) -> Block | None:
        size = os.fstat(self._descriptor).st_size
        if size < self._state.offset:
            raise Cut
        if self._decoder.wants_header and not self._take_header(size, final):
            return None
        if self._state.offset == 0 and os.pread(self._descriptor, 3, 0) == BYTE_ORDER_MARK:
            self._state.offset = len(BYTE_ORDER_MARK)
        start = self._state.offset
        data, whole = self._records(start, size, final, self._decoder.whole)
        if not whole:
            return None
        del data[whole:]
        self._state.offset = start + whole
        self._state.remember_head(self._descriptor, self._state.offset)
        return Block(partial(self._decoded, self._decoder, data), start, whole, self._state, uncounted=True)

    def _decoded(self, decoder: Decoder, data: bytearray) -> Decoded:
        decoded = decoder.decode(data)
        self._buffers.give(data)
        return decoded

    def close(self) -> None:
        os.close(self._descriptor)

    def _take_header(self, size: int, final: bool) -> bool:
        """Reads the names, also where rows were taken before; False while the header is not whole."""
        data, whole = self._records(0, size, final, self._decoder.first)
        if not whole:
            return False
        self._decoder = self._decoder.with_header(bytes(data[:whole]))
        self._state.offset = max(self._state.offset, whole)
        return True

    def _records(
        self, start: int, size: int, final: bool, measure: Callable[[Data, bool], int]
    ) -> tuple[bytearray, int]:
        """Bytes from an offset, and how many of them are whole records; more are read until one is whole."""
        length = self._config.block_bytes
        data = self._buffers.take() if size - start > length // 2 else bytearray(max(0, size - start))
        while True:
            del data[os.preadv(self._descriptor, (data,), start) :]
            at_end = start + len(data) >= size
            whole = measure(data, final and at_end) if data else 0
            if whole or (at_end and len(data) <= self._config.max_row_bytes):
                return data, whole
            if len(data) >= self._config.max_row_bytes:
                raise HeadgateError(
                    SOURCE_MISMATCH,
                    f"{self._state.path} at byte {start}: a row of more than {self._config.max_row_bytes:,} bytes "
                    "(fragments.max_row_bytes); is a quote not closed, or the tuple_delimiter another?",
                )
            length = min(length * 2, self._config.max_row_bytes)
            data = bytearray(length)


class ColumnarFile:
    """A Parquet or Arrow file. Its position is the number of rows, as its bytes say nothing."""

    def __init__(
        self, state: FileState, descriptor: int, columns: Sequence[Column], read: ReadBatches, batch_rows: int
    ) -> None:
        self._state = state
        self._file = os.fdopen(descriptor, "rb")
        try:
            state.remember_head(descriptor, os.fstat(descriptor).st_size)
            self._batches = read(self._file, columns, state.rows, batch_rows)
        except BaseException:
            self._file.close()
            raise

    def read(self, final: bool) -> Block | None:
        try:
            batch = next(self._batches, None)
        except HeadgateError as error:
            raise HeadgateError(error.reason, f"{self._state.path}: {error.message}") from error
        if batch is None:
            return None
        start = self._state.rows
        self._state.rows += batch.num_rows
        return Block(lambda: Decoded(batch), start, batch.nbytes, self._state, uncounted=False)

    def close(self) -> None:
        self._file.close()


def changed(path: str, what: str) -> HeadgateError:
    return HeadgateError(SOURCE_CHANGED, f"{path} {what}")
