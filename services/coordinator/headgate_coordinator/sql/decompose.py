"""Cuts an optimised plan into source, compute and sink fragments and the edges between them.

- Every node-local physical source has a source fragment, which filters, projects and appends to an edge of its own.
- One compute fragment runs the Spark SQL. It reads the edges, and KAFKA and TOPIC sources by itself. Each input has a
  watermark of its own, below the union of the physical sources of a logical one.
- A sink has a sink fragment behind an edge, except where a KAFKA or TOPIC sink takes rows at least once.

An edge is led at its node-local end, where it is WAL-durable; one whose ends can both move is OBJECT-durable and led at
the sink. On Kafka, where the query says so, it has no leader here: then all this is true of the error rows beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headgate.catalog import v1 as catalog
from headgate_coordinator.catalog.descriptors import is_bounded, is_built_in
from headgate_coordinator.sql.algebra import (
    Call,
    EventTime,
    Expr,
    Filter,
    Node,
    Project,
    Scan,
    Source,
    conjunction,
    walk_plan,
)
from headgate_coordinator.sql.optimise import pushable_parts
from headgate_coordinator.sql.place import Cluster, Need, Placement, place
from headgate_coordinator.sql.pushdown import to_proto
from headgate_coordinator.sql.settings import PlannerSettings
from headgate_coordinator.sql.spark import SPARK_CONF, InputView, QueryWriter, predicate_text
from headgate_coordinator.sql.types import BOOL, columns_of

_TOPIC_SOURCES = (catalog.SOURCE_TYPE_KAFKA, catalog.SOURCE_TYPE_TOPIC)


@dataclass(frozen=True, slots=True)
class Shape:
    """What a query asks of its decomposition, beside its plan."""

    mode: catalog.QueryMode.ValueType
    sink: catalog.Sink
    # Whether results go to the sink's topic without an edge.
    direct: bool
    updates: bool
    update_keys: tuple[str, ...]
    stateful: bool
    idle_timeout_us: int
    start: str
    # How the Kafka cluster is reached that its edges are on; empty where they are in the log.
    kafka_edges: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Feed:
    """What the scans of one logical source ask of the agents that read it."""

    source: Source
    columns: tuple[str, ...]
    filter: Expr | None

    @property
    def filter_text(self) -> str:
        return predicate_text(self.filter) if self.filter is not None else ""


def feeds(node: Node) -> list[Feed]:
    """What each logical source of a plan is asked for, in the order of their names."""
    scans: dict[str, list[tuple[Scan, Expr | None]]] = {}
    _gather(node, None, scans)
    return [_feed(scans[name]) for name in sorted(scans)]


def _gather(node: Node, above: Expr | None, scans: dict[str, list[tuple[Scan, Expr | None]]]) -> None:
    """Every scan, with what agents can check of the filter right above it."""
    if isinstance(node, Scan):
        scans.setdefault(node.source.logical.name, []).append((node, above))
    for part in node.inputs:
        rest = conjunction(pushable_parts(node.predicate).values()) if isinstance(node, Filter) else None
        _gather(part, rest, scans)


def _feed(scans: Sequence[tuple[Scan, Expr | None]]) -> Feed:
    first = scans[0][0]
    needed = {column.name for scan, _ in scans for column in scan.fields}
    columns = tuple(column.name for column in columns_of(first.source.logical.schema) if column.name in needed)
    parts = list(first.pushed)
    # What only some scans ask for is checked for each of them later; a row that none of them wants need not come.
    alternatives = [rest for _, rest in scans if rest is not None]
    if len(alternatives) == len(scans) > 1:
        parts.append(Call("or", tuple(alternatives), BOOL, True))
    return Feed(first.source, columns, conjunction(parts))


@dataclass(slots=True)
class _Inputs:
    """The inputs of the compute fragment, and which views each scan reads."""

    inputs: list[catalog.ComputeInput] = field(default_factory=list)
    views: dict[int, list[InputView]] = field(default_factory=dict)
    known: dict[tuple[str, str], int] = field(default_factory=dict)


class Decomposer:
    """Decomposes one plan."""

    def __init__(self, node: Project, shape: Shape, settings: PlannerSettings) -> None:
        self.node = node
        self.shape = shape
        self.settings = settings
        self.feeds = feeds(node)
        self.local = [
            (feed, physical)
            for feed in self.feeds
            for physical in feed.source.physical
            if physical.type not in _TOPIC_SOURCES
        ]

    def place(self, cluster: Cluster) -> Placement:
        """Chooses agents; PlacementFailed where there are none."""
        settings, sink = self.settings, self.shape.sink
        sources = [
            Need(f"the source {physical.name}", self._source_slots(physical), physical.agent, leads=True)
            for _, physical in self.local
        ]
        compute = Need("the compute fragment", settings.compute_slots, engine=True, leads=self.shape.direct)
        target = Need(f"the sink {sink.name}", settings.sink_slots, sink.agent, leads=True)
        return place(cluster, sources, compute, None if self.shape.direct else target)

    def decompose(self, placement: Placement) -> catalog.QueryPlan:
        """The plan without its texts for people."""
        plan = catalog.QueryPlan(format_version=1, mode=self.shape.mode)
        edges = self._source_fragments(plan, placement)
        compute = self._compute_fragment(plan, placement, edges)
        if not self.shape.direct:
            self._sink_fragment(plan, placement, compute)
        plan.bounded = all(
            is_bounded(physical.type, physical.options) for feed in self.feeds for physical in feed.source.physical
        )
        self._uses(plan, placement)
        return plan

    def _source_slots(self, physical: catalog.PhysicalSource) -> int:
        """A built-in source takes none: what agents say of themselves matters most where all of them are taken."""
        return 0 if physical.type == catalog.SOURCE_TYPE_AGENT else self.settings.source_slots

    def _source_fragments(self, plan: catalog.QueryPlan, placement: Placement) -> dict[str, int]:
        """Adds them and their edges; answers the edge of each physical source."""
        edges: dict[str, int] = {}
        compute = len(self.local) + 1
        for (feed, physical), agent in zip(self.local, placement.sources, strict=True):
            ordinal = len(plan.fragments) + 1
            schema = feed.source.logical.schema
            kept = set(feed.columns)
            edge = plan.edges.add(
                ordinal=ordinal,
                from_fragment=ordinal,
                to_fragment=compute,
                schema=catalog.Schema(fields=[f for f in schema.fields if f.name in kept]),
                leader_fragment=ordinal,
                durability="WAL",
                kafka=self.shape.kafka_edges,
            )
            plan.fragments.add(
                ordinal=ordinal,
                kind=catalog.FRAGMENT_KIND_SOURCE,
                agent=agent.name,
                slots=self._source_slots(physical),
                node_local=True,
                output_edges=[edge.ordinal],
                source=catalog.SourceFragment(
                    physical_source=physical.name,
                    physical_source_uid=physical.uid,
                    type=physical.type,
                    options=physical.options,
                    parser_options=physical.parser_options,
                    schema=schema,
                    columns=feed.columns,
                    filter=feed.filter_text,
                    bounded=is_bounded(physical.type, physical.options),
                    predicate=to_proto(feed.filter) if feed.filter is not None else None,
                ),
            )
            edges[physical.uid] = edge.ordinal
        return edges

    def _compute_fragment(self, plan: catalog.QueryPlan, placement: Placement, edges: Mapping[str, int]) -> int:
        inputs = self._inputs(edges)
        outputs = [(column.name, column) for column in self.node.columns]
        ordinal = len(plan.fragments) + 1
        shape = self.shape
        compute = catalog.ComputeFragment(
            inputs=inputs.inputs,
            spark_sql=QueryWriter(inputs.views).write(self.node, outputs),
            output=shape.sink.schema,
            output_mode="update" if shape.updates else "append",
            stateful=shape.stateful,
            spark_conf=SPARK_CONF,
            idle_timeout_us=shape.idle_timeout_us,
            start=shape.start if any(entry.HasField("topic") for entry in inputs.inputs) else "",
            update_keys=shape.update_keys,
        )
        if shape.direct:
            compute.target.CopyFrom(
                catalog.TopicTarget(
                    sink=shape.sink.name, type=shape.sink.type, options=shape.sink.options, sink_uid=shape.sink.uid
                )
            )
        plan.fragments.add(
            ordinal=ordinal,
            kind=catalog.FRAGMENT_KIND_COMPUTE,
            agent=placement.compute.name,
            slots=self.settings.compute_slots,
            node_local=False,
            input_edges=sorted(edges.values()),
            compute=compute,
        )
        return ordinal

    def _inputs(self, edges: Mapping[str, int]) -> _Inputs:
        made = _Inputs()
        by_name = {feed.source.logical.name: feed for feed in self.feeds}
        scans = [part for part in walk_plan(self.node) if isinstance(part, Scan)]
        for scan in sorted(scans, key=lambda s: (s.source.logical.name, s.fields[0].id)):
            feed = by_name[scan.source.logical.name]
            if id(scan) in made.views:
                continue
            made.views[id(scan)] = [
                InputView(self._view(made, scan, feed, physical, edges), physical.uid in edges)
                for physical in scan.source.physical
            ]
        return made

    def _view(
        self,
        made: _Inputs,
        scan: Scan,
        feed: Feed,
        physical: catalog.PhysicalSource,
        edges: Mapping[str, int],
    ) -> str:
        """The name of the view for a physical source with the scan's event time; it is made if it is new."""
        event_time = scan.event_time
        expression = self._event_time_expression(scan, event_time)
        key = (physical.uid, f"{event_time.column.name if event_time is not None else ''} {expression}")
        if key in made.known:
            known = made.inputs[made.known[key]]
            if event_time is not None:
                known.lateness_us = max(known.lateness_us, event_time.lateness_us)
            return known.view
        kept = set(feed.columns)
        fields = [f for f in feed.source.logical.schema.fields if f.name in kept or physical.uid not in edges]
        entry = catalog.ComputeInput(view=f"input_{len(made.inputs) + 1}", schema=catalog.Schema(fields=fields))
        if event_time is not None:
            entry.event_time = event_time.column.name
            entry.lateness_us = event_time.lateness_us
            entry.event_time_expression = expression
        if physical.uid in edges:
            entry.edge = edges[physical.uid]
        else:
            entry.topic.CopyFrom(
                catalog.TopicOrigin(
                    physical_source=physical.name,
                    physical_source_uid=physical.uid,
                    type=physical.type,
                    options=physical.options,
                    parser_options=physical.parser_options,
                )
            )
        made.known[key] = len(made.inputs)
        made.inputs.append(entry)
        return entry.view

    @staticmethod
    def _event_time_expression(scan: Scan, event_time: EventTime | None) -> str:
        if event_time is None or event_time.column in scan.fields:
            return ""
        return predicate_text(event_time.expression)

    def _sink_fragment(self, plan: catalog.QueryPlan, placement: Placement, compute: int) -> None:
        sink = self.shape.sink
        assert placement.sink is not None
        fixed = bool(sink.agent)
        ordinal, edge = len(plan.fragments) + 1, len(plan.edges) + 1
        plan.edges.add(
            ordinal=edge,
            from_fragment=compute,
            to_fragment=ordinal,
            schema=sink.schema,
            leader_fragment=ordinal,
            # Rows of a temporary query are for a reader that is lost with the agent.
            durability="WAL" if fixed or sink.type == catalog.SINK_TYPE_RESULT else "OBJECT",
            kafka=self.shape.kafka_edges,
        )
        plan.fragments[compute - 1].output_edges.append(edge)
        plan.fragments.add(
            ordinal=ordinal,
            kind=catalog.FRAGMENT_KIND_SINK,
            agent=placement.sink.name,
            slots=self.settings.sink_slots,
            node_local=fixed,
            input_edges=[edge],
            sink=catalog.SinkFragment(
                sink=sink.name,
                sink_uid=sink.uid,
                type=sink.type,
                options=sink.options,
                schema=sink.schema,
                update_keys=self.shape.update_keys,
            ),
        )

    def _uses(self, plan: catalog.QueryPlan, placement: Placement) -> None:
        agents = {agent.name: agent for agent in (*placement.sources, placement.compute)}
        if placement.sink is not None:
            agents[placement.sink.name] = placement.sink
        for name in sorted(agents):
            plan.uses.add(kind="agent", uid=agents[name].uid, name=name, revision=agents[name].revision)
        for link in placement.links:
            name = f"{link.from_agent} -> {link.to_agent}"
            plan.uses.add(kind="link", uid=link.uid, name=name, revision=link.revision)
        for feed in self.feeds:
            logical = feed.source.logical
            if is_built_in(logical.uid):
                # Nothing of it is in the catalog but the agents.
                continue
            plan.uses.add(kind="logical_source", uid=logical.uid, name=logical.name, revision=logical.revision)
            for physical in feed.source.physical:
                plan.uses.add(kind="physical_source", uid=physical.uid, name=physical.name, revision=physical.revision)
        sink = self.shape.sink
        if sink.type != catalog.SINK_TYPE_RESULT:
            plan.uses.add(kind="sink", uid=sink.uid, name=sink.name, revision=sink.revision)
