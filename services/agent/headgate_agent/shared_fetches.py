"""One fetch for all who want the same thing at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class SharedFetches(Generic[K, V]):
    """Makes callers that want the same thing at the same time wait for one fetch. A failure is told to all of them."""

    def __init__(self) -> None:
        self._running: dict[K, asyncio.Task[V]] = {}

    async def get(self, key: K, fetch: Callable[[], Awaitable[V]]) -> V:
        task = self._running.get(key)
        if task is None:
            task = asyncio.ensure_future(self._run(key, fetch))
            task.add_done_callback(_seen)
            self._running[key] = task
        # A caller that gives up leaves the fetch to the others.
        return await asyncio.shield(task)

    def __contains__(self, key: K) -> bool:
        return key in self._running

    def running(self) -> Sequence[asyncio.Task[V]]:
        return tuple(self._running.values())

    async def _run(self, key: K, fetch: Callable[[], Awaitable[V]]) -> V:
        try:
            return await fetch()
        finally:
            del self._running[key]


def _seen(task: asyncio.Task[Any]) -> None:
    """Looks at how it ended, which nobody else does where all who waited have given up."""
    if not task.cancelled():
        task.exception()
