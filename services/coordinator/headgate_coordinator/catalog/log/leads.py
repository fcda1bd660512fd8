"""Leading partitions: a grant of the agent's session, with a new epoch each time it passes on.

A leader of a WAL topic acknowledges what only its own disk has, so it reserves offsets first. While more is reserved
than is in segments, nobody may lead but an agent with the same volume, until an operator accepts the loss; then what
was reserved is a hole, and is never given out again.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from sqlalchemy import bindparam, func, insert, select, union_all, update

from headgate.log import v1 as log
from headgate_common.errors import HeadgateError
from headgate_coordinator.catalog import sessions
from headgate_coordinator.catalog.log import counters, edge_runs, partition_story, transfers
from headgate_coordinator.catalog.log import partitions as partition_rows
from headgate_coordinator.catalog.log.partitions import GRANT, name_of, ref_key
from headgate_coordinator.catalog.log.schema import edge_runs as edge_run_rows
from headgate_coordinator.catalog.log.schema import partition_epochs, partition_holes, partitions, producers, topics
from headgate_coordinator.catalog.schema import agents
from headgate_coordinator.catalog.sessions import batched
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.catalog.wire import AnyRow
from headgate_coordinator.errors import (
    AGENT_NOT_ELIGIBLE,
    GRANT_CONFLICT,
    INVALID_CONFIG,
    LOSS_NOT_ACCEPTED,
    NO_VOLUME,
    PARTITION_LED,
    PARTITION_NOT_FOUND,
    SESSION_EXPIRED,
    TOPIC_NOT_FOUND,
    WAITS_FOR_VOLUME,
)

LOSS_ACCEPTED = "leader lost with its disk, loss accepted by an operator"

_AGENT = select(agents.c.uid, agents.c.name, agents.c.roles, agents.c.group_name, agents.c.volume_id).where(
    agents.c.session_uid == bindparam("session_")
)
_LEAD = (
    update(partitions)
    .where(partitions.c.key == bindparam("key_"))
    .values(waiting="", volume_id=bindparam("volume_"), revision=bindparam("revision_"))
)
_WAIT = (
    update(partitions)
    .where(partitions.c.key == bindparam("key_"))
    .values(waiting=bindparam("waiting_"), revision=bindparam("revision_"))
)
# What a session led when it ended: what only a volume has waits for that volume, the rest for anybody.
_LED = partitions.c.key.in_(partition_rows.HELD_BY)
_ON_DISK = partitions.c.reserved > partitions.c.committed
_LOST_VOLUMES = select(partitions.c.volume_id).where(_LED, _ON_DISK).distinct()
_LOST_ON_VOLUME = (
    update(partitions)
    .where(_LED, _ON_DISK, partitions.c.volume_id == bindparam("volume_"))
    .values(waiting=bindparam("waiting_"), revision=bindparam("revision_"))
)
_LOST = (
    update(partitions)
    .where(_LED, ~_ON_DISK)
    .values(waiting=bindparam("waiting_"), volume_id="", revision=bindparam("revision_"))
)
_DROPPED = update(partitions).where(_LED).values(waiting=bindparam("waiting_"), revision=bindparam("revision_"))
# Everything that was acknowledged is in segments.
_FLUSHED = (
    update(partitions)
    .where(partitions.c.key == bindparam("key_"))
    .values(
        reserved=bindparam("reserved_"),
        volume_id=bindparam("volume_"),
        waiting=bindparam("waiting_"),
        revision=bindparam("revision_"),
    )
)
_RESERVE = (
    update(partitions)
    .where(partitions.c.key == bindparam("key_"), partitions.c.reserved < bindparam("until_"))
    .values(reserved=bindparam("until_"))
)
_RECOVER = (
    update(partitions)
    .where(partitions.c.key == bindparam("key_"))
    .values(
        committed=partitions.c.reserved,
        volume_id="",
        waiting=partition_rows.NOBODY_YET,
        producers_forgotten=bindparam("producer_"),
        revision=bindparam("revision_"),
    )
)
_PRODUCERS = (
    select(producers.c.partition_key, producers.c.state)
    .where(producers.c.partition_key.in_(bindparam("keys_", expanding=True)))
    .order_by(producers.c.partition_key, producers.c.producer_id)
)
_EPOCHS = (
    select(partition_epochs.c.partition_key, partition_epochs.c.epoch, partition_epochs.c.start_offset)
    .where(partition_epochs.c.partition_key.in_(bindparam("keys_", expanding=True)))
    .order_by(partition_epochs.c.partition_key, partition_epochs.c.epoch)
)
# About how many bytes of an answer each partition takes beyond its own state, by the rows that are told of it.
_parts = union_all(
    *(
        select(rows.c.partition_key, size.label("size")).where(
            rows.c.partition_key.in_(bindparam("keys_", expanding=True))
        )
        for rows, size in (
            (producers, func.length(producers.c.state) + 8),
            (partition_epochs, partition_epochs.c.epoch * 0 + 24),
            (partition_holes, func.length(partition_holes.c.reason) + 32),
            (edge_run_rows, func.length(edge_run_rows.c.position) + 128),
        )
    )
).subquery()
_SIZES = select(_parts.c.partition_key, func.sum(_parts.c.size).label("size")).group_by(_parts.c.partition_key)
_STATE_SIZE = 1_024
# What is told of a partition is summed up for so many at a time, so that no more is read than an answer can take.
_SIZED_AT_ONCE = 50
DEFAULT_ACQUIRED_BYTES = 4 << 20


def agent_of(tx: Tx, session: str) -> AnyRow:
    """The agent whose session it is, or SESSION_EXPIRED. It must have the role LOG, else AGENT_NOT_ELIGIBLE."""
    agent = tx.connection.execute(_AGENT, {"session_": session}).one_or_none()
    if agent is None:
        raise HeadgateError(SESSION_EXPIRED, f"session {session[:64]!a} is no session of an agent, or has ended")
    if "LOG" not in json.loads(agent.roles):
        raise HeadgateError(
            AGENT_NOT_ELIGIBLE,
            f"agent {agent.name} has not the role LOG, so it leads nothing; start it with --roles log",
            metadata={"agent": agent.name},
        )
    return agent


def acquire_partitions(
    tx: Tx, request: log.AcquirePartitionsRequest, max_bytes: int = DEFAULT_ACQUIRED_BYTES
) -> log.AcquirePartitionsResponse:
    """Gives the session what it asks for and may have, and says of the rest why not.

    Those that would make the answer larger than about `max_bytes` are left out of it, and nothing becomes of them: a
    grant must not be given in an answer that never arrives. The first is always answered.
    """
    agent = agent_of(tx, request.session_id)
    answered = _fitting(tx, request.partitions, max_bytes)
    asked = {ref_key(ref): ref for ref in answered}
    rows = partition_rows.rows_of(tx, asked)
    ended = {ref_key(each.partition): each.epoch for each in request.ended}
    refusals: dict[str, str] = {}
    granted: list[str] = []
    anew: list[str] = []
    for key in asked:
        refusal = _refusal(rows.get(key), agent, request.session_id)
        if refusal:
            refusals[key] = refusal
        elif rows[key].session_uid != request.session_id:
            granted.append(key)
        elif rows[key].epoch <= ended.get(key, 0):
            anew.append(key)
    # Whoever has stopped leading and leads again begins anew, under a session that has lived on: what it sent before
    # (a segment, a merge, the end of a hand-over) may come now, and must not count.
    transfers.fail_of_partitions(tx, anew, "its leader began anew")
    granted += anew
    waiting = {key: waits_for(rows[key].volume_id) for key, why in refusals.items() if why == WAITS_FOR_VOLUME.name}
    news = {key: why for key, why in waiting.items() if rows[key].waiting != why}
    if granted or news:
        causes = {key: _taken(rows[key]) for key in (*granted, *news)}
        with partition_rows.recorded(tx, [*granted, *news], rows, cause=causes) as after:
            sessions.acquire_many(tx, GRANT, granted, request.session_id)
            lead(tx, {key: agent.volume_id if rows[key].durability == "WAL" else "" for key in granted})
            _say_waiting(tx, news)
        rows |= after
    return _answer(tx, answered, rows, refusals)


def _fitting(tx: Tx, asked: Sequence[log.PartitionRef], max_bytes: int) -> Sequence[log.PartitionRef]:
    """The first of those asked for, as many as fit into one answer."""
    total = 0
    for start in range(0, len(asked), _SIZED_AT_ONCE):
        part = asked[start : start + _SIZED_AT_ONCE]
        sizes = {row.partition_key: int(row.size) for row in tx.connection.execute(_SIZES, {"keys_": _keys(part)})}
        for at, ref in enumerate(part, start):
            total += _STATE_SIZE + sizes.get(ref_key(ref), 0)
            if total > max_bytes and at > 0:
                return asked[:at]
    return asked


def _keys(refs: Iterable[log.PartitionRef]) -> list[str]:
    return [ref_key(ref) for ref in refs]


def _taken(row: AnyRow) -> str:
    """Why an agent that asked for a partition was given it."""
    if row.epoch is None:
        return "it asked for it, the first to do so"
    if row.session_uid is not None:
        return "it had stopped leading it, and began anew"
    return "it asked for it, with the volume that it waited for" if stranded(row) else "it asked for it, and nobody led"


def lead(tx: Tx, volumes: Mapping[str, str]) -> None:
    """Notes that partitions have a leader, with the volume that may come to hold more than segments do."""
    if volumes:
        tx.connection.execute(
            _LEAD, [{"key_": key, "volume_": volume, "revision_": tx.revision} for key, volume in volumes.items()]
        )


def may_lead(row: AnyRow, agent: AnyRow) -> str:
    """Why the agent may not lead the partition, whoever leads it now, as a reason's name; empty if it may."""
    if row.pinned_agent not in ("", agent.name) or (not row.pinned_agent and row.group_name != agent.group_name):
        return AGENT_NOT_ELIGIBLE.name
    if row.durability == "WAL" and not agent.volume_id:
        return NO_VOLUME.name
    return ""


