"""Runs seeds in several processes. A seed's result does not depend on which process runs it, nor on what ran before."""

from __future__ import annotations

import gc
import multiprocessing
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from headgate_simulation.generate import generate
from headgate_simulation.world import Failure, run

# Seeds that a process takes at a time, and that wait for each process at most.
CHUNK = 4
WAITING = 32
# Everything that imports leave behind is kept out of later collections after so many runs, ...
WARM = 4
# ... and what runs leave behind is collected after so many, not while one goes on.
COLLECT_EVERY = 16


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
    elif _runs % COLLECT_EVERY == 0:
        gc.collect()
    return Outcome(seed, result.digest, result.simulated, result.failure)


def run_seeds(seeds: Iterable[int], jobs: int) -> Iterator[Outcome]:
    """Outcomes in no particular order. `seeds` may be without an end: whoever has seen enough closes this."""
    if jobs <= 1:
        yield from map(run_seed, seeds)
        return
    room = threading.Semaphore(jobs * WAITING)
    over = False

    def handed_out() -> Iterator[int]:
        # The pool asks from a thread of its own, as fast as it can.
        for seed in seeds:
            room.acquire()
            if over:
                return
            yield seed

    with multiprocessing.get_context("fork").Pool(jobs, gc.disable) as pool:
        try:
            for outcome in pool.imap_unordered(run_seed, handed_out(), chunksize=CHUNK):
                room.release()
                yield outcome
        finally:
            over = True
            room.release()
