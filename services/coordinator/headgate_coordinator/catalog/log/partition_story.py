"""The story of partitions: every change of who leads one, every hand-over and hole, with time, cause and revision.

An entry is written in the transaction of what it tells, and kept for a stated time; it outlives its topic, so it has no
foreign key. What did not change is no entry: an agent that keeps the lead for longer than that has none left.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, delete, func, select, tuple_

from headgate.log import v1 as log
from headgate_coordinator.catalog.log.schema import partition_story as story
from headgate_coordinator.catalog.sessions import batched
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.catalog.wire import AnyRow, number, timestamp

_INSERT = story.insert()
_DELETE = delete(story).where(
    story.c.topic_uid == bindparam("uid_"),
    story.c.revision == bindparam("revision_"),
    story.c.ordinal == bindparam("ordinal_"),
)
_LAST = (
    select(story.c.topic_uid, func.max(story.c.ordinal))
    .where(story.c.topic_uid.in_(bindparam("uids_", expanding=True)), story.c.revision == bindparam("revision_"))
    .group_by(story.c.topic_uid)
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that happened. `event` is the short name of a PartitionEvent."""

    topic_uid: str
    index: int
    event: str
    cause: str
    agent: str = ""
    epoch: int = 0
    # The offsets of a hole.
    from_offset: int = 0
    to_offset: int = 0


def change_of_lead(before: AnyRow, after: AnyRow, cause: str) -> list[Entry]:
    """What a change of a partition's row tells: who stopped leading it, who leads it, or why nobody does."""
    uid, index = after.topic_uid, after.ordinal
    if after.session_uid == before.session_uid:
        if after.session_uid is None and after.waiting != before.waiting:
            return [Entry(uid, index, "WAITING", after.waiting)]
        return []
    entries: list[Entry] = []
    if before.session_uid is not None:
        entries.append(Entry(uid, index, "LEFT", cause, before.leader or "", before.epoch))
    if after.session_uid is not None:
        entries.append(Entry(uid, index, "LED", cause, after.leader or "", after.epoch))
    elif after.waiting != cause:
        entries.append(Entry(uid, index, "WAITING", after.waiting))
    return entries


def append(tx: Tx, entries: Iterable[Entry]) -> None:
    """Adds entries, in order, after those that this transaction has added."""
    added = list(entries)
    if not added:
        return
    last: dict[str, int] = defaultdict(lambda: -1)
    for part in batched({entry.topic_uid for entry in added}):
        found = tx.connection.execute(_LAST, {"uids_": part, "revision_": tx.revision})
        last.update({row[0]: row[1] for row in found})
    rows: list[dict[str, Any]] = []
    for entry in added:
        last[entry.topic_uid] += 1
        rows.append(
            {
                "topic_uid": entry.topic_uid,
                "revision": tx.revision,
                "ordinal": last[entry.topic_uid],
                "time": tx.now,
                "partition_index": entry.index,
                "event": entry.event,
                "agent": entry.agent,
                "epoch": entry.epoch,
                "from_offset": entry.from_offset,
                "to_offset": entry.to_offset,
                "cause": entry.cause,
            }
        )
    tx.connection.execute(_INSERT, rows)


def entries_of(
    tx: Tx, topic_uid: str, indexes: Sequence[int], after: tuple[int, int], limit: int
) -> list[tuple[int, log.PartitionStoryEntry]]:
    """Up to `limit` entries after (revision, ordinal), oldest first, each with its ordinal; of all partitions if none
    is named."""
    columns = story.c
    statement = select(story).where(columns.topic_uid == topic_uid, tuple_(columns.revision, columns.ordinal) > after)
    if indexes:
        statement = statement.where(columns.partition_index.in_(set(indexes)))
    rows = tx.connection.execute(statement.order_by(columns.revision, columns.ordinal).limit(limit))
    return [(row.ordinal, _message(row)) for row in rows]


def known(tx: Tx, topic_uid: str) -> bool:
    """Whether there is a story of partitions of that topic, dropped ones included."""
    found = tx.connection.execute(select(story.c.ordinal).where(story.c.topic_uid == topic_uid).limit(1)).first()
    return found is not None


def forget(tx: Tx, age: float, limit: int) -> int:
    """Forgets up to `limit` entries that are older than `age` seconds; how many is the answer."""
    old = (
        select(story.c.topic_uid, story.c.revision, story.c.ordinal)
        .where(story.c.time < tx.now - round(age * 1_000_000))
        .order_by(story.c.time)
        .limit(limit)
    )
    found = [{"uid_": row[0], "revision_": row[1], "ordinal_": row[2]} for row in tx.connection.execute(old)]
    if found:
        tx.connection.execute(_DELETE, found)
    return len(found)


def _message(row: AnyRow) -> log.PartitionStoryEntry:
    return log.PartitionStoryEntry(
        time=timestamp(row.time),
        revision=row.revision,
        partition=row.partition_index,
        event=number(log.PartitionEvent, row.event),
        agent=row.agent,
        epoch=row.epoch,
        from_offset=row.from_offset,
        to_offset=row.to_offset,
        cause=row.cause,
    )
