"""Memory for answers of fetches, over all clients: from when records are read until their client has taken them. The
Kafka port and the gRPC services have one each.

Contract: what is held stays within the limit, but for the rest of a batch of each answer. A fetch gets at most half of
what is free, so that large answers leave room for others, and waits in line where that would be too little to be worth
reading. One that is alone always gets something, however small the limit is: so something is always sent, and gives
memory back. Whoever takes its answer slowly while others wait is cut off by whoever sends it (`Connection.sweep`,
`answers.StreamRoom`). Belongs to one event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

DEFAULT_BYTES = 256 << 20
# Less is not worth a read, and a batch of the usual size would not fit.
DEFAULT_LEAST = 1 << 20


@dataclass(slots=True, eq=False)
class _Waiting:
    share: Share
    wanted: int
    granted: asyncio.Future[int]


class AnswerMemory:
    def __init__(self, limit: int, least: int = DEFAULT_LEAST) -> None:
        """A read of fewer bytes than `least` waits for more room."""
        self._limit, self._least = limit, least
        self._line: deque[_Waiting] = deque()
        self.used = 0

    @property
    def contended(self) -> bool:
        """Whether somebody waits for what others hold."""
        return bool(self._line)

    def share(self) -> Share:
        """For one answer; nothing is taken yet."""
        return Share(self)

    async def _take(self, share: Share, wanted: int) -> int:
        granted = self._grant(share, wanted) if not self._line else 0
        if granted:
            return granted
        waiting = _Waiting(share, wanted, asyncio.get_running_loop().create_future())
        self._line.append(waiting)
        try:
            return await waiting.granted
        except asyncio.CancelledError:
            if waiting in self._line:
                self._line.remove(waiting)
                self._wake()
            elif not waiting.granted.cancelled():
                # It gave up in the moment in which it was granted.
                self._keep(share, share.size - waiting.granted.result())
            raise

    def _grant(self, share: Share, wanted: int) -> int:
        """How much it may read now, which is then taken; 0 if it must wait."""
        wanted = max(wanted, 1)
        free = self._limit - self.used
        if self.used > share.size and free < min(wanted, self._least):
            return 0
        granted = min(wanted, max(free // 2, self._least))
        self._hold(share, share.size + granted)
        return granted

    def _keep(self, share: Share, size: int) -> None:
        self._hold(share, size)
        self._wake()

    def _hold(self, share: Share, size: int) -> None:
        self.used += size - share.size
        share.size = size

    def _wake(self) -> None:
        while self._line:
            first = self._line[0]
            if not first.granted.done():
                granted = self._grant(first.share, first.wanted)
                if not granted:
                    return
                first.granted.set_result(granted)
            self._line.popleft()


class Share:
    """`access.AnswerRoom`: what one answer takes. Whoever has it gives it back with `release`."""

    __slots__ = ("_memory", "size")

    def __init__(self, memory: AnswerMemory) -> None:
        self._memory = memory
        self.size = 0

    @property
    def contended(self) -> bool:
        """Whether others wait for what is held."""
        return any(waiting.share is not self for waiting in self._memory._line)

    async def take(self, wanted: int, within: float | None = None) -> int:
        async with asyncio.timeout(within):
            return await self._memory._take(self, wanted)

    def keep(self, size: int) -> None:
        self._memory._keep(self, size)

    def release(self) -> None:
        self.keep(0)
