"""What each of our errors is called in the Kafka protocol: the one place where that is decided."""

from __future__ import annotations

from collections.abc import Mapping

import grpc
from kio.schema.errors import ErrorCode

from headgate_agent.groups.events import GroupRefused
from headgate_agent.log.access import OffsetOutOfRange, UnknownPartition
from headgate_agent.log.contract import BadTimestamp, NotAccepted, NotLeader, TooLarge
from headgate_agent.log.objects import ObjectStoreFailed
from headgate_agent.log.producers import SequenceProblem, SequenceRefused
from headgate_agent.log.record_batch import CorruptBatch
from headgate_agent.log.wal import WalRefused, WalStopped
from headgate_common.errors import HeadgateError


class KafkaError(Exception):
    """An answer of the protocol that is an error; `message` goes to the client where the response has room for it."""

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(f"{code.name.upper()}: {message}" if message else code.name.upper())
        self.code = code
        self.message = message


_SEQUENCES: Mapping[SequenceProblem, ErrorCode] = {
    SequenceProblem.OUT_OF_ORDER_SEQUENCE_NUMBER: ErrorCode.out_of_order_sequence_number,
    SequenceProblem.INVALID_PRODUCER_EPOCH: ErrorCode.invalid_producer_epoch,
}

# By the reason of a HeadgateError, from the coordinator or another agent.
_REASONS: Mapping[str, ErrorCode] = {
    "ALREADY_EXISTS": ErrorCode.topic_already_exists,
    "INVALID_NAME": ErrorCode.invalid_topic_exception,
    "INVALID_CONFIG": ErrorCode.invalid_config,
    "TOPIC_NOT_FOUND": ErrorCode.unknown_topic_or_partition,
    "UID_MISMATCH": ErrorCode.unknown_topic_or_partition,
    "PARTITION_NOT_FOUND": ErrorCode.unknown_topic_or_partition,
    "TOPIC_IN_USE": ErrorCode.topic_deletion_disabled,
    "TOPIC_LIMIT_EXCEEDED": ErrorCode.policy_violation,
    "OFFSET_OUT_OF_RANGE": ErrorCode.offset_out_of_range,
}

# By its gRPC code, where the reason is not known here.
_CODES: Mapping[grpc.StatusCode, ErrorCode] = {
    grpc.StatusCode.INVALID_ARGUMENT: ErrorCode.invalid_request,
    grpc.StatusCode.FAILED_PRECONDITION: ErrorCode.policy_violation,
    grpc.StatusCode.ALREADY_EXISTS: ErrorCode.topic_already_exists,
    grpc.StatusCode.PERMISSION_DENIED: ErrorCode.cluster_authorization_failed,
    grpc.StatusCode.UNAUTHENTICATED: ErrorCode.cluster_authorization_failed,
    grpc.StatusCode.DEADLINE_EXCEEDED: ErrorCode.request_timed_out,
    grpc.StatusCode.UNAVAILABLE: ErrorCode.request_timed_out,
    grpc.StatusCode.ABORTED: ErrorCode.request_timed_out,
    grpc.StatusCode.CANCELLED: ErrorCode.request_timed_out,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ErrorCode.throttling_quota_exceeded,
}


def translate(error: BaseException) -> KafkaError:
    """The protocol's error for one of ours; UNKNOWN_SERVER_ERROR for one that nobody foresaw."""
    match error:
        case KafkaError():
            return error
        case SequenceRefused():
            return KafkaError(_SEQUENCES[error.problem], str(error))
        case NotLeader():
            return KafkaError(ErrorCode.not_leader_or_follower, str(error))
        case UnknownPartition():
            return KafkaError(ErrorCode.unknown_topic_or_partition, str(error))
        case OffsetOutOfRange():
            return KafkaError(ErrorCode.offset_out_of_range, str(error))
        case CorruptBatch():
            return KafkaError(ErrorCode.corrupt_message, str(error))
        case BadTimestamp():
            return KafkaError(ErrorCode.invalid_timestamp, str(error))
        case NotAccepted():
            too_large = isinstance(error, TooLarge)
            return KafkaError(ErrorCode.message_too_large if too_large else ErrorCode.invalid_record, str(error))
        case GroupRefused():
            return KafkaError(ErrorCode[error.refusal.name.lower()], error.message)
        case WalRefused() | WalStopped() | ObjectStoreFailed():
            return KafkaError(ErrorCode.kafka_storage_error, str(error))
        case TimeoutError():
            return KafkaError(ErrorCode.request_timed_out, "it took too long; it may have happened")
        case HeadgateError():
            code = _REASONS.get(error.reason.name) or _CODES.get(error.reason.code)
            return KafkaError(code or ErrorCode.unknown_server_error, error.message)
    return KafkaError(ErrorCode.unknown_server_error, "a defect stopped this request; the agent's log has its trace")


def foreseen(error: BaseException) -> bool:
    """Whether an error is an answer, not a defect."""
    return translate(error).code is not ErrorCode.unknown_server_error
