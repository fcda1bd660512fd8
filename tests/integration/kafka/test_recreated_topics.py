"""An idempotent producer that is older than a topic goes on with the numbers it had, and is not shut out."""

from __future__ import annotations

import time

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from kafka import KafkaProducer

PATIENCE = 30.0


@pytest.fixture
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


def create(admin: AdminClient, name: str) -> None:
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(PATIENCE)
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        found = admin.list_topics(name, timeout=PATIENCE).topics[name]
        if found.error is None and found.partitions[0].leader >= 0:
            return
        time.sleep(0.05)
    raise TimeoutError(name)


def anew(admin: AdminClient, name: str) -> None:
    admin.delete_topics([name])[name].result(PATIENCE)
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            create(admin, name)
            return
        except KafkaException:
            time.sleep(0.05)
    raise TimeoutError(name)


def stored(bootstrap: str, name: str, count: int) -> list[bytes]:
    """What is in the topic, and nothing after it."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": name, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(name, 0, 0)])
    found: list[bytes] = []
    deadline = time.monotonic() + PATIENCE
    while len(found) < count and time.monotonic() < deadline:
        found += [message.value() or b"" for message in consumer.consume(count, 0.5) if message.error() is None]
    found += [message.value() or b"" for message in consumer.consume(1, 0.5) if message.error() is None]
    consumer.close()
    return found


def test_confluent(bootstrap: str, admin: AdminClient, name: str) -> None:
    create(admin, name)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0})

    def send(value: bytes) -> None:
        failures: list[object] = []
        producer.produce(name, value, on_delivery=lambda error, _: failures.append(error))
        assert producer.flush(PATIENCE) == 0
        assert failures == [None]

    send(b"one")
    send(b"two")
    anew(admin, name)
    send(b"three")
    send(b"four")
    assert stored(bootstrap, name, 2) == [b"three", b"four"]


def test_kafka_python(bootstrap: str, admin: AdminClient, name: str) -> None:
    create(admin, name)
    producer = KafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True)
    for value in (b"one", b"two"):
        producer.send(name, value).get(PATIENCE)
    anew(admin, name)
    for value in (b"three", b"four"):
        producer.send(name, value).get(PATIENCE)
    producer.close()
    assert stored(bootstrap, name, 2) == [b"three", b"four"]


async def test_aiokafka(bootstrap: str, admin: AdminClient, name: str) -> None:
    create(admin, name)
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True) as producer:
        for value in (b"one", b"two"):
            await producer.send_and_wait(name, value)
        anew(admin, name)
        for value in (b"three", b"four"):
            await producer.send_and_wait(name, value)
    assert stored(bootstrap, name, 2) == [b"three", b"four"]
