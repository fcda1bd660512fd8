"""Runs of fragments from edges to an edge, on a real Spark."""

from __future__ import annotations

import datetime as dt
import socket
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from headgate.catalog import v1 as catalog
from headgate.engine import v1 as engine
from headgate_common.errors import HeadgateError
from headgate_common.ids import RandomIds
from tests.integration.engine.edges import Edges
from tests.integration.engine.events import (
    EVENTS,
    WINDOW_SECONDS,
    Row,
    event,
    events,
    filtered,
    filtering,
    joined,
    joined_plan,
    parts,
    seen_windows,
    windowed,
    windows,
)
from tests.integration.engine.kit import Client, until

pytestmark = pytest.mark.spark

IN, IN2, OUT = 1, 2, 9


class Case:
    """One fragment with its edges."""

    def __init__(self, client: Client, edges: Edges, checkpoint: str, plan: catalog.ComputeFragment) -> None:
        self.client = client
        self.edges = edges
        self.uid = RandomIds().uid("fragment")
        self.checkpoint = checkpoint
        self.plan = plan
        self.inputs: list[engine.EdgeAccess] = []
        self.out = self._edge(OUT, 2)

    def _edge(self, ordinal: int, partitions: int) -> engine.EdgeAccess:
        access = self.edges.create(self.topic(ordinal), partitions)
        access.edge = ordinal
        return access

    def topic(self, ordinal: int) -> str:
        return f"{self.uid}.{ordinal}"

    def input(self, ordinal: int, partitions: int = 1) -> str:
        self.inputs.append(self._edge(ordinal, partitions))
        return self.topic(ordinal)

    def ref(self, epoch: int = 1) -> engine.RunRef:
        return engine.RunRef(fragment_uid=self.uid, epoch=epoch)

    def start(self, epoch: int = 1, **settings: Any) -> engine.RunRef:
        ref = self.ref(epoch)
        self.client(
            engine.StartFragmentRequest(
                run=ref,
                query="test",
                plan=self.plan,
                inputs=self.inputs,
                output=self.out,
                settings=engine.RunSettings(**settings),
                checkpoint=self.checkpoint,
            )
        )
        return ref

    def rows(self) -> list[Row]:
        return self.edges.rows(self.topic(OUT))


@pytest.fixture
def case(client: Client, edges: Edges, checkpoint: str, request: pytest.FixtureRequest) -> Any:
    made: list[Case] = []

    def make(plan: catalog.ComputeFragment) -> Case:
        made.append(Case(client, edges, checkpoint, plan))
        return made[-1]

    yield make
    for one in made:
        for run in client(engine.ListFragmentsRequest(page_size=1000)).runs:
            if run.ref.fragment_uid == one.uid:
                client(engine.StopFragmentRequest(run=run.ref))
                until(lambda ref=run.ref: client.run(ref).state in (4, 5, 6), "the run to stop")


def append(edges: Edges, topic: str, rows: list[Row], size: int = 20, partitions: int = 1) -> None:
    for number, part in enumerate(parts(rows, size)):
        edges.append(topic, part, EVENTS, number % partitions)


@pytest.mark.parametrize("flaky", [0, 5], ids=["calls succeed", "calls and answers are lost"])
def test_a_bounded_stateless_run_emits_every_row_once_and_finishes(case: Any, edges: Edges, flaky: int) -> None:
    edges.flaky = flaky
    one = case(filtering())
    topic = one.input(IN, partitions=2)
    rows = events(1, 100)
    append(edges, topic, rows[:60], partitions=2)
    ref = one.start()
    one.client.wait(ref, engine.RUN_STATE_RUNNING)
    append(edges, topic, rows[60:], partitions=2)
    edges.end(topic)
    run = one.client.wait(ref, engine.RUN_STATE_FINISHED)
    assert Counter((row["k"], row["w"]) for row in one.rows()) == filtered(rows)
    assert edges.topics[one.topic(OUT)].ended
    assert run.progress.rows_in == 100
    assert run.progress.rows_out == sum(filtered(rows).values())
    assert not run.HasField("error")


