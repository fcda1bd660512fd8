"""A query fails for a reason that is true.

What a failure says must have happened: a run that broke for good, an agent that refused a fragment, a deadline that has
passed, an agent that was declared gone. What passes by itself (a call without an answer, a process that was restarted,
a run that broke and can be tried again) is no reason.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headgate.catalog import v1 as catalog
from headgate_coordinator.catalog.inline import InlineDatabase
from headgate_simulation.truth import Truth
from headgate_simulation.violation import fail

if TYPE_CHECKING:
    from headgate_simulation.invariants import Mirror

INVARIANT = "a failure is true"
# What clocks that count the same seconds may differ by in their sums.
_ROUNDING = 1e-6


class Failures:
    """`now` is true time, in seconds."""

    def __init__(self, database: InlineDatabase, mirror: Mirror, truth: Truth, now: Callable[[], float]) -> None:
        self._database, self._mirror, self._truth, self._now = database, mirror, truth, now
        # When each query was created, or was RUNNING for the last time.
        self._not_running_since: dict[str, float] = {}
        self._dropped: set[str] = set()

    def dropped(self, agent: str) -> None:
        """An agent was declared gone for good. Another may have its name later."""
        self._dropped.add(agent)

    def changed(self, before: Any, after: Any) -> None:
        """A query was changed or created."""
        running = catalog.QUERY_STATE_RUNNING
        if before is None or (before.state == running) != (after.state == running):
            self._not_running_since[after.uid] = self._now()
        reason = after.failure.reason
        if before is None or not reason or before.failure.reason == reason:
            return
        about = (after.name, after.uid)
        fragment = next(
            (one for one in self._mirror.fragments(after.uid) if one.ordinal == after.failure.fragment), None
        )
        told = f"query {after.name} failed with {reason} ({after.failure.message})"
        match reason:
            case "FRAGMENT_FAILED":
                if fragment is None or (fragment.uid, fragment.epoch) not in self._truth.broken:
                    fail(INVARIANT, f"{told}, and that run has not broken for good", about)
            case "FRAGMENT_REFUSED":
                if fragment is None or fragment.uid not in self._truth.refused:
                    fail(INVARIANT, f"{told}, and no agent has refused it", about)
            case "DEPLOYMENT_DEADLINE_EXCEEDED":
                waited, allowed = self._now() - self._not_running_since[after.uid], self._deadline(after.uid)
                if waited < allowed - _ROUNDING:
                    fail(INVARIANT, f"{told} after {waited:.3f} s of {allowed:g} s", about)
            case "AGENT_GONE":
                if fragment is None or fragment.agent not in self._dropped:
                    fail(INVARIANT, f"{told}, and nobody has dropped that agent", about)
            case _:
                fail(INVARIANT, f"{told}, which nothing here can be a reason for", about)

    def _deadline(self, uid: str) -> float:
        rows = self._database.raw.execute("SELECT deployment_deadline_us FROM queries WHERE uid = ?", (uid,))
        return float(rows.fetchone()[0]) / 1e6
