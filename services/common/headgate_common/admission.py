"""How much a server takes on at once.

Contract: at most `running` calls are inside, at most `waiting` more stand in line and enter in order of arrival, and
the next is turned away at once: the line is bounded, so overload shows as quick refusals, not as growing delay. A
caller that gives up while it waits leaves the line and costs nothing. Belongs to one event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque


class Full(Exception):
    """The line is as long as it may be."""


class Admission:
    def __init__(self, running: int, waiting: int) -> None:
        self._limit = running
        self._line_limit = waiting
        self._running = 0
        self._line: deque[asyncio.Future[None]] = deque()

    @property
    def running(self) -> int:
        return self._running

    @property
    def waiting(self) -> int:
        return len(self._line)

    def full(self) -> bool:
        return self._running >= self._limit and len(self._line) >= self._line_limit

    async def enter(self) -> None:
        """Returns inside, to be followed by `leave`; or raises `Full` without waiting."""
        if self._running < self._limit:
            self._running += 1
            return
        if len(self._line) >= self._line_limit:
            raise Full
        turn = asyncio.get_running_loop().create_future()
        self._line.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                # The place was handed over in the same moment: pass it on.
                self.leave()
            elif turn in self._line:
                self._line.remove(turn)
            raise

    def leave(self) -> None:
        """Hands the place to the first in line, or frees it."""
        while self._line:
            turn = self._line.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._running -= 1
