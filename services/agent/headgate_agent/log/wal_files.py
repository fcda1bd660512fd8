"""The write-ahead log's files on a disk: `pwritev`, `fdatasync`, in one thread of their own, off the event loop.

A file that is not needed any more becomes a spare, and the next one is written over it: blocks and the pages of the
page cache are there already, so a write allocates nothing and a sync has no metadata to write. Spares are of one
process: numbers that it gives out only grow, so what a spare holds is of a lower number than the file it becomes.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

_SUFFIX = ".wal"
_SPARE = ".spare"
DEFAULT_SPARES = 2
_MOST_BUFFERS = os.sysconf("SC_IOV_MAX") if "SC_IOV_MAX" in os.sysconf_names else 1024


class DiskFiles:
    """`WalFiles` in a folder. One thread, so that operations happen in the order in which they were asked for."""

    def __init__(self, folder: Path, *, spares: int = DEFAULT_SPARES) -> None:
        self._folder = folder
        self._most_spares = spares
        self._spares: list[Path] | None = None
        self._open: tuple[int, int] | None = None
        # A file that was made, and is not known to be on the disk: the folder could not be synced.
        self._unsynced: int | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="wal")

    async def numbers(self) -> Sequence[int]:
        return await self._run(self._numbers)

    async def read(self, number: int) -> bytes:
        return await self._run(self._path(number).read_bytes)

    async def read_part(self, number: int, position: int, length: int) -> bytes:
        return await self._run(lambda: self._read_part(number, position, length))

    async def create(self, number: int) -> None:
        await self._run(lambda: self._create(number))

    async def write(self, number: int, position: int, buffers: Sequence[bytes]) -> None:
        await self._run(lambda: self._write(number, position, buffers))

    async def cut(self, number: int, size: int) -> None:
        await self._run(lambda: self._cut(number, size))

    async def remove(self, number: int) -> None:
        await self._run(lambda: self._remove(number))

    def close(self) -> None:
        self._thread.shutdown(wait=True)
        if self._open is not None:
            os.close(self._open[1])
            self._open = None

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:016d}{_SUFFIX}"

    def _numbers(self) -> list[int]:
        if self._spares is None:
            self._spares = []
            for left in self._folder.glob(f"*{_SPARE}"):
                left.unlink()
        return sorted(int(path.stem) for path in self._folder.glob(f"*{_SUFFIX}"))

    def _create(self, number: int) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        descriptor = self._make(number)
        try:
            self._sync_folder()
        except OSError:
            os.close(descriptor)
            raise
        self._unsynced = None
        if self._open is not None:
            os.close(self._open[1])
        self._open = (number, descriptor)

    def _make(self, number: int) -> int:
        """Opens a file that is new, a spare under its new name, or the one that was made when this failed before."""
        path = self._path(number)
        if self._unsynced == number and path.exists():
            return os.open(path, os.O_WRONLY)
        descriptor = self._reuse(self._spares[-1], path) if self._spares else _open_new(path)
        self._unsynced = number
        return descriptor

    def _reuse(self, spare: Path, path: Path) -> int:
        """Opens a spare under its new name."""
        if path.exists():
            raise FileExistsError(f"{path} is there already")
        descriptor = os.open(spare, os.O_WRONLY)
        try:
            spare.rename(path)
        except OSError:
            os.close(descriptor)
            raise
        assert self._spares is not None
        self._spares.remove(spare)
        return descriptor

    def _descriptor(self, number: int) -> int:
        if self._open is None or self._open[0] != number:
            raise OSError(f"file {number} is not the one being written")
        return self._open[1]

    def _write(self, number: int, position: int, buffers: Sequence[bytes]) -> None:
        descriptor = self._descriptor(number)
        views = [memoryview(buffer) for buffer in buffers if len(buffer)]
        at = 0
        while at < len(views):
            written = os.pwritev(descriptor, views[at : at + _MOST_BUFFERS], position)
            position += written
            while at < len(views) and written >= len(views[at]):
                written -= len(views[at])
                at += 1
            if written:
                views[at] = views[at][written:]
        os.fdatasync(descriptor)

    def _read_part(self, number: int, position: int, length: int) -> bytes:
        with self._path(number).open("rb") as file:
            file.seek(position)
            return file.read(length)

    def _cut(self, number: int, size: int) -> None:
        descriptor = os.open(self._path(number), os.O_WRONLY)
        try:
            os.ftruncate(descriptor, size)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _remove(self, number: int) -> None:
        path = self._path(number)
        if self._spares is not None and len(self._spares) < self._most_spares and path.exists():
            spare = path.with_suffix(_SPARE)
            path.rename(spare)
            self._spares.append(spare)
        else:
            path.unlink(missing_ok=True)
        self._sync_folder()

    def _sync_folder(self) -> None:
        descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _open_new(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
