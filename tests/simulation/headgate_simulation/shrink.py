"""Makes a failing plan smaller, as long as it fails in the same way.

Delta debugging over operations and faults: take out halves, then quarters, and so on down to single ones. Whatever is
taken out leaves the rest of the plan, and the random numbers everything else draws, as they were.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from headgate_simulation.plan import Plan

# How long to look for a smaller plan, in seconds.
PATIENCE = 60.0


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The smallest plan that was found; `gave_up` if time was up before all was tried."""

    plan: Plan
    runs: int
    gave_up: bool


def shrink(
    plan: Plan,
    still_fails: Callable[[Plan], bool],
    patience: float = PATIENCE,
    now: Callable[[], float] = time.monotonic,
) -> Shrunk:
    """`plan` itself fails. No run begins after `patience` seconds."""
    until = now() + patience
    kept = list(plan.ids)
    pieces = 2
    runs = 0
    while len(kept) > 1:
        size = max(1, len(kept) // pieces)
        smaller = None
        for start in range(0, len(kept), size):
            if now() >= until:
                return Shrunk(plan.keep(kept), runs, gave_up=True)
            rest = kept[:start] + kept[start + size :]
            runs += 1
            if still_fails(plan.keep(rest)):
                smaller = rest
                break
        if smaller is not None:
            kept = smaller
            pieces = max(2, pieces - 1)
        elif size == 1:
            break
        else:
            pieces = min(len(kept), pieces * 2)
    return Shrunk(plan.keep(kept), runs, gave_up=False)
