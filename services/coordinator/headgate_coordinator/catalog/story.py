"""The story of a query: every transition of it and of its fragments, with time, cause and revision.

An entry is written in the transaction of what it tells. It is kept while its query exists and for a stated time after
the query was deleted, so it has no foreign key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import delete, select

from headgate.catalog import v1 as catalog
from headgate_coordinator.catalog.schema import story
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.catalog.wire import timestamp


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that happened. `fragment` is 0 for the query itself; an empty state is "not there"."""

    query_uid: str
    query_name: str
    from_state: str
    to_state: str
    cause: str
    fragment: int = 0
    agent: str = ""
    epoch: int = 0


_INSERT = story.insert()


def append(
    tx: Tx,
    query_uid: str,
    query_name: str,
    *,
    cause: str,
    from_state: str = "",
    to_state: str = "",
    fragment: int = 0,
    agent: str = "",
    epoch: int = 0,
) -> None:
    """Adds one entry after those that this transaction has added."""
    append_all(tx, [Entry(query_uid, query_name, from_state, to_state, cause, fragment, agent, epoch)])


def append_all(tx: Tx, entries: Sequence[Entry]) -> None:
    """Adds entries, in order, after those that this transaction has added."""
    if not entries:
        return
    rows = [
        {
            "query_uid": entry.query_uid,
            "revision": tx.revision,
            "ordinal": tx.next_in_story(entry.query_uid),
            "query_name": entry.query_name,
            "time": tx.now,
            "fragment": entry.fragment,
            "from_state": entry.from_state,
            "to_state": entry.to_state,
            "cause": entry.cause,
            "agent": entry.agent,
            "epoch": entry.epoch,
        }
        for entry in entries
    ]
    tx.connection.execute(_INSERT, rows)


def entries_of(tx: Tx, query_uid: str, after: tuple[int, int], limit: int) -> list[tuple[int, catalog.StoryEntry]]:
    """Up to `limit` entries after (revision, ordinal), oldest first, each with its ordinal."""
    revision, ordinal = after
    columns = story.c
    rows = tx.connection.execute(
        select(story)
        .where(
            columns.query_uid == query_uid,
            (columns.revision > revision) | ((columns.revision == revision) & (columns.ordinal > ordinal)),
        )
        .order_by(columns.revision, columns.ordinal)
        .limit(limit)
    )
    return [
        (
            row.ordinal,
            catalog.StoryEntry(
                time=timestamp(row.time),
                revision=row.revision,
                fragment=row.fragment,
                from_state=row.from_state,
                to_state=row.to_state,
                cause=row.cause,
                agent=row.agent,
                epoch=row.epoch,
            ),
        )
        for row in rows
    ]


def known(tx: Tx, query_uid: str) -> bool:
    """Whether there is a story of that query, dropped ones included."""
    found = tx.connection.execute(select(story.c.ordinal).where(story.c.query_uid == query_uid).limit(1)).first()
    return found is not None


def finished(tx: Tx, age: float, limit: int) -> list[str]:
    """Uids of up to `limit` queries that were deleted more than `age` seconds ago: what `forget` may take.

    By the catalog's time: if that jumps, stories are forgotten earlier or later.
    """
    columns = story.c
    found = tx.connection.execute(
        select(columns.query_uid)
        .where(columns.time < tx.now - round(age * 1_000_000), columns.fragment == 0, columns.to_state == "")
        .order_by(columns.time)
        .limit(limit)
    )
    return list(dict.fromkeys(found.scalars()))


def forget(tx: Tx, query_uids: Sequence[str]) -> None:
    """Deletes stories for good."""
    if query_uids:
        tx.connection.execute(delete(story).where(story.c.query_uid.in_(query_uids)))
