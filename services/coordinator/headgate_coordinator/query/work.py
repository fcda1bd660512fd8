"""What the reconciler remembers of one query on its way, and how it turns that into what a look needs.

Times are seconds on the leader's monotonic clock. Nothing here survives the leader; nothing here needs to.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from headgate_common.backoff import Backoff
from headgate_coordinator.query.advance import Command, Look
from headgate_coordinator.query.answers import Answer
from headgate_coordinator.query.case import Memory
from headgate_coordinator.query.transitions import QUERY_ENDED

# A run that breaks this long after the one before it broke counts as the first again.
STABLE_AFTER = 60.0
# A query that has waited long is looked at more seldom: after this share of the time that it has waited, ...
PATIENCE = 0.1
# ... but never more seldom than this.
MAX_PATIENCE = 60.0


@dataclass(slots=True)
class Work:
    """One query. The dictionaries are by fragment uid where nothing else is said."""

    uid: str
    # When something last changed, and when it was last looked at.
    changed_at: float
    looked_at: float = 0.0
    # Since when it waits for a look; None if it does not.
    dirty_since: float | None = None
    # A look is sure to find something to write: reading first would be in vain.
    sure: bool = False
    looking: asyncio.Task[None] | None = None
    calls: dict[str, tuple[Command, asyncio.Task[None]]] = field(default_factory=dict)
    # What agents answered, to be applied by the next look.
    answers: list[Answer] = field(default_factory=list)
    # Changes up to this revision were seen by the last look.
    revision: int = 0
    # Nothing is left to do, and nothing to wait for.
    settled: bool = False
    # Looks that failed one after the other.
    failures: int = 0
    deploying_since: float | None = None
    draining_since: float | None = None
    # Calls in vain, and until when the next must wait.
    vain: dict[str, int] = field(default_factory=dict)
    back_off: dict[str, float] = field(default_factory=dict)
    # Until when no other agent is looked for.
    no_room: dict[str, float] = field(default_factory=dict)
    # Broken runs, (fragment, epoch), and when they may be replaced.
    broken: dict[tuple[str, int], float] = field(default_factory=dict)
    # How often runs broke lately, and when last.
    breaks: dict[str, tuple[int, float]] = field(default_factory=dict)
    # Runs whose agent accepted the soft stop: (fragment, epoch, incarnation).
    draining: set[tuple[str, int, str]] = field(default_factory=set)

    @property
    def idle(self) -> bool:
        """Whether it can be forgotten."""
        busy = self.calls or self.answers or self.dirty_since is not None or self.looking is not None
        return self.settled and not busy and not self.breaks

    def due(self, now: float, interval: float) -> bool:
        """Whether the periodic look is to look at it."""
        patience = min(MAX_PATIENCE, PATIENCE * (now - self.changed_at))
        return now - self.looked_at >= max(interval, patience)

    def memory(self, now: float, lost: frozenset[str]) -> Memory:
        return Memory(
            deploying_for=None if self.deploying_since is None else now - self.deploying_since,
            draining_for=None if self.draining_since is None else now - self.draining_since,
            backing_off=frozenset(uid for uid, until in self.back_off.items() if until > now),
            may_run_again=frozenset(run for run, at in self.broken.items() if at <= now),
            draining=frozenset(self.draining),
            no_room=frozenset(uid for uid, until in self.no_room.items() if until > now),
            lost=lost,
        )

    def remember(
        self, found: Look, now: float, *, retry: Backoff, search: float, source: random.Random
    ) -> Iterator[float]:
        """Keeps what the next look needs; yields the times at which there will be something to look at."""
        self.looked_at = now
        self.revision = max(self.revision, found.revision)
        self.settled = not found.state or found.state in QUERY_ENDED or found.state == "RUNNING"
        if self.settled:
            yield from self._rest(found, now)
            return
        if found.deployment_deadline is None:
            self.deploying_since = None
        elif self.deploying_since is None:
            self.deploying_since = now
            yield now + found.deployment_deadline
        if found.drain_deadline is None:
            self.draining_since = None
        elif self.draining_since is None:
            self.draining_since = now
            yield now + found.drain_deadline
        yield from self._note_broken(found, now, retry, source)
        for uid in found.no_room:
            if self.no_room.get(uid, 0.0) <= now:
                self.no_room[uid] = now + search * source.uniform(0.5, 1.0)
                yield self.no_room[uid]

    def failed_call(self, fragment: str, now: float, *, retry: Backoff, source: random.Random) -> float:
        """Notes a call in vain; until when the next must wait is the answer."""
        vain = self.vain.get(fragment, 0)
        self.vain[fragment] = vain + 1
        self.back_off[fragment] = until = now + retry.delay(vain, source)
        return until

    def good_call(self, fragment: str) -> None:
        self.vain.pop(fragment, None)
        self.back_off.pop(fragment, None)

    def _rest(self, found: Look, now: float) -> Iterator[float]:
        self.deploying_since = self.draining_since = None
        self.broken, self.back_off, self.vain, self.no_room = {}, {}, {}, {}
        self.draining = set()
        # Whoever runs again may break again at once: how often it did is not forgotten yet.
        recent = {uid: seen for uid, seen in self.breaks.items() if now - seen[1] < STABLE_AFTER}
        self.breaks = recent if found.state == "RUNNING" else {}
        if self.breaks:
            yield now + STABLE_AFTER

    def _note_broken(self, found: Look, now: float, retry: Backoff, source: random.Random) -> Iterator[float]:
        self.broken = {run: at for run, at in self.broken.items() if run in found.broken}
        for run in sorted(found.broken - self.broken.keys()):
            count, last = self.breaks.get(run[0], (0, -STABLE_AFTER))
            count = count + 1 if now - last < STABLE_AFTER else 1
            self.breaks[run[0]] = (count, now)
            self.broken[run] = now + retry.delay(count - 1, source)
            yield self.broken[run]