def _refusal(row: AnyRow | None, agent: AnyRow, session: str) -> str:
    if row is None:
        return PARTITION_NOT_FOUND.name
    if row.session_uid is not None:
        return "" if row.session_uid == session else GRANT_CONFLICT.name
    refusal = may_lead(row, agent)
    if not refusal and stranded(row) and row.volume_id != agent.volume_id:
        return WAITS_FOR_VOLUME.name
    return refusal


def stranded(row: AnyRow) -> bool:
    """Whether a volume may hold acknowledged records that no segment has."""
    waits: bool = row.reserved > row.committed
    return waits


def waits_for(volume: str) -> str:
    return (
        f"volume {volume} may hold acknowledged records which no segment has: it waits for an agent with that volume, "
        "or for `headgate topics recover --accept-loss`"
    )


def _answer(
    tx: Tx, asked: Iterable[log.PartitionRef], rows: Mapping[str, AnyRow], refusals: Mapping[str, str]
) -> log.AcquirePartitionsResponse:
    led = [key for key in rows if key not in refusals]
    states = dict(zip(rows, partition_rows.messages_with_offsets(tx, list(rows.values())), strict=True))
    producer_states, epochs, runs = _producers(tx, led), _epochs(tx, led), edge_runs.of_partitions(tx, led)
    return log.AcquirePartitionsResponse(
        partitions=(
            log.AcquiredPartition(
                partition=ref,
                epoch=0 if key in refusals else rows[key].epoch,
                refusal=refusals.get(key, ""),
                state=states.get(key),
                producers=producer_states[key],
                producers_forgotten=0 if key in refusals else rows[key].producers_forgotten,
                epochs=epochs[key],
                runs=runs[key],
            )
            for ref in asked
            for key in (ref_key(ref),)
        )
    )


