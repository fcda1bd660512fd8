"""A query that is stopped between two batches."""

from __future__ import annotations

import json
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql.streaming.query import StreamingQuery

from headgate_engine.fragments.gate import BatchGate, Held


class Batches:
    """A query that rests, or reports on a batch."""

    def __init__(self) -> None:
        self.isActive = True
        self.stopped = threading.Event()
        self._jsq = SimpleNamespace(lastProgress=lambda: self.report)
        self.report: Any = None

    def done(self, batch_id: int, **durations: int) -> None:
        text = json.dumps({"batchId": batch_id, "durationMs": durations})
        self.report = SimpleNamespace(batchId=lambda: batch_id, json=lambda: text)

    def stop(self) -> None:
        self.isActive = False
        self.stopped.set()


def stopping(gate: BatchGate, query: Batches, looks: list[int]) -> threading.Thread:
    def look() -> None:
        looks.append(1)

    made = threading.Thread(target=gate.stop, args=(cast(StreamingQuery, query), look, 0.01), daemon=True)
    made.start()
    return made


def test_a_batch_that_has_begun_is_done_before_the_stop() -> None:
    gate, query, looks = BatchGate(), Batches(), [0]
    gate.enter(7)
    # It rested before: this is of the same batch, and says nothing of its end.
    query.done(7, latestOffset=1)
    thread = stopping(gate, query, looks)
    assert not query.stopped.wait(0.1) and gate.closed
    query.done(7, addBatch=0)
    assert query.stopped.wait(10)
    thread.join(10)
    assert len(looks) > 1
    gate.enter(8)


def test_a_query_that_has_begun_no_batch_is_stopped_at_once() -> None:
    query = Batches()
    stopping(BatchGate(), query, []).join(10)
    assert query.stopped.is_set()


def test_the_next_batch_writes_nothing_and_waits_for_the_stop() -> None:
    gate, query = BatchGate(), Batches()
    gate.enter(1)
    query.done(0, addBatch=5)
    thread = stopping(gate, query, [])
    held: list[BaseException] = []

    def enter() -> None:
        while not gate.closed:
            pass
        try:
            gate.enter(2)
        except Held as error:
            held.append(error)

    batch = threading.Thread(target=enter, daemon=True)
    batch.start()
    batch.join(0.2)
    assert batch.is_alive() and not held
    query.done(2, latestOffset=1)
    thread.join(10)
    batch.join(10)
    assert held


def test_a_stop_that_is_given_up_leaves_the_gate_open() -> None:
    gate, query = BatchGate(), Batches()
    gate.enter(1)

    def look() -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        gate.stop(cast(StreamingQuery, query), look, 0.01)
    assert not gate.closed
