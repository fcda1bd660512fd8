"""A flag that tasks wait for, for ever or for a while.

What `asyncio.Event` under `asyncio.timeout` does, for loops that wait all day: no task is cancelled and nothing is
raised where time runs out, which is what mostly happens to them.
"""

from __future__ import annotations

import asyncio


class Signal:
    """Set until it is cleared. Of one event loop."""

    __slots__ = ("_set", "_waiting")

    def __init__(self) -> None:
        self._set = False
        self._waiting: list[asyncio.Future[bool]] = []

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        for waiter in self._waiting:
            _answer(waiter, True)

    def clear(self) -> None:
        self._set = False

    async def wait(self, seconds: float | None = None) -> bool:
        """Returns when it is set or was set meanwhile, and True; False after so many seconds."""
        if self._set:
            return True
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[bool] = loop.create_future()
        timer = None if seconds is None else loop.call_later(seconds, _answer, waiter, False)
        self._waiting.append(waiter)
        try:
            return await waiter
        finally:
            self._waiting.remove(waiter)
            if timer is not None:
                timer.cancel()


def _answer(waiter: asyncio.Future[bool], was_set: bool) -> None:
    if not waiter.done():
        waiter.set_result(was_set)
