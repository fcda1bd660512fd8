"""How the process is: what GetStatus says of CPU, memory and backlog."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from headgate.catalog import v1 as catalog
from headgate_common.clock import Clock

# Measured over at least this long, in seconds.
_SPAN = 0.5


class Load:
    """Shares of the machine that this process uses, measured between questions."""

    def __init__(self, clock: Clock, backlog: Callable[[], int]) -> None:
        self._clock = clock
        self._backlog = backlog
        self._cores = os.cpu_count() or 1
        self._page = os.sysconf("SC_PAGE_SIZE")
        self._at = clock.monotonic()
        self._used = _cpu_seconds()
        self._cpu = 0.0

    def __call__(self) -> catalog.AgentResources:
        now = self._clock.monotonic()
        if now - self._at >= _SPAN:
            used = _cpu_seconds()
            self._cpu = min(1.0, max(0.0, (used - self._used) / (now - self._at) / self._cores))
            self._at, self._used = now, used
        return catalog.AgentResources(cpu=self._cpu, memory_bytes=self._memory(), backlog=self._backlog())

    def _memory(self) -> int:
        try:
            return int(Path("/proc/self/statm").read_text().split()[1]) * self._page
        except (OSError, IndexError, ValueError):
            return 0


def _cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system
