"""An agent that does not lead a partition says who does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kio.schema.errors import ErrorCode

from tests.unit.kafka.kit import running_cluster
from tests.unit.kafka.test_every_version import create, topic_id
from tests.unit.kafka.wire import Wire, batch


def test_the_leader_is_named_with_its_address(tmp_path: Path) -> None:
    with running_cluster(tmp_path, agents=2) as cluster, Wire(cluster.agents["agent-0"].address) as wire:
        create(wire, "t")
        metadata = wire.ask(3, 12, {"topics": [{"name": "t"}]})
        addresses = {one.node_id: (one.host, one.port) for one in metadata.brokers}
        leader = metadata.topics[0].partitions[0].leader_id
        (other,) = addresses.keys() - {leader}
        host, port = addresses[other]
        with Wire(f"{host}:{port}") as wrong:
            data = [{"name": "t", "partition_data": [{"index": 0, "records": batch(1)}]}]
            _named(wrong.ask(0, 10, {"acks": -1, "timeout": 5000, "topic_data": data}), leader, addresses)
            partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
            topics = [{"topic_id": topic_id(wire, "t"), "partitions": [partition]}]
            _named(wrong.ask(1, 16, {"max_wait": 0, "min_bytes": 0, "topics": topics}), leader, addresses)


def _named(answer: Any, leader: int, addresses: dict[int, tuple[str, int]]) -> None:
    (topic,) = answer.responses
    (found,) = getattr(topic, "partition_responses", None) or topic.partitions
    assert found.error_code is ErrorCode.not_leader_or_follower
    assert (found.current_leader.leader_id, found.current_leader.leader_epoch) == (leader, 1)
    assert {one.node_id: (one.host, one.port) for one in answer.node_endpoints} == {leader: addresses[leader]}
