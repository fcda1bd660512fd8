"""Runs that write and read edges: which one counts, and how far a writer has come.

A fragment's runs have epochs, of which only the highest that opened an edge counts. A commit of stages checks it, the
epochs of the leaders and where each partition ends, and changes the partitions and the writer in the one transaction;
so whoever leads the edge next, with or without the disk of the last leader, knows every batch that was committed, and
applies none of them again. Nothing of it is a revision.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import bindparam, false, insert, select, update

from headgate.log import v1 as log
from headgate_common.errors import INVALID_ARGUMENT, HeadgateError
from headgate_coordinator.catalog.log import segments
from headgate_coordinator.catalog.log.partitions import ref_key
from headgate_coordinator.catalog.log.schema import edge_runs
from headgate_coordinator.catalog.sessions import batched
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.catalog.wire import AnyRow
from headgate_coordinator.errors import STALE_RUN

_RUNS = select(edge_runs)
_OF_FRAGMENT = _RUNS.where(edge_runs.c.fragment_uid == bindparam("fragment_"), edge_runs.c.reads == bindparam("reads_"))
_OF_PARTITIONS = _RUNS.where(edge_runs.c.partition_key.in_(bindparam("keys_", expanding=True))).order_by(
    edge_runs.c.partition_key, edge_runs.c.reads, edge_runs.c.fragment_uid
)
_WRITERS = _RUNS.where(
    edge_runs.c.fragment_uid.in_(bindparam("fragments_", expanding=True)), edge_runs.c.reads == false()
).order_by(edge_runs.c.fragment_uid, edge_runs.c.partition_key)
_INSERT = insert(edge_runs)
_CHANGE = (
    update(edge_runs)
    .where(edge_runs.c.fragment_uid == bindparam("fragment_"), edge_runs.c.reads == bindparam("reads_"))
    .values(
        epoch=bindparam("epoch_"),
        batch_id=bindparam("batch_"),
        position=bindparam("position_"),
        ended=bindparam("ended_"),
        time=bindparam("time_"),
    )
)


def open_edge(tx: Tx, request: log.OpenEdgeRequest) -> log.OpenEdgeResponse:
    """Makes a run the one that counts, in everything that its fragment has opened. STALE_RUN if a later one does."""
    segments.verify(tx, request.leaders, request.session_id)
    rows = _of_fragment(tx, request.fragment_uid, request.reads)
    run = log.EdgeRun(fragment_uid=request.fragment_uid, reads=request.reads, batch_id=-1)
    if rows:
        run = message(rows[0])
        if run.epoch > request.epoch:
            raise _stale(request.fragment_uid, request.epoch, run.epoch)
    if rows and run.epoch < request.epoch:
        run.epoch = request.epoch
        _change(tx, run)
    run.epoch = request.epoch
    known = {row.partition_key for row in rows}
    fresh = [key for key in dict.fromkeys(ref_key(each.partition) for each in request.leaders) if key not in known]
    if fresh:
        tx.connection.execute(_INSERT, [_row(tx, key, run) for key in fresh])
    return log.OpenEdgeResponse(run=run)


def commit_stages(tx: Tx, request: log.CommitStagesRequest) -> log.CommitStagesResponse:
    """Makes a batch visible in all its partitions, once.

    Segments that are visible already were shown by the same call before, and need nothing: they are so, whoever leads
    or writes now.
    """
    after = request.writer
    if after.reads:
        raise HeadgateError(INVALID_ARGUMENT, f"fragment {after.fragment_uid} commits as a reader")
    if request.commits and not segments.invisible(tx, request.commits):
        rows = _of_fragment(tx, after.fragment_uid, reads=False)
        return log.CommitStagesResponse(applied=True, writer=message(rows[0]) if rows else after)
    segments.verify(tx, request.leaders, request.session_id)
    rows = _of_fragment(tx, after.fragment_uid, reads=False)
    if not rows or rows[0].epoch != after.epoch:
        raise _stale(after.fragment_uid, after.epoch, rows[0].epoch if rows else 0)
    if after.batch_id <= rows[0].batch_id:
        return log.CommitStagesResponse(applied=False, writer=message(rows[0]))
    _check_partitions(request, {row.partition_key for row in rows})
    if request.commits:
        segments.show(tx, request.commits)
    _change(tx, after)
    return log.CommitStagesResponse(applied=True, writer=after)


def find_writers(tx: Tx, request: log.FindWritersRequest) -> log.FindWritersResponse:
    """Those that are known, with what they have open."""
    found: dict[str, log.EdgeWriter] = {}
    for part in batched(dict.fromkeys(request.fragment_uids)):
        for row in tx.connection.execute(_WRITERS, {"fragments_": part}):
            writer = found.setdefault(row.fragment_uid, log.EdgeWriter(run=message(row)))
            topic_uid, _, index = row.partition_key.rpartition("/")
            writer.partitions.add(topic_uid=topic_uid, index=int(index))
    return log.FindWritersResponse(writers=found.values())


def of_partitions(tx: Tx, keys: Collection[str]) -> Mapping[str, list[log.EdgeRun]]:
    """The runs that opened each partition."""
    found: dict[str, list[log.EdgeRun]] = defaultdict(list)
    for part in batched(keys):
        for row in tx.connection.execute(_OF_PARTITIONS, {"keys_": part}):
            found[row.partition_key].append(message(row))
    return found


def message(row: AnyRow) -> log.EdgeRun:
    return log.EdgeRun(
        fragment_uid=row.fragment_uid,
        epoch=row.epoch,
        reads=row.reads,
        batch_id=row.batch_id,
        position=row.position,
        ended=row.ended,
    )


def _of_fragment(tx: Tx, fragment: str, reads: bool) -> Sequence[AnyRow]:
    return tx.connection.execute(_OF_FRAGMENT, {"fragment_": fragment, "reads_": reads}).all()


def _check_partitions(request: log.CommitStagesRequest, opened: Collection[str]) -> None:
    """What a commit touches was opened, and its leaders were verified with all the others."""
    led = {ref_key(each.partition): each.epoch for each in request.leaders}
    for each in request.commits:
        key = ref_key(each.leader.partition)
        if key not in opened or led.get(key) != each.leader.epoch:
            raise HeadgateError(
                INVALID_ARGUMENT,
                f"fragment {request.writer.fragment_uid} has not opened partition {key}, or its leader is not named",
                metadata={"partition": key},
            )


def _change(tx: Tx, run: log.EdgeRun) -> None:
    tx.connection.execute(
        _CHANGE,
        {
            "fragment_": run.fragment_uid,
            "reads_": run.reads,
            "epoch_": run.epoch,
            "batch_": run.batch_id,
            "position_": run.position,
            "ended_": run.ended,
            "time_": tx.now,
        },
    )


def _row(tx: Tx, key: str, run: log.EdgeRun) -> dict[str, object]:
    return {
        "partition_key": key,
        "fragment_uid": run.fragment_uid,
        "reads": run.reads,
        "epoch": run.epoch,
        "batch_id": run.batch_id,
        "position": run.position,
        "ended": run.ended,
        "time": tx.now,
    }


def _stale(fragment: str, epoch: int, now: int) -> HeadgateError:
    is_now = f"epoch {now} is" if now else "none is"
    return HeadgateError(
        STALE_RUN,
        f"epoch {epoch} of fragment {fragment} is not the one that has its edge open: {is_now}",
        metadata={"fragment": fragment, "epoch": str(now)},
    )
