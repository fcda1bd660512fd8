"""What is done to a cluster, and undone: each fault strikes one part of it for a while."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """`strike` and `heal` are harmless when repeated."""

    name: str
    strike: Callable[[], None]
    heal: Callable[[], None]
    # How long it lasts, in seconds: from, to.
    lasts: tuple[float, float]

    @property
    def kind(self) -> str:
        """Its name without the number of whom it strikes."""
        return re.sub(r"\d+", "", self.name)


@dataclass(frozen=True, slots=True)
class Stroke:
    """A fault at its time, both in seconds from the start."""

    fault: Fault
    begins: float
    ends: float


def plan(faults: Sequence[Fault], seconds: float, source: random.Random, pause: tuple[float, float]) -> list[Stroke]:
    """Faults one after the other, in an order that visits all of them before any comes again; some overlap."""
    strokes: list[Stroke] = []
    at = source.uniform(*pause)
    while at < seconds:
        for fault in source.sample(list(faults), len(faults)):
            lasts = source.uniform(*fault.lasts)
            if at + lasts > seconds:
                return strokes
            strokes.append(Stroke(fault, at, at + lasts))
            # Now and then the next one strikes while this one lasts.
            at += lasts * (0.5 if source.random() < 0.2 else 1.0) + source.uniform(*pause)
    return strokes
