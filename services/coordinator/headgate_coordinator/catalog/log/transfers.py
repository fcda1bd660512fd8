"""Handing partitions over: the leader offers, the other agent answers, and when the leader has flushed one transaction
moves the grant with a new epoch. `transitions` says what may follow what.

An open transfer has both sessions alive and the leader leading: whatever ends one of these ends the transfer in the
same transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from sqlalchemy import ColumnElement, bindparam, delete, insert, or_, select, update

from headgate.log import v1 as log
from headgate_common.errors import HeadgateError
from headgate_coordinator.catalog.log import partition_story
from headgate_coordinator.catalog.log.partitions import name_of
from headgate_coordinator.catalog.log.schema import partitions, topics, transfers
from headgate_coordinator.catalog.log.transitions import TRANSFER_ENDED, TRANSFER_OPEN, may_become
from headgate_coordinator.catalog.pages import page
from headgate_coordinator.catalog.sessions import batched
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.catalog.wire import AnyRow, number, short
from headgate_coordinator.errors import TRANSFER_NOT_FOUND
from headgate_coordinator.sql.names import fold

TRANSFERS = (
    select(
        transfers.c.uid,
        transfers.c.partition_key,
        transfers.c.from_agent,
        transfers.c.from_session,
        transfers.c.to_agent,
        transfers.c.to_session,
        transfers.c.epoch,
        transfers.c.state,
        transfers.c.reason,
        transfers.c.revision,
        topics.c.name.label("topic"),
        partitions.c.topic_uid,
        partitions.c.ordinal,
    )
    .join(partitions, partitions.c.key == transfers.c.partition_key)
    .join(topics, topics.c.uid == partitions.c.topic_uid)
)
_INSERT = insert(transfers)
_OPEN = transfers.c.state.in_(TRANSFER_OPEN)
_BY_UID = TRANSFERS.where(transfers.c.uid.in_(bindparam("uids_", expanding=True)))
_OPEN_OF = TRANSFERS.where(_OPEN, transfers.c.partition_key.in_(bindparam("keys_", expanding=True)))
_OPEN_OF_SESSION = TRANSFERS.where(
    _OPEN, or_(transfers.c.from_session == bindparam("session_"), transfers.c.to_session == bindparam("session_"))
)
_OPEN_UIDS = select(transfers.c.uid).where(_OPEN)
_OF_TOPICS = TRANSFERS.where(partitions.c.topic_uid.in_(bindparam("topic_uids_", expanding=True)))
_DELETE = delete(transfers).where(transfers.c.uid.in_(bindparam("uids_", expanding=True)))
_MOVE = (
    update(transfers)
    .where(transfers.c.uid == bindparam("uid_"))
    .values(
        state=bindparam("state_"),
        reason=bindparam("reason_"),
        state_time=bindparam("time_"),
        revision=bindparam("revision_"),
    )
)


def message(row: AnyRow) -> log.Transfer:
    return log.Transfer(
        uid=row.uid,
        topic=row.topic,
        topic_uid=row.topic_uid,
        index=row.ordinal,
        from_agent=row.from_agent,
        to_agent=row.to_agent,
        epoch=row.epoch,
        state=number(log.TransferState, row.state),
        reason=row.reason,
        revision=row.revision,
    )


def rows_by_uid(tx: Tx, uids: Iterable[str]) -> dict[str, AnyRow]:
    found: dict[str, AnyRow] = {}
    for part in batched(list(uids)):
        found.update({row.uid: row for row in tx.connection.execute(_BY_UID, {"uids_": part})})
    return found


def open_of(tx: Tx, keys: Collection[str]) -> dict[str, AnyRow]:
    """The open transfers of partitions, by the partition's key."""
    found: dict[str, AnyRow] = {}
    for part in batched(keys):
        found.update({row.partition_key: row for row in tx.connection.execute(_OPEN_OF, {"keys_": part})})
    return found


def offer(tx: Tx, leader: AnyRow, session: str, offers: Mapping[str, tuple[AnyRow, str, int]]) -> dict[str, AnyRow]:
    """New transfers of verified partitions, by key: each to an agent's name and session, under the leader's epoch.

    `offers` has for each key the row of the other agent, its session and the epoch.
    """
    made = {key: tx.ids.uid("transfer") for key in offers}
    tx.connection.execute(
        _INSERT,
        [
            {
                "uid": made[key],
                "partition_key": key,
                "from_agent": leader.name,
                "from_session": session,
                "to_agent": to_agent.name,
                "to_session": to_session,
                "epoch": epoch,
                "state": "PENDING",
                "reason": "",
                "time": tx.now,
                "state_time": tx.now,
                "revision": tx.revision,
            }
            for key, (to_agent, to_session, epoch) in offers.items()
        ],
    )
    rows = rows_by_uid(tx, made.values())
    for row in rows.values():
        tx.record("TRANSFER", name_of(row), row.uid, None, message(row))
    partition_story.append(tx, [_told(row) for row in rows.values()])
    return {row.partition_key: row for row in rows.values()}


