"""How long to wait before trying again."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential with full jitter and a cap.

    The delay before retry `attempt` (0 is the first) is uniform between nothing and `initial * factor ** attempt`,
    which never exceeds `cap`: many callers that failed together do not come back together.
    """

    initial: float = 0.1
    cap: float = 10.0
    factor: float = 2.0

    def __post_init__(self) -> None:
        if self.initial <= 0 or self.cap < self.initial or self.factor < 1:
            raise ValueError("a back-off needs 0 < initial <= cap and factor >= 1")

    def ceiling(self, attempt: int) -> float:
        """The longest that the delay before this retry can be."""
        delay = self.initial
        for _ in range(attempt):
            if delay >= self.cap or self.factor == 1:
                break
            delay *= self.factor
        return min(delay, self.cap)

    def delay(self, attempt: int, source: random.Random) -> float:
        return source.uniform(0.0, self.ceiling(attempt))
