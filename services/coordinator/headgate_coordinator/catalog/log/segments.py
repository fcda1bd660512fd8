"""Segments: what makes records visible, merged or gone.

All of it is done by leaders, and each call verifies their grants in its own transaction, so a former leader changes
nothing. None of it is a revision of the catalog. A segment is known by its uid: committing it again is no error.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import bindparam, delete, func, insert, select, update

from headgate.log import v1 as log
from headgate_common.errors import INVALID_ARGUMENT, HeadgateError
from headgate_coordinator.catalog import sessions
from headgate_coordinator.catalog.log import partitions as partition_rows
from headgate_coordinator.catalog.log.partitions import GRANT, name_of, ref_key
from headgate_coordinator.catalog.log.schema import partition_epochs, partition_holes, partitions, producers, segments
from headgate_coordinator.catalog.sessions import batched
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.catalog.wire import AnyRow
from headgate_coordinator.errors import OFFSET_CONFLICT, OFFSET_OUT_OF_RANGE

DEFAULT_LIMIT = 1_000
DEFAULT_PRODUCERS = 10_000
# A statement takes a bounded number of parameters.
_PRODUCERS_AT_ONCE = 5_000

_KNOWN = select(segments.c.uid, segments.c.partition_key, segments.c.base_offset, segments.c.next_offset).where(
    segments.c.uid.in_(bindparam("uids_", expanding=True))
)
_ADVANCE = (
    update(partitions)
    .where(partitions.c.key == bindparam("key_"))
    .values(
        committed=bindparam("committed_"),
        reserved=bindparam("reserved_"),
        bytes=partitions.c.bytes + bindparam("bytes_"),
    )
)
_RESIZE = (
    update(partitions)
    .where(partitions.c.key == bindparam("key_"))
    .values(bytes=partitions.c.bytes + bindparam("bytes_"))
)
_TRIM = (
    update(partitions)
    .where(partitions.c.key == bindparam("key_"))
    .values(
        log_start=bindparam("start_"),
        committed=bindparam("committed_"),
        bytes=partitions.c.bytes - bindparam("bytes_"),
    )
)
_of_start = partition_epochs.alias()
_INSERT = insert(segments)
_DELETE = delete(segments).where(
    segments.c.partition_key == bindparam("key_"), segments.c.base_offset == bindparam("base_")
)
_INSERT_EPOCHS, _INSERT_PRODUCERS = insert(partition_epochs), insert(producers)
_LAST_EPOCHS = (
    select(partition_epochs.c.partition_key, func.max(partition_epochs.c.epoch).label("epoch"))
    .where(partition_epochs.c.partition_key.in_(bindparam("keys_", expanding=True)))
    .group_by(partition_epochs.c.partition_key)
)
_DELETE_PRODUCER = delete(producers).where(
    producers.c.partition_key == bindparam("key_"), producers.c.producer_id == bindparam("producer_")
)
_KNOWN_PRODUCERS = select(producers.c.partition_key, producers.c.producer_id).where(
    producers.c.partition_key.in_(bindparam("keys_", expanding=True)),
    producers.c.producer_id.in_(bindparam("producers_", expanding=True)),
)
_CROWDED = (
    select(producers.c.partition_key, func.count().label("remembered"))
    .where(producers.c.partition_key.in_(bindparam("keys_", expanding=True)))
    .group_by(producers.c.partition_key)
    .having(func.count() > bindparam("most_"))
)
_OLDEST_PRODUCERS = (
    select(producers.c.partition_key, producers.c.producer_id)
    .where(producers.c.partition_key == bindparam("key_"))
    .order_by(producers.c.time, producers.c.producer_id)
    .limit(bindparam("limit_"))
)
_FORGOTTEN = (
    update(partitions)
    .where(partitions.c.key == bindparam("key_"), partitions.c.producers_forgotten < bindparam("producer_"))
    .values(producers_forgotten=bindparam("producer_"))
)
_SEGMENTS = select(
    segments.c.partition_key,
    segments.c.uid,
    segments.c.object_key,
    segments.c.base_offset,
    segments.c.next_offset,
    segments.c.bytes,
    segments.c.position,
    segments.c.min_timestamp,
    segments.c.max_timestamp,
    segments.c.epoch,
)
_OF_PARTITION = _SEGMENTS.where(segments.c.partition_key == bindparam("key_")).order_by(segments.c.base_offset)
# The last segment that begins at the offset or before it; the primary key finds it at once.
_AT = (
    select(func.max(segments.c.base_offset))
    .where(segments.c.partition_key == bindparam("key_"), segments.c.base_offset <= bindparam("from_"))
    .scalar_subquery()
)
_FROM = _OF_PARTITION.where(
    segments.c.base_offset >= func.coalesce(_AT, 0), segments.c.next_offset > bindparam("from_")
).limit(bindparam("limit_"))
_NAMED = select(segments.c.object_key).where(segments.c.object_key.in_(bindparam("keys_", expanding=True))).distinct()
_FORGET_EPOCHS = delete(partition_epochs).where(
    partition_epochs.c.partition_key == bindparam("key_"),
    partition_epochs.c.epoch
    < select(func.max(_of_start.c.epoch))
    .where(_of_start.c.partition_key == bindparam("key_"), _of_start.c.start_offset <= bindparam("start_"))
    .scalar_subquery(),
)
_FORGET_HOLES = delete(partition_holes).where(
    partition_holes.c.partition_key == bindparam("key_"), partition_holes.c.to_offset <= bindparam("start_")
)
_BEFORE = _OF_PARTITION.where(segments.c.next_offset <= bindparam("start_"))


@dataclass(slots=True)
class _Growth:
    """What a commit adds to one partition."""

    row: AnyRow
    committed: int
    bytes: int = 0
    # Epochs that wrote here for the first time, with their first offset.
    epochs: dict[int, int] = field(default_factory=dict)


def commit_segments(
    tx: Tx, request: log.CommitSegmentsRequest, most_producers: int = DEFAULT_PRODUCERS
) -> log.CommitSegmentsResponse:
    """Makes uploaded segments visible, all or none.

    Those that are visible already need no grant: they are so, whoever leads now. Each of the others must begin where
    its partition ends (OFFSET_CONFLICT), under the epoch that leads it (STALE_EPOCH).

    A partition remembers `most_producers`: of more, those go that have written nothing for the longest time.
    """
    fresh = invisible(tx, request.commits)
    if fresh:
        verify(tx, [each.leader for each in fresh], request.session_id)
        show(tx, fresh, most_producers)
    return log.CommitSegmentsResponse()


def invisible(tx: Tx, commits: Sequence[log.SegmentCommit]) -> list[log.SegmentCommit]:
    """Those that no earlier call has made visible."""
    known = _known(tx, [each.segment.uid for each in commits])
    return [each for each in commits if not _is_known(each, known)]


def show(tx: Tx, commits: Sequence[log.SegmentCommit], most_producers: int = DEFAULT_PRODUCERS) -> None:
    """Makes segments visible whose leaders were verified; each begins where its partition ends, or OFFSET_CONFLICT."""
    _refuse_twice(commits)
    rows = partition_rows.rows_of(tx, {ref_key(each.leader.partition) for each in commits})
    growths = {key: _Growth(row, row.committed) for key, row in rows.items()}
    for each in commits:
        _grow(growths[ref_key(each.leader.partition)], each)
    _write(tx, commits, growths)
    _write_producers(tx, commits, most_producers)


def _known(tx: Tx, uids: Collection[str]) -> dict[str, AnyRow]:
    found: dict[str, AnyRow] = {}
    for part in batched(uids):
        found.update({row.uid: row for row in tx.connection.execute(_KNOWN, {"uids_": part})})
    return found


def _is_known(commit: log.SegmentCommit, known: Mapping[str, AnyRow]) -> bool:
    row = known.get(commit.segment.uid)
    if row is None:
        return False
    segment = commit.segment
    same = (row.partition_key, row.base_offset, row.next_offset) == (
        ref_key(commit.leader.partition),
        segment.base_offset,
        segment.next_offset,
    )
    if not same:
        raise HeadgateError(
            OFFSET_CONFLICT,
            f"segment {segment.uid} is visible already, in {row.partition_key} from {row.base_offset} to "
            f"{row.next_offset}; every segment has a uid of its own",
            metadata={"segment": segment.uid},
        )
    return True


def _refuse_twice(commits: Sequence[log.SegmentCommit]) -> None:
    seen: set[str] = set()
    for each in commits:
        if each.segment.uid in seen:
            raise HeadgateError(
                INVALID_ARGUMENT, f"segment {each.segment.uid} comes twice", metadata={"segment": each.segment.uid}
            )
        seen.add(each.segment.uid)


def verify(tx: Tx, leaders: Sequence[log.LeaderRef], session: str) -> None:
    """STALE_EPOCH unless the session leads all of them, each under the epoch that is named."""
    epochs: dict[str, int] = {}
    for leader in leaders:
        key = ref_key(leader.partition)
        if epochs.setdefault(key, leader.epoch) != leader.epoch:
            raise HeadgateError(INVALID_ARGUMENT, f"two epochs are named for partition {key}")
    sessions.verify_many(tx, GRANT, epochs, session)


def _grow(growth: _Growth, commit: log.SegmentCommit) -> None:
    segment, name = commit.segment, name_of(growth.row)
    _check_segment(segment, commit.leader, name)
    if segment.base_offset != growth.committed:
        raise HeadgateError(
            OFFSET_CONFLICT,
            f"segment {segment.uid} begins at {segment.base_offset}, and partition {name} ends at {growth.committed}",
            metadata={"partition": name, "committed": str(growth.committed)},
        )
    growth.committed = segment.next_offset
    growth.bytes += segment.bytes
    growth.epochs.setdefault(segment.epoch, segment.base_offset)


def _check_segment(segment: log.Segment, leader: log.LeaderRef, name: str) -> None:
    if segment.next_offset <= segment.base_offset:
        raise HeadgateError(INVALID_ARGUMENT, f"segment {segment.uid} of partition {name} ends before it begins")
    # A leader may publish what a former one has left: in its own write-ahead log, or in small segments.
    if segment.epoch > leader.epoch:
        raise HeadgateError(
            INVALID_ARGUMENT,
            f"segment {segment.uid} of partition {name} is of epoch {segment.epoch}, after that of its leader, "
            f"{leader.epoch}",
        )


def _write(tx: Tx, commits: Sequence[log.SegmentCommit], growths: Mapping[str, _Growth]) -> None:
    tx.connection.execute(_INSERT, [_segment_row(tx, ref_key(each.leader.partition), each.segment) for each in commits])
    tx.connection.execute(
        _ADVANCE,
        [
            {
                "key_": key,
                "committed_": growth.committed,
                # What is in segments need not be reserved any more, and was never reserved for nothing.
                "reserved_": max(growth.row.reserved, growth.committed) if growth.row.reserved else 0,
                "bytes_": growth.bytes,
            }
            for key, growth in growths.items()
        ],
    )
    _write_epochs(tx, growths)


def _segment_row(tx: Tx, key: str, segment: log.Segment) -> dict[str, object]:
    return {
        "partition_key": key,
        "uid": segment.uid,
        "object_key": segment.key,
        "base_offset": segment.base_offset,
        "next_offset": segment.next_offset,
        "bytes": segment.bytes,
        "position": segment.position,
        "min_timestamp": segment.min_timestamp,
        "max_timestamp": segment.max_timestamp,
        "epoch": segment.epoch,
        "time": tx.now,
    }


def _write_epochs(tx: Tx, growths: Mapping[str, _Growth]) -> None:
    last: dict[str, int] = {}
    for part in batched(growths):
        last.update({row.partition_key: row.epoch for row in tx.connection.execute(_LAST_EPOCHS, {"keys_": part})})
    begun = [
        {"partition_key": key, "epoch": epoch, "start_offset": start}
        for key, growth in growths.items()
        for epoch, start in growth.epochs.items()
        if epoch > last.get(key, 0)
    ]
    if begun:
        tx.connection.execute(_INSERT_EPOCHS, begun)


def _write_producers(tx: Tx, commits: Sequence[log.SegmentCommit], most: int) -> None:
    states: dict[tuple[str, int], log.ProducerState] = {}
    for each in commits:
        key = ref_key(each.leader.partition)
        states.update({(key, state.producer_id): state for state in each.producers})
    if not states:
        return
    grown = {key for key, _ in states.keys() - _known_producers(tx, states)}
    tx.connection.execute(_DELETE_PRODUCER, [{"key_": key, "producer_": producer} for key, producer in states])
    tx.connection.execute(
        _INSERT_PRODUCERS,
        [
            {
                "partition_key": key,
                "producer_id": producer,
                "state": state.SerializeToString(deterministic=True),
                "time": tx.now,
            }
            for (key, producer), state in states.items()
        ],
    )
    _forget_beyond(tx, grown, most)


def _known_producers(tx: Tx, wanted: Collection[tuple[str, int]]) -> set[tuple[str, int]]:
    """Those that their partition remembers."""
    known: set[tuple[str, int]] = set()
    ids = sorted({producer for _, producer in wanted})
    for keys in batched({key for key, _ in wanted}):
        for start in range(0, len(ids), _PRODUCERS_AT_ONCE):
            asked = {"keys_": keys, "producers_": ids[start : start + _PRODUCERS_AT_ONCE]}
            known.update((row.partition_key, row.producer_id) for row in tx.connection.execute(_KNOWN_PRODUCERS, asked))
    return known


def _forget_beyond(tx: Tx, keys: Collection[str], most: int) -> None:
    """Forgets producers of partitions that remember more than `most`, those first that were silent for longest."""
    crowded = [row for part in batched(keys) for row in tx.connection.execute(_CROWDED, {"keys_": part, "most_": most})]
    for row in crowded:
        excess = {"key_": row.partition_key, "limit_": row.remembered - most}
        _forget(tx, tx.connection.execute(_OLDEST_PRODUCERS, excess).all())


def replace_segments(tx: Tx, request: log.ReplaceSegmentsRequest) -> log.ReplaceSegmentsResponse:
    """Puts one segment in the place of some that follow each other. OFFSET_CONFLICT where they are not as it says."""
    key, merged = ref_key(request.leader.partition), request.segment
    if _is_known(log.SegmentCommit(leader=request.leader, segment=merged), _known(tx, [merged.uid])):
        return log.ReplaceSegmentsResponse()
    verify(tx, [request.leader], request.session_id)
    row = partition_rows.row_of(tx, key)
    _check_segment(merged, request.leader, name_of(row))
    known = _known(tx, request.segment_uids)
    replaced = [known.get(uid) for uid in request.segment_uids]
    holes = _holes(tx, key)
    at = merged.base_offset
    for uid, each in zip(request.segment_uids, replaced, strict=True):
        if each is None or each.partition_key != key:
            raise _conflict(f"partition {name_of(row)} has no segment {uid[:64]}", row)
        while at in holes:
            at = holes[at]
        if each.base_offset != at:
            raise _conflict(f"segment {uid} begins at {each.base_offset}, where {at} is next", row)
        at = each.next_offset
    if at != merged.next_offset:
        raise _conflict(f"the segments end at {at}, and the one in their place at {merged.next_offset}", row)
    listed = [each for each in replaced if each is not None]
    size = tx.connection.execute(
        select(func.sum(segments.c.bytes)).where(
            segments.c.partition_key == key,
            segments.c.base_offset >= merged.base_offset,
            segments.c.base_offset < merged.next_offset,
        )
    ).scalar_one()
    tx.connection.execute(_DELETE, [{"key_": key, "base_": each.base_offset} for each in listed])
    tx.connection.execute(_INSERT, _segment_row(tx, key, merged))
    tx.connection.execute(_RESIZE, {"key_": key, "bytes_": merged.bytes - int(size)})
    return log.ReplaceSegmentsResponse()


def _holes(tx: Tx, key: str) -> dict[int, int]:
    """Where holes of a partition begin, and where each ends."""
    found = select(partition_holes.c.from_offset, partition_holes.c.to_offset).where(
        partition_holes.c.partition_key == key
    )
    return {row.from_offset: row.to_offset for row in tx.connection.execute(found)}


def _conflict(message: str, row: AnyRow) -> HeadgateError:
    return HeadgateError(OFFSET_CONFLICT, message, metadata={"partition": name_of(row)})


def trim_partitions(tx: Tx, request: log.TrimPartitionsRequest) -> log.TrimPartitionsResponse:
    """Moves starts forward and removes segments that end before them; they are the answer.

    A leader of a WAL topic may go beyond what is in segments, up to what it has reserved: what it acknowledged and
    nobody needs any more is never uploaded, and the next segment begins behind it.
    """
    verify(tx, [each.leader for each in request.trims], request.session_id)
    starts = {ref_key(each.leader.partition): each.log_start for each in request.trims}
    rows = partition_rows.rows_of(tx, starts)
    removed: list[AnyRow] = []
    trimmed = []
    for key, start in starts.items():
        row = rows[key]
        end = max(row.committed, row.reserved)
        if start > end:
            raise HeadgateError(
                OFFSET_OUT_OF_RANGE,
                f"partition {name_of(row)} ends at {end}, so it cannot begin at {start}",
                metadata={"partition": name_of(row), "committed": str(row.committed)},
            )
        if start <= row.log_start:
            continue
        gone = tx.connection.execute(_BEFORE, {"key_": key, "start_": start}).all()
        removed += gone
        trimmed.append(
            {
                "key_": key,
                "start_": start,
                "committed_": max(row.committed, start),
                "bytes_": sum(each.bytes for each in gone),
            }
        )
    if removed:
        tx.connection.execute(_DELETE, [{"key_": each.partition_key, "base_": each.base_offset} for each in removed])
    if trimmed:
        tx.connection.execute(_TRIM, trimmed)
        # Epochs and holes that ended before the start are nobody's concern any more.
        passed = [{"key_": each["key_"], "start_": each["start_"]} for each in trimmed]
        tx.connection.execute(_FORGET_EPOCHS, passed)
        tx.connection.execute(_FORGET_HOLES, passed)
    return log.TrimPartitionsResponse(removed=[message(row) for row in removed])


def list_segments(tx: Tx, request: log.ListSegmentsRequest) -> log.ListSegmentsResponse:
    """From the one that holds the offset on, in order."""
    key = ref_key(request.partition)
    row = partition_rows.row_of(tx, key)
    wanted = {"key_": key, "from_": request.from_offset, "limit_": request.limit or DEFAULT_LIMIT}
    return log.ListSegmentsResponse(
        segments=[message(each) for each in tx.connection.execute(_FROM, wanted)],
        log_start=row.log_start,
        committed_offset=row.committed,
    )


def find_objects(tx: Tx, request: log.FindObjectsRequest) -> log.FindObjectsResponse:
    """Those of the keys that some segment refers to. Any other is an orphan, if it is not an upload under way."""
    known: set[str] = set()
    for part in batched(request.keys):
        known.update(tx.connection.execute(_NAMED, {"keys_": part}).scalars())
    return log.FindObjectsResponse(known=[key for key in dict.fromkeys(request.keys) if key in known])


def forget_producers(tx: Tx, age: float, limit: int) -> int:
    """Forgets up to `limit` producers that wrote nothing for `age` seconds; how many is the answer."""
    old = (
        select(producers.c.partition_key, producers.c.producer_id)
        .where(producers.c.time < tx.now - round(age * 1_000_000))
        .order_by(producers.c.time)
        .limit(limit)
    )
    found = tx.connection.execute(old).all()
    _forget(tx, found)
    return len(found)


def _forget(tx: Tx, found: Sequence[AnyRow]) -> None:
    if found:
        rows = [{"key_": row.partition_key, "producer_": row.producer_id} for row in found]
        tx.connection.execute(_DELETE_PRODUCER, rows)
        tx.connection.execute(_FORGOTTEN, rows)


def message(row: AnyRow) -> log.Segment:
    return log.Segment(
        uid=row.uid,
        key=row.object_key,
        base_offset=row.base_offset,
        next_offset=row.next_offset,
        bytes=row.bytes,
        position=row.position,
        min_timestamp=row.min_timestamp,
        max_timestamp=row.max_timestamp,
        epoch=row.epoch,
    )
