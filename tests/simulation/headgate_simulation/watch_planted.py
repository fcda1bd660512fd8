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
        (Edit(f"{_WATCH}:_event", "as_resource(kind, before)", "as_resource(kind, after or before)"),),
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
