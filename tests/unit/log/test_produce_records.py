"""Plain records over several partitions: one answer for all of them, which promises no more than is so."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from headgate.log import v1 as api
from headgate_agent.log.access import Leadership
from headgate_agent.log.contract import Appended, NotLeader, PartitionKey, Uncertain
from headgate_agent.log.limits import CallLimits, ForwardLimits
from headgate_agent.log.service import LogService
from headgate_common.clock import SystemClock
from headgate_common.dispatch import Call
from headgate_common.errors import HeadgateError

TOPIC = api.Topic(uid="topic-1", name="orders", partitions=3)


class Access:
    """An agent that leads everything, but for what goes wrong in each partition."""

    def __init__(self) -> None:
        self.view: Any = self
        self.fails: dict[int, Exception] = {}
        self.over: set[int] = set()
        self.stored: list[int] = []
        self.waiting = asyncio.Event()
        self.waiting.set()

    def topic(self, name: str) -> api.Topic:
        return TOPIC

    def topic_by_uid(self, uid: str) -> api.Topic:
        return TOPIC

    def leadership(self, key: PartitionKey) -> Leadership:
        return Leadership("a", 1)

    def peer(self, name: str) -> None:
        return None

    async def produce(self, key: PartitionKey, batches: bytes) -> Appended:
        await self.waiting.wait()
        if key.index in self.fails:
            raise self.fails[key.index]
        self.stored.append(key.index)
        return Appended(5, 6, 0)

    async def confirm(self, key: PartitionKey) -> None:
        if key.index in self.over:
            raise NotLeader("its session has ended")


@pytest.fixture
def access() -> Access:
    return Access()


def service(access: Any, **limits: int) -> LogService:
    nowhere: Any = None
    patience = CallLimits(forward=ForwardLimits(timeout=0.1), **limits)
    return LogService(
        access, transport=nowhere, clock=SystemClock(), source=random.Random(1), name="a", limits=patience
    )


async def produce(access: Access, *keys: str) -> api.ProduceRecordsResponse:
    records = [api.Record(key=key.encode(), value=key.encode()) for key in keys]
    return await service(access).produce_records(api.ProduceRecordsRequest(topic="orders", records=records), Call())


async def refused(access: Access, *keys: str) -> HeadgateError:
    with pytest.raises(HeadgateError) as failed:
        await produce(access, *keys)
    return failed.value


async def all_partitions(access: Access) -> dict[int, str]:
    """A key for each partition."""
    keys: dict[int, str] = {}
    for number in range(100):
        answer = await produce(access, str(number))
        keys.setdefault(answer.positions[0].partition, str(number))
    access.stored.clear()
    return keys


async def test_where_one_partition_has_its_records_a_refusal_of_another_is_uncertain(access: Access) -> None:
    keys = await all_partitions(access)
    access.fails[1] = NotLeader("nobody does")
    error = await refused(access, *keys.values())
    assert error.reason.name == "RECORDS_UNCERTAIN"
    assert error.metadata["stored"] == "0,2"
    assert "nobody does" in error.message


async def test_a_refusal_of_all_of_them_says_that_nothing_is_stored(access: Access) -> None:
    keys = await all_partitions(access)
    access.fails = {index: NotLeader("nobody does") for index in keys}
    assert (await refused(access, *keys.values())).reason.name == "LEASE_CONFLICT"
    assert not access.stored


async def test_what_is_uncertain_of_one_partition_is_told_whatever_the_others_say(access: Access) -> None:
    keys = await all_partitions(access)
    access.fails = {0: NotLeader("nobody does"), 1: Uncertain("its session has ended"), 2: NotLeader("nobody does")}
    assert (await refused(access, *keys.values())).reason.name == "RECORDS_UNCERTAIN"


async def test_the_last_look_before_the_answer_is_at_every_partition(access: Access) -> None:
    keys = await all_partitions(access)
    access.over.add(2)
    assert (await refused(access, *keys.values())).reason.name == "RECORDS_UNCERTAIN"


async def test_one_record_that_is_too_large_stores_none(access: Access) -> None:
    keys = await all_partitions(access)
    records = [api.Record(key=key.encode(), value=b"x") for key in keys.values()]
    records[-1].value = b"x" * (17 << 20)
    with pytest.raises(HeadgateError) as failed:
        await service(access).produce_records(api.ProduceRecordsRequest(topic="orders", records=records), Call())
    assert failed.value.reason.name == "RECORD_TOO_LARGE"
    assert not access.stored


async def test_streams_read_no_more_than_may_be_under_way_and_each_goes_on(access: Access) -> None:
    read = 0

    async def requests() -> AsyncIterator[api.StreamProduceRequest]:
        nonlocal read
        for _ in range(10):
            read += 1
            yield api.StreamProduceRequest(parts=[api.ProducePart(topic_uid="topic-1", batches=b"x" * 1000)])

    async def answers(log: LogService) -> int:
        return len([one async for one in log.stream_produce(requests(), Call())])

    log = service(access, stream_bytes=2500)
    access.waiting.clear()
    streams = [asyncio.ensure_future(answers(log)) for _ in range(4)]
    for _ in range(50):
        await asyncio.sleep(0)
    # Three requests fill what all may have; each of the other streams has the one that it is always allowed.
    assert 4 <= read <= 7
    access.waiting.set()
    assert await asyncio.gather(*streams) == [10] * 4
