"""The agent's data folder: whose it is, and that one process at a time uses it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headgate_agent.errors import DATA_IN_USE
from headgate_common.errors import HeadgateError
from headgate_common.ids import Ids


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
    path = folder / "volume"
    if path.exists() and (known := path.read_text().strip()):
        return known
    made = ids.uid("volume")
    draft = folder / "volume.new"
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(file, f"{made}\n".encode())
        os.fsync(file)
    finally:
        os.close(file)
    draft.replace(path)
    return made
