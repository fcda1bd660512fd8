"""kafka-python."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from kafka import ConsumerRebalanceListener, KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic, OffsetSpec
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.errors import TopicAlreadyExistsError

PATIENCE = 30.0
VALUES = [b"value %d" % number for number in range(200)]


@pytest.fixture
def admin(bootstrap: str) -> Any:
    made = KafkaAdminClient(bootstrap_servers=bootstrap)
    yield made
    made.close()


def create(admin: Any, name: str, partitions: int = 3) -> None:
    admin.create_topics([NewTopic(name, partitions, 1)])


def produce(bootstrap: str, name: str, values: list[bytes], **settings: Any) -> list[Any]:
    producer = KafkaProducer(bootstrap_servers=bootstrap, **settings)
    futures = [producer.send(name, value, key=value) for value in values]
    stored = [future.get(timeout=PATIENCE) for future in futures]
    producer.close()
    return stored


def read(consumer: Any, count: int) -> list[bytes]:
    found: list[bytes] = []
    deadline = time.monotonic() + PATIENCE
    while len(found) < count and time.monotonic() < deadline:
        for records in consumer.poll(timeout_ms=200).values():
            found.extend(record.value for record in records)
    return found


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_read_as_it_was_written(bootstrap: str, admin: Any, name: str, codec: str | None) -> None:
    create(admin, name, 1)
    produce(bootstrap, name, VALUES, compression_type=codec)
    consumer = KafkaConsumer(bootstrap_servers=bootstrap)
    consumer.assign([TopicPartition(name, 0)])
    consumer.seek_to_beginning()
    assert read(consumer, len(VALUES)) == VALUES
    consumer.close()


def test_an_idempotent_producer_is_answered_with_offsets(bootstrap: str, admin: Any, name: str) -> None:
    create(admin, name, 1)
    stored = produce(bootstrap, name, VALUES, enable_idempotence=True)
    assert [one.offset for one in stored] == list(range(len(VALUES)))


def test_a_group_reads_commits_and_resumes(bootstrap: str, admin: Any, name: str) -> None:
    create(admin, name)
    produce(bootstrap, name, VALUES)

    def member() -> Any:
        return KafkaConsumer(
            name, bootstrap_servers=bootstrap, group_id=name, auto_offset_reset="earliest", enable_auto_commit=False
        )

    first = member()
    assert sorted(read(first, len(VALUES))) == sorted(VALUES)
    first.commit()
    first.close()
    produce(bootstrap, name, [b"later"])
    second = member()
    assert read(second, 1) == [b"later"]
    second.close()


class Member(ConsumerRebalanceListener):  # type: ignore[misc]
    """A consumer in a thread of its own: kafka-python answers the group only while it is polled."""

    def __init__(self, bootstrap: str, name: str, **settings: Any) -> None:
        self.assigned: set[Any] = set()
        # What it was told to give up, each time.
        self.revoked: list[set[Any]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._poll, args=(bootstrap, name, settings), daemon=True)
        self._thread.start()

    def on_partitions_revoked(self, revoked: Any) -> None:
        if revoked:
            self.revoked.append(set(revoked))

    def on_partitions_assigned(self, assigned: Any) -> None:
        return

    def _poll(self, bootstrap: str, name: str, settings: dict[str, Any]) -> None:
        consumer = KafkaConsumer(
            bootstrap_servers=bootstrap, group_id=name, session_timeout_ms=6000, heartbeat_interval_ms=200, **settings
        )
        consumer.subscribe([name], listener=self)
        while not self._stop.is_set():
            consumer.poll(timeout_ms=100)
            self.assigned = set(consumer.assignment())
        consumer.close()

    def close(self) -> None:
        self._stop.set()
        self._thread.join(PATIENCE)


def until(holds: Any) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, "in vain"
        time.sleep(0.05)


def test_members_share_partitions(bootstrap: str, admin: Any, name: str) -> None:
    create(admin, name, 4)
    first, second = Member(bootstrap, name), Member(bootstrap, name)
    until(lambda: len(first.assigned) == len(second.assigned) == 2 and not first.assigned & second.assigned)
    second.close()
    until(lambda: len(first.assigned) == 4)
    first.close()


def test_members_that_cooperate_give_up_only_what_moves(bootstrap: str, admin: Any, name: str) -> None:
    create(admin, name, 4)
    settings = {"partition_assignment_strategy": [CooperativeStickyAssignor]}
    first = Member(bootstrap, name, **settings)
    until(lambda: len(first.assigned) == 4)
    everything = set(first.assigned)
    second = Member(bootstrap, name, **settings)
    until(lambda: len(first.assigned) == len(second.assigned) == 2 and not first.assigned & second.assigned)
    assert first.revoked == [everything - first.assigned], "what it keeps it was never told to give up"
    assert second.revoked == []
    second.close()
    until(lambda: first.assigned == everything)
    first.close()


def test_a_consumer_seeks_to_an_offset_and_back(bootstrap: str, admin: Any, name: str) -> None:
    create(admin, name, 1)
    produce(bootstrap, name, VALUES)
    consumer = KafkaConsumer(bootstrap_servers=bootstrap)
    partition = TopicPartition(name, 0)
    consumer.assign([partition])
    for offset in (150, 3):
        consumer.seek(partition, offset)
        assert consumer.position(partition) == offset
        assert read(consumer, len(VALUES) - offset) == VALUES[offset:]
    consumer.close()


def test_offsets_are_found_by_time_and_end(bootstrap: str, admin: Any, name: str) -> None:
    create(admin, name, 1)
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for number in range(5):
        producer.send(name, b"%d" % number, timestamp_ms=1000 + 100 * number).get(timeout=PATIENCE)
    producer.close()
    consumer = KafkaConsumer(bootstrap_servers=bootstrap)
    partition = TopicPartition(name, 0)
    assert consumer.offsets_for_times({partition: 1250})[partition].offset == 3
    assert consumer.beginning_offsets([partition]) == {partition: 0}
    assert consumer.end_offsets([partition]) == {partition: 5}
    consumer.close()
    found = admin.list_partition_offsets({partition: OffsetSpec.MAX_TIMESTAMP})[partition]
    assert (found.offset, found.timestamp) == (4, 1400)


def test_topics_and_groups_are_administered(bootstrap: str, admin: Any, name: str) -> None:
    create(admin, name, 2)
    with pytest.raises(TopicAlreadyExistsError):
        create(admin, name, 2)
    assert name in admin.list_topics()
    produce(bootstrap, name, VALUES)
    consumer = KafkaConsumer(name, bootstrap_servers=bootstrap, group_id=name, auto_offset_reset="earliest")
    read(consumer, len(VALUES))
    consumer.commit()
    consumer.close()
    offsets = admin.list_group_offsets([name])[name]
    assert sum(one.offset for one in offsets.values()) == len(VALUES)
    admin.delete_topics([name])
    assert name not in admin.list_topics()
