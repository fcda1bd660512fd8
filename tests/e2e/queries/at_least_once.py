"""What a query may write that is promised at least once: every row, none other, and again only what a run that was cut
off had begun.

A batch begins when the one before is done, and the next run begins with the batch that the last one did not finish. So
whatever is written again stands together, and each run after the first makes at most one such stretch, or makes one
longer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Stretch:
    """From the first row that came again to the last: the attempts at one batch."""

    first: int
    last: int
    attempts: int


def at_least_once(query: str, found: Sequence[Row], expected: Iterable[Row], runs: int) -> None:
    """`found` is in the order in which it was written; the rows of `expected` are all different. `runs`: of what Spark
    computes."""
    wanted = Counter(expected)
    assert max(wanted.values(), default=1) == 1, f"{query}: what comes once cannot be told from what came again"
    lost, strange = set(wanted) - set(found), set(found) - set(wanted)
    assert not lost, f"{query}: lost {_some(lost)}"
    assert not strange, f"{query}: {_some(strange)} that should not be there"
    repeated = stretches(found)
    again = sum(stretch.attempts - 1 for stretch in repeated)
    assert again < runs, f"{query}: {runs} runs, and batches came again {again} times: {repeated}"


def stretches(rows: Sequence[Row]) -> list[Stretch]:
    """Where rows came again. The last attempt at a batch has all its rows, so that the stretches of two of them, from
    the first time they came to the last, have a place in common."""
    places: dict[Row, list[int]] = {}
    for place, row in enumerate(rows):
        places.setdefault(row, []).append(place)
    found: list[Stretch] = []
    for at in sorted(at for at in places.values() if len(at) > 1):
        one = Stretch(at[0], at[-1], len(at))
        if found and one.first < found[-1].last:
            before = found.pop()
            one = Stretch(before.first, max(before.last, one.last), max(before.attempts, one.attempts))
        found.append(one)
    return found


def _some(rows: set[Row]) -> str:
    return f"{len(rows)} rows such as {sorted(rows, key=str)[:5]}"
