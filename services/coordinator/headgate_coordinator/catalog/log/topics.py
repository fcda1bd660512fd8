"""Topics: created with all their partitions, altered in what may change, dropped when nothing uses them.

Names follow Kafka's rule, because Kafka clients name topics too: case is kept and significant, and two names that
differ only in '.' and '_' are two topics. A source or sink of type TOPIC may name a topic that is not there yet; from
the moment it is there it cannot be dropped while they name it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import bindparam, delete, func, insert, select, update

from headgate.log import v1 as log
from headgate_common.errors import HeadgateError
from headgate_coordinator.catalog import references, sessions
from headgate_coordinator.catalog.agent_rows import DEFAULT_GROUP
from headgate_coordinator.catalog.log import counters, partition_story, settings, transfers
from headgate_coordinator.catalog.log import partitions as partition_rows
from headgate_coordinator.catalog.log.schema import (
    edge_runs,
    group_offsets,
    partition_epochs,
    partition_holes,
    partitions,
    producers,
    segments,
    topics,
)
from headgate_coordinator.catalog.log.settings import TopicRules
from headgate_coordinator.catalog.pages import page, page_size, position, token
from headgate_coordinator.catalog.schema import physical_sources, queries, query_sinks, query_sources, sinks
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.catalog.wire import AnyRow, from_json_object, timestamp
from headgate_coordinator.errors import (
    ALREADY_EXISTS,
    INVALID_NAME,
    TOPIC_IN_USE,
    TOPIC_LIMIT_EXCEEDED,
    TOPIC_NOT_FOUND,
    UID_MISMATCH,
)
from headgate_coordinator.sql.names import new_topic_fault, topic_fault

TOPICS = select(topics)
_BY_NAME = TOPICS.where(topics.c.name == bindparam("name_"))
_COUNT = select(func.count(), func.coalesce(func.sum(topics.c.partitions), 0)).where(~topics.c.internal)
_INSERT, _INSERT_PARTITIONS = insert(topics), insert(partitions)
_NOTHING_YET = {"log_start": 0, "committed": 0, "reserved": 0, "bytes": 0, "volume_id": ""}
_OF_TOPICS = partitions.c.topic_uid.in_(bindparam("uids_", expanding=True))
_PARTITIONS_OF = partition_rows.PARTITIONS.where(_OF_TOPICS)
# What is kept of a partition, in the order in which it can be deleted.
_DELETE_OF_PARTITIONS = tuple(
    delete(table).where(table.c.partition_key.in_(select(partitions.c.key).where(_OF_TOPICS)))
    for table in (group_offsets, producers, partition_holes, partition_epochs, edge_runs, segments)
)
_DELETE_PARTITIONS = delete(partitions).where(_OF_TOPICS)
_DELETE = delete(topics).where(topics.c.uid.in_(bindparam("uids_", expanding=True)))


def create_topic(tx: Tx, request: log.CreateTopicRequest, rules: TopicRules) -> log.Topic:
    """A topic of a user."""
    return create(
        tx,
        name=request.name,
        partition_count=request.partitions or rules.partitions,
        group=request.group,
        wanted=request.settings,
        rules=rules,
    )


def create(
    tx: Tx,
    *,
    name: str,
    partition_count: int,
    wanted: log.TopicSettings,
    rules: TopicRules,
    group: str = "",
    internal: bool = False,
    query_uid: str | None = None,
    pinned_agent: str = "",
) -> log.Topic:
    """Writes the topic and all its partitions. `internal` ones belong to a query, and count against no limit."""
    check_name(name, internal=internal)
    columns = settings.columns_of(wanted, rules)
    if _row(tx, name) is not None:
        raise HeadgateError(ALREADY_EXISTS, f"there is a topic {name}", metadata={"kind": "topic", "name": name})
    if not internal:
        _require_room(tx, partition_count, rules)
    row = new_row(
        tx, name, partition_count, columns, group=group, internal=internal, query_uid=query_uid, pinned=pinned_agent
    )
    return insert_topics(tx, [row])[0]


def new_row(
    tx: Tx,
    name: str,
    partition_count: int,
    columns: Mapping[str, Any],
    *,
    group: str = "",
    internal: bool = False,
    query_uid: str | None = None,
    pinned: str = "",
) -> dict[str, Any]:
    """The row of a topic that is not there yet; `columns` are its settings."""
    return {
        "uid": tx.ids.uid("topic"),
        "name": name,
        "partitions": partition_count,
        "group_name": group or DEFAULT_GROUP,
        "internal": internal,
        "query_uid": query_uid,
        "pinned_agent": pinned,
        "time": tx.now,
        "revision": tx.revision,
        "unused_since": None,
        **columns,
    }


def insert_topics(tx: Tx, rows: Sequence[Mapping[str, Any]]) -> list[log.Topic]:
    """Writes topics with all their partitions, with few statements however many there are."""
    partition_of = [(row, index) for row in rows for index in range(row["partitions"])]
    tx.connection.execute(_INSERT, list(rows))
    # A producer that is older than the topic may have written to one of the same name, and does not begin anew.
    older = counters.last(tx, counters.PRODUCER_ID)
    tx.connection.execute(
        _INSERT_PARTITIONS,
        [
            {
                "key": partition_rows.key_of(row["uid"], index),
                "topic_uid": row["uid"],
                "ordinal": index,
                "waiting": partition_rows.NOBODY_YET,
                "producers_forgotten": older,
                "revision": tx.revision,
                **_NOTHING_YET,
            }
            for row, index in partition_of
        ],
    )
    created = [_message(row) for row in rows]
    for topic in created:
        tx.record("TOPIC", topic.name, topic.uid, None, topic)
    for row, index in partition_of:
        partition = log.Partition(
            topic=row["name"],
            topic_uid=row["uid"],
            index=index,
            waiting=partition_rows.NOBODY_YET,
            revision=tx.revision,
            internal=row["internal"],
        )
        tx.record("PARTITION", f"{row['name']}/{index}", partition_rows.key_of(row["uid"], index), None, partition)
    return created


def alter_topic(tx: Tx, request: log.AlterTopicRequest, rules: TopicRules) -> log.Topic:
    """Changes the named settings. What a change makes no different is no revision."""
    row = _required(tx, request.name)
    _refuse_internal(tx, row)
    changed = settings.changed_columns(request.settings, request.fields, rules)
    before = message(row)
    if all(row._mapping[column] == value for column, value in changed.items()):
        return before
    tx.connection.execute(update(topics).where(topics.c.uid == row.uid).values(revision=tx.revision, **changed))
    after = _by_uid(tx, row.uid)
    tx.record("TOPIC", row.name, row.uid, before, after)
    return after


def drop_topic(tx: Tx, request: log.DropTopicRequest) -> log.Topic | None:
    """Deletes a topic that no source, sink or query uses, with its partitions, segments, grants and offsets of groups.

    Its objects are orphans from then on: FindObjects knows none of them.
    """
    row = _row(tx, request.name)
    if row is None:
        if request.allow_missing:
            return None
        raise not_found(request.name)
    if request.uid and request.uid != row.uid:
        raise HeadgateError(
            UID_MISMATCH,
            f"topic {row.name} has the uid {row.uid}, not {request.uid}",
            metadata={"kind": "topic", "name": row.name, "uid": row.uid},
        )
    refers = _references(tx, row)
    if refers:
        raise references.in_use(TOPIC_IN_USE, f"topic {row.name}", refers)
    return delete_topic(tx, row)


def delete_topic(tx: Tx, row: AnyRow) -> log.Topic:
    """Deletes a topic whatever refers to it; that is for its own query to do."""
    delete_topics(tx, [row])
    return message(row)


def delete_topics(tx: Tx, rows: Sequence[AnyRow]) -> None:
    """The same for several, with few statements however many there are."""
    if not rows:
        return
    uids = {"uids_": [row.uid for row in rows]}
    gone = tx.connection.execute(_PARTITIONS_OF, uids).all()
    transfers.delete_of_topics(tx, uids["uids_"])
    for statement in _DELETE_OF_PARTITIONS:
        tx.connection.execute(statement, uids)
    sessions.forget(tx, partition_rows.GRANT, [each.key for each in gone if each.epoch is not None])
    tx.connection.execute(_DELETE_PARTITIONS, uids)
    tx.connection.execute(_DELETE, uids)
    for row in rows:
        tx.record("TOPIC", row.name, row.uid, message(row), None)
    for each in sorted(gone, key=lambda one: (one.topic, one.ordinal)):
        tx.record("PARTITION", partition_rows.name_of(each), each.key, partition_rows.message(each), None)


def get_topic(tx: Tx, request: log.GetTopicRequest) -> log.Topic:
    return message(_required(tx, request.name))


def list_topics(tx: Tx, request: log.ListTopicsRequest) -> log.ListTopicsResponse:
    filters = []
    if request.name_prefix:
        # Not LIKE: in SQLite that knows no case.
        filters.append(func.substr(topics.c.name, 1, len(request.name_prefix)) == request.name_prefix)
    if not request.include_internal:
        filters.append(~topics.c.internal)
    found = page(tx, request, TOPICS, [topics.c.name], filters)
    return log.ListTopicsResponse(
        topics=[message(row) for row in found.rows], next_page_token=found.next_page_token, revision=tx.revision
    )


def list_partitions(tx: Tx, request: log.ListPartitionsRequest) -> log.ListPartitionsResponse:
    if request.topic:
        _required(tx, request.topic)
    return partition_rows.list_partitions(tx, request)


def get_partition_story(tx: Tx, request: log.GetPartitionStoryRequest) -> log.GetPartitionStoryResponse:
    """Oldest first. A topic that was dropped is found by its uid, for as long as its story is kept."""
    if request.topic:
        uid = _required(tx, request.topic).uid
    else:
        uid = request.topic_uid
        if not partition_story.known(tx, uid):
            raise HeadgateError(
                TOPIC_NOT_FOUND,
                f"there is no story of a topic with the uid {uid!a}",
                metadata={"kind": "topic", "uid": uid},
            )
    last = position(request, (int, int)) or (-1, -1)
    size = page_size(request)
    found = partition_story.entries_of(tx, uid, request.partitions, (int(last[0]), int(last[1])), size + 1)
    more, found = len(found) > size, found[:size]
    return log.GetPartitionStoryResponse(
        entries=[entry for _, entry in found],
        next_page_token=token(request, (found[-1][1].revision, found[-1][0])) if more else "",
    )


def check_name(name: str, *, internal: bool = False) -> None:
    """INVALID_NAME unless Kafka's rule allows the name, and it is nobody else's."""
    fault = topic_fault(name) if internal else new_topic_fault(name)
    if fault:
        raise HeadgateError(INVALID_NAME, f"{name[:60]!a} names no topic: {fault}", metadata={"field": "name"})


def not_found(name: str) -> HeadgateError:
    shown = ascii(name[:60])[1:-1]
    return HeadgateError(TOPIC_NOT_FOUND, f"there is no topic {shown}", metadata={"kind": "topic", "name": shown})


def message(row: AnyRow) -> log.Topic:
    return _message(row._mapping)


def _message(columns: Mapping[Any, Any]) -> log.Topic:
    return log.Topic(
        name=columns["name"],
        uid=columns["uid"],
        partitions=columns["partitions"],
        settings=settings.message(columns),
        group=columns["group_name"],
        internal=columns["internal"],
        query_uid=columns["query_uid"] or "",
        pinned_agent=columns["pinned_agent"],
        create_time=timestamp(columns["time"]),
        revision=columns["revision"],
    )


def _require_room(tx: Tx, wanted: int, rules: TopicRules) -> None:
    if wanted > rules.max_topic_partitions:
        raise _limit(f"a topic has at most {rules.max_topic_partitions:,} partitions, not {wanted:,}")
    count, partitions_now = tx.connection.execute(_COUNT).one()
    if count >= rules.max_topics:
        raise _limit(f"there are {count:,} topics, and {rules.max_topics:,} are allowed")
    if partitions_now + wanted > rules.max_partitions:
        raise _limit(
            f"there are {partitions_now:,} partitions, {wanted:,} more are asked for, and {rules.max_partitions:,} "
            "are allowed"
        )


def _limit(message: str) -> HeadgateError:
    return HeadgateError(TOPIC_LIMIT_EXCEEDED, message)


def _references(tx: Tx, row: AnyRow) -> list[references.References]:
    """Sources and sinks that name the topic, queries that read or write those, and the query that it is part of."""
    source_uids = [
        each.uid
        for each in tx.connection.execute(
            select(physical_sources.c.uid, physical_sources.c.options).where(physical_sources.c.type == "TOPIC")
        )
        if from_json_object(each.options)["topic"] == row.name
    ]
    sink_uids = [
        each.uid
        for each in tx.connection.execute(select(sinks.c.uid, sinks.c.options).where(sinks.c.type == "TOPIC"))
        if from_json_object(each.options)["topic"] == row.name
    ]
    readers = select(query_sources.c.query_uid).where(query_sources.c.physical_source_uid.in_(source_uids))
    writers = select(query_sinks.c.query_uid).where(query_sinks.c.sink_uid.in_(sink_uids))
    using = select(queries.c.name, queries.c.state).where(
        queries.c.uid.in_(readers) | queries.c.uid.in_(writers) | (queries.c.uid == (row.query_uid or ""))
    )
    named_source = select(physical_sources.c.name, physical_sources.c.type)
    found = [
        references.find(tx, "physical source", named_source.where(physical_sources.c.uid.in_(source_uids))),
        references.find(tx, "sink", select(sinks.c.name, sinks.c.type).where(sinks.c.uid.in_(sink_uids))),
        references.find(tx, "query", using),
    ]
    return [group for group in found if group is not None]


def _refuse_internal(tx: Tx, row: AnyRow) -> None:
    """A topic of a query is the query's alone to change, while there is one."""
    owner = references.find(tx, "query", select(queries.c.name, queries.c.state).where(queries.c.uid == row.query_uid))
    if row.internal and owner is not None:
        raise references.in_use(TOPIC_IN_USE, f"topic {row.name}", [owner])


def _required(tx: Tx, name: str) -> AnyRow:
    row = _row(tx, name)
    if row is None:
        raise not_found(name)
    return row


def _by_uid(tx: Tx, uid: str) -> log.Topic:
    return message(tx.connection.execute(TOPICS.where(topics.c.uid == uid)).one())


def _row(tx: Tx, name: str) -> AnyRow | None:
    # What cannot be a name is not asked for: it may be long, or no text that the database takes.
    return None if topic_fault(name) else tx.connection.execute(_BY_NAME, {"name_": name}).one_or_none()
