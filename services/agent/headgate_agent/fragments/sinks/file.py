"""The FILE sink.

Promises: every row of the edge is in the file exactly once, in the order of the edge, after any number of crashes.
Rows are written, the file is synced, and then (edge offset, file length) is written down in the agent's data folder,
durably; only then is anything acknowledged. Opening again cuts the file to the length that was written down, so that
what was not acknowledged is gone before it is delivered anew: it is the same bytes again. Between the two a reader of
the file may see rows, or half of one, that are not acknowledged yet.

While the query exists the file is its own: what others append is cut off at the next start, and a file that was cut,
replaced or removed is SINK_CHANGED. With `append = false` the very first start empties it, which is written down before
it is done; no later start does.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from headgate_agent.errors import PLAN_UNSUPPORTED, SINK_CHANGED, SINK_IN_USE, SINK_MISSING, SINK_UNAVAILABLE
from headgate_agent.fragments.config import FragmentConfig
from headgate_agent.fragments.formats.csv_encode import CsvEncoder
from headgate_agent.fragments.formats.json_encode import JsonEncoder
from headgate_agent.fragments.paths import Roots
from headgate_agent.fragments.sinks.sink import Delivered
from headgate_agent.fragments.sinks.slots import Slots, SlotsCorrupt
from headgate_agent.work import Work
from headgate_common.errors import HeadgateError

# A file cannot be made at such a path, however long one waits.
_HOPELESS = (
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENAMETOOLONG,
    errno.ELOOP,
)


class Encoder(Protocol):
    def encode(self, batch: pa.RecordBatch) -> bytes: ...


class FileSink:
    """A `Sink` that is a file. `identity` is the fragment's, whatever the epoch; `state` the folder of the agent where
    what must survive a crash is kept."""

    def __init__(
        self,
        identity: str,
        options: Mapping[str, str],
        names: Sequence[str],
        update_keys: Sequence[str],
        *,
        state: Path,
        config: FragmentConfig,
        blocking: Work,
    ) -> None:
        if update_keys:
            raise HeadgateError(PLAN_UNSUPPORTED, "a FILE sink takes no updates: what it has written stays")
        self.delivered = Delivered()
        self._blocking = blocking
        self._roots = Roots(config.file_roots)
        self._path = self._roots.locate(options["file_path"]).path
        self._append = options.get("append", "true") == "true"
        self._header = b""
        self._encoder: Encoder = JsonEncoder()
        if options.get("input_format", "CSV") == "CSV":
            csv = CsvEncoder(options.get("field_delimiter", ","), options.get("null_string", ""))
            self._encoder = csv
            if options.get("header") == "true":
                self._header = csv.header(names)
        self._kept = slots_path(state, identity)
        self._slots = Slots(self._kept)
        self._descriptor: int | None = None
        self._durable = (0, 0)
        self._next = (0, 0)
        self._lead = b""

    async def open(self, first: int) -> int:
        return await self._blocking.run(partial(self._open, first))

    async def deliver(self, batches: Sequence[pa.RecordBatch], next_offset: int) -> None:
        await self._blocking.run(partial(self._deliver, batches, next_offset))

    async def flush(self) -> int:
        return await self._blocking.run(self._flush)

    async def close(self) -> None:
        await self._blocking.run(self._close)

    def _open(self, first: int) -> int:
        try:
            descriptor = self._descriptor = self._roots.open_to_write(self._path)
        except HeadgateError as error:
            raise self._not_opened(error, first) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._close()
            raise HeadgateError(SINK_IN_USE, f"another sink writes to {self._path}") from error
        try:
            self._begin(descriptor, first)
            if self._durable[1] == 0 and self._header:
                self._write(descriptor, self._header, 0)
                self._next = (self._durable[0], len(self._header))
                self._flush()
            length = self._durable[1]
            self._lead = b"\n" if length and os.pread(descriptor, 1, length - 1) != b"\n" else b""
        except OSError as error:
            raise self._failed(error) from error
        except HeadgateError:
            self._close()
            raise
        return self._durable[0]

    def _not_opened(self, error: HeadgateError, first: int) -> HeadgateError:
        """A sink that has delivered rows waits for its volume to come back; one that never had a file never will."""
        cause = error.__cause__
        hopeless = isinstance(cause, OSError) and cause.errno in _HOPELESS
        if error.reason is SINK_UNAVAILABLE and hopeless and first == 0 and not self._kept.exists():
            return HeadgateError(SINK_MISSING, error.message)
        return error

    def _begin(self, descriptor: int, first: int) -> None:
        status = os.fstat(descriptor)
        key = f"{status.st_dev}:{status.st_ino}"
        try:
            record = self._slots.open()
        except SlotsCorrupt as error:
            raise HeadgateError(
                SINK_CHANGED, f"what was delivered to {self._path} is not known: {error} is damaged"
            ) from error
        if record is None:
            if first > 0:
                raise HeadgateError(
                    SINK_CHANGED, f"rows were delivered to {self._path} before, but this agent does not know how many"
                )
            self._durable = (0, status.st_size if self._append else 0)
            self._remember(key)
        else:
            known = json.loads(record)
            self._durable = (known["offset"], known["length"])
            if known["file"] != key or status.st_size < known["length"]:
                raise HeadgateError(
                    SINK_CHANGED,
                    f"{self._path} was replaced or cut: {known['length']:,} bytes were delivered to it",
                )
        if status.st_size > self._durable[1]:
            os.ftruncate(descriptor, self._durable[1])
            os.fsync(descriptor)
        self._next = self._durable

    def _remember(self, key: str) -> None:
        offset, length = self._durable
        self._slots.write(json.dumps({"offset": offset, "length": length, "file": key}).encode())

    def _deliver(self, batches: Sequence[pa.RecordBatch], next_offset: int) -> None:
        descriptor = self._opened()
        content = b"".join([self._encoder.encode(batch) for batch in batches])
        if content:
            content, self._lead = self._lead + content, b""
        length = self._next[1]
        try:
            self._write(descriptor, content, length)
        except OSError as error:
            self._cut_off(descriptor)
            raise self._failed(error) from error
        self._next = (next_offset, length + len(content))
        self.delivered.rows += sum(batch.num_rows for batch in batches)
        self.delivered.bytes += len(content)

    def _flush(self) -> int:
        descriptor = self._opened()
        if self._next != self._durable:
            status = os.fstat(descriptor)
            try:
                os.fdatasync(descriptor)
                # From here on an error leaves open which of the two is remembered: the file has what either needs.
                self._durable = self._next
                self._remember(f"{status.st_dev}:{status.st_ino}")
            except OSError as error:
                raise self._failed(error) from error
            self.delivered.flushes += 1
        return self._durable[0]

    def _opened(self) -> int:
        if self._descriptor is None:
            raise HeadgateError(SINK_UNAVAILABLE, f"{self._path} failed before and must be opened again")
        return self._descriptor

    @staticmethod
    def _write(descriptor: int, content: bytes, at: int) -> None:
        view = memoryview(content)
        while view:
            written = os.pwrite(descriptor, view, at)
            if not written:
                raise OSError(errno.EIO, "nothing was written")
            view, at = view[written:], at + written

    def _cut_off(self, descriptor: int) -> None:
        """Takes back what was written since the last flush; where that fails too, the next start does it."""
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, self._durable[1])

    def _failed(self, error: OSError) -> HeadgateError:
        """What was not flushed does not count: the sink is closed, and the next start goes by what is remembered."""
        self._close()
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            return HeadgateError(SINK_UNAVAILABLE, f"there is no space left for {self._path}")
        return HeadgateError(SINK_UNAVAILABLE, f"{self._path} cannot be written: {error.strerror or error}")

    def _close(self) -> None:
        self._slots.close()
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def slots_path(state: Path, identity: str) -> Path:
    """Where a fragment's sink keeps its position; to be removed when the fragment is gone for good."""
    return state / f"{identity}.sink"
