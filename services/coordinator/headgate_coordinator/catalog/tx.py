"""An open transaction of the catalog, as catalog operations see it.

Contract: an operation touches nothing but its `Tx`, and may be run again from the start. `record` notes a change of a
resource for the watch history; the store gives all changes of the operation one revision when it commits. Messages
that were recorded belong to the history from then on: nobody changes them afterwards.

On Postgres an error of the database spoils the transaction up to the last savepoint. An operation that wants to go on
after a foreseen `IntegrityError` wraps the statement in `with tx.connection.begin_nested():`; one that only turns it
into a `HeadgateError` needs no savepoint, because the store gives every operation one of its own.
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
KINDS = (
    "AGENT",
    "NETWORK_LINK",
    "LOGICAL_SOURCE",
    "PHYSICAL_SOURCE",
    "SINK",
    "QUERY",
    "FRAGMENT",
    "TOPIC",
    "PARTITION",
    "TRANSFER",
)
# Those whose names follow Kafka's rule.
LOG_KINDS = ("TOPIC", "PARTITION", "TRANSFER")


@dataclass(slots=True)
class Tx:
    connection: Connection
    # The catalog's time when the transaction began, in microseconds since 1970; for people to read.
    now: int
    # What a write will commit as if it records anything; what a read is of.
    revision: int
    ids: Ids
    # Run by the store after the commit is durable, never if it is rolled back.
    after_commit: list[Callable[[], None]] = field(default_factory=list)
    _recorded: dict[tuple[str, str], Change] = field(default_factory=dict)
    # Entries that were added to stories so far, by the uid of the query.
    _told: dict[str, int] = field(default_factory=dict)

    @property
    def changes(self) -> list[Change]:
        """What was recorded so far, in order."""
        return list(self._recorded.values())

    def next_in_story(self, query_uid: str) -> int:
        """The ordinal of the next entry in a query's story, counted from 0 within this revision."""
        ordinal = self._told.get(query_uid, 0)
        self._told[query_uid] = ordinal + 1
        return ordinal

    def record(self, kind: str, name: str, uid: str, before: Message | None, after: Message | None) -> None:
        """Notes a change. Two changes of one resource in one transaction become one, from first to last."""
        key = (kind, uid)
        earlier = self._recorded.get(key)
        if earlier is None:
            self._recorded[key] = Change(kind, name, uid, before, after)
        elif earlier.before is None and after is None:
            del self._recorded[key]
        else:
            self._recorded[key] = Change(kind, name, uid, earlier.before, after)
