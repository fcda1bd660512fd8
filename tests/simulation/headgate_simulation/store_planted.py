"""Bugs planted into the groups in which operations are committed, as in `planted.py`, for plans with queries."""

from __future__ import annotations

from headgate_simulation.planted import Edit, Planted

_STORE = "headgate_coordinator.catalog.store"
_SQLITE = "headgate_coordinator.catalog.sqlite"
_THREADED = "headgate_coordinator.catalog.threaded"

PLANTED: tuple[Planted, ...] = (
    Planted(
        "what is refused in a group is not taken back",
        "what it had written before it was refused is committed with the others",
        (
            Edit(
                f"{_STORE}:run_group",
                'connection.exec_driver_sql("ROLLBACK TO SAVEPOINT operation")',
                "pass",
            ),
        ),
    ),
    Planted(
        "a commit that failed is told as done",
        "everybody in the group is answered as if it were there",
        (
            Edit(
                f"{_SQLITE}:SqliteStore._commit_group",
                "raise self._failed_commit(error) from error",
                "return done.outcomes",
            ),
        ),
    ),
    Planted(
        "a failure is told to the first of a group",
        "all others are answered as if theirs were there",
        (
            Edit(
                f"{_THREADED}:ThreadedStore._run",
                "outcomes = [Outcome(error=failure) for _ in group]",
                "outcomes = [Outcome(error=failure), *(Outcome() for _ in group[1:])]",
            ),
        ),
    ),
    Planted(
        "a refusal ends its group",
        "what comes after one that is refused is answered and not done",
        (
            Edit(
                f"{_STORE}:run_group",
                "outcome = Outcome(operation(tx), after_commit=tx.after_commit)",
                "outcome = Outcome(None if any(o.error for o in outcomes) else operation(tx), "
                "after_commit=tx.after_commit)",
            ),
        ),
    ),
)
