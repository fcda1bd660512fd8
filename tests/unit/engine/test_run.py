"""The thread of a run: what it sees of Spark's reports, how it ends, and what it tells of a failure."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headgate.engine import v1 as engine
from headgate_common.errors import HeadgateError
from headgate_common.ids import RandomIds
from headgate_engine.batch import Batches, Limits
from headgate_engine.fragments.drain import drain_topics
from headgate_engine.fragments.errors import Failure, failure_of
from headgate_engine.fragments.query import Query
from headgate_engine.fragments.run import SparkRun, Stopped, Tools
from headgate_engine.fragments.settings import Pems, RunDefaults
from headgate_engine.spark import SparkHost
from tests.unit.engine.test_progress import JavaQuery
from tests.unit.engine.test_runs import ManualClock

JAVA = "java.lang.ArithmeticException: boom\n\tat org.apache.spark.X.y(X.scala:1)"


class Captured(Exception):
    """An exception of pyspark: its text has no trace, which it keeps apart."""

    _stackTrace = JAVA  # noqa: N815


@dataclass
class Told:
    states: list[int] = field(default_factory=list)
    failures: list[Failure | None] = field(default_factory=list)
    sums: list[tuple[int, int]] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)

    def state(self, state: engine.RunState.ValueType, failure: Failure | None = None) -> None:
        self.states.append(state)
        self.failures.append(failure)

    def step(self, step: str, *, own: bool = False) -> None:
        self.steps.append(step)

    def progress(self, progress: engine.RunProgress) -> None:
        self.sums.append((progress.batch_id, progress.rows_in))


class Running:
    """A streaming query that has stopped."""

    isActive = False  # noqa: N815

    def __init__(self, java: JavaQuery) -> None:
        self._jsq = java

    def stop(self) -> None:
        pass


def run_of(folder: Path, told: Told, work: Callable[[SparkRun], None], *, traces: bool = False) -> SparkRun:
    """A run that does `work` in the place of what it would do with Spark."""
    defaults = SimpleNamespace(traces=traces, quiet=10.0)
    host = SimpleNamespace(folder=folder)
    tools = Tools(cast(SparkHost, host), cast(RunDefaults, defaults), Pems(), ManualClock())
    request = engine.StartFragmentRequest(run=engine.RunRef(fragment_uid="f", epoch=3), query="cars")
    made = SparkRun(request, tools, told)
    made._run = lambda: work(made)  # type: ignore[method-assign]
    return made


def with_query(run: SparkRun, java: JavaQuery) -> None:
    run._query = cast(Query, SimpleNamespace(running=Running(java)))


def test_batches_that_ended_since_the_last_look_are_counted_when_a_run_is_stopped(tmp_path: Path) -> None:
    told, java = Told(), JavaQuery()

    def work(run: SparkRun) -> None:
        with_query(run, java)
        java.ended(0, 1)
        run._see_progress()
        java.ended(2, 3)
        run._hard.set()
        raise Stopped

    run_of(tmp_path, told, work)._work()
    assert told.sums == [(1, 20), (3, 40)]
    assert told.states == [engine.RUN_STATE_STOPPED]


def test_batches_that_nobody_saw_are_told_in_the_log_with_the_query_and_how_many(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    told, java = Told(), JavaQuery(kept=4)

    def work(run: SparkRun) -> None:
        with_query(run, java)
        for batches in (range(3), range(3, 6), range(6, 15), range(15, 16)):
            java.ended(*batches)
            run._see_progress()

    with caplog.at_level(logging.WARNING):
        run_of(tmp_path, told, work)._work()
    (warning,) = [one for one in caplog.records if "batches ended faster" in one.message]
    assert (warning.query, warning.fragment, warning.epoch, warning.batches) == ("cars", "f", 3, 5)  # type: ignore[attr-defined]


def test_what_a_query_has_to_report_is_seen_before_it_is_started_again_to_drain() -> None:
    steps: list[str] = []

    class Draining:
        inputs = ()
        output = SimpleNamespace(gate=None)
        running = SimpleNamespace(stop=lambda: steps.append("stop"))

        def start(self, *, available_now: bool) -> Any:
            steps.append("start")
            return SimpleNamespace(awaitTermination=lambda seconds: True)

    drain_topics(cast(Query, Draining()), lambda: steps.append("look"), 0.1)
    assert steps == ["stop", "look", "start", "look"]


@pytest.mark.parametrize("traces", [True, False])
def test_a_run_that_fails_sends_javas_stack_trace_only_where_the_engine_is_set_so(tmp_path: Path, traces: bool) -> None:
    told = Told()

    def work(run: SparkRun) -> None:
        raise Captured("[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012")

    run_of(tmp_path, told, work, traces=traces)._work()
    (failure,) = told.failures
    assert failure is not None
    sent = failure.to_proto()
    assert (sent.reason, sent.message) == ("QUERY_FAILED", "Division by zero.")
    assert (JAVA in sent.trace) is traces
    assert ("Traceback (most recent call last)" in sent.trace) is traces
    if not traces:
        assert sent.trace == ""


@pytest.mark.parametrize("traces", [True, False])
def test_a_batch_that_fails_sends_javas_stack_trace_only_where_the_engine_is_set_so(traces: bool) -> None:
    def session(conf: Any, pool: str) -> Any:
        raise Captured("[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012")

    host = cast(SparkHost, SimpleNamespace(session=session))
    limits = Limits(max_rows=1, traces=traces, brokers=1.0)
    unused = cast(Any, None)
    with ThreadPoolExecutor(1) as threads:
        batches = Batches(host, threads, limits, ManualClock(), RandomIds(), unused, unused)
        with pytest.raises(HeadgateError, match="QUERY_FAILED: Division by zero") as raised:
            batches._run(engine.ExecuteBatchRequest(sql="SELECT 1"), "group", threading.Event())
    assert raised.value.metadata.get("trace", "").startswith(JAVA) is traces
    assert ("trace" in raised.value.metadata) is traces


def test_a_trace_that_is_in_the_text_of_an_exception_is_not_sent_twice() -> None:
    assert failure_of(Captured(f"boom\n{JAVA}"), traces=True).trace.count("X.scala") == 1
