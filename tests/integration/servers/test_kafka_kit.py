"""The Kafka broker of the test-server kit."""

from __future__ import annotations

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic


def test_a_record_that_was_produced_is_consumed(kafka_bootstrap: str) -> None:
    topic = "kit-produced-is-consumed"
    admin = AdminClient({"bootstrap.servers": kafka_bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    producer = Producer({"bootstrap.servers": kafka_bootstrap})
    producer.produce(topic, b"hello")
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": kafka_bootstrap, "group.id": "kit", "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        record = consumer.poll(30)
        assert record is not None
        assert record.value() == b"hello"
    finally:
        consumer.close()
