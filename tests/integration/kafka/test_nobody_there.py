"""A stock client outlives a time in which the catalog says that no agent is there."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headgate_agent.kafka.config import KafkaLimits
from tests.integration.kafka.test_confluent import PATIENCE
from tests.unit.kafka.kit import Agent, Cluster, running_cluster


@contextmanager
def nobody_there(cluster: Cluster) -> Iterator[None]:
    """All agents have heard that all sessions have ended, and have not heard yet that they live again."""
    states = [agent.broker.view._state for agent in cluster.agents.values()]  # type: ignore[attr-defined]
    known = [dict(state.peers) for state in states]

    async def set_peers(present: bool) -> None:
        for state, peers in zip(states, known, strict=True):
            state.peers = {name: replace(peer, present=present) for name, peer in peers.items()}

    cluster.run(set_peers(False))
    try:
        yield
    finally:
        cluster.run(set_peers(True))


def asked(agent: Agent) -> float:
    """How often it was asked for metadata."""
    service = agent.port._service
    assert service is not None
    samples = [sample for metric in service._requests.collect() for sample in metric.samples]
    return sum(one.value for one in samples if one.labels["api"] == "Metadata" and one.name.endswith("_total"))


def test_a_producer_goes_on_after_a_time_in_which_no_agent_was_there(tmp_path: Path) -> None:
    """librdkafka that was told of no broker has nobody left to ask. It then begins anew with its bootstrap servers, but
    not always: a race in 2.16 keeps it from that for good. Here it is told not to, which is the same without the race.
    """
    limits = KafkaLimits(drain=1.0, metadata_wait=0.05)
    with running_cluster(tmp_path, agents=2, limits=limits, departed_listed=0.05) as cluster:
        settings = {"bootstrap.servers": cluster.bootstrap}
        admin = AdminClient(settings)
        admin.create_topics([NewTopic("t", 2, 1)])["t"].result(PATIENCE)
        producer = Producer(
            {
                **settings,
                "enable.idempotence": True,
                "metadata.recovery.strategy": "none",
                "topic.metadata.refresh.interval.ms": 100,
                "log_level": 0,
            }
        )
        errors: list[Any] = []

        def send() -> None:
            for partition in range(2):
                producer.produce("t", b"x", partition=partition, on_delivery=lambda error, _: errors.append(error))

        send()
        assert producer.flush(PATIENCE) == 0
        agents = list(cluster.agents.values())
        before, deadline = sum(map(asked, agents)), time.monotonic() + PATIENCE
        with nobody_there(cluster):
            # Several have been answered then, whichever connections they came by.
            while sum(map(asked, agents)) < before + 10:
                assert time.monotonic() < deadline, "the client has nobody left to ask"
                producer.poll(0.05)
            send()
        assert producer.flush(PATIENCE) == 0
        assert errors == [None] * 4