def test_the_end_of_the_inputs_emits_every_open_window_of_sources_that_end_at_different_times(
    case: Any, edges: Edges
) -> None:
    """One source ends early, the other is far behind: nothing is late and every window is complete."""
    one = case(windowed(IN, IN2))
    early, late = one.input(IN, partitions=2), one.input(IN2)
    first, second = events(2, 80, step=1.0), events(3, 60, first=1000)
    append(edges, early, first, partitions=2)
    edges.end(early)
    ref = one.start()
    one.client.wait(ref, engine.RUN_STATE_RUNNING)
    append(edges, late, second)
    until(lambda: one.client.run(ref).progress.rows_in == 140, "all rows to be read")
    edges.end(late)
    run = one.client.wait(ref, engine.RUN_STATE_FINISHED)
    assert seen_windows(one.rows()) == windows([*first, *second])
    assert run.progress.rows_late == 0
    # What was consumed need not be kept any longer.
    assert edges.topics[late].log_starts[0] > 0


def test_a_source_that_ended_before_a_restart_does_not_hold_back_the_others(case: Any, edges: Edges) -> None:
    """Spark forgets the watermark of each input with the run; that of one that has ended never comes again alone."""
    one = case(windowed(IN, IN2))
    early, late = one.input(IN), one.input(IN2)
    first, second = events(12, 40), events(13, 60, first=1000)
    append(edges, early, first)
    edges.end(early)
    append(edges, late, second[:20])
    for epoch in (1, 2):
        ref = one.start(epoch=epoch)
        until(lambda ref=ref: one.client.run(ref).progress.batch_id >= 0, "a batch to be done")
        until(lambda: edges.topics[early].log_starts[0] > 0, "the end of the early source to be read")
        one.client(engine.StopFragmentRequest(run=ref, mode=engine.STOP_MODE_HARD))
        one.client.wait(ref, engine.RUN_STATE_STOPPED)
    append(edges, late, second[20:])
    edges.end(late)
    run = one.client.wait(one.start(epoch=3), engine.RUN_STATE_FINISHED)
    assert seen_windows(one.rows()) == windows([*first, *second])
    assert run.progress.rows_late == 0


def test_a_join_gives_every_match_once(case: Any, edges: Edges) -> None:
    one = case(joined_plan(IN, IN2))
    left, right = one.input(IN), one.input(IN2)
    a, b = events(4, 40), events(5, 40)
    append(edges, left, a)
    append(edges, right, b)
    edges.end(left)
    edges.end(right)
    ref = one.start()
    one.client.wait(ref, engine.RUN_STATE_FINISHED)
    assert Counter((row["k"], row["v"], row["at"]) for row in one.rows()) == joined(a, b)


def test_a_stopped_run_goes_on_under_the_next_epoch_and_soft_stop_drains(case: Any, edges: Edges) -> None:
    one = case(windowed(IN))
    topic = one.input(IN)
    rows = events(6, 90)
    append(edges, topic, rows[:50])
    ref = one.start()
    until(lambda: one.client.run(ref).progress.rows_in == 50, "50 rows to be read")
    stopped = one.client(engine.StopFragmentRequest(run=ref, mode=engine.STOP_MODE_HARD)).run
    assert stopped.ref == ref
    one.client.wait(ref, engine.RUN_STATE_STOPPED)
    assert not edges.topics[one.topic(OUT)].ended
    append(edges, topic, rows[50:])
    again = one.start(epoch=2)
    with pytest.raises(HeadgateError, match="STALE_EPOCH"):
        one.start(epoch=1)
    one.client.wait(again, engine.RUN_STATE_RUNNING)
    # The edge has no end, as when its source was broken: what is there is all there is.
    assert one.client(engine.StopFragmentRequest(run=again, mode=engine.STOP_MODE_SOFT)).run.ref == again
    one.client.wait(again, engine.RUN_STATE_STOPPED)
    assert seen_windows(one.rows()) == windows(rows)
    assert edges.topics[one.topic(OUT)].ended


