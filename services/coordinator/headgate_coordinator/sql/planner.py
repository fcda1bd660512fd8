"""From a query statement to a placed plan.

    bind (names, types) -> fit to the sink -> optimise -> rewrite for streams -> place -> decompose

No I/O, no clock, no chance: the same statement, view and settings give the same bytes. Every problem is a
`StatementError` that says in which step it was found, where, and what to write instead.
"""

from __future__ import annotations

from headgate.catalog import v1 as catalog
from headgate_common.errors import HeadgateError
from headgate_coordinator.catalog.descriptors import takes_updates
from headgate_coordinator.errors import INSUFFICIENT_CAPACITY, SINK_NOT_FOUND, STATEMENT_TOO_LARGE, UNSUPPORTED
from headgate_coordinator.sql.algebra import (
    Aggregate,
    AssignWindow,
    Column,
    Distinct,
    Filter,
    Ids,
    Join,
    JoinKind,
    Literal,
    Node,
    Project,
    QueryLateness,
    Scan,
    TopN,
    walk_plan,
)
from headgate_coordinator.sql.bind import bind
from headgate_coordinator.sql.decompose import Decomposer, Shape
from headgate_coordinator.sql.errors import Problems, StatementError, Step, did_you_mean, quoted
from headgate_coordinator.sql.explain import plan_tree
from headgate_coordinator.sql.fold import fold_plan
from headgate_coordinator.sql.joins import Unsupported
from headgate_coordinator.sql.limits import make_room_for_recursion
from headgate_coordinator.sql.names import fold as fold_name
from headgate_coordinator.sql.optimise import collapse, prune, push_filters, push_into_scans
from headgate_coordinator.sql.place import Cluster, PlacementFailed
from headgate_coordinator.sql.results import result_of, without_limit
from headgate_coordinator.sql.rewrite import WINDOW_HINT, Streaming, rewrite
from headgate_coordinator.sql.settings import PlannerSettings
from headgate_coordinator.sql.sinks import fit_to_sink
from headgate_coordinator.sql.statements import Delivery, QueryStatement
from headgate_coordinator.sql.view import CatalogView

_TOPIC_SOURCES = (catalog.SOURCE_TYPE_KAFKA, catalog.SOURCE_TYPE_TOPIC)
_TOPIC_SINKS = (catalog.SINK_TYPE_KAFKA, catalog.SINK_TYPE_TOPIC)


def plan_query(
    statement: QueryStatement,
    view: CatalogView,
    settings: PlannerSettings | None = None,
    *,
    for_people: bool = False,
) -> catalog.QueryPlan:
    """The plan of a query; StatementError where it has none.

    A plan `for_people` is not run: where only slots are missing it is placed as if they were free, and says so in
    `unplaced`.
    """
    make_room_for_recursion()
    try:
        return _Planning(statement, view, settings or PlannerSettings(), for_people).plan()
    except RecursionError:
        problem = statement.source.problem(
            Step.BIND, statement.offset, "the statement is nested too deeply", "", STATEMENT_TOO_LARGE
        )
        raise StatementError([problem], statement.source) from None


