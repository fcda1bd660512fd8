"""Consumer groups: who leads each, and how far it has read.

Leading a group is a grant; an offset commit verifies it and the generation of the members, which never goes back, in
its own transaction. Commits have an order too: one that was given up, and comes after a later one, undoes nothing. None
of it is a revision of the catalog. Who the members are only the leader knows.

A group that is led is never forgotten: it may have members that read and commit nothing for long. One that was
forgotten or dropped and comes back begins with generation 0, under an epoch above all that were forgotten, so a commit
that was on its way since is refused.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

from sqlalchemy import and_, bindparam, delete, func, insert, or_, select, update

from headgate.log import v1 as log
from headgate_common.errors import HeadgateError
from headgate_coordinator.catalog import sessions
from headgate_coordinator.catalog.log import counters, leads
from headgate_coordinator.catalog.log.partitions import key_of
from headgate_coordinator.catalog.log.schema import consumer_groups, group_offsets, partitions, topics
from headgate_coordinator.catalog.log.settings import TopicRules
from headgate_coordinator.catalog.pages import page
from headgate_coordinator.catalog.schema import agents, grants
from headgate_coordinator.catalog.sessions import batched
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.catalog.wire import AnyRow
from headgate_coordinator.errors import (
    GROUP_IN_USE,
    GROUP_LIMIT_EXCEEDED,
    GROUP_NOT_FOUND,
    STALE_COMMIT,
    STALE_GENERATION,
)

# The kind of the grants by which groups are led.
GRANT = "group"

_LED_BY = and_(grants.c.kind == GRANT, grants.c.key == consumer_groups.c.name)
GROUPS = (
    select(
        consumer_groups.c.name,
        consumer_groups.c.generation,
        consumer_groups.c.sequence,
        grants.c.epoch,
        grants.c.session_uid,
        agents.c.name.label("leader"),
    )
    .outerjoin(grants, _LED_BY)
    .outerjoin(agents, agents.c.session_uid == grants.c.session_uid)
)
_BY_NAME = GROUPS.where(consumer_groups.c.name == bindparam("name_"))
_TOUCH = (
    update(consumer_groups)
    .where(consumer_groups.c.name == bindparam("name_"))
    .values(generation=bindparam("generation_"), sequence=bindparam("sequence_"), time=bindparam("time_"))
)
# Used by nobody since a moment, and led by nobody since then either: the time of a grant is when it was last given or
# given up, however its session ended.
_UNUSED = (
    select(consumer_groups.c.name)
    .outerjoin(grants, _LED_BY)
    .where(
        consumer_groups.c.time < bindparam("before_"),
        or_(grants.c.key.is_(None), and_(grants.c.session_uid.is_(None), grants.c.time < bindparam("before_"))),
    )
    .order_by(consumer_groups.c.time)
    .limit(bindparam("limit_"))
)
_OFFSETS = (
    select(
        group_offsets.c.group_name,
        topics.c.name.label("topic"),
        partitions.c.ordinal,
        group_offsets.c.next_offset,
        group_offsets.c.leader_epoch,
        group_offsets.c.metadata.label("metadata_"),
    )
    .join(partitions, partitions.c.key == group_offsets.c.partition_key)
    .join(topics, topics.c.uid == partitions.c.topic_uid)
    .where(group_offsets.c.group_name.in_(bindparam("names_", expanding=True)))
    .order_by(topics.c.name, partitions.c.ordinal)
)
_TOPICS = select(topics.c.name, topics.c.uid, topics.c.partitions).where(
    topics.c.name.in_(bindparam("names_", expanding=True))
)
_INSERT_OFFSETS = insert(group_offsets)
_DELETE_OFFSET = delete(group_offsets).where(
    group_offsets.c.group_name == bindparam("group_"), group_offsets.c.partition_key == bindparam("key_")
)


def acquire_group(tx: Tx, request: log.AcquireGroupRequest, rules: TopicRules) -> log.AcquireGroupResponse:
    """Gives the session the lead of a group, which is made if there is none and there is room for one more.
    GRANT_CONFLICT if another leads it."""
    leads.agent_of(tx, request.session_id)
    row = _row(tx, request.group)
    if row is None:
        _require_room(tx, rules)
        tx.connection.execute(insert(consumer_groups).values(name=request.group, generation=0, time=tx.now))
    above = counters.last(tx, counters.GROUP_EPOCH)
    epoch = sessions.acquire(tx, GRANT, request.group, request.session_id, above=above)
    generation, sequence = (0, 0) if row is None else (row.generation, row.sequence)
    _touch(tx, request.group, generation, sequence)
    return log.AcquireGroupResponse(epoch=epoch, generation=generation, sequence=sequence)


def _require_room(tx: Tx, rules: TopicRules) -> None:
    count = tx.connection.execute(select(func.count()).select_from(consumer_groups)).scalar_one()
    if count >= rules.max_groups:
        raise HeadgateError(
            GROUP_LIMIT_EXCEEDED, f"there are {count:,} consumer groups, and {rules.max_groups:,} are allowed"
        )


def release_groups(tx: Tx, request: log.ReleaseGroupsRequest) -> log.ReleaseGroupsResponse:
    """Gives up the lead of groups that the session still leads under the epochs it names."""
    for lead in request.groups:
        grant = sessions.get_grant(tx, GRANT, lead.group)
        if grant is not None and grant.session == request.session_id and grant.epoch == lead.epoch:
            sessions.release(tx, GRANT, lead.group, lead.epoch, request.session_id)
    return log.ReleaseGroupsResponse()


def commit_group_offsets(tx: Tx, request: log.CommitGroupOffsetsRequest) -> log.CommitGroupOffsetsResponse:
    """Stores offsets and the generation. What names no partition is answered, and the rest is stored."""
    sessions.verify(tx, GRANT, request.group, request.epoch, request.session_id)
    row = _row(tx, request.group)
    if row is None:
        raise not_found(request.group)
    if 0 <= request.generation < row.generation:
        raise HeadgateError(
            STALE_GENERATION,
            f"group {_shown(request.group)} is at generation {row.generation}, past {request.generation}",
            metadata={"generation": str(row.generation)},
        )
    if 0 < request.sequence < row.sequence:
        raise HeadgateError(
            STALE_COMMIT,
            f"commit {request.sequence} of group {_shown(request.group)} comes after {row.sequence}, which was stored",
            metadata={"sequence": str(row.sequence)},
        )
    _touch(tx, request.group, max(row.generation, request.generation), max(row.sequence, request.sequence))
    there = _topics(tx, {offset.topic for offset in request.offsets})
    stored: dict[str, log.GroupOffset] = {}
    unknown = []
    for offset in request.offsets:
        topic = there.get(offset.topic)
        if topic is None or offset.partition >= topic.partitions:
            unknown.append(offset)
        else:
            stored[key_of(topic.uid, offset.partition)] = offset
    if stored:
        tx.connection.execute(_DELETE_OFFSET, [{"group_": request.group, "key_": key} for key in stored])
        tx.connection.execute(
            _INSERT_OFFSETS,
            [
                {
                    "group_name": request.group,
                    "partition_key": key,
                    "next_offset": offset.offset,
                    "leader_epoch": offset.leader_epoch,
                    "metadata": offset.metadata,
                    "time": tx.now,
                }
                for key, offset in stored.items()
            ],
        )
    return log.CommitGroupOffsetsResponse(unknown=unknown)


def get_group(tx: Tx, request: log.GetGroupRequest) -> log.Group:
    row = _row(tx, request.name)
    if row is None:
        raise not_found(request.name)
    return _messages(tx, [row])[0]


def list_groups(tx: Tx, request: log.ListGroupsRequest) -> log.ListGroupsResponse:
    filters = []
    if request.name_prefix:
        filters.append(func.substr(consumer_groups.c.name, 1, len(request.name_prefix)) == request.name_prefix)
    found = page(tx, request, GROUPS, [consumer_groups.c.name], filters)
    return log.ListGroupsResponse(groups=_messages(tx, found.rows), next_page_token=found.next_page_token)


def drop_group(tx: Tx, request: log.DropGroupRequest) -> log.Group | None:
    """Forgets a group that nobody leads, or that the session leads which asks."""
    row = _row(tx, request.name)
    if row is None:
        if request.allow_missing:
            return None
        raise not_found(request.name)
    if request.session_id:
        sessions.verify(tx, GRANT, request.name, request.epoch, request.session_id)
    elif row.session_uid is not None:
        raise HeadgateError(
            GROUP_IN_USE,
            f"agent {row.leader} leads group {_shown(request.name)}: it may have members",
            metadata={"group": request.name, "leader": row.leader or ""},
        )
    dropped = _messages(tx, [row])[0]
    _delete(tx, [request.name])
    return dropped


def forget(tx: Tx, age: float, limit: int) -> int:
    """Forgets up to `limit` groups that nobody led or used for `age` seconds, with their offsets; how many is the
    answer."""
    unused = {"before_": tx.now - round(age * 1_000_000), "limit_": limit}
    names = list(tx.connection.execute(_UNUSED, unused).scalars())
    _delete(tx, names)
    return len(names)


def not_found(name: str) -> HeadgateError:
    return HeadgateError(
        GROUP_NOT_FOUND, f"there is no group {_shown(name)}", metadata={"kind": "group", "name": _shown(name)}
    )


def _shown(name: str) -> str:
    return ascii(name[:60])[1:-1]


def _delete(tx: Tx, names: Collection[str]) -> None:
    for part in batched(names):
        tx.connection.execute(delete(group_offsets).where(group_offsets.c.group_name.in_(part)))
        tx.connection.execute(delete(consumer_groups).where(consumer_groups.c.name.in_(part)))
    last = max((grant.epoch for grant in sessions.get_grants(tx, GRANT, names).values()), default=0)
    counters.raise_to(tx, counters.GROUP_EPOCH, last)
    sessions.forget(tx, GRANT, names)


def _touch(tx: Tx, name: str, generation: int, sequence: int) -> None:
    values = {"name_": name, "generation_": generation, "sequence_": sequence, "time_": tx.now}
    tx.connection.execute(_TOUCH, values)


def _topics(tx: Tx, names: Collection[str]) -> Mapping[str, AnyRow]:
    found: dict[str, AnyRow] = {}
    for part in batched(names):
        found.update({row.name: row for row in tx.connection.execute(_TOPICS, {"names_": part})})
    return found


def _messages(tx: Tx, rows: Collection[AnyRow]) -> list[log.Group]:
    offsets: dict[str, list[log.GroupOffset]] = defaultdict(list)
    for part in batched([row.name for row in rows]):
        for each in tx.connection.execute(_OFFSETS, {"names_": part}):
            offsets[each.group_name].append(
                log.GroupOffset(
                    topic=each.topic,
                    partition=each.ordinal,
                    offset=each.next_offset,
                    leader_epoch=each.leader_epoch,
                    metadata=each.metadata_,
                )
            )
    return [
        log.Group(
            name=row.name,
            leader=row.leader or "",
            epoch=row.epoch or 0,
            generation=row.generation,
            offsets=offsets[row.name],
        )
        for row in rows
    ]


def _row(tx: Tx, name: str) -> AnyRow | None:
    return tx.connection.execute(_BY_NAME, {"name_": name}).one_or_none()
