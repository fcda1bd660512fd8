"""Looks for planted bugs: for each, seeds are run until one fails."""

from __future__ import annotations

import gc
import multiprocessing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headgate_simulation import (
    failure_planted,
    journal_planted,
    log_planted,
    planted,
    store_planted,
    use_planted,
    watch_planted,
)
from headgate_simulation.generate import generate, has_log
from headgate_simulation.planted import Planted, plant
from headgate_simulation.pool import warm_up
from headgate_simulation.world import run

PLANTED: tuple[Planted, ...] = (
    *planted.PLANTED,
    *watch_planted.PLANTED,
    *store_planted.PLANTED,
    *journal_planted.PLANTED,
    *failure_planted.PLANTED,
    *use_planted.PLANTED,
    *log_planted.PLANTED,
)
# A planted bug that takes more seeds than this counts as not found.
WITHIN = 300


@dataclass(frozen=True, slots=True)
class Finding:
    """`seeds` is how many it took; None if it was not found. `how` is what gave it away."""

    name: str
    seeds: int | None
    how: str

    def __str__(self) -> str:
        return f"{'-' if self.seeds is None else self.seeds:>4}  {self.name}: {self.how}"


def hunt(name: str) -> Finding:
    """Seeds from 1 on, with one bug planted, until it is found; of its kind, those with queries or those with a log."""
    bug = next(one for one in PLANTED if one.name == name)
    of_log = bug in log_planted.PLANTED
    try:
        with plant(bug):
            for seed in (seed for seed in range(1, WITHIN + 1) if has_log(seed) == of_log):
                failure = run(generate(seed)).failure
                if failure is not None:
                    return Finding(name, seed, failure.message.splitlines()[0])
    except LookupError as error:
        return Finding(name, None, f"cannot be planted any more: {error}")
    return Finding(name, None, f"not found in {WITHIN} seeds")


def hunt_all(jobs: int, names: Sequence[str] | None = None) -> Iterator[Finding]:
    wanted = [one.name for one in PLANTED] if names is None else list(names)
    warm_up()
    with multiprocessing.get_context("fork").Pool(jobs, gc.disable, maxtasksperchild=1) as pool:
        yield from pool.imap_unordered(hunt, wanted, chunksize=1)
