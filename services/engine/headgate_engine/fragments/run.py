"""One run of a fragment: a thread that starts a streaming query, looks after it, and says how it ends.

The thread is needed because py4j blocks. It reports through `Report`, whose methods may be called from any thread; it
is told to stop through `stop`, which returns at once.
"""

from __future__ import annotations

import contextlib
import json
import logging
import shutil
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from headgate.engine import v1 as engine
from headgate_common.clock import Clock
from headgate_common.errors import HeadgateError
from headgate_common.kafka_reasons import KAFKA_TOPIC_MISSING
from headgate_engine.errors import SPARK_FAILED
from headgate_engine.executor.calls import Access, EdgeClient
from headgate_engine.fragments.checkpoint_problems import checkpoint_problems
from headgate_engine.fragments.drain import drain_topics, have_ended, settle
from headgate_engine.fragments.errors import Failure, failure_of
from headgate_engine.fragments.idle import IdleInputs
from headgate_engine.fragments.kafka import partitions_of
from headgate_engine.fragments.kafka_edges import KafkaInputs
from headgate_engine.fragments.kafka_output import KafkaEdgeOutput
from headgate_engine.fragments.losses import Losses
from headgate_engine.fragments.progress import Counts, Reports
from headgate_engine.fragments.query import Query
from headgate_engine.fragments.read import Input, inputs_of
from headgate_engine.fragments.settings import Pems, RunDefaults, checkpoint_of, control_folder, is_realtime
from headgate_engine.fragments.storage import check_checkpoint, make_folder
from headgate_engine.fragments.write import EdgeOutput, ErrorRows, TopicOutput
from headgate_engine.s3 import reach
from headgate_engine.spark import SparkHost

log = logging.getLogger(__name__)

_LOOKS_TO_ASK = 4
_STOP_ATTEMPTS = 5


class Report(Protocol):
    """How a run says how it is. Every state but the last ones may come more than once."""

    def state(self, state: engine.RunState.ValueType, failure: Failure | None = None) -> None: ...

    def step(self, step: str, *, own: bool = False) -> None:
        """What it does before it is RUNNING, as it would be told of one that is stuck there; `own` if it waits for
        nobody."""
        ...

    def progress(self, progress: engine.RunProgress) -> None: ...


@dataclass(frozen=True, slots=True)
class Tools:
    """What all runs of an engine share."""

    host: SparkHost
    defaults: RunDefaults
    pems: Pems
    clock: Clock


class Stopped(Exception):
    """A hard stop was asked for."""


