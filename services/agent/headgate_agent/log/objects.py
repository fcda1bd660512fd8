"""The object store, as the log uses it.

Contract: `create` returns when the object is durable under its key, or raises: `ObjectExists` if the key is taken (and
then the object that is there is untouched), `ObjectStoreFailed` otherwise, and then it may be there or not. An object
is never changed once it is there. `read` answers exactly the bytes asked for, or raises `ObjectMissing` or
`ObjectStoreFailed`. `find` is for looking for orphans, and for stages that a commit names, never for deciding what a
topic holds: that is the catalog's.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


class ObjectExists(Exception):
    """The key is taken."""


class ObjectMissing(Exception):
    """There is no such object."""


class ObjectStoreFailed(Exception):
    """The store did not do it, or did not say whether it did."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    key: str
    size: int
    modified: datetime


class Objects(Protocol):
    async def create(self, key: str, buffers: Sequence[bytes]) -> None: ...

    async def read(self, key: str, start: int, length: int) -> bytes: ...

    async def delete(self, key: str) -> None: ...

    def find(self, prefix: str) -> AsyncIterator[StoredObject]: ...
