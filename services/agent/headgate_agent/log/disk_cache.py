"""What was read of the object store, on the agent's disk: a cache that may be deleted at any time.

The least recently used ranges go first. A range is written beside its place and renamed into it, so that a process that
dies leaves it whole or not there. Nothing is synced, so a power failure may leave anything under a name: whoever reads
a range checks it, like anything from the object store, and says so if it is damaged. A disk that fails only makes
misses.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")

_UNFINISHED = ".unfinished"


class DiskCache:
    def __init__(self, folder: Path, capacity: int) -> None:
        self._folder = folder
        self._capacity = capacity
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self.size = 0
        self.hits = 0
        self.misses = 0

    async def open(self) -> None:
        """Takes over what an earlier process has left."""
        for name, size in await asyncio.to_thread(self._scan):
            self._sizes[name] = size
            self.size += size
        await self._shrink()

    async def get(self, key: str, start: int, length: int) -> bytes | None:
        name = _name(key, start, length)
        if name not in self._sizes:
            self.misses += 1
            return None
        found = await self._run((self._folder / name).read_bytes)
        if found is None or len(found) != length:
            await self._remove([name])
            self.misses += 1
            return None
        self.hits += 1
        if name in self._sizes:
            self._sizes.move_to_end(name)
        return found

    async def put(self, key: str, start: int, data: bytes) -> None:
        name = _name(key, start, len(data))
        if name in self._sizes or len(data) > self._capacity:
            return
        if await self._run(lambda: self._write(name, data)) is None:
            return
        if name not in self._sizes:
            self._sizes[name] = len(data)
            self.size += len(data)
        await self._shrink()

    async def forget(self, key: str, start: int, length: int) -> None:
        """Drops a range that turned out to be damaged, so that it is read and kept anew."""
        await self._remove([_name(key, start, length)])

    async def _shrink(self) -> None:
        gone: list[str] = []
        left = self.size
        for name, size in self._sizes.items():
            if left <= self._capacity:
                break
            left -= size
            gone.append(name)
        await self._remove(gone)

    async def _remove(self, names: Sequence[str]) -> None:
        for name in names:
            self.size -= self._sizes.pop(name, 0)
        if names:
            await self._run(lambda: self._unlink(names))

    async def _run(self, work: Callable[[], T]) -> T | None:
        try:
            return await asyncio.to_thread(work)
        except OSError as error:
            log.warning("the disk cache fails", extra={"error": str(error)})
            return None

    def _write(self, name: str, data: bytes) -> bool:
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f"{path.name}{_UNFINISHED}")
        draft.write_bytes(data)
        draft.replace(path)
        return True

    def _unlink(self, names: Sequence[str]) -> None:
        for name in names:
            (self._folder / name).unlink(missing_ok=True)

    def _scan(self) -> list[tuple[str, int]]:
        """Name and size of each, the least recently written first."""
        found: list[tuple[float, str, int]] = []
        for folder, _, names in os.walk(self._folder):
            for name in names:
                path = Path(folder) / name
                if name.endswith(_UNFINISHED):
                    path.unlink(missing_ok=True)
                    continue
                status = path.stat()
                found.append((status.st_mtime, path.relative_to(self._folder).as_posix(), status.st_size))
        return [(name, size) for _, name, size in sorted(found)]


def _name(key: str, start: int, length: int) -> str:
    digest = hashlib.sha256(f"{key}\0{start}\0{length}".encode()).hexdigest()
    return f"{digest[:2]}/{digest[2:34]}"