class SparkRun:
    """One run. `start` and `stop` return at once; the end is reported, once."""

    def __init__(self, request: engine.StartFragmentRequest, tools: Tools, report: Report) -> None:
        self._request = request
        self._tools = tools
        self._report = report
        self._hard = threading.Event()
        self._soft = threading.Event()
        self._counts = Counts()
        self._reports = Reports()
        self._losses: Losses | None = None
        self._last_batch = tools.clock.monotonic()
        self._query: Query | None = None
        self._output: EdgeOutput | TopicOutput | KafkaEdgeOutput | None = None
        self._folder = Path(tools.host.folder) / f"{request.run.fragment_uid}.{request.run.epoch}"
        self._stop_file = self._folder / "stop"

    def start(self) -> None:
        threading.Thread(target=self._work, name=f"run {self._request.run.fragment_uid}", daemon=True).start()

    def stop(self, *, soft: bool) -> None:
        if soft:
            self._soft.set()
            return
        self._hard.set()
        with contextlib.suppress(OSError):
            # Python data sources are other processes: one that waits for an agent looks at this file.
            self._folder.mkdir(parents=True, exist_ok=True)
            self._stop_file.touch()
        # The run's own thread may be waiting inside Spark, which returns when the query has stopped.
        threading.Thread(target=self._stop_query, name="stop", daemon=True).start()

    def _stop_query(self) -> None:
        if self._query is not None and self._query.running is not None:
            with contextlib.suppress(Exception):
                self._query.running.stop()

    def _work(self) -> None:
        fields = {"fragment": self._request.run.fragment_uid, "epoch": self._request.run.epoch}
        failure: Failure | None = None
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._run()
            state = engine.RUN_STATE_STOPPED if self._soft.is_set() else engine.RUN_STATE_FINISHED
        except BaseException as error:
            state = engine.RUN_STATE_STOPPED
            if not self._hard.is_set():
                state = engine.RUN_STATE_FAILED
                told = (self._output.failure if self._output is not None else None) or error
                failure = failure_of(told, traces=self._tools.defaults.traces)
                log.warning("run failed", extra={**fields, "reason": failure.reason.name, "error": failure.message})
                log.debug("trace", exc_info=error)
        if not self._ended():
            state = engine.RUN_STATE_FAILED
            failure = Failure(SPARK_FAILED, "the query does not stop; restart the engine", transient=True)
        with contextlib.suppress(Exception):
            # Batches that ended since the last look; where the JVM has died there is nobody to ask.
            self._count_batches()
        self._keep_losses(last=True)
        shutil.rmtree(self._folder, ignore_errors=True)
        self._report.state(state, failure)

    def _ended(self) -> bool:
        """Stops the query. What is told to have ended must not write any more, so it is tried again; each attempt takes
        up to `spark.sql.streaming.stopTimeout`."""
        for _ in range(_STOP_ATTEMPTS):
            self._stop_query()
            try:
                if self._query is None or self._query.running is None or not self._query.running.isActive:
                    return True
            except Exception:
                # The JVM has died, and the query with it.
                return True
        return False

    def _run(self) -> None:
        """Returns when everything was emitted; raises `Stopped` for a hard stop."""
        request, run, tools = self._request, self._request.run, self._tools
        accesses = {edge.edge: tools.pems.access(edge, run.fragment_uid, run.epoch) for edge in request.inputs}
        topics = {access.topic: tools.pems.topic(access) for access in request.topics}
        inputs = inputs_of(request, accesses, topics, self._folder)
        self._check_kafka(inputs)
        reach(tools.host, request.checkpoint, request.checkpoint_s3)
        output = self._output = self._make_output()
        self._report.step(f"it opens its output{self._whereabouts()}")
        committed = output.open()
        self._check_stop()
        self._report.step(f"it opens its checkpoint, {request.checkpoint}, and has no answer yet")
        query = self._query = Query(
            request, inputs, output, tools.host, tools.defaults, self._counts.wrote, self._stop_file
        )
        # Of a run without a fence nobody knows but the checkpoint itself.
        has_run = committed >= 0 or (run.epoch > 1 and not request.HasField("output"))
        with checkpoint_problems(request.checkpoint, has_run=has_run):
            check_checkpoint(tools.host.root, checkpoint_of(request), committed)
            if committed < 0:
                make_folder(tools.host.root, checkpoint_of(request))
            folder = control_folder(request.checkpoint, run.fragment_uid)
            self._losses = Losses(tools.host.root, folder, tools.defaults.losses)
            self._counts.lost = self._losses.load()
        self._check_stop()
        self._report.step("Spark plans it", own=True)
        with checkpoint_problems(request.checkpoint, has_run=has_run, named=True):
            query.start()
        self._report.step("Spark computes its first batch", own=True)
        edges = [
            EdgeClient(one.access, patience=0.0, given_up=self._hard.is_set) for one in inputs if one.access is not None
        ]
        on_kafka = KafkaInputs(tools.host.root, inputs)
        idle = IdleInputs(
            inputs,
            request.plan.idle_timeout_us / 1e6,
            tools.clock,
            tools.host,
            mark_interval=tools.defaults.mark_interval,
        )
        running = False
        looks = 0
        while True:
            self._wait()
            looks += 1
            if self._see_progress() or (not running and self._is_up()):
                if self._counts.batch_id < 0 and self._counts.lost.batch_id >= 0:
                    # What earlier runs have lost is known before this one has done anything.
                    self._report.progress(self._counts.to_proto())
                running = True
                self._report.state(engine.RUN_STATE_RUNNING)
            idle.look(self._counts)
            # A look at the edges is a call for each, and their end is no news that cannot wait a little.
            if looks % _LOOKS_TO_ASK:
                continue
            # One that has ended, and was read, no longer holds back the others.
            idle.end(run.epoch, on_kafka.look(self._latest_report()) if len(on_kafka) else ())
            ended = have_ended(edges)
            if self._soft.is_set() or (ended and on_kafka.ended and not any(one.is_topic for one in inputs)):
                self._report.state(engine.RUN_STATE_DRAINING)
                on_kafka.close()
                self._drain(query, idle, ended=ended)
                output.finish()
                return

    def _make_output(self) -> EdgeOutput | TopicOutput | KafkaEdgeOutput:
        request, run = self._request, self._request.run
        errors: Access | None = None
        if request.HasField("errors"):
            errors = self._tools.pems.access(request.errors, run.fragment_uid, run.epoch)
        if not request.HasField("output"):
            self._tools.host.require_kafka()
            rows = ErrorRows(errors, self._hard.is_set) if errors is not None else None
            if request.HasField("kafka_output"):
                most = self._tools.defaults.edge_max_lag
                return KafkaEdgeOutput(request.kafka_output, rows, self._hard.is_set, most, self._tools.host)
            realtime = is_realtime(request)
            return TopicOutput(request.plan.target, request.kafka_bootstrap, rows, self._hard.is_set, realtime=realtime)
        access = self._tools.pems.access(request.output, run.fragment_uid, run.epoch)
        return EdgeOutput(access, errors, self._hard.is_set, self._tools.defaults.edge_max_lag)

    def _whereabouts(self) -> str:
        return f" at {self._request.output.address}" if self._request.HasField("output") else ""

    def _check_kafka(self, inputs: tuple[Input, ...]) -> None:
        """Refuses a topic that is not there, and brokers that do not answer, in seconds and by name."""
        request, tools = self._request, self._tools
        options = [
            entry.plan.topic.options for entry in inputs if entry.kafka and entry.is_topic and not is_realtime(request)
        ]
        if request.plan.HasField("target"):
            options.append(request.plan.target.options)
        edges = [*request.kafka_inputs, *([request.kafka_output] if request.HasField("kafka_output") else [])]
        if options or edges:
            tools.host.require_kafka()
        for edge in edges:
            self._wait_for(edge)
        for one in options:
            servers = one.get("bootstrap_servers") or request.kafka_bootstrap
            self._report.step(f"it asks the brokers of topic {one['topic']}, {servers}, and has no answer yet")
            partitions_of(tools.host.root, one, request.kafka_bootstrap, tools.defaults.brokers)

    def _wait_for(self, edge: engine.KafkaEdge) -> None:
        """The agent at the other end makes the topic of an edge, and may not have come to it yet."""
        options = {**edge.options, "topic": edge.topic}
        servers = edge.options["bootstrap_servers"]
        self._report.step(f"it asks the brokers of topic {edge.topic}, {servers}, and has no answer yet")
        while True:
            self._check_stop()
            try:
                partitions_of(self._tools.host.root, options, "", self._tools.defaults.brokers)
                return
            except HeadgateError as error:
                if error.reason != KAFKA_TOPIC_MISSING:
                    raise
            self._report.step(f"its edge {edge.topic} at {servers} is not made yet")
            self._hard.wait(self._tools.defaults.look)

    def _drain(self, query: Query, idle: IdleInputs, *, ended: bool) -> None:
        """`ended`: whether every edge of the log has an end of its own."""
        # Whoever asks for a soft stop knows that nothing more comes: an edge whose writer was broken then has no end of
        # its own, and is given one. One on Kafka never has one that Spark would read.
        open_ended = [one for one in query.inputs if one.kafka_edge is not None or (one.marks and not ended)]
        seconds = self._tools.defaults.look

        def look() -> None:
            self._see_progress()
            self._check_stop()

        assert query.running is not None
        # A realtime query has nothing in flight: what it reads it has written.
        if self._request.inputs or self._request.kafka_inputs:
            settle(query.running, look, seconds)
            if idle.end(self._request.run.epoch, open_ended):
                settle(query.running, look, seconds)
        if any(one.is_topic for one in query.inputs) and not is_realtime(self._request):
            drain_topics(query, look, seconds)
        self._see_progress()
        self._stop_query()

    def _wait(self) -> None:
        """Returns after a while; raises what ended the query."""
        assert self._query is not None
        assert self._query.running is not None
        self._check_stop()
        ended = self._query.running.awaitTermination(self._tools.defaults.look)  # type: ignore[arg-type]
        self._check_stop()
        if ended:
            raise RuntimeError("the query ended by itself")

    def _check_stop(self) -> None:
        if self._hard.is_set():
            raise Stopped

    def _is_up(self) -> bool:
        """Whether Spark has planned the query and found nothing to do yet, or reads in real time."""
        assert self._query is not None
        assert self._query.running is not None
        status = self._query.running.status
        if is_realtime(self._request):
            return bool(status.get("isTriggerActive")) and "Processing" in str(status.get("message", ""))
        return "Waiting for" in str(status.get("message", ""))

    def _see_progress(self) -> bool:
        """Takes the reports of batches that ended since the last look; says whether there was one."""
        seen = self._count_batches()
        if seen:
            self._keep_bad(seen)
        else:
            self._see_rest()
        self._keep_losses()
        return bool(seen)

    def _count_batches(self) -> list[str]:
        """Adds up the batches that ended since the last look. Answers their reports."""
        java: Any = self._query.running._jsq if self._query is not None and self._query.running is not None else None
        missed = self._counts.missed
        seen = [report for report in self._reports.news(java, self._counts.batch_id) if self._counts.saw(report)]
        if self._counts.missed > missed:
            fields = {"query": self._request.query, "fragment": self._request.run.fragment_uid}
            log.warning(
                "batches ended faster than they were looked at: rows in, late rows and bad records of some are not "
                "counted; raise spark.progress_reports",
                extra={**fields, "epoch": self._request.run.epoch, "batches": self._counts.missed - missed},
            )
        if isinstance(self._output, KafkaEdgeOutput):
            for report in seen:
                self._output.saw(report)
        if seen:
            self._last_batch = self._tools.clock.monotonic()
            self._report.progress(self._counts.to_proto())
        return seen

    def _latest_report(self) -> dict[str, Any]:
        """What Spark reported last, also of a look that found nothing: a run that begins with nothing to read, because
        its source waits until all before is deleted, has no batch to report on."""
        assert self._query is not None
        assert self._query.running is not None
        java: Any = self._query.running._jsq
        report = java.lastProgress()
        return json.loads(report.json()) if report is not None else {}

    def _keep_losses(self, *, last: bool = False) -> None:
        if self._losses is not None:
            self._losses.keep(self._counts.lost, self._tools.clock.monotonic(), last=last)

    def _see_rest(self) -> None:
        """A query that has nothing to read reports nothing either, and would seem to go on as it did."""
        defaults, query = self._tools.defaults, self._query
        quiet_for = self._tools.clock.monotonic() - self._last_batch
        if self._counts.quiet or self._counts.batch_id < 0 or quiet_for < defaults.quiet or is_realtime(self._request):
            return
        assert query is not None
        assert query.running is not None
        if not query.running.status["isDataAvailable"]:
            self._counts.rest()
            self._report.progress(self._counts.to_proto())

    def _keep_bad(self, reports: list[str]) -> None:
        """The error rows of a realtime run: once a batch of it is over, which takes as long as its checkpoints do."""
        query, output = self._query, self._output
        if not is_realtime(self._request) or not isinstance(output, TopicOutput) or output.errors is None:
            return
        assert query is not None
        for report in map(json.loads, reports):
            output.errors.write(int(report["batchId"]), lambda report=report: query.bad_of(report))  # type: ignore[misc]
