"""What a caller of gRPC is told of the log's own errors: one place where each gets its reason."""

from __future__ import annotations

from headgate.log import v1 as api
from headgate_agent.errors import (
    CORRUPT_BATCH,
    DATA_DAMAGED,
    LEASE_CONFLICT,
    NOT_LEADER,
    OBJECT_STORE_UNAVAILABLE,
    OFFSET_OUT_OF_RANGE,
    RECORD_TOO_LARGE,
    RECORDS_REFUSED,
    RECORDS_UNCERTAIN,
    SEQUENCE_REFUSED,
    STALE_EPOCH,
    TOPIC_INTERNAL,
    UNKNOWN_PARTITION,
    WAL_UNAVAILABLE,
)
from headgate_agent.log.access import ClusterView, OffsetOutOfRange, UnknownPartition
from headgate_agent.log.contract import NotAccepted, NotLeader, PartitionKey, StaleEpoch, TooLarge, Uncertain
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
        told = {"problem": error.problem.name, "expected": str(error.expected)}
        return HeadgateError(SEQUENCE_REFUSED, str(error), metadata=told)
    for kind, reason in _REASONS:
        if isinstance(error, kind):
            return HeadgateError(reason, str(error))
    raise error


def refuse_internal(topic: api.Topic) -> None:
    """Raises for a topic of a query: what is in it is the query's alone to change, through EdgeService."""
    if topic.internal:
        raise HeadgateError(
            TOPIC_INTERNAL, f"topic {topic.name} belongs to a query", metadata={"query": topic.query_uid}
        )


def _not_leader(error: NotLeader, view: ClusterView, key: PartitionKey | None, own_name: str) -> HeadgateError:
    if key is None:
        return HeadgateError(_reason_of(error), str(error))
    leader = view.leadership(key).leader
    peer = view.peer(leader) if leader else None
    if leader == own_name and own_name and not isinstance(error, StaleEpoch | Uncertain):
        # The catalog still names this agent, which is not sure of itself any more.
        return HeadgateError(LEASE_CONFLICT, str(error), metadata={"leader": leader})
    metadata = {"leader": leader, "address": peer.address} if peer is not None else {}
    return HeadgateError(_reason_of(error), str(error), metadata=metadata)


def _reason_of(error: NotLeader) -> Reason:
    match error:
        case Uncertain():
            return RECORDS_UNCERTAIN
        case StaleEpoch():
            return STALE_EPOCH
    return NOT_LEADER
