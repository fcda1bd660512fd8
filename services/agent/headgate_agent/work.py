"""Where work is done that would hold up the event loop: files, compressing and unpacking, decoding.

Contract: `run` answers what the job returned, or raises what it raised. It does not return before a job that has begun
has ended, not even when it is cancelled: whoever cancels may close what the job was using. One that has not begun is
then never done. A job touches nothing that the event loop changes meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Protocol, TypeVar

T = TypeVar("T")


class Work(Protocol):
    async def run(self, job: Callable[[], T]) -> T: ...


class Inline:
    """At once, on the event loop: for simulation and tests."""

    async def run(self, job: Callable[[], T]) -> T:
        return job()


class Threads:
    """In a few threads of its own; codecs and files let go of the interpreter's lock meanwhile."""

    def __init__(self, threads: int, name: str = "work") -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)

    async def run(self, job: Callable[[], T]) -> T:
        submitted = self._pool.submit(job)
        future = asyncio.wrap_future(submitted)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            if not submitted.cancel():
                await _ended(future)
            raise

    def close(self) -> None:
        self._pool.shutdown(wait=True)


async def _ended(future: asyncio.Future[T]) -> None:
    """Returns when nobody waits for it any more and it is over, however often the wait is cancelled."""
    while not future.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait((future,))
    if not future.cancelled():
        # Looked at, so that asyncio does not report it as lost.
        future.exception()
