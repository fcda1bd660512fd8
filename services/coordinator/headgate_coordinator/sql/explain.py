"""Plans for people: trees of operators while planning, and the text and graph of a finished plan."""

from __future__ import annotations

from collections.abc import Mapping

from headgate.catalog import v1 as catalog
from headgate_common.durations import show_duration
from headgate_coordinator.sql.algebra import (
    Agg,
    Aggregate,
    AssignWindow,
    Call,
    Column,
    Distinct,
    Expr,
    Filter,
    Inline,
    Join,
    Literal,
    Node,
    Project,
    Scan,
    TopN,
    Union,
    Window,
)
from headgate_coordinator.sql.nodes import WindowKind
from headgate_coordinator.sql.spark import ExpressionWriter, quote


class _Names(Mapping[Column, str]):
    """Every column by its own name."""

    def __getitem__(self, column: Column) -> str:
        return quote(column.name or "column")

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(())

    def __len__(self) -> int:
        return 0


class _PeopleWriter(ExpressionWriter):
    """Expressions as a person wrote them, before they are rewritten for Spark."""

    def write(self, expr: Expr) -> str:
        if isinstance(expr, Agg):
            inner = ", ".join(self.write(arg) for arg in expr.args)
            if expr.op == "count" and expr.args == (Literal(1, expr.args[0].type),):
                inner = "*"
            written = f"{expr.op}({'DISTINCT ' if expr.distinct else ''}{inner})"
            written += " IGNORE NULLS" if expr.ignore_nulls else ""
            return written if expr.filter is None else f"{written} FILTER (WHERE {self.write(expr.filter)})"
        if isinstance(expr, Call) and expr.op == "unmarked":
            return self.write(expr.args[0])
        return super().write(expr)


class _Sides(_PeopleWriter):
    """Expressions over both inputs of a join: each column says from which it is."""

    def __init__(self, join: Join) -> None:
        sides = (("left", join.left), ("right", join.right))
        names = {column: f"{side}.{quote(column.name or 'column')}" for side, node in sides for column in node.columns}
        super().__init__(names)


_WRITER = _PeopleWriter(_Names())


def plan_tree(node: Node) -> str:
    """The operators of a plan, one a line, inputs indented below."""
    lines: list[str] = []
    stack: list[tuple[Node, int]] = [(node, 0)]
    while stack:
        current, depth = stack.pop()
        lines.append("  " * depth + _line(current))
        stack.extend((part, depth + 1) for part in reversed(current.inputs))
    return "\n".join(lines)


def _line(node: Node) -> str:
    match node:
        case Scan():
            return _scan(node)
        case Filter():
            return f"Filter {_WRITER.write(node.predicate)}"
        case Project():
            return f"Project {_items(node.items)}"
        case AssignWindow():
            time = _WRITER.write(node.time) if node.time is not None else "processing time"
            return f"Window {_window(node.window)} over {time}"
        case Aggregate():
            keys = ", ".join(_item(column, item) for column, item in node.keys) or "all rows"
            aggregates = ", ".join(f"{_WRITER.write(agg)} AS {quote(c.name)}" for c, agg in node.aggregates)
            return f"Aggregate by {keys}" + (f": {aggregates}" if aggregates else "")
        case Distinct():
            return "Distinct"
        case Join():
            condition = _Sides(node).write(node.condition) if node.condition is not None else "true"
            return f"{node.kind.value.capitalize()} join on {condition}"
        case Union():
            return "Union all"
        case TopN():
            return _top_n(node)
        case Inline():
            number = f", number AS {quote(node.number.name)}" if node.number is not None else ""
            return f"Rows of the list: {', '.join(quote(column.name) for column in node.items)}{number}"


def _scan(node: Scan) -> str:
    written = f"Scan {node.source.logical.name} ({', '.join(quote(column.name) for column in node.fields)})"
    if node.event_time is not None:
        time = _WRITER.write(node.event_time.expression)
        written += f" by {time}, late by up to {show_duration(node.event_time.lateness_us)}"
    if node.pushed:
        written += f" where {' AND '.join(_WRITER.write(part) for part in node.pushed)}"
    return written