def test_a_run_whose_checkpoint_is_gone_is_refused_where_it_would_lose_rows(
    case: Any, edges: Edges, checkpoint: str
) -> None:
    one = case(filtering())
    topic = one.input(IN)
    append(edges, topic, events(12, 10))
    ref = one.start()
    until(one.rows, "the first rows")
    append(edges, topic, events(12, 20)[10:])
    until(lambda: edges.topics[one.topic(OUT)].last_batch > 0, "a second batch")
    one.client(engine.StopFragmentRequest(run=ref))
    one.client.wait(ref, engine.RUN_STATE_STOPPED)
    Path(checkpoint).rename(f"{checkpoint}.elsewhere")
    run = one.client.wait(one.start(epoch=2), engine.RUN_STATE_FAILED)
    assert (run.error.reason, run.error.transient) == ("CHECKPOINT_INVALID", False)


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("/proc/nowhere", "its folder cannot be made"),
        ("{folder}/file/checkpoints", "a file is in its way"),
        ("gs://bucket/checkpoints", "the engine has no file system for gs://"),
    ],
    ids=["folder", "file", "scheme"],
)
def test_a_run_whose_checkpoint_can_never_be_written_fails_for_good_and_at_once(
    case: Any, tmp_path: Path, place: str, says: str
) -> None:
    (tmp_path / "file").touch()
    one = case(filtering())
    one.input(IN)
    one.checkpoint = place.format(folder=tmp_path)
    run = one.client.wait(one.start(), engine.RUN_STATE_FAILED)
    assert (run.error.reason, run.error.transient) == ("CHECKPOINT_INVALID", False)
    assert says in run.error.message
    assert one.checkpoint in run.error.message


def test_a_run_whose_checkpoint_does_not_answer_may_be_started_again(case: Any) -> None:
    one = case(filtering())
    one.input(IN)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        one.checkpoint = f"hdfs://127.0.0.1:{nobody.getsockname()[1]}/checkpoints"
        run = one.client.wait(one.start(), engine.RUN_STATE_FAILED)
    assert (run.error.reason, run.error.transient) == ("CHECKPOINT_UNREACHABLE", True)
    assert one.checkpoint in run.error.message


def test_a_run_that_waits_for_its_output_says_so_before_it_gives_up(case: Any, edges: Edges) -> None:
    one = case(filtering())
    one.input(IN)
    edges.refusing = ("NOT_LEADER", "")
    ref = one.start()
    run = until(
        lambda: one.client.run(ref) if one.client.run(ref).waiting else None, "the run to say what it waits for"
    )
    assert run.waiting == f"it opens its output at {edges.address}"
    edges.refusing = None
    one.client.wait(ref, engine.RUN_STATE_RUNNING)
    assert one.client.run(ref).waiting == ""


def test_the_checkpoint_of_a_fragment_is_removed_when_no_run_of_it_is_left(
    case: Any, edges: Edges, checkpoint: str
) -> None:
    one = case(filtering())
    topic = one.input(IN)
    append(edges, topic, events(11, 10))
    ref = one.start()
    one.client.wait(ref, engine.RUN_STATE_RUNNING)
    request = engine.DeleteCheckpointRequest(fragment_uid=one.uid, checkpoint=checkpoint)
    with pytest.raises(HeadgateError, match="RUN_ACTIVE"):
        one.client(request)
    one.client(engine.StopFragmentRequest(run=ref))
    one.client.wait(ref, engine.RUN_STATE_STOPPED)
    assert (Path(checkpoint) / one.uid / "offsets").is_dir()
    one.client(request)
    assert not (Path(checkpoint) / one.uid).exists()
    one.client(request)
    with pytest.raises(HeadgateError, match="INVALID_ARGUMENT"):
        one.client(engine.DeleteCheckpointRequest(fragment_uid="..", checkpoint=checkpoint))


def test_a_later_writer_shuts_the_run_out_before_anything_of_it_is_seen(case: Any, edges: Edges) -> None:
    one = case(filtering())
    topic = one.input(IN)
    ref = one.start()
    one.client.wait(ref, engine.RUN_STATE_RUNNING)
    edges.topics[one.topic(OUT)].writer = (one.uid, 7)
    append(edges, topic, events(7, 20))
    run = one.client.wait(ref, engine.RUN_STATE_FAILED)
    assert (run.error.reason, run.error.transient) == ("STALE_EPOCH", False)
    assert one.rows() == []


