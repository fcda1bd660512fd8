"""What the last record of an edge on Kafka says, how far its reader is behind, and what is asked again."""

from __future__ import annotations

import random

import pytest
from confluent_kafka import KafkaError, KafkaException

from headgate_agent.errors import EDGE_MISSING, EDGE_REFUSED, EDGE_UNAVAILABLE
from headgate_agent.fragments.kafka_calls import KafkaCalls
from headgate_agent.fragments.kafka_edges import POSITION_KEY, behind, note_of, note_value
from headgate_agent.fragments.sinks.kafka_client import EDGE, failure
from headgate_agent.log.edges import END_KEY
from headgate_agent.work import Threads
from headgate_common.clock import SystemClock
from headgate_common.errors import HeadgateError


@pytest.mark.parametrize(("malformed", "position"), [(0, b""), (3, b"here"), (0, bytes(300))])
def test_a_note_says_what_was_written_into_it(malformed: int, position: bytes) -> None:
    value = note_value(1 << 40, malformed, position)
    found = note_of(7, POSITION_KEY, value)
    assert (found.offset, found.total, found.malformed, found.position) == (7, 1 << 40, malformed, position)
    assert not found.ended
    assert note_of(7, END_KEY, value).ended


def test_a_reader_that_has_deleted_all_before_the_note_is_not_behind() -> None:
    assert behind(note=0, low=0, total=0) == 0
    assert behind(note=30, low=30, total=1000) == 0
    assert behind(note=30, low=0, total=900) == 900
    assert behind(note=30, low=20, total=900) == 300
    assert behind(note=1, low=0, total=1) == 1


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (KafkaError.UNKNOWN_TOPIC_OR_PART, EDGE_MISSING),
        (KafkaError._AUTO_OFFSET_RESET, EDGE_MISSING),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, EDGE_REFUSED),
        (KafkaError.POLICY_VIOLATION, EDGE_REFUSED),
        (KafkaError._TIMED_OUT, EDGE_UNAVAILABLE),
    ],
)
def test_errors_of_an_edge_are_told_as_such(code: int, reason: object) -> None:
    assert failure(KafkaError(code), "edge e", reasons=EDGE).reason is reason


async def test_a_cluster_that_has_not_told_its_brokers_of_a_new_topic_is_asked_again() -> None:
    told: list[str] = []
    answers = iter([KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE])
    work = Threads(1, "test")

    def bounds() -> tuple[int, int]:
        for code in answers:
            raise KafkaException(KafkaError(code))
        return 0, 7

    calls = KafkaCalls("edge e", told.append, clock=SystemClock(), source=random.Random(1), blocking=work, reasons=EDGE)
    try:
        assert await calls.repeated(bounds) == (0, 7)
    finally:
        work.close()
    assert [text != "" for text in told] == [True, True, False], "it says what it waits for, and when that is over"


async def test_what_the_cluster_refuses_is_asked_once() -> None:
    asked: list[int] = []
    work = Threads(1, "test")

    def bounds() -> None:
        asked.append(1)
        raise KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))

    calls = KafkaCalls("edge e", str, clock=SystemClock(), source=random.Random(1), blocking=work, reasons=EDGE)
    try:
        with pytest.raises(HeadgateError) as raised:
            await calls.repeated(bounds)
    finally:
        work.close()
    assert raised.value.reason is EDGE_REFUSED
    assert len(asked) == 1