def _items(items: tuple[tuple[Column, Expr], ...]) -> str:
    return ", ".join(_item(column, item) for column, item in items)


def _item(column: Column, item: Expr) -> str:
    written, name = _WRITER.write(item), quote(column.name or "column")
    return written if written == name else f"{written} AS {name}"


def _window(window: Window) -> str:
    size = show_duration(window.size_us)
    parts = [f"GAP {size}" if window.kind is WindowKind.SESSION else f"SIZE {size}"]
    if window.advance_us:
        parts.append(f"ADVANCE BY {show_duration(window.advance_us)}")
    if window.offset_us:
        parts.append(f"OFFSET {show_duration(window.offset_us)}")
    return f"{window.kind}({', '.join(parts)})"


def _top_n(node: TopN) -> str:
    order = ", ".join(_WRITER.write(term.expr) + (" DESC" if term.descending else "") for term in node.order)
    partition = ", ".join(_WRITER.write(part) for part in node.partition)
    first = f"First {node.limit}" if node.limit is not None else "Numbered rows"
    return f"{first} of each window{' and ' + partition if partition else ''} by {order}"


def explain_text(plan: catalog.QueryPlan, form: catalog.ExplainFormat.ValueType) -> str:
    """A plan as EXPLAIN answers it."""
    if form == catalog.EXPLAIN_FORMAT_DOT:
        return _dot(plan)
    mode = _short(catalog.QueryMode, plan.mode, "QUERY_MODE_").lower()
    ends = "ends when its sources have ended" if plan.bounded else "runs until it is stopped"
    head = f"mode {mode}, {ends}"
    if any(edge.kafka for edge in plan.edges):
        head += "\nedges on Kafka: rows may come twice after a crash"
    if plan.unplaced:
        head += f"\ncannot be placed now: {plan.unplaced}; the fragments below are placed as if slots were free"
    sections = [
        ("Query", head),
        ("Logical plan", plan.logical_plan),
        ("Optimised plan", plan.optimised_plan),
        ("Fragments", "\n".join(_fragment(fragment) for fragment in plan.fragments)),
        ("Edges", "\n".join(_edge(plan, edge) for edge in plan.edges) or "none"),
    ]
    return "\n\n".join(f"{title}\n{_indent(body)}" for title, body in sections)


def _indent(text: str, by: str = "  ") -> str:
    return "\n".join(by + line if line else line for line in text.split("\n"))


def _short(enum: object, value: int, prefix: str) -> str:
    name: str = enum.Name(value)  # type: ignore[attr-defined]
    return name.removeprefix(prefix)


def _fragment(fragment: catalog.FragmentPlan) -> str:
    kind = _short(catalog.FragmentKind, fragment.kind, "FRAGMENT_KIND_").lower()
    slots = f"{fragment.slots} slot{'' if fragment.slots == 1 else 's'}"
    where = f"on {fragment.agent}, {slots}" + ("" if fragment.node_local else ", can move")
    ways = []
    if fragment.input_edges:
        ways.append("reads " + ", ".join(f"edge {edge}" for edge in fragment.input_edges))
    if fragment.output_edges:
        ways.append("writes " + ", ".join(f"edge {edge}" for edge in fragment.output_edges))
    head = f"{fragment.ordinal} {kind} {where}" + (f"; {'; '.join(ways)}" if ways else "")
    match fragment.WhichOneof("body"):
        case "source":
            body = _source_body(fragment.source)
        case "compute":
            body = _compute_body(fragment.compute)
        case _:
            sink = fragment.sink
            body = f"{_short(catalog.SinkType, sink.type, 'SINK_TYPE_')} sink {sink.sink} ({_schema(sink.schema)})"
    return f"{head}\n{_indent(body)}"


def _source_body(source: catalog.SourceFragment) -> str:
    kind = _short(catalog.SourceType, source.type, "SOURCE_TYPE_")
    lines = [
        f"{kind} source {source.physical_source}, {'bounded' if source.bounded else 'unbounded'}",
        f"columns: {', '.join(source.columns)} of {len(source.schema.fields)}",
        f"filter: {source.filter or 'none'}",
    ]
    return "\n".join(lines)


