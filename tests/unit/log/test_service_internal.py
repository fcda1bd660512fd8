"""Records of a query's topics are changed by the query alone: every call of LogService that could do it refuses."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from headgate.log import v1 as api
from headgate_agent.errors import TOPIC_INTERNAL
from headgate_agent.log.access import Bounds, Leadership
from headgate_agent.log.contract import Appended, PartitionKey
from headgate_agent.log.records import PlainRecord, pack
from headgate_agent.log.service import LogService
from headgate_common.clock import SystemClock
from headgate_common.dispatch import Call
from headgate_common.errors import HeadgateError

TOPICS = {
    "orders": api.Topic(uid="topic-1", name="orders", partitions=1),
    "edge": api.Topic(uid="topic-2", name="edge", partitions=1, internal=True, query_uid="query-1"),
}


class Access:
    """One agent that leads everything; remembers which topics were changed."""

    def __init__(self) -> None:
        self.view: Any = self
        self.changed: list[str] = []

    def topic(self, name: str) -> api.Topic | None:
        return TOPICS.get(name)

    def topic_by_uid(self, uid: str) -> api.Topic | None:
        return next((one for one in TOPICS.values() if one.uid == uid), None)

    def leadership(self, key: PartitionKey) -> Leadership:
        return Leadership("a", 1)

    def bounds(self, key: PartitionKey) -> Bounds:
        return Bounds(0, 5, 1)

    async def confirm(self, key: PartitionKey) -> None:
        return

    async def produce(self, key: PartitionKey, batches: bytes) -> Appended:
        self.changed.append(key.topic_uid)
        return Appended(5, 6, 0)

    async def delete_records(self, key: PartitionKey, before: int) -> int:
        self.changed.append(key.topic_uid)
        return before


@pytest.fixture
def access() -> Access:
    return Access()


@pytest.fixture
def service(access: Access) -> LogService:
    leads: Any = access
    nowhere: Any = None
    return LogService(leads, transport=nowhere, clock=SystemClock(), source=random.Random(1), name="a")


def part(name: str) -> api.ProducePart:
    return api.ProducePart(topic_uid=TOPICS[name].uid, batches=b"".join(pack([PlainRecord(None, b"x", 0)], 1 << 20)))


async def test_a_produce_refuses_it_and_takes_the_other_parts(service: LogService, access: Access) -> None:
    answer = await service.produce(api.ProduceRequest(parts=[part("edge"), part("orders"), part("edge")]), Call())
    assert [one.error_reason for one in answer.parts] == ["TOPIC_INTERNAL", "", "TOPIC_INTERNAL"]
    assert "belongs to a query" in answer.parts[0].error_message
    assert access.changed == ["topic-1"]


async def test_a_stream_of_produces_refuses_it_and_goes_on(service: LogService, access: Access) -> None:
    async def requests() -> AsyncIterator[api.StreamProduceRequest]:
        for name in ("edge", "orders"):
            yield api.StreamProduceRequest(parts=[part(name)])

    answers = [one async for one in service.stream_produce(requests(), Call())]
    assert [one.parts[0].error_reason for one in answers] == ["TOPIC_INTERNAL", ""]
    assert access.changed == ["topic-1"]


async def test_plain_records_for_it_are_refused(service: LogService, access: Access) -> None:
    with pytest.raises(HeadgateError) as refused:
        await service.produce_records(api.ProduceRecordsRequest(topic="edge", records=[api.Record()]), Call(timeout=5))
    assert (refused.value.reason, access.changed) == (TOPIC_INTERNAL, [])


@pytest.mark.parametrize("local_only", [True, False])
@pytest.mark.parametrize("before", [3, -1])
async def test_its_records_are_not_deleted(service: LogService, access: Access, local_only: bool, before: int) -> None:
    def request(topic: str) -> api.DeleteRecordsRequest:
        return api.DeleteRecordsRequest(topic=topic, before_offset=before, local_only=local_only)

    with pytest.raises(HeadgateError) as refused:
        await service.delete_records(request("edge"), Call(timeout=5))
    assert (refused.value.reason, access.changed) == (TOPIC_INTERNAL, [])
    assert (await service.delete_records(request("orders"), Call(timeout=5))).log_start == (5 if before < 0 else before)
    assert access.changed == ["topic-1"]
