"""How many partitions shuffles, and with them state, have."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headgate.catalog import v1 as catalog
from headgate.engine import v1 as engine
from headgate_engine.executor.calls import Access
from headgate_engine.executor.log_calls import TopicAccess
from headgate_engine.fragments.query import Query
from headgate_engine.fragments.read import Input
from headgate_engine.spark import SparkHost


def edge(partitions: int) -> Input:
    access = Access("a:1", "edge", partitions, "f", 1)
    return Input(0, catalog.ComputeInput(edge=1), access, "", "")


def native(partitions: int) -> Input:
    access = TopicAccess(f"native {partitions}", f"uid {partitions}", ("a:1",))
    return Input(0, catalog.ComputeInput(), None, "", "", access)


def kafka() -> Input:
    return Input(0, catalog.ComputeInput(), None, "", "")


def partitions(*inputs: Input, slots: int, asked: int = 0) -> int:
    topics = [
        engine.TopicAccess(topic_uid=one.topic.topic_uid, partitions=int(one.topic.topic.split()[1]))
        for one in inputs
        if one.topic is not None
    ]
    request = engine.StartFragmentRequest(topics=topics, settings=engine.RunSettings(shuffle_partitions=asked))
    host = cast(SparkHost, SimpleNamespace(slots=slots))
    unused = cast(Any, None)
    return Query(request, inputs, unused, host, unused, unused, Path("stop"))._shuffle_partitions()


@pytest.mark.parametrize(
    ("inputs", "wanted"),
    [
        ([edge(1)], 4),
        ([edge(7)], 7),
        ([native(2)], 4),
        ([native(9)], 9),
        ([edge(1), edge(6)], 10),
        ([edge(1), native(1), native(5)], 13),
    ],
)
def test_state_has_as_many_partitions_as_are_read_and_four_for_each_input_at_least(
    inputs: list[Input], wanted: int
) -> None:
    assert partitions(*inputs, slots=64) == wanted


@pytest.mark.parametrize(("slots", "wanted"), [(1, 1), (3, 3), (8, 8), (16, 12)])
def test_state_has_no_more_partitions_than_tasks_run_at_once(slots: int, wanted: int) -> None:
    assert partitions(edge(12), slots=slots) == wanted


def test_a_kafka_topic_whose_partitions_nobody_has_counted_takes_all_slots() -> None:
    assert partitions(kafka(), slots=6) == 6
    assert partitions(kafka(), edge(1), slots=6) == 6


def test_a_start_that_says_how_many_gets_so_many() -> None:
    assert partitions(edge(1), slots=2, asked=50) == 50
