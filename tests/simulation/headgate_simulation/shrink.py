"""Makes a failing plan smaller, as long as it fails in the same way.

Delta debugging over operations and faults: take out halves, then quarters, and so on down to single ones. Whatever is
taken out leaves the rest of the plan, and the random numbers everything else draws, as they were.
"""

from __future__ import annotations

from collections.abc import Callable

from headgate_simulation.plan import Plan


def shrink(plan: Plan, still_fails: Callable[[Plan], bool], budget: int = 250) -> Plan:
    """The smallest plan found within `budget` runs. `plan` itself fails."""
    kept = list(plan.ids)
    pieces = 2
    runs = 0
    while len(kept) > 1 and runs < budget:
        size = max(1, len(kept) // pieces)
        smaller = None
        for start in range(0, len(kept), size):
            rest = kept[:start] + kept[start + size :]
            runs += 1
            if still_fails(plan.keep(rest)):
                smaller = rest
                break
            if runs >= budget:
                break
        if smaller is not None:
            kept = smaller
            pieces = max(2, pieces - 1)
        elif size == 1:
            break
        else:
            pieces = min(len(kept), pieces * 2)
    return plan.keep(kept)
