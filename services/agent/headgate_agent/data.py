"""The agent's data folder: whose it is, of which catalog, and that one process at a time uses it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headgate_agent.errors import CATALOG_MISMATCH, DATA_IN_USE
from headgate_common.errors import HeadgateError
from headgate_common.ids import Ids

_VOLUME = "volume"
_CATALOG = "catalog"


@contextmanager
def own(folder: Path) -> Iterator[None]:
    """Holds the folder, making it if need be, until the process ends. DATA_IN_USE if another process has it."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise HeadgateError(DATA_IN_USE, f"another agent uses {folder}; give each its own with --data") from error
        yield
    finally:
        os.close(lock)


def volume_id(folder: Path, ids: Ids) -> str:
    """The identity of the folder, made when it is first used. Durable before it is told to anybody."""
    known = _kept(folder, _VOLUME)
    if known:
        return known
    made = ids.uid("volume")
    _keep(folder, _VOLUME, made)
    return made


class CatalogMark:
    """Which catalog the data is of: `member.Mark`, in the folder.

    The first catalog that the agent joins is the one, for a folder that has no mark yet; where the object store has one
    already, it is that of the folder too.
    """

    def __init__(self, folder: Path, store: str = "", *, adopt: bool = False) -> None:
        """`store` is the object store's mark; CATALOG_MISMATCH if it is not the folder's. With `adopt` neither counts,
        and the next catalog that the agent joins is the one."""
        self._folder = folder
        known = _kept(folder, _CATALOG)
        if known and store and known != store and not adopt:
            raise HeadgateError(
                CATALOG_MISMATCH,
                f"the data folder {folder} is of catalog {known}, and the object store of {store}: correct `data` or "
                "`log.object_store`, or give both to the catalog that the agent joins with --adopt-catalog",
                metadata={"data": known, "store": store},
            )
        # Empty while it is of none.
        self.uid = "" if adopt else known or store

    def keep(self, uid: str) -> None:
        """The data is of this catalog from now on. Durable when it returns."""
        if uid != _kept(self._folder, _CATALOG):
            _keep(self._folder, _CATALOG, uid)
        self.uid = uid


def _kept(folder: Path, name: str) -> str:
    path = folder / name
    return path.read_text().strip() if path.exists() else ""


def _keep(folder: Path, name: str, text: str) -> None:
    draft = folder / f"{name}.new"
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(file, f"{text}\n".encode())
        os.fsync(file)
    finally:
        os.close(file)
    draft.replace(folder / name)
    # The name is as durable as what stands under it.
    listing = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(listing)
    finally:
        os.close(listing)
