"""A consumer far behind reads segments instead of memory, and misses nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.integration.kafka.test_confluent import PATIENCE, produce, read
from tests.unit.kafka.kit import running_cluster


@pytest.mark.parametrize("most", [10_000, 600_000, 2_000_000])
def test_nothing_is_missing_between_segments(tmp_path: Path, most: int) -> None:
    # Records that the log compresses well: a segment holds much more than its size says.
    values = [b"%06d" % number + b"x" * 1000 for number in range(8000)]
    with running_cluster(tmp_path, kept_bytes=0) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        config = {"segment.bytes": "1000000", "headgate.linger.ms": "100"}
        admin.create_topics([NewTopic("t", 1, config=config)])["t"].result(PATIENCE)
        produce(cluster.bootstrap, "t", values, **{"batch.size": 200_000})
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g", "fetch.message.max.bytes": most})
        consumer.assign([TopicPartition("t", 0, 0)])
        assert read(consumer, len(values)) == values
        consumer.close()
