"""Marks for inputs that are silent."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headgate.catalog import v1 as catalog
from headgate_engine.fragments import idle
from headgate_engine.fragments.idle import IdleInputs
from headgate_engine.fragments.progress import Counts
from headgate_engine.fragments.read import Input
from headgate_engine.spark import SparkHost
from tests.unit.engine.test_runs import ManualClock

HOST = cast(SparkHost, SimpleNamespace(root=None))


def topic(index: int) -> Input:
    return Input(index, catalog.ComputeInput(event_time="ts"), None, "", f"control/{index}")


def speak(counts: Counts, name: str, latest_us: int) -> None:
    """What is known of an input when a batch with rows of it has ended."""
    batch = counts.batch_id + 1
    observed = {name: {"rows": 1, "bad": 0, "latest_us": latest_us}}
    report = {"batchId": batch, "durationMs": {"addBatch": 1}, "observedMetrics": observed, "sources": []}
    assert counts.saw(json.dumps(report))


def written(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    marks: list[tuple[str, int]] = []

    def write(session: Any, folder: str, mark_us: int) -> None:
        marks.append((folder, mark_us))

    monkeypatch.setattr(idle, "write_mark", write)
    return marks


@pytest.mark.parametrize(("timeout", "most"), [(1.0, 61), (40.0, 3)])
def test_a_silent_topic_gets_no_more_marks_than_one_a_second_or_four_in_its_timeout(
    timeout: float, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks = written(monkeypatch)
    clock = ManualClock()
    inputs = IdleInputs((topic(0), topic(1)), timeout, clock, HOST, mark_interval=1.0)
    counts = Counts()
    for tick in range(480):
        clock.now += 0.125
        speak(counts, "input0", tick)
        inputs.look(counts)
    assert {folder for folder, _ in marks} == {"control/1"}
    assert most - 2 <= len(marks) <= most
    # The last one is not left out: it comes when its time has come, though the busy input has said no more.
    clock.now += timeout / 4 + 1.0
    speak(counts, "input0", 1_000)
    inputs.look(counts)
    assert marks[-1] == ("control/1", 1_000)


def test_the_mark_of_a_silent_edge_is_one_file_and_does_not_wait(tmp_path: Path) -> None:
    clock = ManualClock()
    edge = Input(1, catalog.ComputeInput(event_time="ts"), None, str(tmp_path / "marks"), "")
    inputs = IdleInputs((topic(0), edge), 1.0, clock, HOST, mark_interval=1.0)
    counts = Counts()
    clock.now += 2.0
    for latest in (5, 6, 7):
        speak(counts, "input0", latest)
        inputs.look(counts)
        assert (tmp_path / "marks").read_text() == str(latest)
    assert [path.name for path in tmp_path.iterdir()] == ["marks"]


def test_an_input_whose_rows_bring_no_later_event_time_is_not_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """As an unsorted file, or many rows of one moment: a mark would make its next rows late."""
    marks = written(monkeypatch)
    clock = ManualClock()
    inputs = IdleInputs((topic(0), topic(1)), 1.0, clock, HOST, mark_interval=0.1)
    counts = Counts()
    for tick in range(1, 20):
        clock.now += 0.5
        speak(counts, "input0", tick * 1_000)
        speak(counts, "input1", 7 - tick % 3)
        inputs.look(counts)
    assert marks == []
    # Without rows it is.
    for tick in range(20, 24):
        clock.now += 0.5
        speak(counts, "input0", tick * 1_000)
        inputs.look(counts)
    assert marks[-1] == ("control/1", 23_000)


def test_rows_without_an_event_time_do_not_keep_an_input_from_being_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """They move no watermark: the windows of the others would wait for ever."""
    marks = written(monkeypatch)
    clock = ManualClock()
    inputs = IdleInputs((topic(0), topic(1)), 1.0, clock, HOST, mark_interval=0.1)
    counts = Counts()
    for tick in range(1, 5):
        clock.now += 0.5
        speak(counts, "input0", tick)
        report = {"batchId": counts.batch_id + 1, "durationMs": {"addBatch": 1}, "sources": []}
        assert counts.saw(json.dumps({**report, "observedMetrics": {"input1": {"rows": 5, "latest_us": None}}}))
        inputs.look(counts)
    assert marks[-1] == ("control/1", 4)
