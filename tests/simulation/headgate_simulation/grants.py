"""Grants of every kind, after every commit: whoever has one acts in an epoch that nobody else ever has.

The epoch of a key only grows, and whenever the grant goes to a session it is a new one. What was deleted may begin
anew, but never in an epoch and for a session that it had before: requests of that time may still be on their way.
"""

from __future__ import annotations

from headgate_simulation.database import FastDatabase
from headgate_simulation.violation import fail

# An epoch, and the session that has it, if one has.
Held = tuple[int, str | None]
_GRANTS = "SELECT kind, key, epoch, session_uid FROM grants"


class Grants:
    def __init__(self, database: FastDatabase) -> None:
        self._raw = database.raw
        self._writes = database.writes
        self._seen = -1
        self._rows: list[tuple[str, str, int, str | None]] = []
        # By kind and key: the epoch and the session of those that are there.
        self.known: dict[tuple[str, str], Held] = {}
        # By kind, key and epoch: the one session that had it.
        self._held: dict[tuple[str, str, int], str] = {}
        self._deleted: set[tuple[str, str, int, str]] = set()

    def committed(self) -> None:
        writes = self._writes["grants"]
        if writes == self._seen:
            return
        self._seen = writes
        rows = self._raw.execute(_GRANTS).fetchall()
        if rows == self._rows:
            return
        self._rows = rows
        before, self.known = self.known, {}
        for kind, key, epoch, session in rows:
            self.known[kind, key] = (epoch, session)
            was = before.get((kind, key))
            if was != (epoch, session):
                self._changed(kind, key, was, epoch, session)
        for kind, key in before.keys() - self.known.keys():
            for number in range(1, before[kind, key][0] + 1):
                held = self._held.pop((kind, key, number), None)
                if held is not None:
                    self._deleted.add((kind, key, number, held))

    def _changed(self, kind: str, key: str, was: Held | None, epoch: int, session: str | None) -> None:
        told = f"{kind} {key} was {was}, and is {(epoch, session)}"
        if was is not None and epoch < was[0]:
            fail("epochs only grow", told, (key,))
        if session is None:
            return
        if was is not None and epoch == was[0]:
            fail("a grant that passes on has a new epoch", told, (key,))
        other = self._held.setdefault((kind, key, epoch), session)
        if other != session:
            fail("one session has an epoch", f"{told}; {other} had it before", (key,))
        if (kind, key, epoch, session) in self._deleted:
            fail("what was deleted begins anew", told, (key,))