def _compute_body(compute: catalog.ComputeFragment) -> str:
    lines = []
    for entry in compute.inputs:
        origin = f"edge {entry.edge}" if entry.HasField("edge") else _topic(entry.topic)
        line = f"{entry.view}: {origin} ({_schema(entry.schema)})"
        if entry.event_time:
            how = f" = {entry.event_time_expression}" if entry.event_time_expression else ""
            line += f", event time {entry.event_time}{how}, late by up to {show_duration(entry.lateness_us)}"
        lines.append(line)
    state = "stateful" if compute.stateful else "stateless"
    lines.append(f"{state}, output mode {compute.output_mode}")
    if compute.update_keys:
        lines.append(f"a row replaces the one with the same {', '.join(compute.update_keys)}")
    if compute.HasField("target"):
        kind = _short(catalog.SinkType, compute.target.type, "SINK_TYPE_")
        lines.append(f"writes to the {kind} sink {compute.target.sink} by itself, at least once")
    lines.append("Spark SQL:")
    lines.append(_indent(compute.spark_sql))
    return "\n".join(lines)


def _topic(topic: catalog.TopicOrigin) -> str:
    return f"{_short(catalog.SourceType, topic.type, 'SOURCE_TYPE_')} source {topic.physical_source}"


def _schema(schema: catalog.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}{' NOT NULL' if field.not_null else ''}" for field in schema.fields)


def _edge(plan: catalog.QueryPlan, edge: catalog.EdgePlan) -> str:
    leader = plan.fragments[edge.leader_fragment - 1].agent
    way = f"{edge.ordinal}: fragment {edge.from_fragment} to {edge.to_fragment}"
    if edge.kafka:
        return f"{way}, on Kafka at {edge.kafka['bootstrap_servers']}, made by {leader} ({_schema(edge.schema)})"
    return f"{way}, {edge.durability}, led by {leader} ({_schema(edge.schema)})"


def _dot(plan: catalog.QueryPlan) -> str:
    """A Graphviz graph: agents as clusters, fragments as nodes, edges and topics between them."""
    lines = ["digraph plan {", "  rankdir=LR;", '  node [shape=box, fontname="monospace"];']
    agents = sorted({fragment.agent for fragment in plan.fragments})
    for number, agent in enumerate(agents):
        lines += [f"  subgraph cluster_{number} {{", f"    label={_dot_text(agent)};"]
        for fragment in plan.fragments:
            if fragment.agent == agent:
                lines.append(f"    f{fragment.ordinal} [label={_dot_text(_label(fragment))}];")
        lines.append("  }")
    for edge in plan.edges:
        label = _dot_text(f"edge {edge.ordinal} {edge.durability}")
        lines.append(f"  f{edge.from_fragment} -> f{edge.to_fragment} [label={label}];")
    for fragment in plan.fragments:
        if fragment.WhichOneof("body") != "compute":
            continue
        for entry in fragment.compute.inputs:
            if entry.HasField("topic"):
                name = f"t_{entry.view}"
                lines.append(f"  {name} [shape=cylinder, label={_dot_text(_topic(entry.topic))}];")
                lines.append(f"  {name} -> f{fragment.ordinal};")
        if fragment.compute.HasField("target"):
            target = fragment.compute.target
            kind = _short(catalog.SinkType, target.type, "SINK_TYPE_")
            lines.append(f"  target [shape=cylinder, label={_dot_text(f'{kind} sink {target.sink}')}];")
            lines.append(f"  f{fragment.ordinal} -> target;")
    return "\n".join([*lines, "}"])


def _label(fragment: catalog.FragmentPlan) -> str:
    match fragment.WhichOneof("body"):
        case "source":
            detail = f"{fragment.source.physical_source}\n{fragment.source.filter}"
        case "compute":
            detail = f"{len(fragment.compute.inputs)} inputs, {fragment.compute.output_mode}"
        case _:
            detail = fragment.sink.sink
    kind = _short(catalog.FragmentKind, fragment.kind, "FRAGMENT_KIND_").lower()
    return f"{fragment.ordinal} {kind}\n{detail}".rstrip()


def _dot_text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
