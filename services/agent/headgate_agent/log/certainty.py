"""What an agent knows of its own session: that it lives, that it has ended, or neither.

A session that was not renewed in time is in doubt for a while: the coordinator may be on its way back, and then it has
lived on. In doubt nothing is promised and nothing is given up; who asks waits. After that it is taken for ended.
"""

from __future__ import annotations

from collections.abc import Callable

from headgate_agent.log.world import Session
from headgate_common.clock import Clock


class Certainty:
    def __init__(self, member: Session, clock: Clock, doubt: Callable[[], float]) -> None:
        """`doubt` is for how long a session that was not renewed in time may live on, in seconds."""
        self._member, self._clock, self._doubt = member, clock, doubt

    @property
    def session(self) -> str | None:
        """While it certainly lives."""
        return self._member.session

    def in_doubt(self, session: str | None) -> bool:
        """Whether that session was not renewed in time, and may live on all the same."""
        if self._member.session is not None or not session or self._member.known != session:
            return False
        return self._left > 0

    async def settled(self) -> None:
        """Returns when this agent's session is not in doubt, at once if it is not now."""
        while self.in_doubt(self._member.known):
            await self._member.news(self._left)

    @property
    def _left(self) -> float:
        """Seconds until it is taken for ended."""
        return self._member.valid_until + self._doubt() - self._clock.monotonic()
