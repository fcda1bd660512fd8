"""Whether a partition is still led here, as those who ask must know it, and waiting for what happens to it.

Contract: once it is lost it stays lost, and everyone who waits is told why. While the session may or may not live on
nothing is certain: what is taken meanwhile counts only if it turns out to have lived on. Belongs to one event loop.
"""

from __future__ import annotations

from collections.abc import Callable

from headgate_agent.log.contract import Grant, NotLeader
from headgate_common.signals import Signal


class Tenure:
    def __init__(self, name: str, grant: Grant, ended: Callable[[], None]) -> None:
        """`ended` is called each time that it is said to be lost, before those who wait are told."""
        self._name, self._grant, self._ended = name, grant, ended
        # Why it is no longer led here; None while it is.
        self.lost: str | None = None
        self._lost_as: type[NotLeader] = NotLeader
        self._sealed: str | None = None
        self._changed = Signal()

    @property
    def leads(self) -> bool:
        """Whether it is certainly still led here, by this agent's own clock."""
        return self.lost is None and self._grant.valid()

    def lose(self, reason: str, kind: type[NotLeader] = NotLeader) -> None:
        """Ends it: everyone who waits is told with that kind of error, nothing more is answered."""
        if self.lost is None:
            self.lost, self._lost_as = reason, kind
        self._ended()
        self.announce()

    def seal(self, reason: str) -> None:
        """No more records are taken."""
        self._sealed = reason

    def unseal(self) -> None:
        self._sealed = None

    async def certain(self) -> None:
        """Returns when it is certain that it is led here, without waiting if it is now."""
        self.check_grant()
        while not self._grant.valid():
            await self.wait()
            self.check_grant()

    def announce(self) -> None:
        """Something has happened: whoever waits looks."""
        self._changed.set()
        self._changed = Signal()

    async def wait(self) -> None:
        """Returns when something has happened; raises once it is lost."""
        self.check_lost()
        await self._changed.wait()
        self.check_lost()

    async def sleep(self, seconds: float) -> None:
        """Returns when something has happened, or the time is over."""
        await self._changed.wait(seconds)

    def check_lost(self) -> None:
        if self.lost is not None:
            raise self._lost_as(f"{self._name}: {self.lost}")

    def check_open(self) -> None:
        """Raises where no records are taken."""
        self.check_grant()
        if self._sealed is not None:
            raise NotLeader(f"{self._name}: {self._sealed}")

    def check_grant(self) -> None:
        """Raises once it is known not to be led here any more. In doubt it does not: see `certain`."""
        self.check_lost()
        if self._grant.ended():
            self.lose("the session has ended")
            self.check_lost()
