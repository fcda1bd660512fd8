"""Bugs planted into watches, grants and answers, in the manner of `planted.py`, and hunted in plans with queries."""

from __future__ import annotations

from headgate_simulation.planted import Edit, Planted

_WATCH = "headgate_coordinator.catalog.watch"
_CHANGES = "headgate_coordinator.catalog.changes"
_QUERIES = "headgate_coordinator.catalog.queries"
_SESSIONS = "headgate_coordinator.catalog.sessions"

PLANTED: tuple[Planted, ...] = (
    Planted(
        "an event tells what is now as what was before",
        "whoever compares the two sees no change",
        (
            Edit(
                f"{_WATCH}:_event",
                "_fill(event.previous, kind, before)",
                "_fill(event.previous, kind, after or before)",
            ),
        ),
    ),
    Planted(
        "a watch that resumes tells of later content",
        "what is read from the history together has the content of the last of it",
        (
            Edit(
                f"{_CHANGES}:history",
                "changes.append(Change(row.kind, row.name, row.uid, before, after_message))",
                "[object.__setattr__(c, 'after', after_message) for _, cs, _ in found.values() for c in cs "
                "if c.uid == row.uid and after_message]; "
                "changes.append(Change(row.kind, row.name, row.uid, before, after_message))",
            ),
        ),
    ),
    Planted(
        "a bookmark takes the place of an event",
        "what comes after a silence is passed over, and whoever resumes from there never hears of it",
        (
            Edit(
                f"{_WATCH}:WatchHub._follow",
                "if response is None and self._clock.monotonic() - sent >= settings.bookmark_interval:",
                "if self._clock.monotonic() - sent >= settings.bookmark_interval / 2:",
            ),
        ),
    ),
    Planted(
        "a list tells an earlier revision than it is of",
        "whoever watches from there is told again of what it has",
        (Edit(f"{_QUERIES}:list_queries", "revision=tx.revision", "revision=max(1, tx.revision - 1)"),),
    ),
    Planted(
        "a snapshot leaves out what is to be dropped",
        "whoever compares it with what runs takes that for left over",
        (
            Edit(
                "headgate_coordinator.catalog.snapshot:read_kinds",
                "yield kind, message",
                'yield from [(kind, message)] if getattr(message, "desired_state", 0) != 3 else []',
            ),
        ),
    ),
    Planted(
        "a grant that passes on keeps its epoch",
        "requests of the one who had it before count as those of the one who has it",
        (Edit(f"{_SESSIONS}:_pass_on", "epoch = max(grant.epoch, above) + 1", "epoch = max(grant.epoch, above)"),),
    ),
    Planted(
        "a stop is accepted and forgotten",
        "its client is told that it is done, and nothing has changed",
        (
            Edit(
                f"{_QUERIES}:stop_query",
                'return _ask(tx, row, desired, mode, drain_us, f"{mode.lower()} stop asked for")',
                "return messages(tx, [row])[0]",
            ),
        ),
    ),
)
