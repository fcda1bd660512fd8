"""aiokafka."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import InvalidPartitionsError

PATIENCE = 30.0
VALUES = [b"value %d" % number for number in range(200)]


@asynccontextmanager
async def administering(bootstrap: str) -> AsyncIterator[Any]:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


async def create(bootstrap: str, name: str, partitions: int = 3) -> None:
    async with administering(bootstrap) as admin:
        answer = await admin.create_topics([NewTopic(name, partitions, 1)])
        assert [error for _, error, *_ in answer.topic_errors] == [0]


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


async def test_topics_are_listed_described_configured_and_deleted(bootstrap: str, name: str) -> None:
    await create(bootstrap, name, 2)
    await produce(bootstrap, name, VALUES)
    topic = ConfigResource(ConfigResourceType.TOPIC, name)

    async def configured() -> dict[str, str]:
        (answer,) = await admin.describe_configs([topic])
        ((error, _, _, resource, entries),) = answer.resources
        assert (error, resource) == (0, name)
        return {entry[0]: entry[1] for entry in entries}

    async with administering(bootstrap) as admin:
        assert name in await admin.list_topics()
        (found,) = await admin.describe_topics([name])
        assert (found["error_code"], len(found["partitions"])) == (0, 2)
        nodes = {broker["node_id"] for broker in (await admin.describe_cluster())["brokers"]}
        assert {one["leader"] for one in found["partitions"]} <= nodes
        before = await configured()
        change = ConfigResource(ConfigResourceType.TOPIC, name, configs={"retention.ms": "60000"})
        (altered,) = await admin.alter_configs([change])
        assert altered.resources[0][0] == 0
        assert await configured() == before | {"retention.ms": "60000"}
        with pytest.raises(InvalidPartitionsError):
            await admin.create_partitions({name: NewPartitions(9)})
        partition = TopicPartition(name, 0)
        assert await admin.delete_records({partition: RecordsToDelete(before_offset=2)}) == {partition: 2}
        answer = await admin.delete_topics([name])
        assert [error for _, error in answer.topic_error_codes] == [0]
        assert name not in await admin.list_topics()


async def test_groups_are_listed_described_and_their_offsets_read(bootstrap: str, name: str) -> None:
    await create(bootstrap, name)
    await produce(bootstrap, name, VALUES)
    consumer = AIOKafkaConsumer(name, bootstrap_servers=bootstrap, group_id=name, auto_offset_reset="earliest")
    async with consumer, administering(bootstrap) as admin:
        await read(consumer, len(VALUES))
        await consumer.commit()
        assert (name, "consumer") in [group[:2] for group in await admin.list_consumer_groups()]
        (answer,) = await admin.describe_consumer_groups([name])
        ((error, group, state, _, _, members, *_),) = answer.groups
        assert (error, group, state, len(members)) == (0, name, "Stable", 1)
        offsets = await admin.list_consumer_group_offsets(name)
        assert sum(one.offset for one in offsets.values()) == len(VALUES)
