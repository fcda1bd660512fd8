"""How an agent executes fragments: sources and sinks by itself, on edges that it leads; the others on an engine."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from headgate.catalog import v1 as catalog
from headgate.cluster import v1 as cluster
from headgate.engine import v1 as engine
from headgate_agent.engines import Engines
from headgate_agent.errors import PLAN_UNSUPPORTED
from headgate_agent.fragments.checkpoints import Checkpoints
from headgate_agent.fragments.compute_run import ComputeRun, Missing
from headgate_agent.fragments.earlier import EarlierRuns
from headgate_agent.fragments.formats.json_encode import JsonEncoder
from headgate_agent.fragments.kafka_edge_topics import Reach as KafkaReach
from headgate_agent.fragments.kafka_edge_topics import discard_edges
from headgate_agent.fragments.kafka_edges import KafkaEdgeReader, KafkaEdgeWriter
from headgate_agent.fragments.local_edges import (
    LocalEdgeReader,
    LocalEdgeWriter,
    LocalErrors,
    read_record,
    write_record,
)
from headgate_agent.fragments.local_run import LocalRun
from headgate_agent.fragments.runner import Assignment, Report, Run
from headgate_agent.fragments.sinks.build import Reach, build_sink, discard_sink
from headgate_agent.fragments.sinks.result import Results, ResultSink
from headgate_agent.fragments.sinks.sink import Sink, run_sink
from headgate_agent.fragments.sinks.topic import TopicLog
from headgate_agent.fragments.sources.build import Surroundings, build_source
from headgate_agent.fragments.sources.samples import SampleSource
from headgate_agent.fragments.sources.source import Lingering, Source, run_source
from headgate_agent.fragments.starts import Starts
from headgate_agent.log.broker import Broker
from headgate_agent.work import Work
from headgate_common.errors import HeadgateError


@dataclass(frozen=True, slots=True)
class AgentRunner:
    """`Runner`. `broker` is there once the log is open; nothing is started before."""

    around: Surroundings
    engines: Engines
    checkpoints: Checkpoints
    # Where sinks keep what must survive a crash.
    state: Path
    broker: Callable[[], Broker | None]
    # Where the rows of temporary queries are read.
    results: Results
    # What sinks may wait in, for longer than anything else may.
    sink_work: Work
    # The log as TOPIC sinks see it.
    topics: Callable[[], TopicLog | None]
    # Where runs begin in topics that are read from their end.
    starts: Starts
    earlier: EarlierRuns = field(default_factory=EarlierRuns)

    def check(self, assignment: Assignment) -> None:
        body = assignment.plan.WhichOneof("body")
        if self.broker() is None and (body != "compute" or _topics_read(self._request(assignment))):
            raise HeadgateError(PLAN_UNSUPPORTED, "an agent without the role log leads no edges and knows no topics")
        if body == "source":
            build_source(assignment.plan.source, self.around)
        elif body == "sink":
            self._sink(assignment)
        elif body != "compute":
            raise HeadgateError(PLAN_UNSUPPORTED, "the fragment has no body that this agent knows")

    def start(self, assignment: Assignment, report: Callable[[Report], None]) -> Run:
        match assignment.plan.WhichOneof("body"):
            case "source":
                return self._start_source(assignment, report)
            case "sink":
                return self._start_sink(assignment, report)
            case _:
                request = self._request(assignment)
                return ComputeRun(
                    assignment,
                    request,
                    self.engines,
                    report,
                    self.around.clock,
                    self._missing_topic,
                    self.around.tally.computed,
                    self.earlier,
                    self.starts.settle,
                )

    async def discard(self, assignment: Assignment) -> None:
        await discard_edges(assignment.topics.values(), self.sink_work)
        match assignment.plan.WhichOneof("body"):
            case "compute":
                self.earlier.forget(assignment.uid)
                await self.checkpoints.remove(assignment.uid)
            case "sink":
                await discard_sink(
                    assignment.uid,
                    assignment.plan.sink,
                    state=self.state,
                    blocking=self.sink_work,
                    reach=self._reach(),
                )

    def _sink(self, assignment: Assignment) -> Sink:
        sink = assignment.plan.sink
        if sink.type == catalog.SINK_TYPE_RESULT:
            patience = self.around.config.result_patience
            return ResultSink(assignment.query_uid, sink.schema, sink.options, self.results, patience)
        return build_sink(
            assignment.uid,
            assignment.plan.sink,
            state=self.state,
            config=self.around.config,
            blocking=self.sink_work,
            reach=self._reach(),
        )

    def _reach(self) -> Reach:
        return Reach(self.around.clock, self.around.source, self.topics())

    def _start_source(self, assignment: Assignment, report: Callable[[Report], None]) -> Run:
        around = self.around
        source: Source = build_source(assignment.plan.source, around)
        edge: LocalEdgeWriter | KafkaEdgeWriter | None = None

        async def work(run: LocalRun) -> None:
            nonlocal edge
            edge = self._writer(assignment, run.waits)
            config = around.config
            lingering = Lingering(config.linger, config.step_bytes // 4)
            # What the agent says of itself is not part of what it says of its work.
            counted = nullcontext() if isinstance(source, SampleSource) else around.tally.reading(source)
            try:
                with counted:
                    await run_source(source, edge, run.stopping, run.opened, lingering, config.appends_ahead)
            finally:
                await edge.close()

        def progress() -> catalog.FragmentProgress:
            counters = source.counters
            return catalog.FragmentProgress(
                rows_in=counters.rows_read,
                rows_out=counters.rows_kept,
                # Of all its runs, as the edge knows it.
                bad_records=edge.malformed if edge is not None else 0,
                lag=counters.behind,
                waiting=(edge.waiting if edge is not None else "") or counters.waiting,
            )

        return LocalRun(report, work, progress, around.clock)

    def _writer(self, assignment: Assignment, waiting: Callable[[str], None]) -> LocalEdgeWriter | KafkaEdgeWriter:
        """Where a source writes."""
        broker, around, config = self._broker(), self.around, self.around.config
        topic, told = _topic(assignment, assignment.plan.output_edges[0]), assignment.errors
        fragment, epoch = assignment.uid, assignment.epoch
        if not topic.kafka:
            return LocalEdgeWriter(
                broker,
                topic,
                told,
                fragment=fragment,
                epoch=epoch,
                max_lag=config.edge_max_lag,
                most_bytes=4 * config.step_bytes,
                clock=around.clock,
                work=around.blocking,
                waiting=waiting,
            )
        return KafkaEdgeWriter(
            topic,
            LocalErrors(broker, told, waiting, fragment=fragment, epoch=epoch) if told is not None else None,
            self._kafka(),
            fragment=fragment,
            max_lag=config.edge_max_lag,
            most_bytes=4 * config.step_bytes,
            work=around.blocking,
            waiting=waiting,
        )

    def _kafka(self) -> KafkaReach:
        return KafkaReach(self.around.clock, self.around.source, self.sink_work)

    def _start_sink(self, assignment: Assignment, report: Callable[[Report], None]) -> Run:
        around, broker = self.around, self._broker()
        sink = self._sink(assignment)
        reader: LocalEdgeReader | KafkaEdgeReader | None = None

        async def work(run: LocalRun) -> None:
            nonlocal reader
            edge = _topic(assignment, assignment.plan.input_edges[0])
            sink.delivered.listener = run.waits
            if edge.kafka:
                reader = KafkaEdgeReader(edge, self._kafka(), sink.delivered.waits)
            else:
                reader = LocalEdgeReader(broker, edge, run.waits)
            delivering = run_sink(sink, reader, around.config, around.clock, run.opened)
            try:
                with around.tally.delivering(sink):
                    await (sink.unless_abandoned(delivering) if isinstance(sink, ResultSink) else delivering)
            finally:
                await reader.close()

        def progress() -> catalog.FragmentProgress:
            done = sink.delivered
            lag = reader.lag if reader is not None else 0
            return catalog.FragmentProgress(rows_in=done.rows, rows_out=done.rows, lag=lag, waiting=done.waiting)

        return LocalRun(report, work, progress, around.clock)

    def _request(self, assignment: Assignment) -> engine.StartFragmentRequest:
        """What an engine is asked to run."""
        plan = assignment.plan
        compute = plan.compute
        direct = compute.HasField("target")
        edges = {ordinal: _topic(assignment, ordinal) for ordinal in (*plan.input_edges, *plan.output_edges)}
        output = None if direct else edges[plan.output_edges[0]]
        unfenced = output is None or bool(output.kafka)
        settings = engine.RunSettings(
            mode=assignment.mode,
            delivery=engine.DELIVERY_AT_LEAST_ONCE if unfenced else engine.DELIVERY_EXACTLY_ONCE,
        )
        settings.keep_alive.FromNanoseconds(int(self.engines.timings.keep_alive * 1e9))
        return engine.StartFragmentRequest(
            run=engine.RunRef(fragment_uid=assignment.uid, epoch=assignment.epoch),
            query=assignment.query,
            plan=compute,
            inputs=[_access(edges[ordinal]) for ordinal in plan.input_edges if not edges[ordinal].kafka],
            output=_access(output) if output is not None and not output.kafka else None,
            kafka_inputs=[_kafka_edge(edges[ordinal]) for ordinal in plan.input_edges if edges[ordinal].kafka],
            kafka_output=_kafka_edge(output) if output is not None and output.kafka else None,
            errors=_access(assignment.errors) if assignment.errors is not None else None,
            settings=settings,
            checkpoint=self.checkpoints.uri,
            checkpoint_s3=self.checkpoints.s3,
        )

    def _missing_topic(self, request: engine.StartFragmentRequest) -> Missing | None:
        """Says in a request where the log is and where each of its topics; answers what is not there yet."""
        broker = self.broker()
        peers = [peer for peer in broker.view.peers() if peer.present] if broker is not None else []
        own = broker.name if broker is not None else ""
        peers.sort(key=lambda peer: (peer.name != own, peer.name))
        del request.topics[:]
        request.kafka_bootstrap = ",".join(peer.kafka_address for peer in peers if peer.kafka_address)
        for name in _topics_read(request):
            topic = broker.view.topic(name) if broker is not None else None
            if not peers:
                return Missing(f"no agent that could lead topic {name} is there yet")
            if topic is None:
                return Missing(f"there is no topic {name} yet", name)
            request.topics.add(
                topic=name,
                topic_uid=topic.uid,
                partitions=topic.partitions,
                addresses=[peer.address for peer in peers],
            )
        return None

    def _broker(self) -> Broker:
        broker = self.broker()
        assert broker is not None, "checked before it was registered, and opened before anything starts"
        return broker


def _topics_read(request: engine.StartFragmentRequest) -> list[str]:
    """Native topics that are read through the agents' own service, and not as a Kafka client would."""
    if request.settings.mode == catalog.QUERY_MODE_REALTIME:
        return []
    origins = [entry.topic for entry in request.plan.inputs if entry.HasField("topic")]
    native = [one for one in origins if one.type == catalog.SOURCE_TYPE_TOPIC]
    return sorted({one.options["topic"] for one in native if one.options.get("transport") != "kafka"})


def _topic(assignment: Assignment, ordinal: int) -> cluster.EdgeTopic:
    return assignment.topics[ordinal]


def _access(topic: cluster.EdgeTopic) -> engine.EdgeAccess:
    return engine.EdgeAccess(
        edge=topic.edge, topic_uid=topic.topic_uid, partitions=topic.partitions, address=topic.address
    )


def _kafka_edge(topic: cluster.EdgeTopic) -> engine.KafkaEdge:
    return engine.KafkaEdge(edge=topic.edge, topic=topic.topic, options=topic.kafka)


def warm_up() -> None:
    """Has Arrow load what it loads at its first use, which takes long and would hold up the event loop later."""
    batch = pa.RecordBatch.from_pylist([{"x": 0, "y": "z"}])
    read_record(write_record(batch))
    JsonEncoder().encode(batch)
