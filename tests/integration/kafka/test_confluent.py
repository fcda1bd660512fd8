"""librdkafka, through confluent-kafka."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from headgate_agent.log.access import FetchPart
from headgate_agent.log.contract import PartitionKey
from headgate_agent.log.record_batch import BatchHeader, headers
from tests.unit.kafka.kit import Cluster

PATIENCE = 30.0


@pytest.fixture
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


def create(admin: AdminClient, name: str, partitions: int = 3, **config: str) -> None:
    for future in admin.create_topics([NewTopic(name, partitions, config=config)]).values():
        future.result(PATIENCE)


def produce(bootstrap: str, topic: str, values: list[bytes], **config: Any) -> None:
    failed: list[Any] = []
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, **config})
    for value in values:
        producer.produce(topic, value=value, key=value, on_delivery=lambda error, _: error and failed.append(error))
    assert producer.flush(PATIENCE) == 0
    assert not failed


@contextmanager
def consumer(bootstrap: str, group: str, **config: Any) -> Iterator[Consumer]:
    made = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 100,
            "enable.auto.commit": False,
            **config,
        }
    )
    try:
        yield made
    finally:
        made.close()


def read(made: Consumer, count: int, into: list[bytes] | None = None) -> list[bytes]:
    values = [] if into is None else into
    deadline = time.monotonic() + PATIENCE
    while len(values) < count and time.monotonic() < deadline:
        for message in made.consume(count - len(values), timeout=0.2):
            assert message.error() is None, message.error()
            values.append(message.value())
    return values


def until(holds: Callable[[], bool], *polled: Consumer) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, "in vain"
        for one in polled:
            one.poll(0.05)


VALUES = [b"value %d" % number for number in range(300)]


@pytest.mark.parametrize("durability", ["WAL", "OBJECT"])
def test_what_is_produced_is_consumed(bootstrap: str, admin: AdminClient, name: str, durability: str) -> None:
    create(admin, name, **{"headgate.durability": durability})
    produce(bootstrap, name, VALUES)
    with consumer(bootstrap, name) as made:
        made.subscribe([name])
        assert sorted(read(made, len(VALUES))) == sorted(VALUES)


CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_is_stored_as_it_came(cluster: Cluster, admin: AdminClient, name: str, codec: str) -> None:
    bootstrap = cluster.bootstrap
    create(admin, name, 1)
    values = [b"compressible " * 20 + b"%d" % number for number in range(500)]
    produce(bootstrap, name, values, **{"compression.type": codec})
    with consumer(bootstrap, name) as made:
        made.assign([TopicPartition(name, 0, 0)])
        assert read(made, len(values)) == values
    assert {header.attributes & 0x07 for header in stored(cluster, name)} == {CODECS.index(codec)}


def stored(cluster: Cluster, name: str) -> list[BatchHeader]:
    """The headers of the batches in the first partition."""

    async def fetch() -> list[BatchHeader]:
        for agent in cluster.agents.values():
            topic = agent.broker.view.topic(name)
            assert topic is not None
            part = FetchPart(PartitionKey(topic.uid, 0), 0, 1 << 20)
            (found,) = await agent.broker.fetch([part], max_wait=0, min_bytes=1, max_bytes=1 << 20)
            if found.error is None:
                return [header for one in found.batches for header in headers(one)]
        raise AssertionError("nobody leads it")

    return cluster.run(fetch())


def test_an_idempotent_producer_keeps_its_order(bootstrap: str, admin: AdminClient, name: str) -> None:
    create(admin, name, 1)
    values = [b"%d" % number for number in range(3000)]
    produce(bootstrap, name, values, **{"enable.idempotence": True, "linger.ms": 0})
    with consumer(bootstrap, name) as made:
        made.assign([TopicPartition(name, 0, 0)])
        assert read(made, len(values)) == values


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_acks_setting_works(bootstrap: str, admin: AdminClient, name: str, acks: str) -> None:
    create(admin, name, 1)
    produce(bootstrap, name, VALUES, acks=acks)
    with consumer(bootstrap, name) as made:
        made.assign([TopicPartition(name, 0, 0)])
        assert read(made, len(VALUES)) == VALUES


def test_a_transactional_producer_is_refused_at_once(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "t"})
    with pytest.raises(KafkaException) as caught:
        producer.init_transactions(PATIENCE)
    assert caught.value.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_a_consumer_seeks(bootstrap: str, admin: AdminClient, name: str) -> None:
    create(admin, name, 1)
    produce(bootstrap, name, VALUES)
    with consumer(bootstrap, name) as made:
        made.assign([TopicPartition(name, 0, 0)])
        assert read(made, 10) == VALUES[:10]
        made.seek(TopicPartition(name, 0, 200))
        assert read(made, 5) == VALUES[200:205]
        made.seek(TopicPartition(name, 0, 3))
        assert read(made, 5) == VALUES[3:8]
        assert made.get_watermark_offsets(TopicPartition(name, 0), timeout=PATIENCE) == (0, len(VALUES))


def test_offsets_are_found_by_time(bootstrap: str, admin: AdminClient, name: str) -> None:
    create(admin, name, 1)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for number in range(10):
        producer.produce(name, value=b"%d" % number, timestamp=1_000_000 + number * 1000)
        producer.flush(PATIENCE)
    with consumer(bootstrap, name) as made:
        for at, expected in ((1_000_000, 0), (1_003_500, 4), (1, 0), (1_009_000, 9)):
            (found,) = made.offsets_for_times([TopicPartition(name, 0, at)], timeout=PATIENCE)
            assert found.offset == expected
        (after,) = made.offsets_for_times([TopicPartition(name, 0, 2_000_000)], timeout=PATIENCE)
        assert after.offset == -1
    listed = admin.list_offsets({TopicPartition(name, 0): OffsetSpec.for_timestamp(1_003_500)})
    assert [future.result(PATIENCE).offset for future in listed.values()] == [4]


def test_the_record_with_the_largest_timestamp_is_found(bootstrap: str, admin: AdminClient, name: str) -> None:
    create(admin, name, 2)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for timestamp in (1_000, 9_000, 9_000, 4_000):
        producer.produce(name, value=b"x", partition=0, timestamp=timestamp)
        producer.flush(PATIENCE)
    written, empty = TopicPartition(name, 0), TopicPartition(name, 1)

    def listed(spec: OffsetSpec) -> list[tuple[int, int]]:
        found = admin.list_offsets({written: spec, empty: spec})
        answers = [found[partition].result(PATIENCE) for partition in (written, empty)]
        return [(answer.offset, answer.timestamp) for answer in answers]

    assert listed(OffsetSpec.max_timestamp()) == [(1, 9_000), (-1, -1)]
    assert listed(OffsetSpec.earliest()) == [(0, -1), (0, -1)]
    assert listed(OffsetSpec.latest()) == [(4, -1), (0, -1)]


def test_a_group_resumes_where_it_committed(bootstrap: str, admin: AdminClient, name: str) -> None:
    create(admin, name, 1)
    produce(bootstrap, name, VALUES)
    with consumer(bootstrap, name) as made:
        made.subscribe([name])
        assert read(made, 100) == VALUES[:100]
        made.commit(offsets=[TopicPartition(name, 0, 100)], asynchronous=False)
        assert [one.offset for one in made.committed([TopicPartition(name, 0)], timeout=PATIENCE)] == [100]
    with consumer(bootstrap, name) as made:
        made.subscribe([name])
        assert read(made, 200) == VALUES[100:]


def test_a_group_commits_by_itself(bootstrap: str, admin: AdminClient, name: str) -> None:
    create(admin, name, 1)
    produce(bootstrap, name, VALUES)
    with consumer(bootstrap, name, **{"enable.auto.commit": True, "auto.commit.interval.ms": 100}) as made:
        made.subscribe([name])
        read(made, len(VALUES))
    with consumer(bootstrap, name) as made:
        (found,) = made.committed([TopicPartition(name, 0)], timeout=PATIENCE)
        assert found.offset == len(VALUES)


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_members_share_partitions_as_they_come_and_go(
    bootstrap: str, admin: AdminClient, name: str, strategy: str
) -> None:
    create(admin, name, 6)
    with consumer(bootstrap, name, **{"partition.assignment.strategy": strategy}) as first:
        first.subscribe([name])
        until(lambda: len(first.assignment()) == 6, first)
        with consumer(bootstrap, name, **{"partition.assignment.strategy": strategy}) as second:
            second.subscribe([name])
            until(lambda: len(first.assignment()) == 3 and len(second.assignment()) == 3, first, second)
            mine = {one.partition for one in first.assignment()}
            assert mine.isdisjoint(one.partition for one in second.assignment())
            with consumer(bootstrap, name, **{"partition.assignment.strategy": strategy}) as third:
                third.subscribe([name])
                group = (first, second, third)
                until(lambda: all(len(one.assignment()) == 2 for one in group), *group)
        until(lambda: len(first.assignment()) == 6, first)


def test_nothing_is_lost_over_rebalances(bootstrap: str, admin: AdminClient, name: str) -> None:
    create(admin, name, 4)
    seen: list[bytes] = []
    stop = threading.Event()

    def consume(rounds: int) -> None:
        for _ in range(rounds):
            with consumer(bootstrap, name) as made:
                made.subscribe([name])
                deadline = time.monotonic() + 1.0
                while time.monotonic() < deadline and not stop.is_set():
                    for message in made.consume(20, timeout=0.1):
                        assert message.error() is None
                        seen.append(message.value())
                        made.commit(message=message, asynchronous=False)

    threads = [threading.Thread(target=consume, args=(4,)) for _ in range(3)]
    for one in threads:
        one.start()
    values = [b"%d" % number for number in range(400)]
    for start in range(0, 400, 40):
        produce(bootstrap, name, values[start : start + 40])
    for one in threads:
        one.join(60)
    with consumer(bootstrap, name) as made:
        made.subscribe([name])
        deadline = time.monotonic() + PATIENCE
        while len(set(seen)) < len(values) and time.monotonic() < deadline:
            seen.extend(message.value() for message in made.consume(50, timeout=0.2))
    assert set(seen) == set(values)


def test_a_static_member_comes_back_to_its_partitions(bootstrap: str, admin: AdminClient, name: str) -> None:
    create(admin, name, 4)

    def member(instance: str) -> Any:
        return consumer(bootstrap, name, **{"group.instance.id": instance, "session.timeout.ms": 20000})

    with member("one") as first:
        first.subscribe([name])
        second = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": name,
                "group.instance.id": "two",
                "session.timeout.ms": 20000,
                "heartbeat.interval.ms": 100,
            }
        )
        second.subscribe([name])
        until(lambda: len(first.assignment()) == 2 and len(second.assignment()) == 2, first, second)
        before = {one.partition for one in second.assignment()}
        second.close()
        with member("two") as again:
            again.subscribe([name])
            until(lambda: len(again.assignment()) == 2, first, again)
            assert {one.partition for one in again.assignment()} == before
            assert len(first.assignment()) == 2


def test_groups_are_listed_described_and_deleted(bootstrap: str, admin: AdminClient, name: str) -> None:
    create(admin, name, 2)
    produce(bootstrap, name, VALUES)
    with consumer(bootstrap, name) as made:
        made.subscribe([name])
        read(made, len(VALUES))
        made.commit(asynchronous=False)
        listed = admin.list_consumer_groups(request_timeout=PATIENCE).result(PATIENCE)
        assert name in [group.group_id for group in listed.valid]
        (described,) = [one.result(PATIENCE) for one in admin.describe_consumer_groups([name]).values()]
        assert described.state.name == "STABLE"
        (member,) = described.members
        assert {one.partition for one in member.assignment.topic_partitions} == {0, 1}
        (refused,) = admin.delete_consumer_groups([name]).values()
        with pytest.raises(KafkaException) as caught:
            refused.result(PATIENCE)
        assert caught.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
    (offsets,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(name)]).values()
    assert sum(one.offset for one in offsets.result(PATIENCE).topic_partitions) == len(VALUES)
    change = ConsumerGroupTopicPartitions(name, [TopicPartition(name, 0, 7)])
    (altered,) = admin.alter_consumer_group_offsets([change]).values()
    altered.result(PATIENCE)
    (offsets,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(name)]).values()
    assert {one.partition: one.offset for one in offsets.result(PATIENCE).topic_partitions}[0] == 7
    (deleted,) = admin.delete_consumer_groups([name]).values()
    deleted.result(PATIENCE)
    listed = admin.list_consumer_groups(request_timeout=PATIENCE).result(PATIENCE)
    assert name not in [group.group_id for group in listed.valid]


def test_topics_are_created_described_and_deleted(admin: AdminClient, name: str) -> None:
    create(admin, name, 5, **{"retention.ms": "60000"})
    found = admin.list_topics(timeout=PATIENCE)
    assert len(found.topics[name].partitions) == 5
    assert len(found.brokers) == 3
    assert found.cluster_id == "headgate"
    (again,) = admin.create_topics([NewTopic(name, 1)]).values()
    with pytest.raises(KafkaException) as caught:
        again.result(PATIENCE)
    assert caught.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    (more,) = admin.create_partitions([NewPartitions(name, 9)]).values()
    with pytest.raises(KafkaException) as caught:
        more.result(PATIENCE)
    assert caught.value.args[0].code() == KafkaError.INVALID_PARTITIONS
    assert "immutable" in caught.value.args[0].str()
    (dropped,) = admin.delete_topics([name]).values()
    dropped.result(PATIENCE)
    assert name not in admin.list_topics(timeout=PATIENCE).topics


def test_compaction_is_refused_by_name(admin: AdminClient, name: str) -> None:
    (refused,) = admin.create_topics([NewTopic(name, 1, config={"cleanup.policy": "compact"})]).values()
    with pytest.raises(KafkaException) as caught:
        refused.result(PATIENCE)
    assert caught.value.args[0].code() == KafkaError.INVALID_CONFIG
    assert "cleanup.policy" in caught.value.args[0].str()


def test_settings_are_described_and_changed(admin: AdminClient, name: str) -> None:
    create(admin, name, 1, **{"retention.ms": "60000", "headgate.durability": "WAL"})
    topic = ConfigResource(ResourceType.TOPIC, name)

    def values() -> dict[str, str]:
        (future,) = admin.describe_configs([topic]).values()
        return {key: entry.value for key, entry in future.result(PATIENCE).items()}

    before = values()
    assert before["retention.ms"] == "60000"
    assert before["headgate.durability"] == "WAL"
    change = ConfigEntry("max.message.bytes", "2048", incremental_operation=AlterConfigOpType.SET)
    (changed,) = admin.incremental_alter_configs(
        [ConfigResource(ResourceType.TOPIC, name, incremental_configs=[change])]
    ).values()
    changed.result(PATIENCE)
    assert values() == before | {"max.message.bytes": "2048"}


def test_a_changed_setting_holds_for_the_next_record(bootstrap: str, admin: AdminClient, name: str) -> None:
    create(admin, name, 1)
    change = ConfigEntry("max.message.bytes", "2048", incremental_operation=AlterConfigOpType.SET)
    (changed,) = admin.incremental_alter_configs(
        [ConfigResource(ResourceType.TOPIC, name, incremental_configs=[change])]
    ).values()
    changed.result(PATIENCE)
    errors: list[Any] = []
    producer = Producer({"bootstrap.servers": bootstrap})
    deadline = time.monotonic() + PATIENCE
    while not any(errors) and time.monotonic() < deadline:
        producer.produce(name, value=b"x" * 5000, on_delivery=lambda error, _: errors.append(error))
        producer.flush(PATIENCE)
    assert [error.code() for error in errors if error] == [KafkaError.MSG_SIZE_TOO_LARGE]


def test_records_are_deleted(bootstrap: str, admin: AdminClient, name: str) -> None:
    create(admin, name, 1)
    produce(bootstrap, name, VALUES)
    (deleted,) = admin.delete_records([TopicPartition(name, 0, 120)]).values()
    assert deleted.result(PATIENCE).low_watermark == 120
    with consumer(bootstrap, name) as made:
        assert made.get_watermark_offsets(TopicPartition(name, 0), timeout=PATIENCE) == (120, len(VALUES))
        made.assign([TopicPartition(name, 0, 0)])
        assert read(made, 180) == VALUES[120:]


def test_the_cluster_is_described(admin: AdminClient, bootstrap: str) -> None:
    described = admin.describe_cluster().result(PATIENCE)
    assert described.cluster_id == "headgate"
    assert {f"{node.host}:{node.port}" for node in described.nodes} == set(bootstrap.split(","))


def test_a_topic_that_is_not_there_is_not_made(bootstrap: str, admin: AdminClient, name: str) -> None:
    errors: list[Any] = []
    producer = Producer({"bootstrap.servers": bootstrap, "topic.metadata.propagation.max.ms": 0})
    producer.produce(name, value=b"x", on_delivery=lambda error, _: errors.append(error.code()))
    producer.flush(PATIENCE)
    assert errors == [KafkaError.UNKNOWN_TOPIC_OR_PART]
    assert name not in admin.list_topics(timeout=PATIENCE).topics