def _producers(tx: Tx, keys: Collection[str]) -> Mapping[str, list[log.ProducerState]]:
    found: dict[str, list[log.ProducerState]] = defaultdict(list)
    for part in batched(keys):
        for row in tx.connection.execute(_PRODUCERS, {"keys_": part}):
            found[row.partition_key].append(log.ProducerState.FromString(row.state))
    return found


def _epochs(tx: Tx, keys: Collection[str]) -> Mapping[str, list[log.EpochStart]]:
    found: dict[str, list[log.EpochStart]] = defaultdict(list)
    for part in batched(keys):
        for row in tx.connection.execute(_EPOCHS, {"keys_": part}):
            found[row.partition_key].append(log.EpochStart(epoch=row.epoch, offset=row.start_offset))
    return found


def release_partitions(tx: Tx, request: log.ReleasePartitionsRequest) -> log.ReleasePartitionsResponse:
    """Gives partitions back. One that was given back under the same epoch before is left as it is."""
    agent = agent_of(tx, request.session_id)
    asked = {ref_key(each.leader.partition): each for each in request.partitions}
    rows = partition_rows.rows_of(tx, asked)
    held = {
        key: each
        for key, each in asked.items()
        if not (key in rows and rows[key].session_uid is None and rows[key].epoch == each.leader.epoch)
    }
    sessions.verify_many(tx, GRANT, {key: each.leader.epoch for key, each in held.items()}, request.session_id)
    if not held:
        return log.ReleasePartitionsResponse()
    transfers.fail_of_partitions(tx, held, f"agent {agent.name} gave the partition back")
    gave_back = f"agent {agent.name} gave it back"
    with partition_rows.recorded(tx, held, rows, cause=gave_back):
        sessions.release_many(tx, GRANT, held)
        flush(tx, [rows[key] for key, each in held.items() if each.flushed or not stranded(rows[key])], "", gave_back)
        _say_waiting(
            tx,
            {
                key: waits_for(rows[key].volume_id)
                for key, each in held.items()
                if not each.flushed and stranded(rows[key])
            },
        )
    return log.ReleasePartitionsResponse()