class _Planning:
    """The planning of one statement."""

    def __init__(
        self, statement: QueryStatement, view: CatalogView, settings: PlannerSettings, for_people: bool
    ) -> None:
        self.for_people = for_people
        self.statement = statement
        self.options = statement.options
        self.view = view
        self.settings = settings
        self.problems = Problems(statement.source)
        self.mode = self.options.mode or catalog.QUERY_MODE_EXACTLY_ONCE
        lateness = self.options.lateness_us
        self.lateness_us = QueryLateness(settings.default_lateness_us if lateness is None else lateness)

    def plan(self) -> catalog.QueryPlan:
        exactly_once = self.mode == catalog.QUERY_MODE_EXACTLY_ONCE
        select, limit = self.statement.select, None
        if self.statement.temporary:
            select, limit = without_limit(select)
        bound, context = bind(select, self.view, self.problems, self.settings, self.lateness_us, exactly_once)
        if self.statement.temporary:
            bound, sink = result_of(bound, limit)
        else:
            sink = self._sink()
        fitted: Project | None = None
        if sink is not None and bound is not None and not self.problems:
            fitted = fit_to_sink(bound, sink, self.problems, context.ids)
            if fitted is None:
                # What cannot run as a stream is wrong whatever the sink.
                self._note_unsupported(bound.node, context.ids)
        if self.statement.temporary:
            self._check_temporary()
        elif sink is not None:
            self._check_delivery(sink)
        self._raise_if_any()
        assert sink is not None and fitted is not None
        logical_text = plan_tree(fitted)
        streaming = self._streamed(fitted, context.ids, sink)
        node = _finished(streaming.node, fitted.columns)
        shape = self._shape(sink, streaming, node)
        self._check_key(shape, node)
        self._check_options(node, shape)
        self._raise_if_any()
        plan = self._placed(Decomposer(node, shape, self.settings))
        plan.logical_plan = logical_text
        plan.optimised_plan = plan_tree(node)
        return plan

    def _raise_if_any(self) -> None:
        """Raises what was found, in the order of the text."""
        self.problems.found.sort(key=lambda problem: (problem.line, problem.column))
        self.problems.raise_if_any()

    def _problem(self, step: Step, offset: int | None, message: str, suggestion: str = "") -> None:
        self.problems.add(step, offset, message, suggestion, UNSUPPORTED)

    def _sink(self) -> catalog.Sink | None:
        if self.statement.sink is None:
            self.problems.add(Step.BIND, self.statement.offset, "the query names no sink", "add INTO sink at its end")
            return None
        offset = self.statement.sink_offset
        try:
            name = fold_name(self.statement.sink, "sink")
        except HeadgateError as error:
            self.problems.add(Step.BIND, offset, error.message, "", error.reason)
            return None
        sink = self.view.sink(name)
        if sink is None:
            hint = did_you_mean(name, self.view.sink_names())
            self.problems.add(Step.BIND, offset, f"unknown sink {quoted(self.statement.sink)}", hint, SINK_NOT_FOUND)
        return sink

    def _check_temporary(self) -> None:
        if self.statement.sink is not None:
            self._problem(
                Step.BIND, self.statement.sink_offset, "a temporary query has no INTO", "leave INTO out, or create it"
            )
        unfit = {
            "mode": self.mode == catalog.QUERY_MODE_REALTIME,
            "delivery": self.options.delivery is Delivery.AT_LEAST_ONCE,
            "edges": self.options.kafka_edges is not None,
        }
        option = next((name for name, given in unfit.items() if given), "")
        if option:
            self._problem(
                Step.OPTIMISE,
                self.options.offsets.get(option),
                f"{option} is for queries with a sink, and this one is temporary",
                "leave it out, or write INTO a TOPIC sink",
            )

    def _check_delivery(self, sink: catalog.Sink) -> None:
        offset = self.options.offsets.get("delivery")
        kind = catalog.SinkType.Name(sink.type).removeprefix("SINK_TYPE_")
        if self.mode == catalog.QUERY_MODE_REALTIME:
            if self.options.delivery is Delivery.EXACTLY_ONCE:
                self._problem(Step.OPTIMISE, offset, "realtime mode delivers at least once", "leave delivery out")
            if sink.type not in _TOPIC_SINKS:
                self._problem(
                    Step.OPTIMISE,
                    self.statement.sink_offset,
                    f"realtime mode writes to topics, and {quoted(sink.name)} is a {kind} sink",
                    "use a KAFKA or TOPIC sink, or mode = 'exactly_once'",
                )
        elif self.options.delivery is Delivery.AT_LEAST_ONCE and sink.type not in _TOPIC_SINKS:
            self._problem(
                Step.OPTIMISE,
                offset,
                f"delivery = 'at_least_once' is for KAFKA and TOPIC sinks, and {quoted(sink.name)} is a {kind} sink",
                "leave it out: rows are delivered exactly once",
            )
        self._check_edges()
        self._check_format(sink)

    def _check_edges(self) -> None:
        """What an edge on Kafka cannot be together with. Whether there is one at all is known only with the plan."""
        if self.options.kafka_edges is None:
            return
        if self.mode == catalog.QUERY_MODE_REALTIME:
            self._problem(
                Step.OPTIMISE,
                self.options.offsets.get("edges"),
                "realtime mode goes from topics to topics, without edges",
                "leave edges out",
            )
        elif self.options.delivery is Delivery.EXACTLY_ONCE:
            self._problem(
                Step.OPTIMISE,
                self.options.offsets.get("delivery"),
                "edges on Kafka deliver at least once",
                "leave delivery out, or edges",
            )

    def _check_format(self, sink: catalog.Sink) -> None:
        """Without an edge Spark's own sink writes, and it makes JSON."""
        realtime = self.mode == catalog.QUERY_MODE_REALTIME
        direct = realtime or self.options.delivery is Delivery.AT_LEAST_ONCE
        made = sink.options.get("input_format", "JSON").upper()
        if direct and sink.type in _TOPIC_SINKS and made != "JSON":
            what = "realtime mode" if realtime else "delivery = 'at_least_once'"
            self._problem(
                Step.OPTIMISE,
                self.statement.sink_offset,
                f"{what} writes JSON, and the sink {quoted(sink.name)} takes {made}",
                "use a sink with INPUT_FORMAT 'JSON', or deliver exactly once",
            )

    def _note_unsupported(self, node: Node, ids: Ids) -> Streaming | None:
        """The plan as Spark runs it; None after noting why it cannot."""
        node = prune(push_filters(fold_plan(node)), set(node.columns))
        if self.mode == catalog.QUERY_MODE_REALTIME:
            self._check_realtime(node)
            if self.problems:
                return None
        try:
            return rewrite(node, ids, self.lateness_us)
        except Unsupported as reason:
            self._problem(Step.OPTIMISE, reason.offset, reason.message, reason.suggestion)
            return None

    def _streamed(self, node: Node, ids: Ids, sink: catalog.Sink) -> Streaming:
        streaming = self._note_unsupported(node, ids)
        self._raise_if_any()
        assert streaming is not None
        if streaming.updates and not takes_updates(sink.type, sink.options):
            unbounded = next(part for part in walk_plan(streaming.node) if isinstance(part, Aggregate))
            kind = catalog.SinkType.Name(sink.type).removeprefix("SINK_TYPE_")
            self._problem(
                Step.OPTIMISE,
                unbounded.offset,
                "an aggregate without a window changes its result with every row, and the "
                f"{kind} sink {quoted(sink.name)} does not take updates",
                f"{WINDOW_HINT}, or use a TOPIC or KAFKA sink with KEY_COLUMN",
            )
        return streaming

    def _check_realtime(self, node: Node) -> None:
        for part in walk_plan(node):
            what = _stateful_name(part)
            if what:
                offset = getattr(part, "offset", None)
                self._problem(
                    Step.OPTIMISE,
                    offset,
                    f"realtime mode is for stateless queries, and {what} keeps state",
                    "use mode = 'exactly_once'",
                )
            if isinstance(part, Scan):
                for physical in part.source.physical:
                    if physical.type not in _TOPIC_SOURCES:
                        kind = catalog.SourceType.Name(physical.type).removeprefix("SOURCE_TYPE_")
                        self._problem(
                            Step.OPTIMISE,
                            part.offset,
                            f"realtime mode reads topics, and {quoted(physical.name)} is a {kind} source",
                            "use a KAFKA or TOPIC source, or mode = 'exactly_once'",
                        )
                    elif physical.parser_options.get("type", "JSON").upper() == "ARROW":
                        self._problem(
                            Step.OPTIMISE,
                            part.offset,
                            f"realtime mode reads JSON and CSV, and {quoted(physical.name)} has ARROW records",
                            "use a source of JSON or CSV records, or mode = 'exactly_once'",
                        )

    def _shape(self, sink: catalog.Sink, streaming: Streaming, node: Project) -> Shape:
        realtime = self.mode == catalog.QUERY_MODE_REALTIME
        idle = self.options.idle_timeout_us
        return Shape(
            mode=self.mode,
            sink=sink,
            direct=realtime or self.options.delivery is Delivery.AT_LEAST_ONCE,
            updates=streaming.updates,
            update_keys=_update_keys(node) if streaming.updates else (),
            stateful=streaming.stateful,
            idle_timeout_us=self.settings.default_idle_timeout_us if idle is None else idle,
            start=self.options.start or "",
            kafka_edges=self.options.kafka_edges or {},
        )

    def _check_key(self, shape: Shape, node: Project) -> None:
        """Rows that replace earlier ones are told apart by the sink's key, and must be by that of their groups."""
        key = shape.sink.options.get("key_column", "")
        if not shape.updates or not key:
            return
        constant = any(c.name.lower() == key.lower() and isinstance(item, Literal) for c, item in node.items)
        fits = {name.lower() for name in shape.update_keys} == {key.lower()} or (not shape.update_keys and constant)
        if not fits:
            groups = ", ".join(quoted(name) for name in shape.update_keys) or "nothing: there is one row"
            self._problem(
                Step.OPTIMISE,
                self.statement.sink_offset,
                f"the key of the sink {quoted(shape.sink.name)} is {quoted(key)}, and rows are told apart by {groups}",
                "make one column of the keys, such as concat_ws('/', a, b), and GROUP BY it",
            )

    def _check_options(self, node: Node, shape: Shape) -> None:
        """An option that would change nothing is a mistake."""
        scans = [part for part in walk_plan(node) if isinstance(part, Scan)]
        times = [scan.event_time for scan in scans if scan.event_time is not None]
        timed = bool(times)
        late = any(isinstance(time.lateness_us, QueryLateness) for time in times)
        untimed = "the query has no window and no join by time"
        stated = "each window goes by processing time or states a LATENESS of its own"
        types = {physical.type for scan in scans for physical in scan.source.physical}
        topics = not types.isdisjoint(_TOPIC_SOURCES)
        edges = not shape.direct or not types.issubset(_TOPIC_SOURCES)
        for name, given, useful, why in (
            ("lateness", self.options.lateness_us, late, stated if timed else untimed),
            ("idle_timeout", self.options.idle_timeout_us, timed, untimed),
            ("start", self.options.start, topics, "the query reads no topic"),
            ("edges", self.options.kafka_edges, edges, "the query goes from topics to a topic, without an edge"),
        ):
            if given is not None and not useful:
                self._problem(
                    Step.OPTIMISE, self.options.offsets.get(name), f"{name} has no effect: {why}", "remove it"
                )

    def _placed(self, decomposer: Decomposer) -> catalog.QueryPlan:
        cluster = Cluster.of(self.view.agents(), self.view.links())
        try:
            placement = decomposer.place(cluster)
        except PlacementFailed as failure:
            if self.for_people and failure.reason == INSUFFICIENT_CAPACITY:
                plan = decomposer.decompose(decomposer.place(cluster.without_load()))
                plan.unplaced = failure.message
                return plan
            problem = self.statement.source.problem(
                Step.PLACE, self.statement.offset, failure.message, "", failure.reason
            )
            raise StatementError([problem], self.statement.source) from None
        return decomposer.decompose(placement)


