"""The catalog as it was at each revision, to hold against what clients read of it.

A list and a snapshot name the revision that they are of. They must be exactly what was committed up to it, and it must
have been the last one at some moment between the question and the answer.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from headgate_simulation.plan import Operation
from headgate_simulation.store import Commit
from headgate_simulation.violation import fail


class Reads:
    def __init__(self) -> None:
        self.revision = 0
        self._changes: list[tuple[int, str, str, Any]] = []

    def committed(self, commit: Commit) -> None:
        if commit.revision is not None:
            self.revision = commit.revision.number
            self._changes += [(self.revision, c.kind, c.uid, c.after) for c in commit.revision.changes]

    def check(self, operation: Operation, since: int, response: Any) -> None:
        """`since` is the revision at which the operation began."""
        if not since <= response.revision <= self.revision:
            text = f"{operation} read revision {response.revision}, the last ones were {since} to {self.revision}"
            fail("reads are linearizable", text, (operation.id,))
        if operation.kind == "list_queries":
            expected, told = self._at(response.revision, ("QUERY",)), [(("QUERY", q.uid), q) for q in response.queries]
        else:
            expected, told = self._at(response.revision), [_resource(resource) for resource in response.resources]
        if len(told) != len(expected) or dict(told) != expected:
            found = dict(told)
            wrong = sorted(key for key in expected.keys() | found.keys() if expected.get(key) != found.get(key))
            text = f"{operation} read of revision {response.revision} what it was not: {wrong[:5]}"
            fail("reads are linearizable", text, (operation.id, *(uid for _, uid in wrong)))

    def _at(self, revision: int, kinds: Collection[str] = ()) -> dict[tuple[str, str], Any]:
        found: dict[tuple[str, str], Any] = {}
        for number, kind, uid, after in self._changes:
            if number > revision:
                break
            if not kinds or kind in kinds:
                found[kind, uid] = after
        return {key: message for key, message in found.items() if message is not None}


def _resource(resource: Any) -> tuple[tuple[str, str], Any]:
    kind = resource.WhichOneof("resource")
    message = getattr(resource, kind)
    uid = f"{message.topic_uid}/{message.index}" if kind == "partition" else message.uid
    return (kind.upper(), uid), message
