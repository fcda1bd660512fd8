"""The catalog's time as the leader has itself seen it pass, for what is decided by ages that the catalog recorded.

The catalog's clock may jump. The leader notes it together with its own monotonic clock, and takes for the time what the
lowest of its readings has become since, of those within a window: a jump forward counts only once it has lasted for the
window, a jump back at once. What is then too old was recorded before the jump and was not touched after it. A leader
that has not looked for a whole window yet knows no time.
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise

from headgate_common.clock import Clock


class SteadyTime:
    def __init__(self, clock: Clock, longest: float) -> None:
        """`longest` is the longest window that is asked for, in seconds."""
        self._clock = clock
        self._longest = longest
        # When it was looked, by the monotonic clock, and how far the catalog's was ahead of that, in microseconds.
        self._readings: deque[tuple[float, int]] = deque()

    def see(self, now: int) -> None:
        """The catalog's clock says `now`, in microseconds."""
        at = self._clock.monotonic()
        self._readings.append((at, now - _micros(at)))
        while len(self._readings) > 1 and self._readings[1][0] <= at - self._longest:
            self._readings.popleft()

    def read(self, window: float) -> int | None:
        """The time in microseconds; None if the first look was less than `window` seconds ago."""
        now = self._clock.monotonic()
        since = now - window
        if not self._readings or self._readings[0][0] > since:
            return None
        # The last reading before the window is of its beginning.
        within = [ahead for (_, ahead), (until, _) in pairwise(self._readings) if until > since]
        return _micros(now) + min([*within, self._readings[-1][1]])


def _micros(seconds: float) -> int:
    return round(seconds * 1_000_000)
