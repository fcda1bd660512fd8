"""While it is in doubt whether the agent's session lives, clients wait, and are answered without an error when it is
certain again."""

from __future__ import annotations

import select
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from headgate_agent.log.contract import InDoubt, PartitionKey
from tests.unit.kafka.kit import COORDINATOR, Agent, Cluster
from tests.unit.kafka.test_every_version import create, produce
from tests.unit.kafka.wire import Wire, batch, parse

NONE = ErrorCode.none


def doubt(cluster: Cluster, seconds: float = 60.0) -> Agent:
    """The session was not renewed in time, by the agent's own clock; for the coordinator it lives on. It waits so long
    until it gives up what it leads."""
    (agent,) = cluster.agents.values()

    async def begin() -> None:
        cluster.transport.cut.add(COORDINATOR)
        agent.broker.settings = replace(agent.broker.settings, doubt=seconds)
        agent.member._valid_until = cluster.clock.monotonic()
        with pytest.raises(InDoubt):
            agent.broker.bounds(next(iter(agent.broker.led)))

    cluster.run(begin())
    return agent


def waits(wire: Wire, seconds: float = 0.5) -> bool:
    return not select.select([wire.socket], [], [], seconds)[0]


def produced(name: str) -> dict[str, Any]:
    data = [{"name": name, "partition_data": [{"index": 0, "records": batch(3)}]}]
    return {"acks": -1, "timeout": 10_000, "topic_data": data}


def fetched(name: str) -> dict[str, Any]:
    part = {"partition": 0, "current_leader_epoch": 1, "fetch_offset": 0, "partition_max_bytes": 10_000}
    topics = [{"topic": name, "partitions": [part]}]
    return {"replica_id": -1, "max_wait": 0, "min_bytes": 1, "max_bytes": 10_000, "topics": topics}


def listed(timestamp: int) -> Callable[[str], dict[str, Any]]:
    part = {"partition_index": 0, "current_leader_epoch": 1, "timestamp": timestamp}
    return lambda name: {"replica_id": -1, "topics": [{"name": name, "partitions": [part]}]}


def ended(name: str) -> dict[str, Any]:
    part = {"partition": 0, "current_leader_epoch": 1, "leader_epoch": 1}
    return {"topics": [{"topic": name, "partitions": [part]}]}


def deleted(offset: int, timeout: int = 10_000) -> Callable[[str], dict[str, Any]]:
    part = {"partition_index": 0, "offset": offset}
    return lambda name: {"topics": [{"name": name, "partitions": [part]}], "timeout": timeout}


def answered(api: int, answer: Any) -> tuple[ErrorCode, Any]:
    """The error of its one partition, and what it says."""
    match api:
        case 0:
            (part,) = answer.responses[0].partition_responses
            return part.error_code, part.base_offset
        case 1:
            (part,) = answer.responses[0].partitions
            return part.error_code, bytes(part.records)[61:]
        case 2:
            (part,) = answer.topics[0].partitions
            return part.error_code, part.offset
        case 23:
            (part,) = answer.topics[0].partitions
            return part.error_code, part.end_offset
    (part,) = answer.topics[0].partitions
    return part.error_code, part.low_watermark


@pytest.mark.parametrize(
    ("api", "version", "values", "said"),
    [
        (0, 9, produced, 3),
        (1, 11, fetched, batch(3)[61:]),
        (2, 9, listed(-1), 3),
        (2, 9, listed(-2), 0),
        (2, 9, listed(-3), 0),
        (2, 9, listed(500), 0),
        (23, 4, ended, 3),
        (21, 2, deleted(2), 2),
        (21, 2, deleted(-1), 3),
    ],
    ids=["produce", "fetch", "latest", "earliest", "largest", "by time", "epoch", "delete", "delete all"],
)
@pytest.mark.slow
def test_a_request_that_comes_while_it_is_in_doubt_waits_and_is_answered_without_an_error(
    cluster: Cluster, wire: Wire, api: int, version: int, values: Callable[[str], dict[str, Any]], said: Any
) -> None:
    create(wire, "orders")
    assert produce(wire, "orders") == 0
    doubt(cluster)
    wire.send(api, version, values("orders"))
    assert waits(wire)
    cluster.transport.cut.clear()
    assert answered(api, parse(api, version, wire.receive())[1]) == (NONE, said)


@pytest.mark.parametrize(
    ("api", "version", "values"),
    [(1, 11, fetched), (2, 9, listed(-1)), (23, 4, ended), (21, 2, deleted(-1))],
    ids=["fetch", "list offsets", "epoch", "delete"],
)
@pytest.mark.slow
def test_if_it_is_never_certain_again_the_client_is_told_to_look_for_another_leader(
    cluster: Cluster, wire: Wire, api: int, version: int, values: Callable[[str], dict[str, Any]]
) -> None:
    create(wire, "orders")
    produce(wire, "orders")
    doubt(cluster, seconds=1.0)
    wire.send(api, version, values("orders"))
    assert waits(wire)
    code, _ = answered(api, parse(api, version, wire.receive())[1])
    assert code is ErrorCode.not_leader_or_follower


@pytest.mark.parametrize("offset", [2, -1])
@pytest.mark.slow
def test_a_request_with_a_time_of_its_own_waits_no_longer_than_that(cluster: Cluster, wire: Wire, offset: int) -> None:
    create(wire, "orders")
    produce(wire, "orders")
    agent = doubt(cluster)
    code, _ = answered(21, wire.ask(21, 2, deleted(offset, timeout=1000)("orders")))
    assert code is ErrorCode.request_timed_out
    assert {led.bounds.log_start for led in agent.broker.led.values()} == {0}


@pytest.mark.slow
def test_what_is_led_in_doubt_is_kept_though_the_agent_looks_over_who_should_lead_what(
    cluster: Cluster, wire: Wire
) -> None:
    create(wire, "orders")
    agent = doubt(cluster)
    before = dict(agent.broker.led)

    async def look() -> None:
        agent.broker.wake()
        await cluster.until(lambda: not agent.broker._wake.is_set())

    cluster.run(look())
    assert agent.broker.led == before and len(before) == 2
    cluster.transport.cut.clear()
    assert produce(wire, "orders") == 0
    (topic,) = agent.broker.view.topics()
    assert agent.broker.bounds(PartitionKey(topic.uid, 0)).epoch == 1