def test_data_that_fails_the_query_is_told_with_sparks_class_and_one_sentence(case: Any, edges: Edges) -> None:
    plan = filtering()
    plan.spark_sql = "SELECT k, 10 DIV (v - 3) AS w FROM s"
    one = case(plan)
    append(edges, one.input(IN), events(8, 20))
    ref = one.start()
    run = one.client.wait(ref, engine.RUN_STATE_FAILED)
    assert (run.error.reason, run.error.error_class) == ("QUERY_FAILED", "DIVIDE_BY_ZERO")
    assert run.error.message.startswith("Division by zero.")
    assert not run.error.transient
    assert "\n" not in run.error.message
    assert "at org." not in run.error.message + run.error.trace
    assert one.rows() == []


def test_sql_that_spark_refuses_fails_the_run_with_its_reason(case: Any) -> None:
    plan = filtering()
    plan.spark_sql = "SELECT nothing FROM s"
    one = case(plan)
    one.input(IN)
    ref = one.start()
    run = one.client.wait(ref, engine.RUN_STATE_FAILED)
    assert (run.error.reason, run.error.error_class) == ("QUERY_INVALID", "UNRESOLVED_COLUMN.WITH_SUGGESTION")
    assert "`nothing`" in run.error.message
    assert "Project" not in run.error.message


def test_a_run_that_is_not_kept_alive_stops_by_the_engines_own_clock(case: Any, edges: Edges) -> None:
    one = case(filtering())
    topic = one.input(IN)
    settings = engine.RunSettings()
    settings.keep_alive.FromMilliseconds(1500)
    ref = one.start(keep_alive=settings.keep_alive)
    run = until(lambda: (r := one.client.run(ref)).state == engine.RUN_STATE_FAILED and r, "the run to be stopped")
    assert (run.error.reason, run.error.transient) == ("KEEP_ALIVE_MISSED", True)
    answer = one.client(engine.KeepAliveRequest(runs=[ref]))
    assert list(answer.missing) == [ref]
    append(edges, topic, events(9, 10))
    assert one.rows() == []


def test_progress_is_watched_from_the_start_to_the_end(case: Any, edges: Edges) -> None:
    one = case(windowed(IN))
    topic = one.input(IN)
    append(edges, topic, events(10, 60))
    edges.end(topic)
    ref = one.start()
    seen = []
    for answer in one.client.stream(engine.WatchProgressRequest(runs=[ref])):
        seen.append(answer.run)
        if answer.run.state == engine.RUN_STATE_FINISHED:
            break
    assert seen[-1].progress.rows_in == 60
    assert seen[-1].progress.batch_time.ToMilliseconds() > 0
    states = [run.state for run in seen]
    assert states == sorted(states)
    page = one.client(engine.ListFragmentsRequest(page_size=1000))
    assert one.uid in [run.ref.fragment_uid for run in page.runs]


def test_the_progress_of_a_windowed_run_has_its_state_and_its_watermark(case: Any, edges: Edges) -> None:
    one = case(windowed(IN))
    rows = events(14, 60)
    append(edges, one.input(IN), rows)
    ref = one.start()
    # Spark keeps watermarks in milliseconds; the lateness is two seconds.
    latest = int(max(row["ts"] for row in rows).timestamp() * 1000)

    def arrived() -> engine.RunProgress | None:
        progress: engine.RunProgress = one.client.wait(ref, engine.RUN_STATE_RUNNING).progress
        there = progress.HasField("watermark") and progress.watermark.ToMilliseconds() == latest - 2000
        return progress if there and progress.rows_in == len(rows) else None

    progress = until(arrived, "the watermark of the last row")
    reached = dt.datetime.fromtimestamp((latest - 2000) / 1000, dt.UTC)
    window = dt.timedelta(seconds=WINDOW_SECONDS)
    assert progress.state_rows == sum(start + window > reached for _, start, _, _ in windows(rows)) > 0
    assert progress.state_bytes > 0


