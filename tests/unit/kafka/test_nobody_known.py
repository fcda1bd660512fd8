"""Clients are never told that there are no brokers: librdkafka would let go of all that it has."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headgate_agent.kafka.config import KafkaLimits
from tests.unit.kafka.kit import COORDINATOR, Cluster, running_cluster
from tests.unit.kafka.test_every_version import create
from tests.unit.kafka.wire import Wire, parse

METADATA, DESCRIBE_CLUSTER = 3, 60
NEW = "agent-1"


@contextmanager
def starting_alone(cluster: Cluster) -> Iterator[str]:
    """The address of an agent that starts while the coordinator cannot be reached; it joins when this ends."""
    cluster.transport.cut.add(COORDINATOR)
    joining = asyncio.run_coroutine_threadsafe(cluster.add(NEW), cluster.loop)
    cluster.run(cluster.until(lambda: NEW in cluster.agents))
    try:
        yield cluster.agents[NEW].address
    finally:
        cluster.transport.cut.discard(COORDINATOR)
        joining.result(30)


@pytest.mark.parametrize(("api", "version"), [(METADATA, 0), (METADATA, 12), (DESCRIBE_CLUSTER, 1)])
def test_an_agent_that_knows_of_no_broker_sends_clients_away(tmp_path: Path, api: int, version: int) -> None:
    with running_cluster(tmp_path, limits=KafkaLimits(drain=1.0, metadata_wait=0.1)) as cluster:
        with starting_alone(cluster) as address, Wire(address) as wire:
            wire.send(api, version, {"topics": [{"name": "t"}]} if api == METADATA else {})
            assert wire.closed()
        with Wire(address) as wire:
            assert wire.ask(METADATA, 12, {"topics": []}).brokers, "it answers once it has joined"


def test_who_waits_for_brokers_is_told_of_the_topics_that_came_with_them(tmp_path: Path) -> None:
    """Else a client that lists all topics just after a start would find none."""
    with running_cluster(tmp_path, limits=KafkaLimits(drain=1.0, metadata_wait=30.0)) as cluster:
        with Wire(cluster.bootstrap) as wire:
            create(wire, "t")
        with starting_alone(cluster) as address:
            wire = Wire(address)
            wire.send(METADATA, 12, {"topics": None})
            time.sleep(0.3)
        with wire:
            _, answer = parse(METADATA, 12, wire.receive())
        assert [topic.name for topic in answer.topics] == ["t"]
        assert answer.brokers
