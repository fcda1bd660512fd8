"""What an agent was told, so that it survives a crash.

Contract of `Journal`: `append` returns when its records are durable, in the order in which it was called; `load` gives
every record that an append returned for, in order, and possibly later ones; `rewrite` replaces everything at once:
after a crash there is either all of the old or all of the new.
"""

from __future__ import annotations

import asyncio
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from headgate_agent.errors import JOURNAL_CORRUPT, JOURNAL_UNAVAILABLE
from headgate_common.errors import HeadgateError

# What a file begins with, and its number behind it. The mark carries the version of the format.
MAGIC = b"headgate fragments 2\n"
_NUMBER = struct.Struct(">Q")
_BEGINNING = len(MAGIC) + _NUMBER.size
# In front of a group: how long it is, and its check.
_HEADER = struct.Struct(">II")
_LENGTH = struct.Struct(">I")


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
    """One file of groups of records. Appends that wait are one group: one write and one fdatasync.

    A group is written when the one before it is on the disk. So only the last one can be torn, and a disk that loses
    power may leave anything of it: a part, zeros, later blocks without earlier ones, what a former file had there.
    `load` drops such a group. A group that is damaged and has a whole one behind it was on the disk once, as was what a
    file begins with: that is JOURNAL_CORRUPT, and nothing is guessed. (Damage in the last group of all cannot be told
    from a torn write.) The check of a group counts in the number of its file and its place there, so nothing that the
    disk had before, and no record that looks like a group, is taken for one.

    After a failed fdatasync nothing is known about the file any more: every later append fails, and `broken` is set, so
    that the process can end and begin again from what is on the disk. What is shown to the next process may not be
    there, and syncing it again says nothing about it: `load` writes the last group again, and syncs that.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None
        self._number = 0
        self._size = 0
        self._waiting: list[tuple[bytes, asyncio.Future[None]]] = []
        self._flushing: asyncio.Task[None] | None = None
        self._exclusive = asyncio.Lock()
        self.broken = asyncio.Event()

    async def load(self) -> list[bytes]:
        return await asyncio.to_thread(self._open)

    async def append(self, record: bytes) -> None:
        if self.broken.is_set():
            raise self._untrusted()
        done = asyncio.get_running_loop().create_future()
        self._waiting.append((record, done))
        if self._flushing is None:
            self._flushing = asyncio.create_task(self._flush())
        await done

    async def rewrite(self, records: Sequence[bytes]) -> None:
        async with self._exclusive:
            before = self._number
            try:
                await asyncio.to_thread(self._replace, records)
            except OSError as error:
                if self._number != before:
                    # The new file is in the place of the old one, and it is not known for how long.
                    self.broken.set()
                raise HeadgateError(
                    JOURNAL_UNAVAILABLE, f"{self._path} cannot be written anew: {error.strerror}"
                ) from error

    async def close(self) -> None:
        while self._flushing is not None:
            await asyncio.wait((self._flushing,))
        if self._file is not None:
            os.close(self._file)
            self._file = None

    async def _flush(self) -> None:
        """Writes what waits, until nothing does. A caller that gave up does not stop it."""
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                failure: HeadgateError | None
                async with self._exclusive:
                    # What waited while the file was found untrustworthy must not go there.
                    if self.broken.is_set():
                        failure = self._untrusted()
                    else:
                        failure, trusted = await asyncio.to_thread(self._write, [record for record, _ in batch])
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

    def _untrusted(self) -> HeadgateError:
        return HeadgateError(JOURNAL_UNAVAILABLE, f"{self._path} failed before and is not trusted any more")

    def _write(self, records: Sequence[bytes]) -> tuple[HeadgateError | None, bool]:
        """Why it failed, if it did, and whether the file can still be trusted."""
        assert self._file is not None, "load comes first"
        data = _group(self._number, self._size, records)
        try:
            _write_at(self._file, data, self._size)
        except OSError as error:
            failure = HeadgateError(JOURNAL_UNAVAILABLE, f"{self._path} cannot be written: {error.strerror}")
            try:
                # Synced, so that the next group does not come to lie among what is left of this one.
                self._cut(self._size)
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
            self._replace(())
            return []
        content = self._path.read_bytes()
        found = _parse(self._path, content)
        self._number, self._size = found.number, found.end
        self._file = os.open(self._path, os.O_RDWR)
        # Also where nothing is torn: a process may have died, or failed, between a write or a rename and its sync, and
        # what is obeyed from now on must be on the disk.
        _write_at(self._file, content[found.last : found.end], found.last)
        self._cut(found.end)
        self._sync_name()
        return found.records

    def _cut(self, size: int) -> None:
        assert self._file is not None
        os.ftruncate(self._file, size)
        os.fdatasync(self._file)

    def _replace(self, records: Sequence[bytes]) -> None:
        """A new file in the place of the old one, durable under its name. It begins with a group, if an empty one."""
        number = self._number + 1
        content = MAGIC + _NUMBER.pack(number) + _group(number, _BEGINNING, records)
        draft = self._path.with_suffix(".new")
        file = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            _write_at(file, content, 0)
            os.fsync(file)
            draft.replace(self._path)
        except OSError:
            os.close(file)
            raise
        if self._file is not None:
            os.close(self._file)
        self._file, self._number, self._size = file, number, len(content)
        self._sync_name()

    def _sync_name(self) -> None:
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@dataclass(frozen=True, slots=True)
class _Found:
    """What a file says: its number, its records, and where its last whole group begins and ends."""

    number: int
    records: list[bytes]
    last: int
    end: int


def _write_at(file: int, data: bytes, position: int) -> None:
    written = 0
    while written < len(data):
        written += os.pwrite(file, data[written:], position + written)


def _group(number: int, position: int, records: Sequence[bytes]) -> bytes:
    body = b"".join(_LENGTH.pack(len(record)) + record for record in records)
    return _HEADER.pack(len(body), _check(number, position, body)) + body


def _check(number: int, position: int, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(_NUMBER.pack(number) + _NUMBER.pack(position)))


def _parse(path: Path, content: bytes) -> _Found:
    if not content.startswith(MAGIC):
        raise HeadgateError(JOURNAL_CORRUPT, f"{path} is not a journal of fragments, or of another version")
    number = int.from_bytes(content[len(MAGIC) : _BEGINNING], "big")
    records: list[bytes] = []
    last = end = _BEGINNING
    while (body := _body(content, number, end)) is not None:
        last, end = end, end + _HEADER.size + len(body)
        records += _split(body)
    if end == _BEGINNING or any(_body(content, number, later) is not None for later in range(end + 1, len(content))):
        raise HeadgateError(JOURNAL_CORRUPT, f"{path} is damaged at byte {end}")
    return _Found(number, records, last, end)


def _body(content: bytes, number: int, position: int) -> bytes | None:
    """What the group at a position holds; None if there is no whole one."""
    start = position + _HEADER.size
    if start > len(content):
        return None
    length, check = _HEADER.unpack_from(content, position)
    if start + length > len(content):
        return None
    body = content[start : start + length]
    return body if _check(number, position, body) == check else None


def _split(body: bytes) -> Iterator[bytes]:
    position = 0
    while position < len(body):
        (length,) = _LENGTH.unpack_from(body, position)
        position += _LENGTH.size + length
        yield body[position - length : position]