def test_an_idle_input_no_longer_holds_back_the_others_and_its_late_rows_are_counted(case: Any, edges: Edges) -> None:
    one = case(windowed(IN, IN2, idle_timeout=1.0))
    busy, idle = one.input(IN), one.input(IN2)
    append(edges, idle, [event(1, 0.0, "x")])
    append(edges, busy, [event(2, 1.0, "y")])
    ref = one.start()
    one.client.wait(ref, engine.RUN_STATE_RUNNING)

    def speak() -> bool:
        # The busy input goes on, or it would be idle too.
        speak.second += 1.0  # type: ignore[attr-defined]
        append(edges, busy, [event(3, speak.second, "y")])  # type: ignore[attr-defined]
        one.client(engine.KeepAliveRequest(runs=[ref]))
        return ("x", 1) in {(row["k"], row["n"]) for row in one.rows()}

    speak.second = 30.0  # type: ignore[attr-defined]
    until(speak, "the first window to be emitted")
    append(edges, idle, [event(4, 2.0, "x")])
    until(lambda: speak() and one.client.run(ref).progress.rows_late == 1, "the late row to be counted")
    assert START_OF_FIRST in {row["ws"] for row in one.rows()}

    one.client(engine.StopFragmentRequest(run=ref))
    one.client.wait(ref, engine.RUN_STATE_STOPPED)
    again = one.start(epoch=2)
    one.client.wait(again, engine.RUN_STATE_RUNNING)
    assert one.client.run(again).progress.rows_late == 1, "the next run begins with what those before have lost"


def test_an_input_whose_rows_stay_within_the_lateness_is_not_taken_for_silent(case: Any, edges: Edges) -> None:
    one = case(windowed(IN, IN2, idle_timeout=3.0))
    ahead, steady = one.input(IN), one.input(IN2)
    rows: list[Row] = []

    def say(topic: str, second: float) -> None:
        rows.append(event(len(rows), second))
        append(edges, topic, rows[-1:])

    ref = one.start()
    one.client.wait(ref, engine.RUN_STATE_RUNNING)
    # For three times the timeout its rows bring no later event time, while the other input goes far ahead.
    enough = time.monotonic() + 9.0
    while time.monotonic() < enough:
        say(steady, 1.0)
        say(ahead, 30.0 + len(rows))
        read = len(rows)
        until(lambda read=read: one.client.run(ref).progress.rows_in == read, "both rows to be read")
    say(steady, 2.0)
    for topic in (ahead, steady):
        edges.end(topic)
    run = one.client.wait(ref, engine.RUN_STATE_FINISHED)
    assert run.progress.rows_late == 0
    assert seen_windows(one.rows()) == windows(rows)


START_OF_FIRST = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def test_a_run_outlives_an_agent_that_does_not_lead_its_edges_for_a_while(case: Any, edges: Edges) -> None:
    one = case(windowed(IN))
    topic = one.input(IN)
    rows = events(41, 120)
    append(edges, topic, rows[:60])
    ref = one.start()
    until(lambda: one.client.run(ref).progress.rows_in == 60, "the first rows")
    for reason in ("NOT_LEADER", "UNKNOWN_PARTITION"):
        edges.refusing = (reason, "")
        asked = edges.calls
        until(lambda asked=asked: edges.calls > asked + 5, "the run to ask again")
        edges.refusing = None
    append(edges, topic, rows[60:])
    edges.end(topic)
    one.client.wait(ref, engine.RUN_STATE_FINISHED)
    assert seen_windows(one.rows()) == windows(rows)


def test_a_hard_stop_does_not_wait_for_an_agent_that_does_not_lead(case: Any, edges: Edges) -> None:
    one = case(filtering())
    one.input(IN)
    ref = one.start(epoch=3)
    one.client.wait(ref, engine.RUN_STATE_RUNNING)
    edges.refusing = ("NOT_LEADER", "")
    asked = edges.calls
    until(lambda: edges.calls > asked + 3, "the run to ask in vain")
    one.client(engine.StopFragmentRequest(run=ref))
    # The patience of the run, 30 s, would be far from over.
    one.client.wait(ref, engine.RUN_STATE_STOPPED, seconds=15.0)


def test_one_partition_is_read_by_several_tasks(case: Any, edges: Edges) -> None:
    one = case(windowed(IN))
    topic = one.input(IN)
    rows = [{**row, "k": row["k"] + "x" * 2000} for row in events(42, 2400)]
    append(edges, topic, rows, size=100)
    edges.end(topic)
    # All of it, 5 MB, in one batch: the tasks ask for parts of it, the last one with the end.
    ref = one.start()
    one.client.wait(ref, engine.RUN_STATE_FINISHED)
    assert seen_windows(one.rows()) == windows(rows)
    assert sorted(edges.reads[:2]) == [(0, 13), (13, 25)]
