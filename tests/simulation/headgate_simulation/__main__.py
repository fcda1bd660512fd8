"""`python -m headgate_simulation`: many seeds, one seed, or without an end.

    --seeds 2000 [--from N] [--jobs 2]   that many seeds
    --seed 7 [--keep o1,f2] [--trace]    one seed, or a part of its plan, with its trace's hash
    --plan FILE [--trace]                a plan that was kept with --save
    (neither)                            until a seed fails

A failing seed is told with a smaller plan, looked for during `--patience` seconds. The last line says `N passed, M
failed`; the exit code is 1 if any failed.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from headgate_simulation.generate import generate
from headgate_simulation.plan import Plan
from headgate_simulation.plan_file import dump, load
from headgate_simulation.pool import Outcome, run_seeds
from headgate_simulation.report import minimal, tell
from headgate_simulation.shrink import PATIENCE
from headgate_simulation.world import run

# Seeds whose failure is told in full; the rest is only counted.
TOLD = 3


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="headgate_simulation", description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, help="how many seeds to run; without it and --seed, until one fails")
    parser.add_argument("--from", dest="first", type=int, default=1, help="the first seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes to run them in")
    parser.add_argument("--seed", type=int, help="replay one seed")
    parser.add_argument("--keep", default="", help="with --seed: only these operations and faults of its plan")
    parser.add_argument("--plan", type=Path, metavar="FILE", help="replay a plan that was kept")
    parser.add_argument("--save", type=Path, metavar="FILE", help="with --seed: keep the plan in a file, for --plan")
    parser.add_argument("--trace", action="store_true", help="with --seed and --plan: print every event")
    parser.add_argument(
        "--patience", type=float, default=PATIENCE, help="seconds to look for a smaller plan; 0 does not look"
    )
    options = parser.parse_args(arguments)
    if options.plan is not None:
        return replay(load(options.plan.read_text())[1], trace=options.trace, patience=options.patience)
    if options.seed is not None:
        plan = generate(options.seed)
        if options.keep:
            plan = plan.keep(options.keep.split(","))
        result = replay(plan, trace=options.trace, patience=0 if options.keep else options.patience)
        if options.save is not None:
            options.save.write_text(dump(plan, "say here what was wrong"))
        return result
    if options.seeds is not None:
        return many(range(options.first, options.first + options.seeds), options.jobs, options.patience)
    return endless(options.first, options.jobs, options.patience)


def replay(plan: Plan, *, trace: bool, patience: float) -> int:
    result = run(plan)
    if trace:
        for event in result.trace:
            say(str(event))
    if result.failure is not None:
        small = minimal(result, patience) if patience > 0 else None
        for line in tell(result, small):
            say(line)
    say(
        f"seed {plan.seed} trace {result.digest} {len(result.trace)} events, {result.commits} commits, "
        f"{result.calls} calls, {result.simulated:.1f} s simulated"
    )
    say(f"{int(result.failure is None)} passed, {int(result.failure is not None)} failed")
    return int(result.failure is not None)


def many(seeds: range, jobs: int, patience: float) -> int:
    failed: list[int] = []
    began = time.monotonic()
    done = 0
    for outcome in progress(run_seeds(seeds, jobs), began, len(seeds)):
        done += 1
        if outcome.failure is not None:
            failed.append(outcome.seed)
            say(f"seed {outcome.seed} FAILED: {outcome.failure.message.splitlines()[0]}")
    took = time.monotonic() - began
    # When the pool is gone: a process that is forked while SQLite is at work here waits for ever for a lock of it.
    for seed in failed[:TOLD]:
        tell_seed(seed, patience)
    say(f"{done / max(took, 1e-9):.1f} seeds/s")
    if failed:
        say(f"failed: {' '.join(map(str, sorted(failed)))}")
    say(f"{done - len(failed)} passed, {len(failed)} failed")
    return int(bool(failed))


def endless(first: int, jobs: int, patience: float) -> int:
    with closing(run_seeds(itertools.count(first), jobs)) as outcomes:
        passed, seed = _first_failure(progress(outcomes, time.monotonic(), None))
    # Not beside the pool: see `many`.
    tell_seed(seed, patience)
    say(f"{passed} passed, 1 failed")
    return 1


def _first_failure(outcomes: Iterator[Outcome]) -> tuple[int, int]:
    """How many passed before it, and its seed."""
    for passed, outcome in enumerate(outcomes):
        if outcome.failure is not None:
            return passed, outcome.seed
    raise AssertionError("seeds have no end")


def tell_seed(seed: int, patience: float) -> None:
    result = run(generate(seed))
    if result.failure is None:
        say(f"seed {seed} FAILED before, and passes when run alone: the simulation itself is not deterministic")
        return
    for line in tell(result, minimal(result, patience) if patience > 0 else None):
        say(line)


def progress(outcomes: Iterator[Outcome], began: float, total: int | None) -> Iterator[Outcome]:
    """Passes outcomes on, with a line every few seconds on a terminal, every half minute elsewhere."""
    every = 2.0 if sys.stderr.isatty() else 30.0
    last = began
    for number, outcome in enumerate(outcomes, 1):
        yield outcome
        now = time.monotonic()
        if now - last >= every:
            last = now
            of = "" if total is None else f" of {total}"
            print(f"{number}{of} seeds, {number / (now - began):.1f} seeds/s", file=sys.stderr, flush=True)


def say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
