"""What the last record of an edge on Kafka says, and how far its reader is behind."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from headgate_agent.errors import EDGE_MISSING, EDGE_REFUSED, EDGE_UNAVAILABLE
from headgate_agent.fragments.kafka_edges import POSITION_KEY, behind, note_of, note_value
from headgate_agent.fragments.sinks.kafka_client import EDGE, failure
from headgate_agent.log.edges import END_KEY


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
