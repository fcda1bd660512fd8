"""Runs seeds in several processes. A seed's result does not depend on which process runs it, nor on what ran before."""

from __future__ import annotations

import gc
import itertools
import multiprocessing
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from headgate_simulation.generate import generate
from headgate_simulation.world import Failure, run

CHUNK = 8
# Everything that imports leave behind is kept out of later collections after so many runs.
WARM = 4


@dataclass(frozen=True, slots=True)
class Outcome:
    seed: int
    digest: str
    simulated: float
    failure: Failure | None


_runs = 0


def run_seed(seed: int) -> Outcome:
    global _runs  # noqa: PLW0603 (one for each process)
    result = run(generate(seed))
    _runs += 1
    if _runs == WARM:
        gc.collect()
        gc.freeze()
    return Outcome(seed, result.digest, result.simulated, result.failure)


def run_seeds(seeds: Iterable[int], jobs: int) -> Iterator[Outcome]:
    """Outcomes in no particular order."""
    if jobs <= 1:
        yield from map(run_seed, seeds)
        return
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        # `imap` would take an endless sequence whole: hand out a few at a time.
        waiting = iter(seeds)
        while batch := list(itertools.islice(waiting, jobs * CHUNK * 4)):
            yield from pool.imap_unordered(run_seed, batch, chunksize=CHUNK)
