"""The object store in a local folder: what the embedded set-up and a single machine use.

An object is written beside its place, synced, and linked into it, which fails if something is there; then the folder is
synced. So an object is whole and durable, or is not there. Work happens in threads, off the event loop.

What a crash left unfinished goes when objects are listed, once it has been seen for long enough by the monotonic clock
of whoever lists. One that is still being written then cannot be linked any more: its writer is told of a failure.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from headgate_agent.log.objects import ObjectExists, ObjectMissing, ObjectStoreFailed, StoredObject
from headgate_common.clock import Clock, SystemClock

T = TypeVar("T")

_UNFINISHED = ".unfinished-"
DEFAULT_UNFINISHED_GRACE = 3600.0


class LocalObjects:
    def __init__(
        self, folder: Path, *, unfinished_grace: float = DEFAULT_UNFINISHED_GRACE, clock: Clock | None = None
    ) -> None:
        """What was unfinished for `unfinished_grace` seconds counts as left by a crash."""
        self._folder = folder.resolve()
        self._unfinished_grace = unfinished_grace
        self._clock = clock or SystemClock()
        # Files that are not finished, and when each was first seen.
        self._unfinished: dict[Path, float] = {}

    async def create(self, key: str, buffers: Sequence[bytes]) -> None:
        await self._run(lambda: self._create(self._path(key), buffers))

    async def read(self, key: str, start: int, length: int) -> bytes:
        return await self._run(lambda: self._read(key, start, length))

    async def delete(self, key: str) -> None:
        await self._run(lambda: self._path(key).unlink(missing_ok=True))

    async def find(self, prefix: str) -> AsyncIterator[StoredObject]:
        for found in await self._run(lambda: self._find(prefix)):
            yield found

    async def _run(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.to_thread(work)
        except OSError as error:
            raise ObjectStoreFailed(str(error)) from error

    def _path(self, key: str) -> Path:
        if not key or key.startswith("/") or ".." in Path(key).parts:
            raise ValueError(f"not a key: {key!r}")
        return self._folder / key

    def _create(self, path: Path, buffers: Sequence[bytes]) -> None:
        made = _make_folders(path.parent)
        unfinished = path.with_name(f"{_UNFINISHED}{secrets.token_hex(8)}")
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.writelines(buffers)
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(unfinished, path)
            except FileExistsError as error:
                raise ObjectExists(str(path.relative_to(self._folder))) from error
        finally:
            unfinished.unlink(missing_ok=True)
        for folder in made:
            _sync_folder(folder)

    def _read(self, key: str, start: int, length: int) -> bytes:
        try:
            with self._path(key).open("rb") as file:
                data = os.pread(file.fileno(), length, start)
        except FileNotFoundError as error:
            raise ObjectMissing(key) from error
        if len(data) != length:
            raise ObjectStoreFailed(f"{key}: {len(data)} bytes from {start}, not {length}")
        return data

    def _find(self, prefix: str) -> list[StoredObject]:
        found: list[StoredObject] = []
        unfinished: list[Path] = []
        within = self._folder / prefix.rpartition("/")[0]
        for path in sorted(within.rglob("*")) if within.is_dir() else ():
            key = path.relative_to(self._folder).as_posix()
            if path.name.startswith(_UNFINISHED):
                unfinished.append(path)
                continue
            if not key.startswith(prefix):
                continue
            try:
                status = path.stat()
            except FileNotFoundError:
                continue
            if path.is_file():
                found.append(StoredObject(key, status.st_size, datetime.fromtimestamp(status.st_mtime, UTC)))
        self._clear(within, unfinished)
        return found

    def _clear(self, within: Path, unfinished: Sequence[Path]) -> None:
        """Removes those that were there for long enough; `unfinished` are all in a folder."""
        now = self._clock.monotonic()
        before = self._unfinished
        self._unfinished = {path: since for path, since in before.items() if not path.is_relative_to(within)}
        for path in unfinished:
            since = before.get(path, now)
            if now - since > self._unfinished_grace:
                with suppress(OSError):
                    path.unlink()
            else:
                self._unfinished[path] = since


def _make_folders(folder: Path) -> list[Path]:
    """Makes a folder and those above it; answers which must be synced: it, and the parents of each new one."""
    missing: list[Path] = []
    at = folder
    while not at.exists():
        missing.append(at)
        at = at.parent
    folder.mkdir(parents=True, exist_ok=True)
    return [folder, *(made.parent for made in missing)]


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
