"""Turns a bound plan into one that Spark runs as a stream, or says what in it cannot.

Everything that Spark streaming asks for is settled here: every window and join has a watermark, every join is bounded,
every grouping ends, and what has no streaming form is written in another way (`joins`, `aggregation`). After this step
a plan has no Distinct, TopN or ANTI join, and a SESSION window is a key of an Aggregate.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from headgate_common.durations import show_duration
from headgate_coordinator.sql.aggregation import (
    Computed,
    needs_time,
    project_finished,
    rewrite_aggregate,
    top_n,
    uses_time,
)
from headgate_coordinator.sql.algebra import (
    Agg,
    Aggregate,
    AssignWindow,
    Call,
    Column,
    Distinct,
    Expr,
    Filter,
    Ids,
    Inline,
    Join,
    JoinKind,
    Literal,
    Node,
    Project,
    Scan,
    TopN,
    Union,
    Window,
    columns_in,
    conjunction,
    conjuncts,
    type_of_window,
    walk_plan,
    with_inputs,
)
from headgate_coordinator.sql.eventtime import NoEventTime, Times, WindowOrigin, expose
from headgate_coordinator.sql.joins import JoinRewriter, Unsupported
from headgate_coordinator.sql.nodes import WindowKind
from headgate_coordinator.sql.types import DAY_TIME_INTERVAL, INT32, TIMESTAMP, VARCHAR

_NOW = Call("current_timestamp", (), TIMESTAMP, False)
WINDOW_HINT = "add WINDOW TUMBLING(ts, SIZE 1 MIN), or the like"


@dataclass(frozen=True, slots=True)
class Streaming:
    """A plan that Spark runs as a stream. `updates` is set where results change as rows come, for ever."""

    node: Node
    updates: bool
    stateful: bool


def rewrite(node: Node, ids: Ids, lateness_us: int) -> Streaming:
    """The plan in a form that Spark runs; Unsupported where there is none."""
    rewriter = _Rewriter(ids, lateness_us)
    for part in walk_plan(node):
        if isinstance(part, AssignWindow):
            rewriter.times.windows[part.column] = part.window
    done = rewriter.rewrite(node, False)
    stateful = [part for part in walk_plan(done) if isinstance(part, (Aggregate, Join))]
    for part in walk_plan(done):
        if isinstance(part, AssignWindow) and part.window.kind is WindowKind.SESSION:
            raise Unsupported(part.offset, "a SESSION window is one of groups", "aggregate in the same SELECT")
    if rewriter.unbounded and len(stateful) > 1:
        raise Unsupported(
            rewriter.unbounded[0].offset,
            "an aggregate without a window changes its result for ever, and nothing can be computed from that",
            WINDOW_HINT,
        )
    return Streaming(done, bool(rewriter.unbounded), bool(stateful))


class _Rewriter:
    def __init__(self, ids: Ids, lateness_us: int) -> None:
        self.ids = ids
        self.times = Times(ids)
        self.joins = JoinRewriter(self.times, lateness_us)
        self.lateness_us = lateness_us
        self.unbounded: list[Aggregate] = []

    def rewrite(self, node: Node, watermark_needed: bool) -> Node:
        """The operator and all below it rewritten. `watermark_needed`: whether something above goes by event time."""
        match node:
            case Scan():
                return node
            case AssignWindow():
                within = self.joins.within(node, watermark_needed)
                if within is not None:
                    return self.rewrite(within, watermark_needed)
                return self._assign_window(replace(node, input=self.rewrite(node.input, True)))
            case Join():
                hoisted = self.joins.hoisted(node)
                if hoisted is not None:
                    return self.rewrite(hoisted, watermark_needed)
                left, right = self.rewrite(node.left, True), self.rewrite(node.right, True)
                return self._join(replace(node, left=left, right=right))
            case Aggregate():
                return self._aggregate(replace(node, input=self.rewrite(node.input, True)))
            case Distinct():
                return self._distinct(replace(node, input=self.rewrite(node.input, True)))
            case Filter(input=TopN()):
                return self._limited(node)
            case TopN():
                return self._top_n(replace(node, input=self.rewrite(node.input, True)))
            case Union() | Filter() | Project() | Inline():
                return with_inputs(node, tuple(self.rewrite(part, watermark_needed) for part in node.inputs))

    def _join(self, node: Join) -> Node:
        try:
            return self.joins.rewrite(node)
        except NoEventTime as reason:
            raise Unsupported(node.offset, f"an event time cannot be followed to its source: {reason}") from None

    def _assign_window(self, node: AssignWindow) -> Node:
        if node.time is None:
            return self._with_time(node, _NOW, 0)
        origin = self.times.origin(node.input, node.time)
        if isinstance(origin, WindowOrigin):
            return self._window_of_windows(node, origin)
        return self._with_time(node, node.time, node.lateness_us)

    def _with_time(self, node: AssignWindow, time: Expr, lateness_us: int) -> AssignWindow:
        try:
            below, column = self.times.carry(node.input, time, lateness_us)
        except NoEventTime as reason:
            raise Unsupported(node.offset, f"the time of the window is no event time: {reason}") from None
        return replace(node, input=below, time=column)

    def _window_of_windows(self, node: AssignWindow, origin: WindowOrigin) -> Node:
        """A window over a bound of smaller windows goes by the last instant of those."""
        assert node.time is not None
        inner = origin.window
        if origin.which == "end":
            raise Unsupported(
                node.offset,
                "the end of a window is the first instant after it, and so in the next window",
                "use start or window_time",
            )
        if origin.which == "start" and not _nested(inner, node):
            raise Unsupported(
                node.offset,
                f"windows of {show_duration(inner.size_us)} do not fit whole into these windows",
                f"use window_time, or sizes that are multiples of {show_duration(inner.size_us)}",
            )
        below, window = self.times.carry(node.input, node.time, node.lateness_us)
        timed, last = self.times.with_window_time(below, window)
        return replace(node, input=self.times.only_mark(timed, last), time=last)

    def _aggregate(self, node: Aggregate) -> Node:
        node = self._session(node)
        node = self._with_marked_key(node)
        marks = self.times.marked(node.input)
        marked = [key for key, item in node.keys if item in marks or _is_session(item)]
        if not marked:
            self.unbounded.append(node)
        computed: list[tuple[Column, Computed]] = []
        for column, agg in node.aggregates:
            time: Expr | None = None
            if uses_time(agg):
                node, time = self._time_of(node, agg, bool(marked))
            computed.append((column, rewrite_aggregate(column, agg, time, self.ids)))
        aggregates = tuple((part.column, part.aggregate) for _, part in computed)
        keys = tuple((key, _plain(item) if item in marks and key != marked[0] else item) for key, item in node.keys)
        return project_finished(replace(node, keys=keys, aggregates=aggregates), computed)

    def _session(self, node: Aggregate) -> Aggregate:
        """A SESSION window becomes a key of the groups."""
        filters: list[Filter] = []
        below = node.input
        while isinstance(below, Filter):
            filters.append(below)
            below = below.input
        if not isinstance(below, AssignWindow) or below.window.kind is not WindowKind.SESSION:
            return node
        for applied in filters:
            if below.column in columns_in(applied.predicate):
                raise Unsupported(applied.offset, "the bounds of a SESSION are known only when it ends", "use HAVING")
        assert below.time is not None
        session = Call(
            "session_window", (below.time, Literal(below.window.size_us, DAY_TIME_INTERVAL)), type_of_window, False
        )
        inner: Node = below.input
        for applied in reversed(filters):
            inner = replace(applied, input=inner)
        keys = tuple((key, session if item == below.column else item) for key, item in node.keys)
        if len(keys) == 1:
            # Spark has no sessions of a whole stream: those of a group that all rows are in.
            everything = Call("pmod", (Call("hash", (below.time,), INT32, False), Literal(1, INT32)), INT32, False)
            keys = (*keys, (self.ids.column("everything", INT32, False), everything))
        return replace(node, input=inner, keys=keys)

    def _with_marked_key(self, node: Aggregate) -> Aggregate:
        """Groups by a bound of a window are groups by the window."""
        marks = self.times.marked(node.input)
        if any(item in marks or _is_session(item) for _, item in node.keys):
            return node
        bounds = [(item, self.times.origin(node.input, item)) for _, item in node.keys]
        windows = [(item, origin) for item, origin in bounds if isinstance(origin, WindowOrigin)]
        if not windows:
            return node
        item, first = windows[0]
        told = {origin.which for _, origin in windows if origin.column == first.column}
        if first.window.kind is WindowKind.SESSION and not {"start", "end"} <= told:
            raise Unsupported(
                node.offset, "one bound alone does not tell SESSION windows apart", "GROUP BY start and end of them"
            )
        below, window = self.times.window_keys(*self.times.carry(node.input, item, self.lateness_us))
        return replace(node, input=below, keys=(*((column, column) for column in window), *node.keys))

    def _time_of(self, node: Aggregate, agg: Agg, windowed: bool) -> tuple[Aggregate, Expr | None]:
        """The event time of the rows that an aggregate reads, made visible to it."""
        time = _time_for(node.input, columns_in(*agg.args)) if windowed else None
        if time is None:
            session = next((item for _, item in node.keys if _is_session(item)), None)
            if isinstance(session, Call):
                return node, session.args[0]
            window = next((item for _, item in node.keys if item in self.times.windows), None)
            if windowed and isinstance(window, Column):
                return node, Call("field", (window, Literal("start", VARCHAR)), TIMESTAMP, True)
            if needs_time(agg):
                raise Unsupported(
                    node.offset, f"{agg.op.upper()} goes by event time, and the query names none", WINDOW_HINT
                )
            return node, None
        return replace(node, input=expose(node.input, time)), time

    def _distinct(self, node: Distinct) -> Node:
        carried = self.times.carry_window(node.input)
        if carried is None:
            raise Unsupported(node.offset, "SELECT DISTINCT of a stream would remember every row for ever", WINDOW_HINT)
        below, window = self.times.window_keys(*carried)
        keys = (*window, *(column for column in node.columns if column not in window))
        return Aggregate(below, tuple((column, column) for column in keys), (), node.offset)

    def _limited(self, node: Filter) -> Node:
        """A filter on the number of rows: the limit of the TopN below."""
        top = node.input
        assert isinstance(top, TopN)
        kept: list[Expr] = []
        limit = top.limit
        for part in conjuncts(node.predicate):
            bound = _limit_of(part, top.number) if top.number is not None else None
            if bound is None:
                kept.append(part)
                continue
            if bound < 1:
                raise Unsupported(node.offset, "no row has that number", "rows are numbered from 1")
            limit = bound if limit is None else min(limit, bound)
            if isinstance(part, Call) and part.op == "=" and bound > 1:
                kept.append(part)
        rewritten = self.rewrite(replace(top, limit=limit), True)
        predicate = conjunction(kept)
        return rewritten if predicate is None else Filter(rewritten, predicate, node.offset)

    def _top_n(self, node: TopN) -> Node:
        what = "ROW_NUMBER()" if node.number is not None else "ORDER BY ... LIMIT"
        if node.limit is None:
            raise Unsupported(
                node.offset, f"{what} numbers rows without an end", "keep the first n: WHERE row_number <= n"
            )
        carried = self.times.carry_window(node.input)
        if carried is None:
            raise Unsupported(node.offset, f"{what} of a stream never ends", WINDOW_HINT)
        partition = tuple(
            expr for expr in node.partition if not isinstance(self.times.origin(node.input, expr), WindowOrigin)
        )
        if node.number is not None and len(partition) == len(node.partition):
            raise Unsupported(
                node.offset,
                "ROW_NUMBER() numbers rows across windows",
                "add the window to PARTITION BY: PARTITION BY window_start, window_end",
            )
        below, window = self.times.window_keys(*carried)
        return top_n(replace(node, partition=partition), below, window, self.ids)


def _is_session(item: Expr) -> bool:
    return isinstance(item, Call) and item.op == "session_window"


def _plain(item: Expr) -> Expr:
    assert isinstance(item, Column)
    return Call("unmarked", (item,), item.type, item.nullable)


def _nested(inner: Window, node: AssignWindow) -> bool:
    """Whether every inner window lies whole in each outer window that its start is in."""
    if inner.kind is not WindowKind.TUMBLING or node.window.kind is WindowKind.SESSION:
        return False
    outer = node.window
    size = inner.size_us
    return not any(length % size for length in (outer.size_us, outer.step_us, outer.offset_us - inner.offset_us))


def _time_for(node: Node, columns: set[Column]) -> Column | None:
    """The event time of the rows that those columns come from: that of the window assigned to them."""
    if isinstance(node, AssignWindow):
        return node.time if isinstance(node.time, Column) else None
    if isinstance(node, Join):
        if node.kind not in (JoinKind.SEMI, JoinKind.ANTI) and columns and columns <= set(node.right.columns):
            return _time_for(node.right, columns)
        return _time_for(node.left, columns & set(node.left.columns))
    if isinstance(node, Project):
        return _time_for(node.input, columns_in(*(item for column, item in node.items if column in columns)))
    if isinstance(node, Filter):
        return _time_for(node.input, columns)
    return None


def _limit_of(part: Expr, number: Column) -> int | None:
    """The greatest number that a comparison lets through; None where it does not bound the number from above."""
    if not isinstance(part, Call) or len(part.args) != 2:
        return None
    left, right, op = *part.args, part.op
    if isinstance(left, Literal):
        left, right = right, left
        op = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(op, op)
    if left != number or not isinstance(right, Literal) or not isinstance(right.value, int):
        return None
    match op:
        case "<=" | "=":
            return right.value
        case "<":
            return right.value - 1
        case _:
            return None
