"""Partitions as they are read: rows, messages, and the changes of leadership that watchers are told.

A partition is led by whoever holds the grant of its key. What watchers see of it is leader, epoch, waiting reason and
volume; its offsets change with every segment and are no revision.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

from sqlalchemy import and_, bindparam, select, tuple_

from headgate.log import v1 as log
from headgate_common.errors import HeadgateError
from headgate_coordinator.catalog.log import partition_story
from headgate_coordinator.catalog.log.schema import partition_holes, partitions, topics
from headgate_coordinator.catalog.pages import page
from headgate_coordinator.catalog.schema import agents, grants
from headgate_coordinator.catalog.sessions import batched
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.catalog.wire import AnyRow
from headgate_coordinator.errors import PARTITION_NOT_FOUND
from headgate_coordinator.sql.names import fold

# The kind of the grants by which partitions are led.
GRANT = "partition"
NOBODY_YET = "no agent has taken the lead yet"
DEFAULT_PAGE = 1_000

PARTITIONS = (
    select(
        partitions.c.key,
        partitions.c.topic_uid,
        partitions.c.ordinal,
        partitions.c.log_start,
        partitions.c.committed,
        partitions.c.reserved,
        partitions.c.bytes,
        partitions.c.volume_id,
        partitions.c.waiting,
        partitions.c.producers_forgotten,
        partitions.c.revision,
        topics.c.name.label("topic"),
        topics.c.internal,
        topics.c.durability,
        topics.c.group_name,
        topics.c.pinned_agent,
        grants.c.epoch,
        grants.c.session_uid,
        agents.c.name.label("leader"),
    )
    .join(topics, topics.c.uid == partitions.c.topic_uid)
    .outerjoin(grants, and_(grants.c.kind == GRANT, grants.c.key == partitions.c.key))
    .outerjoin(agents, agents.c.session_uid == grants.c.session_uid)
)
_BY_KEY = PARTITIONS.where(partitions.c.key.in_(bindparam("keys_", expanding=True)))
# Keys of the partitions that a session leads.
HELD_BY = select(grants.c.key).where(grants.c.kind == GRANT, grants.c.session_uid == bindparam("session_"))
_HOLES = (
    select(
        partition_holes.c.partition_key,
        partition_holes.c.from_offset,
        partition_holes.c.to_offset,
        partition_holes.c.reason,
    )
    .where(partition_holes.c.partition_key.in_(bindparam("keys_", expanding=True)))
    .order_by(partition_holes.c.partition_key, partition_holes.c.from_offset)
)


def key_of(topic_uid: str, index: int) -> str:
    """The key of a partition, and of the grant by which it is led."""
    return f"{topic_uid}/{index}"


def ref_key(ref: log.PartitionRef) -> str:
    return key_of(ref.topic_uid, ref.index)


def rows_of(tx: Tx, keys: Collection[str]) -> dict[str, AnyRow]:
    """Those of the partitions that exist, by key."""
    found: dict[str, AnyRow] = {}
    for part in batched(keys):
        found.update({row.key: row for row in tx.connection.execute(_BY_KEY, {"keys_": part})})
    return found


def row_of(tx: Tx, key: str) -> AnyRow:
    """One partition, or PARTITION_NOT_FOUND."""
    row = rows_of(tx, [key]).get(key)
    if row is None:
        raise not_found(key)
    return row


def held_by(tx: Tx, session: str) -> list[str]:
    return list(tx.connection.execute(HELD_BY, {"session_": session}).scalars())


def not_found(key: str) -> HeadgateError:
    return HeadgateError(PARTITION_NOT_FOUND, f"there is no partition {key}", metadata={"partition": key})


def name_of(row: AnyRow) -> str:
    return f"{row.topic}/{row.ordinal}"


def message(row: AnyRow) -> log.Partition:
    """As watchers see it: without offsets."""
    return log.Partition(
        topic=row.topic,
        topic_uid=row.topic_uid,
        index=row.ordinal,
        leader=row.leader or "",
        epoch=row.epoch or 0,
        waiting=row.waiting,
        volume_id=row.volume_id,
        revision=row.revision,
        internal=row.internal,
    )


def messages_with_offsets(tx: Tx, rows: Sequence[AnyRow]) -> list[log.Partition]:
    holes: dict[str, list[log.OffsetHole]] = defaultdict(list)
    for part in batched([row.key for row in rows]):
        for hole in tx.connection.execute(_HOLES, {"keys_": part}):
            holes[hole.partition_key].append(
                log.OffsetHole(from_offset=hole.from_offset, to_offset=hole.to_offset, reason=hole.reason)
            )
    made = []
    for row in rows:
        one = message(row)
        one.offsets.CopyFrom(
            log.PartitionOffsets(
                log_start=row.log_start,
                committed=row.committed,
                reserved=row.reserved,
                bytes=row.bytes,
                holes=holes[row.key],
            )
        )
        made.append(one)
    return made


@contextmanager
def recorded(
    tx: Tx, keys: Collection[str], before: Mapping[str, AnyRow] | None = None, *, cause: str | Mapping[str, str] = ""
) -> Iterator[dict[str, AnyRow]]:
    """Records what the block changes of these partitions, and tells it in their story. The block sets `revision` where
    it changes something.

    `cause` is why their lead changes, for all of them or by key; `before` are their rows, where the caller has them.
    What the block is given has them as they are after it, then.
    """
    before = rows_of(tx, keys) if before is None else before
    after: dict[str, AnyRow] = {}
    yield after
    after.update(rows_of(tx, keys))
    told: list[partition_story.Entry] = []
    for key, row in after.items():
        if row.revision == tx.revision:
            tx.record("PARTITION", name_of(row), key, message(before[key]), message(row))
            told += partition_story.change_of_lead(before[key], row, cause if isinstance(cause, str) else cause[key])
    partition_story.append(tx, told)


def read_all(tx: Tx, topic: str | None = None) -> Iterator[log.Partition]:
    """All partitions with their offsets, or those of one topic, in order, a bounded number at a time."""
    key = tuple_(PARTITIONS.selected_columns.topic, partitions.c.ordinal)
    statement = PARTITIONS if topic is None else PARTITIONS.where(topics.c.name == topic)
    last: tuple[str, int] | None = None
    while True:
        following = statement if last is None else statement.where(key > last)
        rows = tx.connection.execute(following.order_by(topics.c.name, partitions.c.ordinal).limit(DEFAULT_PAGE)).all()
        yield from messages_with_offsets(tx, rows)
        if len(rows) < DEFAULT_PAGE:
            return
        last = (rows[-1].topic, rows[-1].ordinal)


def list_partitions(tx: Tx, request: log.ListPartitionsRequest) -> log.ListPartitionsResponse:
    """Ordered by topic, then index."""
    filters = []
    if request.topic:
        filters.append(topics.c.name == request.topic)
    elif not request.include_internal:
        filters.append(~topics.c.internal)
    if request.leader:
        filters.append(agents.c.name == fold(request.leader))
    key = [PARTITIONS.selected_columns.topic, partitions.c.ordinal]
    found = page(tx, request, PARTITIONS, key, filters, default_size=DEFAULT_PAGE)
    return log.ListPartitionsResponse(
        partitions=messages_with_offsets(tx, found.rows), next_page_token=found.next_page_token
    )