def flush(tx: Tx, rows: Iterable[AnyRow], volume: str, waiting: str) -> None:
    """Notes that segments have all that was acknowledged; `volume` is that of the next leader, where there is one."""
    values = [
        {
            "key_": row.key,
            "reserved_": row.committed if row.reserved else 0,
            "volume_": volume if row.durability == "WAL" else "",
            "waiting_": waiting,
            "revision_": tx.revision,
        }
        for row in rows
    ]
    if values:
        tx.connection.execute(_FLUSHED, values)


def leader_gone(agent: str) -> str:
    return f"its leader, agent {agent}, is gone"


def lost(tx: Tx, session: str, agent: str) -> None:
    """What the end of a leader's session leaves of its partitions. Called before the session is closed."""
    for volume in tx.connection.execute(_LOST_VOLUMES, {"session_": session}).scalars().all():
        tx.connection.execute(
            _LOST_ON_VOLUME,
            {"session_": session, "volume_": volume, "waiting_": waits_for(volume), "revision_": tx.revision},
        )
    tx.connection.execute(_LOST, {"session_": session, "waiting_": leader_gone(agent), "revision_": tx.revision})


def leader_dropped(tx: Tx, session: str, agent: str) -> None:
    """Says of the partitions of a session why nobody else leads them yet, though its agent is gone from the catalog."""
    waiting = f"its leader, agent {agent}, was dropped: another may lead it when that one's session has run out"
    tx.connection.execute(_DROPPED, {"session_": session, "waiting_": waiting, "revision_": tx.revision})


def reserve_offsets(tx: Tx, request: log.ReserveOffsetsRequest) -> log.ReserveOffsetsResponse:
    """Raises what leaders of WAL partitions may acknowledge; never lowers it. No revision."""
    asked = {ref_key(each.leader.partition): each for each in request.reservations}
    epochs = {key: each.leader.epoch for key, each in asked.items()}
    sessions.verify_many(tx, GRANT, epochs, request.session_id)
    for key, row in partition_rows.rows_of(tx, asked).items():
        if row.durability != "WAL":
            raise HeadgateError(
                INVALID_CONFIG,
                f"topic {row.topic} is {row.durability}-durable: it acknowledges what segments have, and reserves none",
                metadata={"partition": key},
            )
    tx.connection.execute(_RESERVE, [{"key_": key, "until_": each.until_offset} for key, each in asked.items()])
    return log.ReserveOffsetsResponse()


