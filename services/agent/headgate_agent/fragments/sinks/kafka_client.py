"""Clients of an Apache Kafka cluster, for KAFKA sinks, edges on Kafka and whoever asks brokers: settings, and what
their errors mean for a run."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError

from headgate_agent.errors import (
    EDGE_MISSING,
    EDGE_REFUSED,
    EDGE_UNAVAILABLE,
    RECORD_TOO_LARGE,
    SINK_MISSING,
    SINK_REFUSED,
    SINK_UNAVAILABLE,
    STALE_EPOCH,
)
from headgate_common.errors import HeadgateError, Reason

log = logging.getLogger(__name__)

_PASSED_ON = {
    "bootstrap_servers": "bootstrap.servers",
    "security_protocol": "security.protocol",
    "sasl_mechanism": "sasl.mechanism",
    "sasl_username": "sasl.username",
    "sasl_password": "sasl.password",
    "ssl_ca_location": "ssl.ca.location",
    "ssl_certificate_location": "ssl.certificate.location",
    "ssl_key_location": "ssl.key.location",
    "ssl_key_password": "ssl.key.password",
}
# What the client adds to an error that is otherwise the same each time.
_PASSING_DETAIL = re.compile(r"\s*\(after \d+ms in state [^)]*\)")
# What the client holds of records that no broker has acknowledged: bytes in KiB, and records.
_QUEUED_KBYTES = 64 << 10
_QUEUED_RECORDS = 200_000
# The broker's own limit decides; this one is only the client's.
_LARGEST_RECORD = 64 << 20
_FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
_MISSING = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError.UNKNOWN_TOPIC_ID,
    KafkaError.OFFSET_OUT_OF_RANGE,
    KafkaError._AUTO_OFFSET_RESET,
)
# A cluster whose partitions move, or that has not told all its brokers of a new topic, answers so for a while.
_SETTLING = (
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.NOT_CONTROLLER,
)
_TOO_LARGE = (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE)
_REFUSED = (
    KafkaError._AUTHENTICATION,
    KafkaError._SSL,
    KafkaError._INVALID_ARG,
    KafkaError._UNSUPPORTED_FEATURE,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    KafkaError.UNSUPPORTED_VERSION,
    KafkaError.POLICY_VIOLATION,
    KafkaError.INVALID_CONFIG,
)


@dataclass(frozen=True, slots=True)
class Reasons:
    """What is told of a topic that is not there, of a cluster that refuses the client, and of all that may pass."""

    missing: Reason
    refused: Reason
    unavailable: Reason


SINK = Reasons(SINK_MISSING, SINK_REFUSED, SINK_UNAVAILABLE)
EDGE = Reasons(EDGE_MISSING, EDGE_REFUSED, EDGE_UNAVAILABLE)


def client_settings(options: Mapping[str, str]) -> dict[str, Any]:
    """How the cluster is reached. Secrets are among them: not for logs."""
    return {theirs: options[ours] for ours, theirs in _PASSED_ON.items() if ours in options}


def producer_settings(options: Mapping[str, str], transactional_id: str, transaction_timeout: float) -> dict[str, Any]:
    return {
        **client_settings(options),
        "transactional.id": transactional_id,
        "transaction.timeout.ms": int(transaction_timeout * 1000),
        # The partition that the Java client would choose for a key.
        "partitioner": "murmur2_random",
        "linger.ms": 5,
        "message.max.bytes": _LARGEST_RECORD,
        "queue.buffering.max.kbytes": _QUEUED_KBYTES,
        "queue.buffering.max.messages": _QUEUED_RECORDS,
        "delivery.report.only.error": True,
    }


def consumer_settings(options: Mapping[str, str], group: str) -> dict[str, Any]:
    return {
        **client_settings(options),
        "group.id": group,
        "enable.auto.commit": False,
        # A position that is still part of an open transaction is waited for.
        "isolation.level": "read_committed",
        "allow.auto.create.topics": False,
    }


def fenced(error: KafkaError) -> bool:
    return error.code() in _FENCED


def may_repeat(error: KafkaError) -> bool:
    """Whether the same call may be made again, and goes on where it was."""
    return bool(error.retriable()) or error.code() in _SETTLING


def reason_of(error: KafkaError, reasons: Reasons = SINK) -> Reason:
    known = (
        (_FENCED, STALE_EPOCH),
        (_MISSING, reasons.missing),
        (_TOO_LARGE, RECORD_TOO_LARGE),
        (_REFUSED, reasons.refused),
    )
    return next((reason for codes, reason in known if error.code() in codes), reasons.unavailable)


def lasting_text(error: KafkaError) -> str:
    """What it says, without what differs from one time to the next."""
    return _PASSING_DETAIL.sub("", error.str())


def failure(error: KafkaError, what: str, cause: KafkaError | None = None, reasons: Reasons = SINK) -> HeadgateError:
    """`cause` is what the client reported beside: why no broker answers, or why a record was not taken."""
    reason = reason_of(error, reasons)
    text = error.str()
    if cause is not None:
        text = f"{text} ({lasting_text(cause)})"
        if reason is reasons.unavailable:
            reason = reason_of(cause, reasons)
    return HeadgateError(reason, f"{what}: {text}")
