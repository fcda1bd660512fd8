"""An open transaction of the catalog, as catalog operations see it.

Contract: an operation touches nothing but its `Tx`, and may be run again from the start. `record` notes a change of a
resource for the watch history; the store gives all changes of the transaction one revision when it commits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from google.protobuf.message import Message
from sqlalchemy import Connection

from headgate_common.ids import Ids


@dataclass(frozen=True, slots=True)
class Change:
    """One resource before and after; `None` where it was not, or is no longer. `kind` is a name of `KINDS`."""

    kind: str
    name: str
    uid: str
    before: Message | None
    after: Message | None


# Kinds of resources in the watch history, as ResourceKind names them.
KINDS = ("AGENT", "NETWORK_LINK", "LOGICAL_SOURCE", "PHYSICAL_SOURCE", "SINK", "QUERY", "FRAGMENT")


@dataclass(slots=True)
class Tx:
    connection: Connection
    # The catalog's time when the transaction began, in microseconds since 1970; for people to read.
    now: int
    # What a write will commit as if it records anything; what a read is of.
    revision: int
    ids: Ids
    changes: list[Change] = field(default_factory=list)
    # Run by the store after the commit is durable, never if it is rolled back.
    after_commit: list[Callable[[], None]] = field(default_factory=list)

    def record(self, kind: str, name: str, uid: str, before: Message | None, after: Message | None) -> None:
        """Notes a change. Two changes of one resource in one transaction become one, from first to last."""
        for index, earlier in enumerate(self.changes):
            if earlier.uid == uid and earlier.kind == kind:
                if earlier.before is None and after is None:
                    del self.changes[index]
                else:
                    self.changes[index] = Change(kind, name, uid, earlier.before, after)
                return
        self.changes.append(Change(kind, name, uid, before, after))
