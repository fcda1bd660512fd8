"""Tells a failure: seed, minimal plan, what broke, and the story of the entities involved."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headgate_simulation.plan import Plan
from headgate_simulation.shrink import PATIENCE, shrink
from headgate_simulation.world import Failure, Result, run


@dataclass(frozen=True, slots=True)
class Minimal:
    """A run of the smallest plan found that breaks the same invariant."""

    result: Result
    # How many smaller plans were tried, and the seconds after which the search was given up; None if all were tried.
    runs: int
    gave_up_after: float | None


def minimal(result: Result, patience: float = PATIENCE) -> Minimal:
    assert result.failure is not None
    invariant = result.failure.invariant

    def still_fails(plan: Plan) -> bool:
        failure = run(plan).failure
        return failure is not None and failure.invariant == invariant

    shrunk = shrink(result.plan, still_fails, patience)
    return Minimal(run(shrunk.plan), shrunk.runs, patience if shrunk.gave_up else None)


def tell(result: Result, small: Minimal | None = None) -> Iterator[str]:
    """Lines for a person. `small` is a run of the minimal plan, where one was looked for."""
    failure = result.failure
    assert failure is not None
    yield f"seed {result.plan.seed} FAILED: {failure.message}"
    yield f"trace {result.digest}, {len(result.trace)} events, {result.simulated:.1f} s simulated"
    if small is None or small.result.failure is None:
        told = result
    else:
        told = small.result
        kept = ",".join(told.plan.ids)
        yield f"minimal plan ({len(told.plan.ids)} of {len(result.plan.ids)} operations and faults), replay with"
        yield f"  python -m headgate_simulation --seed {result.plan.seed} --keep {kept}"
        if small.gave_up_after is not None:
            yield f"(the search was given up after {small.gave_up_after:g} s and {small.runs} runs; --patience sets it)"
        yield str(told.plan)
        assert told.failure is not None
        yield f"it fails with: {told.failure.message}"
    yield "story:"
    yield from (f"  {event}" for event in story(told))


def story(result: Result, last: int = 80) -> list[str]:
    failure = result.failure
    about: set[str] = set()
    if isinstance(failure, Failure):
        about = {name for name in failure.about if name}
    # Whatever concerns the entities, and the faults around them.
    chosen = [
        event
        for event in result.trace
        if not about or event.where in about or about.intersection(event.about) or event.what in _ALWAYS
    ]
    return [str(event) for event in chosen[-last:]]


_ALWAYS = frozenset({"fault", "healed", "crash", "start", "stop", "pause", "resume", "BROKEN"})
