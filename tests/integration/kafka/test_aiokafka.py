"""aiokafka."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

PATIENCE = 30.0
VALUES = [b"value %d" % number for number in range(200)]


async def create(bootstrap: str, name: str, partitions: int = 3) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        answer = await admin.create_topics([NewTopic(name, partitions, 1)])
        assert [error for _, error, *_ in answer.topic_errors] == [0]
    finally:
        await admin.close()


async def produce(bootstrap: str, name: str, values: list[bytes], **settings: Any) -> list[int]:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, **settings) as producer:
        futures = [await producer.send(name, value, key=value) for value in values]
        return [(await future).offset for future in futures]


async def read(consumer: Any, count: int) -> list[bytes]:
    found: list[bytes] = []
    async with asyncio.timeout(PATIENCE):
        while len(found) < count:
            for records in (await consumer.getmany(timeout_ms=200)).values():
                found.extend(record.value for record in records)
    return found


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
async def test_every_codec_is_read_as_it_was_written(bootstrap: str, name: str, codec: str | None) -> None:
    await create(bootstrap, name, 1)
    await produce(bootstrap, name, VALUES, compression_type=codec)
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap)
    async with consumer:
        consumer.assign([TopicPartition(name, 0)])
        await consumer.seek_to_beginning()
        assert await read(consumer, len(VALUES)) == VALUES


async def test_an_idempotent_producer_is_answered_with_offsets(bootstrap: str, name: str) -> None:
    await create(bootstrap, name, 1)
    assert await produce(bootstrap, name, VALUES, enable_idempotence=True) == list(range(len(VALUES)))


async def test_a_group_reads_commits_and_resumes(bootstrap: str, name: str) -> None:
    await create(bootstrap, name)
    await produce(bootstrap, name, VALUES)
    settings: dict[str, Any] = {
        "bootstrap_servers": bootstrap,
        "group_id": name,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
    }
    async with AIOKafkaConsumer(name, **settings) as consumer:
        assert sorted(await read(consumer, len(VALUES))) == sorted(VALUES)
        await consumer.commit()
    await produce(bootstrap, name, [b"later"])
    async with AIOKafkaConsumer(name, **settings) as consumer:
        assert await read(consumer, 1) == [b"later"]


@pytest.mark.parametrize("assignors", [None, (StickyPartitionAssignor,)])
async def test_members_share_partitions(bootstrap: str, name: str, assignors: Any) -> None:
    await create(bootstrap, name, 4)
    settings: dict[str, Any] = {"bootstrap_servers": bootstrap, "group_id": name, "heartbeat_interval_ms": 100}
    if assignors is not None:
        settings["partition_assignment_strategy"] = assignors
    async with AIOKafkaConsumer(name, **settings) as first, asyncio.timeout(PATIENCE):
        async with AIOKafkaConsumer(name, **settings) as second:
            while not (len(first.assignment()) == len(second.assignment()) == 2):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            assert not first.assignment() & second.assignment()
        while len(first.assignment()) != 4:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_a_consumer_seeks_and_finds_offsets_by_time(bootstrap: str, name: str) -> None:
    await create(bootstrap, name, 1)
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        for number in range(5):
            await producer.send_and_wait(name, b"%d" % number, timestamp_ms=1000 + 100 * number)
    partition = TopicPartition(name, 0)
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap)
    async with consumer:
        consumer.assign([partition])
        assert (await consumer.offsets_for_times({partition: 1250}))[partition].offset == 3
        consumer.seek(partition, 3)
        assert await read(consumer, 2) == [b"3", b"4"]
        assert await consumer.end_offsets([partition]) == {partition: 5}
