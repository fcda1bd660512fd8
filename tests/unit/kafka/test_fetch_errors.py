"""What a consumer is told of a partition that cannot be read is something that it understands, and tries again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from kio.schema.errors import ErrorCode

from headgate_agent.kafka.config import KafkaLimits
from headgate_agent.kafka.fetch import Fetch
from headgate_agent.kafka.fetch_codec import FetchItem, FetchRequest
from headgate_agent.log.access import Bounds, FetchedPart, OffsetOutOfRange, UnknownPartition
from headgate_agent.log.contract import NotLeader, PartitionKey
from headgate_agent.log.fetching import too_slow
from headgate_agent.log.objects import ObjectMissing, ObjectStoreFailed
from headgate_common.errors import HeadgateError, Reason

BUSY = HeadgateError(Reason("OVERLOADED", grpc.StatusCode.RESOURCE_EXHAUSTED, ""), "later")
AWAY = HeadgateError(Reason("UNREACHABLE", grpc.StatusCode.UNAVAILABLE, ""), "nobody answers")


class Failing:
    def __init__(self, error: Exception) -> None:
        self._error = error

    def bounds(self, key: PartitionKey) -> Bounds:
        return Bounds(0, 10, 1)

    async def fetch(self, parts: Any, **_: Any) -> list[FetchedPart]:
        return [FetchedPart((), None, self._error) for _ in parts]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (too_slow(20.0), ErrorCode.kafka_storage_error),
        (BUSY, ErrorCode.kafka_storage_error),
        (AWAY, ErrorCode.kafka_storage_error),
        (ObjectStoreFailed("503"), ErrorCode.kafka_storage_error),
        (NotLeader("another"), ErrorCode.not_leader_or_follower),
        (UnknownPartition("none"), ErrorCode.unknown_topic_or_partition),
        (OffsetOutOfRange("9"), ErrorCode.offset_out_of_range),
        (ObjectMissing("k"), ErrorCode.unknown_server_error),
    ],
)
async def test_every_error_of_a_fetch_is_one_that_clients_know(error: Exception, code: ErrorCode) -> None:
    topic = SimpleNamespace(uid="t")
    topics: Any = SimpleNamespace(find=lambda name: topic, partition=lambda *_: (topic, PartitionKey("t", 0)))
    hints: Any = SimpleNamespace(find=lambda *_: None)
    access: Any = Failing(error)
    fetch = Fetch(access, topics, hints, KafkaLimits())
    request = FetchRequest(0, 1, 100, 0, -1, [FetchItem("orders", 0, -1, 0, -1, 100)])
    (result,) = await fetch(request)
    assert result.error_code is code
