"""Where work is done that would hold up the event loop: compressing and unpacking blocks.

Contract: `run` answers what the job returned, or raises what it raised. A job touches nothing that the event loop
changes meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

T = TypeVar("T")


class Work(Protocol):
    async def run(self, job: Callable[[], T]) -> T: ...


class Inline:
    """At once, on the event loop: for simulation and tests."""

    async def run(self, job: Callable[[], T]) -> T:
        return job()


class Threads:
    """In a few threads of its own; the codecs let go of the interpreter's lock while they work."""

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="log")

    async def run(self, job: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, job)

    def close(self) -> None:
        self._pool.shutdown(wait=True)
