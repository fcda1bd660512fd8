"""The three calls of a hand-over, as agents make them."""

from __future__ import annotations

import json
from collections.abc import Iterable

from sqlalchemy import bindparam, select

from headgate.log import v1 as log
from headgate_coordinator.catalog import sessions
from headgate_coordinator.catalog.log import leads, transfers
from headgate_coordinator.catalog.log import partitions as partition_rows
from headgate_coordinator.catalog.log.partitions import GRANT, ref_key
from headgate_coordinator.catalog.schema import agents
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.catalog.wire import AnyRow

_BY_NAME = select(agents).where(agents.c.name.in_(bindparam("names_", expanding=True)))
_VOLUMES = select(agents.c.session_uid, agents.c.volume_id).where(
    agents.c.session_uid.in_(bindparam("sessions_", expanding=True))
)


def start_transfers(tx: Tx, request: log.StartTransfersRequest) -> log.StartTransfersResponse:
    """Offers partitions that the session leads. One that is open stays; an agent that cannot lead fails at once."""
    leader = leads.agent_of(tx, request.session_id)
    asked = {ref_key(each.leader.partition): each for each in request.offers}
    sessions.verify_many(tx, GRANT, {key: each.leader.epoch for key, each in asked.items()}, request.session_id)
    rows = partition_rows.rows_of(tx, asked)
    known = transfers.open_of(tx, asked)
    others = _agents(tx, {_folded(each.to_agent) for each in asked.values()})
    offers: dict[str, tuple[AnyRow, str, int]] = {}
    failed: dict[str, log.Transfer] = {}
    for key, each in asked.items():
        if key in known:
            continue
        other = others.get(_folded(each.to_agent))
        why = _unfit(rows[key], leader, other)
        if why or other is None:
            failed[key] = _failed(rows[key], leader.name, each, why)
        else:
            offers[key] = (other, other.session_uid, each.leader.epoch)
    if offers:
        known |= transfers.offer(tx, leader, request.session_id, offers)
    return log.StartTransfersResponse(
        transfers=(failed[key] if key in failed else transfers.message(known[key]) for key in asked)
    )


def _folded(name: str) -> str:
    # An agent that is named wrongly is one that is not there.
    return name[:64].lower()


def _agents(tx: Tx, names: Iterable[str]) -> dict[str, AnyRow]:
    found = tx.connection.execute(_BY_NAME, {"names_": list(names)})
    return {row.name: row for row in found}


def _unfit(row: AnyRow, leader: AnyRow, other: AnyRow | None) -> str:
    if other is None:
        return "there is no such agent"
    if other.session_uid is None:
        return f"agent {other.name} is not present"
    if other.uid == leader.uid:
        return f"agent {other.name} leads it already"
    if "LOG" not in json.loads(other.roles):
        return f"agent {other.name} has not the role LOG"
    refusal = leads.may_lead(row, other)
    return f"agent {other.name} may not lead it: {refusal}" if refusal else ""


def _failed(row: AnyRow, leader: str, offer: log.TransferOffer, why: str) -> log.Transfer:
    return log.Transfer(
        topic=row.topic,
        topic_uid=row.topic_uid,
        index=row.ordinal,
        from_agent=leader,
        to_agent=offer.to_agent,
        epoch=offer.leader.epoch,
        state=log.TRANSFER_STATE_FAILED,
        reason=why,
    )


def answer_transfers(tx: Tx, request: log.AnswerTransfersRequest) -> log.AnswerTransfersResponse:
    """The other agent's answer. What was answered the same way before, or has ended, stays as it is."""
    session = request.session_id
    leads.agent_of(tx, session)
    uids = [*request.accepted, *request.rejected]
    rows = transfers.of_party(tx, uids, lambda row: row.to_session == session, "to the agent of this session")
    transfers.move(tx, [rows[uid] for uid in dict.fromkeys(request.accepted)], "ACCEPTED")
    reason = request.reason or "the other agent does not want it"
    # Asked for both, it is what was asked for last.
    rows = transfers.rows_by_uid(tx, uids)
    transfers.move(tx, [rows[uid] for uid in dict.fromkeys(request.rejected)], "REJECTED", reason)
    return log.AnswerTransfersResponse(transfers=_messages(tx, uids))


def complete_transfers(tx: Tx, request: log.CompleteTransfersRequest) -> log.CompleteTransfersResponse:
    """The leader has flushed: each grant passes to the other session with a new epoch. Or it gives up.

    A transfer that has ended meanwhile stays as it ended, and its partition where it is.
    """
    session = request.session_id
    leads.agent_of(tx, session)
    uids = [*request.completed, *request.failed]
    rows = transfers.of_party(tx, uids, lambda row: row.from_session == session, "from the agent of this session")
    reason = request.reason or "the leader gave it up"
    transfers.move(tx, [rows[uid] for uid in dict.fromkeys(request.failed)], "FAILED", reason)
    left = [uid for uid in dict.fromkeys(request.completed) if uid not in set(request.failed)]
    moved = transfers.move(tx, [rows[uid] for uid in left], "COMPLETED")
    if moved:
        _pass_on(tx, moved, session)
    return log.CompleteTransfersResponse(transfers=_messages(tx, uids))


def _pass_on(tx: Tx, moved: list[AnyRow], session: str) -> None:
    keys = [row.partition_key for row in moved]
    sessions.verify_many(tx, GRANT, {row.partition_key: row.epoch for row in moved}, session)
    rows = partition_rows.rows_of(tx, keys)
    volumes = {
        row.session_uid: row.volume_id
        for row in tx.connection.execute(_VOLUMES, {"sessions_": sorted({row.to_session for row in moved})})
    }
    causes = {row.partition_key: f"handed over by agent {row.from_agent}" for row in moved}
    with partition_rows.recorded(tx, keys, rows, cause=causes):
        for to_session, volume in volumes.items():
            passed = [row.partition_key for row in moved if row.to_session == to_session]
            sessions.pass_many(tx, GRANT, passed, to_session)
            leads.flush(tx, [rows[key] for key in passed], volume, "")


def _messages(tx: Tx, uids: Iterable[str]) -> list[log.Transfer]:
    listed = list(uids)
    rows = transfers.rows_by_uid(tx, listed)
    return [transfers.message(rows[uid]) for uid in listed]