def of_party(tx: Tx, uids: Iterable[str], is_party: Callable[[AnyRow], bool], whose: str) -> dict[str, AnyRow]:
    """Transfers by uid; TRANSFER_NOT_FOUND for one that is none of the party's."""
    listed = list(uids)
    rows = rows_by_uid(tx, listed)
    for uid in listed:
        if uid not in rows or not is_party(rows[uid]):
            raise HeadgateError(
                TRANSFER_NOT_FOUND, f"there is no transfer {uid[:64]!a} {whose}", metadata={"transfer": uid[:64]}
            )
    return rows


def move(tx: Tx, rows: Iterable[AnyRow], state: str, reason: str = "") -> list[AnyRow]:
    """Brings those that may become `state` there, and records it; those are the answer, as they were."""
    moving = [row for row in rows if may_become(row.state, state)]
    if not moving:
        return []
    values = {"state_": state, "reason_": reason, "time_": tx.now, "revision_": tx.revision}
    tx.connection.execute(_MOVE, [{"uid_": row.uid, **values} for row in moving])
    after = rows_by_uid(tx, [row.uid for row in moving])
    for row in moving:
        tx.record("TRANSFER", name_of(row), row.uid, message(row), message(after[row.uid]))
    partition_story.append(tx, [_told(after[row.uid]) for row in moving])
    return moving


def _told(row: AnyRow) -> partition_story.Entry:
    """What the state of a transfer says in the story of its partition; the agent is the one that is to lead."""
    cause = row.reason or f"from agent {row.from_agent} to agent {row.to_agent}"
    return partition_story.Entry(
        row.topic_uid, row.ordinal, f"TRANSFER_{row.state}", cause, agent=row.to_agent, epoch=row.epoch
    )


def fail_of_partitions(tx: Tx, keys: Collection[str], reason: str) -> None:
    move(tx, open_of(tx, keys).values(), "FAILED", reason)


def fail_of_session(tx: Tx, session: str, agent: str) -> None:
    """Ends the transfers from and to an agent whose session ends."""
    rows = tx.connection.execute(_OPEN_OF_SESSION, {"session_": session}).all()
    move(tx, rows, "FAILED", f"agent {agent} is gone")


def list_transfers(tx: Tx, request: log.ListTransfersRequest) -> log.ListTransfersResponse:
    filters: list[ColumnElement[bool]] = []
    if request.topic:
        filters.append(topics.c.name == request.topic)
    if request.agent:
        name = fold(request.agent)
        filters.append((transfers.c.from_agent == name) | (transfers.c.to_agent == name))
    if request.state:
        filters.append(transfers.c.state == short(log.TransferState, request.state))
    columns = TRANSFERS.selected_columns
    found = page(tx, request, TRANSFERS, [columns.topic, columns.ordinal, columns.uid], filters)
    return log.ListTransfersResponse(
        transfers=[message(row) for row in found.rows], next_page_token=found.next_page_token
    )


def open_transfers(tx: Tx) -> list[str]:
    """Uids of all transfers that have not ended."""
    return list(tx.connection.execute(_OPEN_UIDS).scalars())


def fail_overdue(tx: Tx, uids: Collection[str], seconds: float) -> int:
    """Ends transfers that the leading coordinator has seen open for too long; how many is the answer."""
    return len(move(tx, rows_by_uid(tx, uids).values(), "FAILED", f"it was not completed within {seconds:g} s"))


def delete_of_topics(tx: Tx, topic_uids: Collection[str]) -> None:
    _delete(tx, tx.connection.execute(_OF_TOPICS, {"topic_uids_": list(topic_uids)}).all())


def forget(tx: Tx, age: float, limit: int) -> int:
    """Forgets up to `limit` transfers that ended more than `age` seconds ago; how many is the answer."""
    old = TRANSFERS.where(
        transfers.c.state.in_(TRANSFER_ENDED), transfers.c.state_time < tx.now - round(age * 1_000_000)
    )
    return _delete(tx, tx.connection.execute(old.order_by(transfers.c.state_time).limit(limit)).all())


def _delete(tx: Tx, rows: Sequence[AnyRow]) -> int:
    for part in batched([row.uid for row in rows]):
        tx.connection.execute(_DELETE, {"uids_": part})
    for row in rows:
        tx.record("TRANSFER", name_of(row), row.uid, message(row), None)
    return len(rows)
