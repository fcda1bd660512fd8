"""Runs seeds in several processes. A seed's result does not depend on which process runs it, nor on what ran before."""

from __future__ import annotations

import gc
import multiprocessing
import threading
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass

from headgate_simulation.generate import generate
from headgate_simulation.world import Failure, run

# Seeds that a process takes at a time, and that wait for each process at most.
CHUNK = 4
WAITING = 32
# Seeds that are run before processes are made, so that each begins with all that a run imports, compiles and caches.
WARM = range(1, 5)
# What a run leaves behind, some 2 MB, is not collected: a process gives way to a new one after so many chunks, which
# copies some 60 MB of what it was forked with.
CHUNKS = 16


@dataclass(frozen=True, slots=True)
class Outcome:
    seed: int
    digest: str
    simulated: float
    failure: Failure | None


def run_seed(seed: int) -> Outcome:
    result = run(generate(seed))
    return Outcome(seed, result.digest, result.simulated, result.failure)


def warm_up() -> None:
    """Then what is there already is kept out of collections, and out of the copies that these would make of it."""
    for seed in WARM:
        run(generate(seed))
    gc.collect()
    gc.freeze()


def run_seeds(seeds: Iterable[int], jobs: int) -> Generator[Outcome, None, None]:
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

    warm_up()
    with multiprocessing.get_context("fork").Pool(jobs, gc.disable, maxtasksperchild=CHUNKS) as pool:
        try:
            for outcome in pool.imap_unordered(run_seed, handed_out(), chunksize=CHUNK):
                room.release()
                yield outcome
        finally:
            over = True
            room.release()
