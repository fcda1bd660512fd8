"""Edges on Kafka as a run looks at them: which have ended, and what of them is deleted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from headgate.catalog import v1 as catalog
from headgate.engine import v1 as engine
from headgate_common.errors import HeadgateError
from headgate_common.kafka_reasons import KAFKA_UNREACHABLE
from headgate_engine.executor.reading import FAR_FUTURE_US
from headgate_engine.fragments import idle, kafka_edges
from headgate_engine.fragments.idle import IdleInputs
from headgate_engine.fragments.kafka_edges import KafkaInputs, Note, read_up_to
from headgate_engine.fragments.read import Input
from headgate_engine.spark import SparkHost
from tests.unit.engine.test_runs import ManualClock


class FakeTopic:
    """Answers as a topic would."""

    def __init__(self, session: Any, edge: engine.KafkaEdge) -> None:
        self.found: Note | None = None
        self.away = False
        self.deleted: list[int] = []
        TOPICS[edge.topic] = self

    def note(self) -> tuple[Note | None, int]:
        if self.away:
            raise HeadgateError(KAFKA_UNREACHABLE, "nobody answers")
        return self.found, 0

    def delete_before(self, offset: int) -> None:
        self.deleted.append(offset)

    def close(self) -> None:
        pass


TOPICS: dict[str, FakeTopic] = {}


def edge(index: int, topic: str) -> Input:
    on_kafka = engine.KafkaEdge(edge=index + 1, topic=topic, options={"bootstrap_servers": "k:1"})
    plan = catalog.ComputeInput(event_time="ts", edge=index + 1)
    return Input(index, plan, None, "", f"control/{index}", kafka_edge=on_kafka)


def report(**ends: int) -> dict[str, Any]:
    return {
        "sources": [
            {"description": f"KafkaV2[Subscribe[{topic}]]", "endOffset": {topic: {"0": end}}}
            for topic, end in ends.items()
        ]
    }


@pytest.fixture
def inputs(monkeypatch: pytest.MonkeyPatch) -> KafkaInputs:
    monkeypatch.setattr(kafka_edges, "EdgeTopic", FakeTopic)
    return KafkaInputs(cast(SparkSession, None), [edge(0, "one"), edge(1, "two")])


def test_what_was_read_is_deleted_but_never_the_last_note(inputs: KafkaInputs) -> None:
    one, two = TOPICS["one"], TOPICS["two"]
    assert inputs.look({}) == []
    one.found, two.found = Note(10, False), Note(3, False)
    inputs.look(report(one=7, two=5))
    assert (one.deleted, two.deleted) == ([7], [3])
    inputs.look(report(one=7, two=5))
    assert (one.deleted, two.deleted) == ([7], [3]), "once"
    inputs.look(report(one=12, two=5))
    assert one.deleted == [7, 10]
    assert not inputs.ended


def test_an_edge_is_done_when_it_has_ended_and_was_read(inputs: KafkaInputs) -> None:
    TOPICS["one"].found = Note(10, True)
    assert inputs.look(report(one=10, two=0)) == []
    (done,) = inputs.look(report(one=12, two=0))
    assert done.index == 0
    assert not inputs.ended
    TOPICS["two"].found = Note(0, True)
    inputs.look(report(one=12, two=0))
    assert inputs.ended


def test_brokers_that_do_not_answer_are_no_end_and_no_failure(inputs: KafkaInputs) -> None:
    TOPICS["one"].away = True
    TOPICS["two"].found = Note(4, True)
    assert [one.index for one in inputs.look(report(one=1, two=6))] == [1]
    assert not inputs.ended


def test_an_edge_that_is_read_twice_is_read_up_to_where_both_are() -> None:
    both = report(one=9)["sources"] + report(one=4)["sources"]
    assert read_up_to({"sources": both}, "one") == 4
    assert read_up_to({"sources": both}, "other") is None
    assert read_up_to({}, "one") is None
    unread = {"description": "KafkaV2[Subscribe[one]]", "endOffset": None}
    assert read_up_to({"sources": [*both, unread]}, "one") is None


def test_the_end_of_an_edge_is_marked_once_in_a_run_and_later_than_by_runs_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    marks: list[tuple[str, int]] = []
    monkeypatch.setattr(idle, "write_mark", lambda session, folder, mark_us: marks.append((folder, mark_us)))
    host = cast(SparkHost, SimpleNamespace(root=None))
    first, second = edge(0, "one"), edge(1, "two")
    marked = IdleInputs((first, second), 60.0, ManualClock(), host, mark_interval=1.0)
    assert marked.end(7, [first])
    assert not marked.end(7, [first])
    assert marked.end(7, [first, second])
    assert marks == [("control/0", FAR_FUTURE_US + 7), ("control/1", FAR_FUTURE_US + 7)]
