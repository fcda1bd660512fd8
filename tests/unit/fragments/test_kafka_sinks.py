"""Clients of the KAFKA sink: what they are set to, and what their errors mean."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from headgate_agent.errors import (
    RECORD_TOO_LARGE,
    SINK_MISSING,
    SINK_REFUSED,
    SINK_UNAVAILABLE,
    STALE_EPOCH,
)
from headgate_agent.fragments.sinks.kafka_client import client_settings, consumer_settings, failure, producer_settings
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
    fenced = failure(KafkaError(KafkaError._FENCED), "topic t", KafkaError(KafkaError._TRANSPORT))
    assert fenced.reason is STALE_EPOCH
