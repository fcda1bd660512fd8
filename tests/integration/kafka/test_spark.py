"""Spark's Kafka connector reads and writes topics in batch, streaming and real-time mode."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from tests.integration.kafka.test_confluent import PATIENCE, produce, read

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("spark_kafka_jars"),
]

VALUES = [b"%d" % number for number in range(200)]


@pytest.fixture
def topics(bootstrap: str, name: str) -> tuple[str, str]:
    """One to read and one to write."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = (f"{name}-in", f"{name}-out")
    config = {"headgate.durability": "WAL"}
    for future in admin.create_topics([NewTopic(one, 2, config=config) for one in made]).values():
        future.result(PATIENCE)
    return made


def written(bootstrap: str, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found = read(consumer, count)
    consumer.close()
    return found


def test_batch(spark: SparkSession, bootstrap: str, topics: tuple[str, str]) -> None:
    source, target = topics
    produce(bootstrap, source, VALUES)
    rows = spark.read.format("kafka").options(**{"kafka.bootstrap.servers": bootstrap, "subscribe": source}).load()
    assert rows.count() == len(VALUES)
    (
        rows.selectExpr("key", "concat('seen ', cast(value as string)) as value")
        .write.format("kafka")
        .options(**{"kafka.bootstrap.servers": bootstrap, "topic": target})
        .save()
    )
    assert sorted(written(bootstrap, target, len(VALUES))) == sorted(b"seen " + one for one in VALUES)


def test_streaming(spark: SparkSession, bootstrap: str, topics: tuple[str, str], tmp_path: Path) -> None:
    source, target = topics

    def run() -> None:
        query = (
            spark.readStream.format("kafka")
            .options(
                **{"kafka.bootstrap.servers": bootstrap, "subscribe": source, "startingOffsets": "earliest"},
                failOnDataLoss="true",
            )
            .load()
            .selectExpr("key", "value")
            .writeStream.format("kafka")
            .options(**{"kafka.bootstrap.servers": bootstrap, "topic": target})
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)

    produce(bootstrap, source, VALUES[:100])
    run()
    produce(bootstrap, source, VALUES[100:])
    run()
    assert sorted(written(bootstrap, target, len(VALUES))) == sorted(VALUES)


def test_real_time(spark: SparkSession, bootstrap: str, topics: tuple[str, str], tmp_path: Path) -> None:
    source, target = topics
    query = (
        spark.readStream.format("kafka")
        .options(**{"kafka.bootstrap.servers": bootstrap, "subscribe": source, "startingOffsets": "earliest"})
        .load()
        .selectExpr("key", "value")
        .writeStream.format("kafka")
        .outputMode("update")
        .options(**{"kafka.bootstrap.servers": bootstrap, "topic": target})
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(realTime="1 minute")
        .start()
    )
    try:
        producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
        for value in VALUES[:20]:
            producer.produce(source, value)
            producer.flush(PATIENCE)
            time.sleep(0.05)
        assert sorted(written(bootstrap, target, 20)) == sorted(VALUES[:20])
        assert query.exception() is None
    finally:
        query.stop()