def recover_partitions(tx: Tx, request: log.RecoverPartitionsRequest) -> log.RecoverPartitionsResponse:
    """Gives up what a lost leader may have acknowledged: [committed, reserved) becomes a hole.

    PARTITION_LED if an agent leads one that is named. Without names, those that wait are meant; one that has nothing to
    lose is left as it is.
    """
    statement = partition_rows.PARTITIONS.where(topics.c.name == request.topic).order_by(partitions.c.ordinal)
    rows = {row.ordinal: row for row in tx.connection.execute(statement)}
    if not rows:
        raise HeadgateError(
            TOPIC_NOT_FOUND, f"there is no topic {ascii(request.topic[:60])[1:-1]}", metadata={"kind": "topic"}
        )
    chosen = _chosen(rows, request.partitions, request.topic)
    waiting = [row for row in chosen if stranded(row)]
    if waiting and not request.accept_loss:
        at_most = sum(row.reserved - row.committed for row in waiting)
        raise HeadgateError(
            LOSS_NOT_ACCEPTED,
            f"up to {at_most:,} acknowledged records of {len(waiting)} partitions of topic {request.topic} are on "
            f"volume {', '.join(sorted({row.volume_id for row in waiting}))} only, and would be lost",
            metadata={"records": str(at_most), "partitions": ", ".join(str(row.ordinal) for row in waiting)},
        )
    if waiting:
        _give_up(tx, waiting)
    after = partition_rows.rows_of(tx, [row.key for row in chosen])
    return log.RecoverPartitionsResponse(
        partitions=partition_rows.messages_with_offsets(tx, [after[row.key] for row in chosen])
    )


def _chosen(rows: Mapping[int, AnyRow], asked: Iterable[int], topic: str) -> list[AnyRow]:
    named = list(dict.fromkeys(asked))
    for index in named:
        if index not in rows:
            raise HeadgateError(
                PARTITION_NOT_FOUND,
                f"topic {topic} has partitions 0 to {len(rows) - 1}, and no {index}",
                metadata={"topic": topic, "partition": str(index)},
            )
        if rows[index].session_uid is not None:
            raise HeadgateError(
                PARTITION_LED,
                f"agent {rows[index].leader} leads partition {name_of(rows[index])}",
                metadata={"partition": name_of(rows[index]), "leader": rows[index].leader or ""},
            )
    if named:
        return [rows[index] for index in named]
    return [row for row in rows.values() if row.session_uid is None and stranded(row)]


def _give_up(tx: Tx, rows: Collection[AnyRow]) -> None:
    partition_story.append(
        tx,
        [
            partition_story.Entry(
                row.topic_uid,
                row.ordinal,
                "HOLE",
                LOSS_ACCEPTED,
                epoch=row.epoch or 0,
                from_offset=row.committed,
                to_offset=row.reserved,
            )
            for row in rows
        ],
    )
    with partition_rows.recorded(tx, [row.key for row in rows]):
        tx.connection.execute(
            insert(partition_holes),
            [
                {
                    "partition_key": row.key,
                    "from_offset": row.committed,
                    "to_offset": row.reserved,
                    "reason": LOSS_ACCEPTED,
                    "time": tx.now,
                }
                for row in rows
            ],
        )
        # What was lost may have been all that a producer had written. One that is known stays known: a retry of what
        # segments hold is still told from a new batch, and one that misses what was lost is refused, and begins anew.
        forgotten = counters.last(tx, counters.PRODUCER_ID)
        tx.connection.execute(
            _RECOVER, [{"key_": row.key, "producer_": forgotten, "revision_": tx.revision} for row in rows]
        )


def _say_waiting(tx: Tx, reasons: Mapping[str, str]) -> None:
    if reasons:
        tx.connection.execute(
            _WAIT, [{"key_": key, "waiting_": why, "revision_": tx.revision} for key, why in reasons.items()]
        )
