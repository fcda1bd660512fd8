"""One coordinator at a time on an SQLite file: a lock beside it, which the system releases when the process ends."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from headgate_common.errors import HeadgateError
from headgate_coordinator.errors import CATALOG_UNAVAILABLE


@contextmanager
def exclusive_use(url: str) -> Iterator[bool]:
    """Whether the catalog is this process's alone: True, under the lock, for SQLite; False for a server.

    CATALOG_UNAVAILABLE while another process has the file.
    """
    try:
        parsed = make_url(url)
    except ArgumentError:
        parsed = None
    if parsed is None or parsed.get_backend_name() != "sqlite" or not parsed.database:
        yield False
        return
    path = Path(parsed.database)
    try:
        lock = path.with_name(path.name + ".lock").open("a")
    except OSError as error:
        raise HeadgateError(CATALOG_UNAVAILABLE, f"the catalog {path} cannot be used: {error.strerror}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise HeadgateError(
                CATALOG_UNAVAILABLE,
                f"another coordinator uses the catalog {path}; stop it first, or use Postgres for a standby",
            ) from None
        yield True
