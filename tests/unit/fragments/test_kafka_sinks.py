"""Clients of the KAFKA sink: what they are set to, and what their errors mean."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError

from headgate_agent.errors import (
    RECORD_TOO_LARGE,
    SINK_MISSING,
    SINK_REFUSED,
    SINK_UNAVAILABLE,
    STALE_EPOCH,
)
from headgate_agent.fragments.sinks.kafka import KafkaSink, KafkaTimings, discard_position
from headgate_agent.fragments.sinks.kafka_client import client_settings, consumer_settings, failure, producer_settings
from headgate_agent.work import Threads
from headgate_common.clock import SystemClock
from headgate_common.errors import Reason
from headgate_coordinator.catalog.descriptors.sinks import KAFKA


def test_every_option_of_the_cluster_reaches_the_client() -> None:
    beside = {"topic", "input_format", "key_column"}
    options = {option.name: f"value of {option.name}" for option in KAFKA.options}
    settings = client_settings(options)
    assert set(settings.values()) == {value for name, value in options.items() if name not in beside}
    assert {name.replace(".", "_") for name in settings} == set(options) - beside
    assert client_settings({"bootstrap_servers": "h:1"}) == {"bootstrap.servers": "h:1"}


def test_a_producer_is_transactional_and_a_position_is_read_when_it_is_settled() -> None:
    made = producer_settings({"bootstrap_servers": "h:1"}, "headgate.f", 60.0)
    assert made["transactional.id"] == "headgate.f"
    assert made["transaction.timeout.ms"] == 60_000
    read = consumer_settings({"bootstrap_servers": "h:1"}, "headgate.f")
    assert read["isolation.level"] == "read_committed"
    assert read["allow.auto.create.topics"] is False


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (KafkaError._FENCED, STALE_EPOCH),
        (KafkaError.PRODUCER_FENCED, STALE_EPOCH),
        (KafkaError.INVALID_PRODUCER_EPOCH, STALE_EPOCH),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, SINK_MISSING),
        (KafkaError.MSG_SIZE_TOO_LARGE, RECORD_TOO_LARGE),
        (KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, SINK_REFUSED),
        (KafkaError._AUTHENTICATION, SINK_REFUSED),
        (KafkaError._TRANSPORT, SINK_UNAVAILABLE),
        (KafkaError._TIMED_OUT, SINK_UNAVAILABLE),
        (KafkaError.NOT_ENOUGH_REPLICAS, SINK_UNAVAILABLE),
    ],
)
def test_each_error_has_its_reason(code: int, reason: Reason) -> None:
    error = failure(KafkaError(code), "topic t")
    assert error.reason is reason
    assert error.message.startswith("topic t: ")


def test_what_lies_behind_an_error_decides_where_the_error_itself_says_little() -> None:
    vague = KafkaError(KafkaError._TIMED_OUT)
    told = failure(vague, "topic t", KafkaError(KafkaError._AUTHENTICATION, "wrong password"))
    assert told.reason is SINK_REFUSED
    assert "wrong password" in told.message
    down = KafkaError(KafkaError._TRANSPORT, "h:1/bootstrap: Connect failed (after 3ms in state CONNECT)")
    assert failure(vague, "topic t", down).message.endswith("Connect failed)"), "the same each time"
    fenced = failure(KafkaError(KafkaError._FENCED), "topic t", KafkaError(KafkaError._TRANSPORT))
    assert fenced.reason is STALE_EPOCH


@pytest.fixture
def nobody() -> Iterator[dict[str, str]]:
    """The options of a cluster that is not there: its port is taken, and nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield {"bootstrap_servers": f"127.0.0.1:{taken.getsockname()[1]}", "topic": "t"}


async def test_a_cluster_that_does_not_answer_is_named_long_before_patience_is_over(nobody: dict[str, str]) -> None:
    timings = KafkaTimings(patience=60.0, step=0.2)
    work = Threads(2)
    sink = KafkaSink("f", nobody, (), clock=SystemClock(), source=random.Random(1), blocking=work, timings=timings)
    said: list[str] = []
    sink.delivered.listener = said.append
    opening = asyncio.create_task(sink.open(0))
    async with asyncio.timeout(20):
        while not said:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert f"topic t of Kafka at {nobody['bootstrap_servers']}" in said[0]
    assert sink.delivered.waiting == said[-1]
    opening.cancel()
    await asyncio.wait((opening,))


@pytest.mark.parametrize("more", [{}, {"security_protocol": "SSL", "ssl_ca_location": "/no/such/ca.pem"}])
async def test_a_cluster_that_is_gone_keeps_no_query_from_its_end(
    nobody: dict[str, str], more: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    async with asyncio.timeout(20):
        await discard_position({**nobody, **more}, "f", Threads(1), timeout=0.3)
    assert "the group of a sink is left to the cluster" in caplog.text
