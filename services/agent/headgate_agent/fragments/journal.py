"""What an agent was told, so that it survives a crash.

Contract of `Journal`: `append` returns when its records are durable, in the order in which it was called; `load` gives
every record that an append returned for, in order, and possibly later ones; `rewrite` replaces everything at once:
after a crash there is either all of the old or all of the new.
"""

from __future__ import annotations

import asyncio
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from headgate_agent.errors import JOURNAL_CORRUPT, JOURNAL_UNAVAILABLE
from headgate_common.errors import HeadgateError

MAGIC = b"headgate fragments 1\n"
_HEADER = 8


class Journal(Protocol):
    async def load(self) -> list[bytes]: ...

    async def append(self, record: bytes) -> None: ...

    async def rewrite(self, records: Sequence[bytes]) -> None: ...


@dataclass(slots=True)
class MemoryJournal:
    """Lives as long as the object does: for tests, and for processes that crash in simulation."""

    records: list[bytes] = field(default_factory=list)

    async def load(self) -> list[bytes]:
        return list(self.records)

    async def append(self, record: bytes) -> None:
        self.records.append(record)

    async def rewrite(self, records: Sequence[bytes]) -> None:
        self.records[:] = records


class FileJournal:
    """One file of length-prefixed, checksummed records. Appends that wait share one fdatasync.

    A record that was cut short by a crash is the last one and is dropped by `load`. A damaged record before others is
    JOURNAL_CORRUPT. After a failed fdatasync nothing is known about the file any more: every later append fails, and
    `broken` is set, so that the process can end and begin again from what is on the disk.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None
        self._size = 0
        self._waiting: list[tuple[bytes, asyncio.Future[None]]] = []
        self._flushing: asyncio.Task[None] | None = None
        self._exclusive = asyncio.Lock()
        self.broken = asyncio.Event()

    async def load(self) -> list[bytes]:
        return await asyncio.to_thread(self._open)

    async def append(self, record: bytes) -> None:
        if self.broken.is_set():
            raise HeadgateError(JOURNAL_UNAVAILABLE, f"{self._path} failed before and is not trusted any more")
        done = asyncio.get_running_loop().create_future()
        self._waiting.append((_framed(record), done))
        if self._flushing is None:
            self._flushing = asyncio.create_task(self._flush())
        await done

    async def rewrite(self, records: Sequence[bytes]) -> None:
        async with self._exclusive:
            try:
                await asyncio.to_thread(self._replace, MAGIC + b"".join(_framed(record) for record in records))
            except OSError as error:
                raise HeadgateError(
                    JOURNAL_UNAVAILABLE, f"{self._path} cannot be written anew: {error.strerror}"
                ) from error

    async def close(self) -> None:
        if self._flushing is not None:
            await asyncio.wait((self._flushing,))
        if self._file is not None:
            os.close(self._file)
            self._file = None

    async def _flush(self) -> None:
        """Writes what waits, until nothing does. A caller that gave up does not stop it."""
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                async with self._exclusive:
                    failure, trusted = await asyncio.to_thread(self._write, b"".join(framed for framed, _ in batch))
                if not trusted:
                    self.broken.set()
                for _, done in batch:
                    if done.done():
                        continue
                    if failure is None:
                        done.set_result(None)
                    else:
                        done.set_exception(failure)
        finally:
            self._flushing = None

    def _write(self, data: bytes) -> tuple[HeadgateError | None, bool]:
        """Why it failed, if it did, and whether the file can still be trusted."""
        assert self._file is not None, "load comes first"
        try:
            written = 0
            while written < len(data):
                written += os.pwrite(self._file, data[written:], self._size + written)
        except OSError as error:
            failure = HeadgateError(JOURNAL_UNAVAILABLE, f"{self._path} cannot be written: {error.strerror}")
            try:
                os.ftruncate(self._file, self._size)
            except OSError:
                return failure, False
            return failure, True
        try:
            os.fdatasync(self._file)
        except OSError as error:
            failure = HeadgateError(JOURNAL_UNAVAILABLE, f"{self._path} cannot be made durable: {error.strerror}")
            return failure, False
        self._size += len(data)
        return None, True

    def _open(self) -> list[bytes]:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if not self._path.exists():
            self._replace(MAGIC)
            return []
        content = self._path.read_bytes()
        records, good = _parse(self._path, content)
        self._file = os.open(self._path, os.O_RDWR)
        if good < len(content):
            os.ftruncate(self._file, good)
            os.fdatasync(self._file)
        self._size = good
        return records

    def _replace(self, content: bytes) -> None:
        """A new file in the place of the old one, durable under its name."""
        draft = self._path.with_suffix(".new")
        file = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            written = 0
            while written < len(content):
                written += os.write(file, content[written:])
            os.fsync(file)
            draft.replace(self._path)
            folder = os.open(self._path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError:
            os.close(file)
            raise
        if self._file is not None:
            os.close(self._file)
        self._file, self._size = file, len(content)


def _framed(record: bytes) -> bytes:
    return len(record).to_bytes(4, "big") + zlib.crc32(record).to_bytes(4, "big") + record


def _parse(path: Path, content: bytes) -> tuple[list[bytes], int]:
    """The records, and how much of the file they and the magic take."""
    if not content.startswith(MAGIC):
        if MAGIC.startswith(content):
            return [], 0
        raise HeadgateError(JOURNAL_CORRUPT, f"{path} is not a journal of fragments")
    records: list[bytes] = []
    position = len(MAGIC)
    while position < len(content):
        header = content[position : position + _HEADER]
        length = int.from_bytes(header[:4], "big")
        end = position + _HEADER + length
        if len(header) < _HEADER or end > len(content):
            break
        record = content[position + _HEADER : end]
        if zlib.crc32(record) != int.from_bytes(header[4:], "big"):
            if end == len(content):
                break
            raise HeadgateError(JOURNAL_CORRUPT, f"{path} is damaged at byte {position}")
        records.append(record)
        position = end
    return records, position
