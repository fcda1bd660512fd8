"""Where topics of a real broker end; what brokers that are away, and settings that cannot be used, are told as."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from headgate_agent.fragments.kafka_ends import ends_of
from headgate_common.errors import HeadgateError

pytestmark = pytest.mark.timeout(120)


def never() -> bool:
    return False


def refusal(options: dict[str, str], seconds: float = 30.0) -> HeadgateError:
    with pytest.raises(HeadgateError) as raised:
        ends_of(options, seconds, never)
    return raised.value


def patiently(options: dict[str, str]) -> list[int]:
    """A broker that has just made a topic does not lead all of it at once."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return ends_of(options, 30.0, never)
        except HeadgateError as error:
            if error.reason.name != "KAFKA_UNREACHABLE" or time.monotonic() > deadline:
                raise
        time.sleep(0.1)


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address that is taken, and where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


def test_the_end_of_each_partition_is_the_offset_after_its_last_record(kafka_bootstrap: str) -> None:
    name = f"ends-{os.getpid()}"
    admin = AdminClient({"bootstrap.servers": kafka_bootstrap})
    admin.create_topics([NewTopic(name, 12, 1)])[name].result(30)
    options = {"bootstrap_servers": kafka_bootstrap, "topic": name}
    assert patiently(options) == [0] * 12
    producer = Producer({"bootstrap.servers": kafka_bootstrap})
    for partition, count in ((0, 3), (2, 1), (11, 5)):
        for _ in range(count):
            producer.produce(name, b"x", partition=partition)
    assert producer.flush(30) == 0
    assert patiently(options) == [3, 0, 1, *[0] * 8, 5]


def test_a_topic_that_is_not_there_is_told_by_name_and_not_made(kafka_bootstrap: str) -> None:
    options = {"bootstrap_servers": kafka_bootstrap, "topic": "nowhere"}
    for _ in range(2):
        error = refusal(options)
        assert error.reason.name == "KAFKA_TOPIC_MISSING"
        assert error.message == f"there is no topic nowhere at {kafka_bootstrap}"


def test_brokers_that_are_away_are_waited_for_as_long_as_said_and_named(nobody: str) -> None:
    options = {"bootstrap_servers": nobody, "topic": "t"}
    errors = [refusal(options, 1.0) for _ in range(2)]
    assert {error.reason.name for error in errors} == {"KAFKA_UNREACHABLE"}
    assert nobody in errors[0].message
    assert errors[0].message == errors[1].message, "what is told again and again is no news"


def test_brokers_that_are_away_are_not_waited_for_once_that_is_given_up(nobody: str) -> None:
    given_up = threading.Event()
    found: list[HeadgateError] = []

    def ask() -> None:
        try:
            ends_of({"bootstrap_servers": nobody, "topic": "t"}, 3600.0, given_up.is_set)
        except HeadgateError as error:
            found.append(error)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    time.sleep(0.2)
    given_up.set()
    asking.join(60)
    assert [error.reason.name for error in found] == ["KAFKA_UNREACHABLE"]


def test_settings_that_cannot_be_used_are_refused_for_good(kafka_bootstrap: str) -> None:
    options = {"bootstrap_servers": kafka_bootstrap, "topic": "t", "security_protocol": "SSL"}
    error = refusal({**options, "ssl_ca_location": "/no/such/ca.pem"})
    assert error.reason.name == "KAFKA_REFUSED"
    assert "ssl.ca.location" in error.message
    login = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "sasl_username": "u"}
    error = refusal({**options, **login, "sasl_password": "secret"}, 5.0)
    assert "secret" not in error.message
