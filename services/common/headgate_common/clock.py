"""The clock that is passed in wherever time matters.

Contract: `monotonic` never jumps and counts through a suspended machine; leases, deadlines and back-off use it and
nothing else. `wall` may jump either way and is only for people to read. Sleeping goes through asyncio, whose loop the
simulator replaces.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol

# Linux counts a suspended machine only here; elsewhere CLOCK_MONOTONIC does.
_MONOTONIC = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    def monotonic(self) -> float: ...

    def wall(self) -> datetime: ...


class SystemClock:
    def monotonic(self) -> float:
        return time.clock_gettime(_MONOTONIC)

    def wall(self) -> datetime:
        return datetime.now(UTC)
