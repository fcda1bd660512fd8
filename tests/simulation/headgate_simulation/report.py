"""Tells a failure: seed, minimal plan, what broke, and the story of the entities involved."""

from __future__ import annotations

from collections.abc import Iterator

from headgate_simulation.plan import Plan
from headgate_simulation.shrink import shrink
from headgate_simulation.world import Failure, Result, run


def minimal(result: Result, budget: int = 250) -> Result:
    """A run of the smallest plan found that breaks the same invariant."""
    assert result.failure is not None
    invariant = result.failure.invariant

    def still_fails(plan: Plan) -> bool:
        failure = run(plan).failure
        return failure is not None and failure.invariant == invariant

    return run(shrink(result.plan, still_fails, budget))


def tell(result: Result, small: Result | None = None) -> Iterator[str]:
    """Lines for a person. `small` is a run of the minimal plan, where one was looked for."""
    failure = result.failure
    assert failure is not None
    yield f"seed {result.plan.seed} FAILED: {failure.message}"
    yield f"trace {result.digest}, {len(result.trace)} events, {result.simulated:.1f} s simulated"
    told = small if small is not None and small.failure is not None else result
    if told is not result:
        kept = ",".join(told.plan.ids)
        yield f"minimal plan ({len(told.plan.ids)} of {len(result.plan.ids)} operations and faults), replay with"
        yield f"  python -m headgate_simulation --seed {result.plan.seed} --keep {kept}"
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
