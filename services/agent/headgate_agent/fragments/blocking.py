"""Work that would hold up the event loop: reading and writing files, decoding blocks.

Contract of `Blocking`: `run` gives what `work` gives, and does not return before `work` has ended, not even when it is
cancelled: whoever cancels may close what `work` was using.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

T = TypeVar("T")


class Blocking(Protocol):
    async def run(self, work: Callable[[], T]) -> T: ...


class Inline:
    """On the event loop itself: for the simulator, which has no threads, and for tests."""

    async def run(self, work: Callable[[], T]) -> T:
        return work()


class Threads:
    """In a few threads, for production."""

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="fragments")

    async def run(self, work: Callable[[], T]) -> T:
        future = asyncio.get_running_loop().run_in_executor(self._pool, work)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            await asyncio.wait((future,))
            raise

    def close(self) -> None:
        self._pool.shutdown(wait=True)
