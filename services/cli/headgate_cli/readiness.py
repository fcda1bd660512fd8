"""Says when processes of a cluster on this machine begin to serve: the engines at first, each one that was replaced."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from grpc_health.v1 import health_pb2

from headgate_cli.connection import Connection
from headgate_cli.layout import Member
from headgate_common.clock import Clock
from headgate_common.errors import HeadgateError

_LOOK_SECONDS = 0.5


async def serves(connection: Connection, address: str) -> bool:
    """Whether the process there says that it should get work."""
    try:
        answer = await connection.call_at(address, "Health.Check", health_pb2.HealthCheckRequest())
    except HeadgateError:
        return False
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


class Readiness:
    """Looks at the health of members until it is cancelled. `pid` tells which process a member is now."""

    def __init__(
        self, connection: Connection, pid: Callable[[Member], int | None], say: Callable[[str], None], clock: Clock
    ) -> None:
        self._connection = connection
        self._pid = pid
        self._say = say
        self._clock = clock

    async def follow(self, members: Iterable[Member], told: Iterable[Member]) -> None:
        """Says once for each process that it serves; not for those that `told` members are now."""
        known = {member.name for member in told}
        await asyncio.gather(*(self._follow(member, told=member.name in known) for member in members))

    async def _follow(self, member: Member, *, told: bool) -> None:
        last = self._pid(member)
        said = last if told else None
        first, since = not told, self._clock.monotonic()
        while True:
            pid = self._pid(member)
            if pid != last and pid is not None:
                last, since = pid, self._clock.monotonic()
            if pid is not None and pid != said and await serves(self._connection, member.address):
                self._say(_line(member, self._clock.monotonic() - since, first=first))
                said, first = pid, False
            await asyncio.sleep(_LOOK_SECONDS)


def _line(member: Member, seconds: float, *, first: bool) -> str:
    how = f"Spark is warm after {seconds:.1f} s" if member.script == "headgate-engine" else "it answers"
    return f"{member.name} is ready{'' if first else ' again'}: {how}"
