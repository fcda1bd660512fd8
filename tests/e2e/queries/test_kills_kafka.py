"""What each way of delivery keeps of its word through crashes, from a real Kafka broker to a real Kafka broker."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.e2e.queries.kafka_workload import ENGINE_OPTIONS, KafkaWorkload
from tests.e2e.queries.kit import query_cluster
from tests.e2e.queries.topics import KafkaTopics
from tests.e2e.queries.torment import Torment

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.usefixtures("spark_kafka_jars")]


@pytest.mark.timeout(1200)
def test_each_delivery_keeps_its_word_though_every_process_is_killed_twice(
    tmp_path: Path, kafka_bootstrap: str
) -> None:
    """Exactly once: windows, a join and a union in KAFKA sinks. At least once and in real time: no row lost, none that
    nobody sent."""
    with query_cluster(tmp_path, engine_options=ENGINE_OPTIONS) as cluster:
        work = KafkaWorkload(cluster, KafkaTopics(kafka_bootstrap, tmp_path.name), seed=11)
        work.create()
        torment = Torment(cluster, (work,), random.Random(11))
        torment.begin()
        torment.kill_each(2)
        torment.end()
        assert torment.kills == 2 * len(cluster.processes()) + len(cluster.engines)
