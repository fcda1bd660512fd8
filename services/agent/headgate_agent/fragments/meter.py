"""Rates out of counts that only grow."""

from __future__ import annotations

from collections import deque

from headgate_common.clock import Clock

# Seconds over which a rate is taken.
_WINDOW = 10.0


class Meter:
    """How fast a count grows, over the last few looks at it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._looks: deque[tuple[float, int]] = deque([(clock.monotonic(), 0)])

    def rate(self, count: int) -> float:
        """Looks at the count; answers its growth in a second."""
        now = self._clock.monotonic()
        while len(self._looks) > 1 and now - self._looks[1][0] >= _WINDOW:
            self._looks.popleft()
        since, before = self._looks[0]
        if now > self._looks[-1][0]:
            self._looks.append((now, count))
        return round((count - before) / (now - since), 1) if now > since else 0.0