def _finished(node: Node, outputs: tuple[Column, ...]) -> Project:
    """The rewritten plan with what the rewriting made superfluous taken out again."""
    needed = set(outputs)
    node = collapse(prune(push_into_scans(prune(node, needed)), needed))
    if isinstance(node, Project) and node.columns == outputs:
        return node
    return Project(node, tuple((column, column) for column in outputs))


def _stateful_name(node: Node) -> str:
    match node:
        case Aggregate():
            return "GROUP BY" if node.keys else "an aggregate"
        case Join(kind=JoinKind.SEMI | JoinKind.ANTI):
            return "IN or EXISTS"
        case Join():
            return "JOIN"
        case Distinct():
            return "DISTINCT"
        case TopN():
            return "ORDER BY ... LIMIT" if node.number is None else "ROW_NUMBER()"
        case AssignWindow():
            return "WINDOW"
        case _:
            return ""


def _update_keys(node: Project) -> tuple[str, ...]:
    """The columns of the result that are keys of its groups."""
    keys: set[Column] = set()
    for part in walk_plan(node):
        if isinstance(part, Aggregate):
            keys = {key for key, _ in part.keys}
    below: Node = node.input
    while isinstance(below, (Project, Filter)):
        if isinstance(below, Project):
            keys = {column for column, item in below.items if item in keys}
        below = below.input
    return tuple(column.name for column, item in node.items if item in keys)
