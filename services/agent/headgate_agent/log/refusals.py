"""What a caller of gRPC is told of the log's own errors: one place where each gets its reason."""

from __future__ import annotations

from headgate_agent.errors import (
    CORRUPT_BATCH,
    DATA_DAMAGED,
    LEASE_CONFLICT,
    NOT_LEADER,
    OBJECT_STORE_UNAVAILABLE,
    OFFSET_OUT_OF_RANGE,
    RECORD_TOO_LARGE,
    RECORDS_REFUSED,
    SEQUENCE_REFUSED,
    STALE_EPOCH,
    UNKNOWN_PARTITION,
    WAL_UNAVAILABLE,
)
from headgate_agent.log.access import ClusterView, OffsetOutOfRange, UnknownPartition
from headgate_agent.log.contract import NotAccepted, NotLeader, PartitionKey, StaleEpoch, TooLarge
from headgate_agent.log.objects import ObjectMissing, ObjectStoreFailed
from headgate_agent.log.producers import SequenceRefused
from headgate_agent.log.record_batch import CorruptBatch
from headgate_agent.log.segment import CorruptSegment
from headgate_agent.log.wal import WalRefused, WalStopped
from headgate_common.errors import HeadgateError, Reason

# What may be wrong with one partition of a call without failing the others.
EXPECTED = (
    NotLeader,
    UnknownPartition,
    OffsetOutOfRange,
    NotAccepted,
    SequenceRefused,
    CorruptBatch,
    WalRefused,
    WalStopped,
    ObjectMissing,
    ObjectStoreFailed,
    CorruptSegment,
    HeadgateError,
)
_REASONS: tuple[tuple[type[Exception], Reason], ...] = (
    (UnknownPartition, UNKNOWN_PARTITION),
    (OffsetOutOfRange, OFFSET_OUT_OF_RANGE),
    (TooLarge, RECORD_TOO_LARGE),
    (NotAccepted, RECORDS_REFUSED),
    (CorruptBatch, CORRUPT_BATCH),
    (WalRefused, WAL_UNAVAILABLE),
    (WalStopped, WAL_UNAVAILABLE),
    (ObjectStoreFailed, OBJECT_STORE_UNAVAILABLE),
    (ObjectMissing, DATA_DAMAGED),
    (CorruptSegment, DATA_DAMAGED),
)


def refusal(error: Exception, view: ClusterView, key: PartitionKey | None = None, own_name: str = "") -> HeadgateError:
    """The error as a caller sees it; one that nobody foresaw stays as it is, and is raised."""
    if isinstance(error, HeadgateError):
        return error
    if isinstance(error, NotLeader):
        return _not_leader(error, view, key, own_name)
    if isinstance(error, SequenceRefused):
        return HeadgateError(SEQUENCE_REFUSED, str(error), metadata={"problem": error.problem.name})
    for kind, reason in _REASONS:
        if isinstance(error, kind):
            return HeadgateError(reason, str(error))
    raise error


def _not_leader(error: NotLeader, view: ClusterView, key: PartitionKey | None, own_name: str) -> HeadgateError:
    if key is None:
        return HeadgateError(NOT_LEADER, str(error))
    leader = view.leadership(key).leader
    peer = view.peer(leader) if leader else None
    if leader == own_name and own_name and not isinstance(error, StaleEpoch):
        # The catalog still names this agent, which is not sure of itself any more.
        return HeadgateError(LEASE_CONFLICT, str(error), metadata={"leader": leader})
    metadata = {"leader": leader, "address": peer.address} if peer is not None else {}
    reason = STALE_EPOCH if isinstance(error, StaleEpoch) else NOT_LEADER
    return HeadgateError(reason, str(error), metadata=metadata)
