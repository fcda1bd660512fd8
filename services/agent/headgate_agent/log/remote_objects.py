"""The object store in S3, Google Cloud Storage, Azure or memory, through obstore.

An object is created only if its key is free. A store that answers "conflict" or "precondition failed" may mean the
object of this very attempt, tried before and never answered, or one that is just being written and may yet fail; so
what is there is looked at before the key is called taken.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import obstore
import obstore.store
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

from headgate_agent.log.objects import ObjectExists, ObjectMissing, ObjectStoreFailed, StoredObject
from headgate_common.backoff import Backoff

T = TypeVar("T")

SCHEMES = ("s3", "gs", "az", "memory")
# Internal: a page of a listing, as stores have them.
_LISTED_AT_ONCE = 1000


class RemoteObjects:
    def __init__(self, store: Any) -> None:
        self._store = store

    async def create(self, key: str, buffers: Sequence[bytes]) -> None:
        data = b"".join(buffers)
        try:
            await self._ask(obstore.put_async(self._store, key, data, mode="create", use_multipart=False))
        except (AlreadyExistsError, PreconditionError) as error:
            if await self._size(key) is None:
                raise ObjectStoreFailed(f"{key}: a conflict, and the object is not there: {error}") from error
            raise ObjectExists(key) from error

    async def read(self, key: str, start: int, length: int) -> bytes:
        try:
            data = await self._ask(obstore.get_range_async(self._store, key, start=start, length=length))
        except FileNotFoundError as error:
            raise ObjectMissing(key) from error
        found = bytes(data)
        if len(found) != length:
            raise ObjectStoreFailed(f"{key}: {len(found)} bytes from {start}, not {length}")
        return found

    async def delete(self, key: str) -> None:
        try:
            await self._ask(obstore.delete_async(self._store, key))
        except FileNotFoundError:
            return

    async def find(self, prefix: str) -> AsyncIterator[StoredObject]:
        # The library takes whole folders for a prefix.
        folder = prefix.rpartition("/")[0]
        pages = obstore.list(self._store, prefix=folder or None, chunk_size=_LISTED_AT_ONCE)
        while True:
            page = await self._ask(anext(pages, None))
            if not page:
                return
            for one in page:
                if one["path"].startswith(prefix):
                    yield StoredObject(one["path"], one["size"], one["last_modified"])

    async def _size(self, key: str) -> int | None:
        try:
            return int((await self._ask(obstore.head_async(self._store, key)))["size"])
        except FileNotFoundError:
            return None

    async def _ask(self, call: Awaitable[T]) -> T:
        try:
            return await call
        except (AlreadyExistsError, PreconditionError, FileNotFoundError, asyncio.CancelledError):
            raise
        except (BaseError, OSError) as error:
            # The library's texts run over many lines.
            raise ObjectStoreFailed(str(error).splitlines()[0]) from error


_BACKOFF = Backoff(initial=0.1, cap=2.0)


@dataclass(frozen=True, slots=True)
class StoreTries:
    """How one request to the store is tried, within its time. Times in seconds."""

    connect_timeout: float = 5.0
    # Tries after the first one that failed in a way that may pass, and the waits between them.
    retries: int = 3
    backoff: Backoff = _BACKOFF


def remote_objects(
    url: str, options: Mapping[str, str], timeout: float, tries: StoreTries | None = None
) -> RemoteObjects:
    """The store at `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix` or `memory://`.

    `options` are obstore's for that store (`endpoint`, `region`, `access_key_id`, ...); what is not given comes from
    the environment, as usual for that cloud. Raises ValueError for one that is unknown.
    """
    tries = tries or StoreTries()
    if url.startswith("memory:"):
        return RemoteObjects(obstore.store.MemoryStore())
    client: dict[str, Any] = {
        "timeout": timedelta(seconds=timeout),
        "connect_timeout": timedelta(seconds=min(timeout, tries.connect_timeout)),
    }
    config = {key: value for key, value in options.items() if key != "allow_http"}
    if options.get("allow_http", "").lower() in ("true", "1", "yes"):
        client["allow_http"] = True
    retries: dict[str, Any] = {
        "max_retries": tries.retries,
        "retry_timeout": timedelta(seconds=timeout),
        "backoff": {
            "init_backoff": timedelta(seconds=tries.backoff.initial),
            "max_backoff": timedelta(seconds=tries.backoff.cap),
            "base": 2,
        },
    }
    try:
        # The overloads of the library want a type for each cloud; which one it is only the URL says.
        make: Any = obstore.store.from_url
        store = make(url, config=config, client_options=client, retry_config=retries)
    except (BaseError, ValueError, TypeError) as error:
        raise ValueError(f"the object store {url} cannot be used: {str(error).splitlines()[0]}") from error
    return RemoteObjects(store)
