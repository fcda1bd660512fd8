"""Joins of streams: each must be bounded in time, so that rows can be forgotten.

A join is bounded where its condition equates the windows of both sides, or keeps their times within a range; otherwise
by the WINDOW of its SELECT, which is then assigned on both sides and equated. What Spark has no form for is written
differently: an anti-join as an outer join whose partner is missing, a full join whose window is needed further up as
two outer joins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headgate_coordinator.sql.algebra import (
    AssignWindow,
    Call,
    Column,
    Expr,
    Filter,
    Join,
    JoinKind,
    Literal,
    Node,
    Project,
    Scan,
    Union,
    WindowTime,
    columns_in,
    conjunction,
    conjuncts,
    type_of_window,
    walk_plan,
)
from headgate_coordinator.sql.errors import quoted
from headgate_coordinator.sql.eventtime import NoEventTime, ScanOrigin, Times, WindowOrigin, expose
from headgate_coordinator.sql.nodes import WindowKind
from headgate_coordinator.sql.timeranges import TimeRange, shifted, time_ranges
from headgate_coordinator.sql.types import BOOL

_ONE_SIDED = (JoinKind.SEMI, JoinKind.ANTI)
UNBOUNDED_HINT = (
    "add a time range such as AND b.ts BETWEEN a.ts - INTERVAL 5 MINUTES AND a.ts, or WINDOW TUMBLING(ts, SIZE 5 MIN)"
)


class Unsupported(Exception):
    """A plan that cannot run as a stream: why, and what to write instead."""

    def __init__(self, offset: int | None, message: str, suggestion: str = "") -> None:
        super().__init__(message)
        self.offset = offset
        self.message = message
        self.suggestion = suggestion


@dataclass(frozen=True, slots=True)
class _WindowPair:
    """A conjunct that equates bounds of windows of both sides."""

    conjunct: Expr
    left: WindowOrigin
    right: WindowOrigin
    left_expr: Expr
    right_expr: Expr


class JoinRewriter:
    """Rewrites joins of one plan."""

    def __init__(self, times: Times, lateness_us: int) -> None:
        self.times = times
        self.lateness_us = lateness_us

    def is_bounded(self, join: Join) -> bool:
        """Whether the condition alone bounds the join. Looks only; the inputs need not be rewritten yet."""
        return bool(self._window_pairs(join)) or any(span.bounded for span in time_ranges(join, self._is_time))

    def within(self, assigned: AssignWindow, watermark_needed: bool) -> Node | None:
        """A window over joins that nothing else bounds, as joins within the window; None where they are bounded."""
        filters: list[Filter] = []
        node = assigned.input
        while isinstance(node, Filter):
            filters.append(node)
            node = node.input
        if not isinstance(node, Join) or not self._has_unbounded(node):
            return None
        joined, window = self._distribute(node, assigned, watermark_needed)
        for applied in reversed(filters):
            joined = replace(applied, input=joined)
        self.times.windows[assigned.column] = assigned.window
        items = tuple((column, column) for column in node.columns)
        return Project(joined, (*items, (assigned.column, window)))

    def _has_unbounded(self, node: Node) -> bool:
        if not isinstance(node, Join):
            return False
        by_window_of_right = node.kind in _ONE_SIDED and self.times.window(node.right) is not None
        bounded = by_window_of_right or self.is_bounded(node)
        return not bounded or self._has_unbounded(node.left) or self._has_unbounded(node.right)

    def _distribute(self, node: Node, assigned: AssignWindow, watermark_needed: bool) -> tuple[Node, Expr]:
        """The join with the window assigned on its leaves and equated; also the window of its rows."""
        if not isinstance(node, Join) or not self._has_unbounded(node):
            return self._windowed_leaf(node, assigned)
        kind = node.kind
        # Whatever joins further needs the watermark of this window.
        left, left_window = self._distribute(node.left, assigned, True)
        right, right_window = self._distribute(node.right, assigned, True)
        same = Call("=", (left_window, right_window), BOOL, False)
        condition = conjunction([*conjuncts(node.condition), same])
        if kind is JoinKind.FULL and watermark_needed:
            return self._split_full(
                replace(node, left=left, right=right, condition=condition), left_window, right_window
            )
        joined = replace(node, left=left, right=right, condition=condition)
        match kind:
            case JoinKind.RIGHT:
                return joined, right_window
            case JoinKind.FULL:
                return joined, Call("coalesce", (left_window, right_window), type_of_window, False)
            case _:
                return joined, left_window

    def _windowed_leaf(self, leaf: Node, assigned: AssignWindow) -> tuple[Node, Expr]:
        existing = self.times.window(leaf)
        if existing == assigned.window:
            carried = self.times.carry_window(leaf)
            assert carried is not None
            return carried
        time: Expr | None = None
        if assigned.time is not None:
            entries: Sequence[WindowTime] = assigned.times
            columns = set(leaf.columns)
            mine = [entry for entry in entries if entry.columns & columns]
            time = next((entry.column for entry in mine if entry.column is not None), None)
            if time is None:
                read = {part.source.logical.name for part in walk_plan(leaf) if isinstance(part, Scan)}
                name = mine[0].relation if mine else read.pop() if len(read) == 1 else ""
                raise Unsupported(
                    assigned.offset,
                    f"the window's time column is not known for {quoted(name) if name else 'one side of the join'}",
                    f"rename it there in a sub-select, or write FROM TUMBLE(TABLE {name}, DESCRIPTOR(its_time), ...)"
                    if name
                    else "give the sub-select there a WINDOW of its own",
                )
        column = self.times.ids.column("window", type_of_window, False)
        self.times.windows[column] = assigned.window
        leaf = AssignWindow(leaf, assigned.window, time, column, assigned.lateness_us, assigned.offset)
        return leaf, column

    def _split_full(self, join: Join, left_window: Expr, right_window: Expr) -> tuple[Node, Expr]:
        """A full join as a left join and the right rows without a partner, so that the window keeps its watermark."""
        assert isinstance(left_window, Column) and isinstance(right_window, Column)
        window = self.times.ids.column("window", type_of_window, False)
        self.times.windows[window] = self.times.windows[left_window]
        left_columns, right_columns = join.left.columns, join.right.columns
        first = Project(
            replace(join, kind=JoinKind.LEFT),
            (*((c, c) for c in left_columns), *((c, c) for c in right_columns), (self._copy(left_window), left_window)),
        )
        alone = replace(join, kind=JoinKind.ANTI, left=join.right, right=join.left)
        nothing = tuple((self._copy(c), Literal(None, c.type)) for c in left_columns)
        second = Project(alone, (*nothing, *((c, c) for c in right_columns), (self._copy(right_window), right_window)))
        outputs = tuple(replace(c, nullable=True) for c in (*left_columns, *right_columns))
        return Union((first, second), (*outputs, window)), window

    def _copy(self, column: Column) -> Column:
        copy = self.times.ids.column(column.name, column.type, True)
        if column in self.times.windows:
            self.times.windows[copy] = self.times.windows[column]
        return copy

    def hoisted(self, join: Join) -> Node | None:
        """A semi-join that goes by another time than the window of its left rows, below that window; else None.

        Only one marked column passes a join. With the window above, the time passes, and the window is made of it
        after.
        """
        filters: list[Filter] = []
        left = join.left
        while isinstance(left, Filter):
            filters.append(left)
            left = left.input
        if join.kind not in _ONE_SIDED or not isinstance(left, AssignWindow):
            return None
        if left.column in columns_in(*conjuncts(join.condition)):
            return None
        if self.times.window(join.right) == left.window and not self.is_bounded(join):
            return None
        below = replace(join, left=left.input, outer_time=left.time or join.outer_time)
        node: Node = replace(left, input=below)
        for applied in reversed(filters):
            node = replace(applied, input=node)
        return node

    def rewrite(self, join: Join) -> Node:
        """The join in a form that Spark runs. Its inputs are rewritten already."""
        pairs = self._window_pairs(join)
        if pairs:
            bounded = self._equal_windows(join, pairs)
        else:
            spans = time_ranges(join, self._is_time)
            span = next((span for span in spans if span.bounded), None)
            if span is not None:
                bounded = self._within_range(join, span)
            elif join.kind in _ONE_SIDED and self.times.window(join.right) is not None:
                bounded = self._within_window_of_right(join)
            else:
                half = "with a bound in time on one side only" if spans else "without a bound in time"
                raise Unsupported(join.offset, f"{_name(join)} {half} would remember rows for ever", UNBOUNDED_HINT)
        return self._without_partner(bounded) if bounded.kind is JoinKind.ANTI else bounded

    def _equal_windows(self, join: Join, pairs: Sequence[_WindowPair]) -> Join:
        pair = pairs[0]
        if pair.left.window != pair.right.window:
            raise Unsupported(
                join.offset,
                f"{_name(join)} equates windows of different shapes, whose bounds have nothing in common",
                "give both the same window",
            )
        if pair.left.window.kind is WindowKind.SESSION:
            raise Unsupported(join.offset, f"{_name(join)} on SESSION windows is not offered", "use TUMBLING")
        left, left_window = self.times.carry(join.left, pair.left_expr, self.lateness_us)
        right, right_window = self.times.carry(join.right, pair.right_expr, self.lateness_us)
        said = {pair.conjunct for pair in pairs}
        rest = [part for part in conjuncts(join.condition) if part not in said]
        same = Call("=", (left_window, right_window), BOOL, False)
        return replace(
            join,
            left=self.times.only_mark(left, left_window),
            right=self.times.only_mark(right, right_window),
            condition=conjunction([same, *rest]),
        )

    def _within_range(self, join: Join, span: TimeRange) -> Join:
        left, left_time, left_shift = self._timeline(join, join.left, span.left)
        right, right_time, right_shift = self._timeline(join, join.right, span.right)
        rest = [part for part in conjuncts(join.condition) if part not in span.said_by]
        self._needs_equality(join, rest)
        assert span.low is not None and span.high is not None
        shift = left_shift - right_shift
        low = shifted(">" if span.low[1] else ">=", right_time, left_time, span.low[0] + shift)
        high = shifted("<" if span.high[1] else "<=", right_time, left_time, span.high[0] + shift)
        return replace(
            join,
            left=self.times.only_mark(left, left_time),
            right=self.times.only_mark(right, right_time),
            condition=conjunction([*rest, low, high]),
        )

    def _timeline(self, join: Join, side: Node, time: Expr) -> tuple[Node, Column, int]:
        """The side with a marked timestamp, and how far `time` is after it."""
        try:
            node, column = self.times.carry(side, time, self.lateness_us)
        except NoEventTime as reason:
            raise Unsupported(join.offset, f"{_name(join)}: a time of the range is no event time: {reason}") from None
        window = self.times.windows.get(column)
        if window is None:
            return node, column, 0
        origin = self.times.origin(side, time)
        after = origin.after_time_us if isinstance(origin, WindowOrigin) else None
        if after is None:
            raise Unsupported(
                join.offset, f"{_name(join)}: the start of a SESSION window is no bound", "use window_time"
            )
        node, last = self.times.with_window_time(node, column)
        return node, last, after

    def _within_window_of_right(self, join: Join) -> Join:
        """IN and EXISTS of a windowed sub-select: the left row must be in the same window."""
        shape = self.times.window(join.right)
        assert shape is not None
        if shape.kind is WindowKind.SESSION:
            raise Unsupported(join.offset, f"{_name(join)} over a SESSION window is not offered", "use TUMBLING")
        carried = self.times.carry_window(join.right)
        assert carried is not None
        right, right_window = carried
        if self.times.window(join.left) == shape:
            mine = self.times.carry_window(join.left)
            assert mine is not None
            left, left_window = mine
            same = Call("=", (left_window, right_window), BOOL, False)
            return replace(
                join,
                left=self.times.only_mark(left, left_window),
                right=self.times.only_mark(right, right_window),
                condition=conjunction([same, *conjuncts(join.condition)]),
            )
        time = join.outer_time
        if time is None:
            raise Unsupported(
                join.offset,
                f"{_name(join)}: nothing says at which time a row of the outer query is looked up in the windows",
                "give the outer query the same WINDOW, or use EXISTS with a time range",
            )
        self._needs_equality(join, conjuncts(join.condition))
        left = join.left
        if isinstance(time, Column) and time not in left.columns:
            left = expose(left, time)
        left, left_time, left_shift = self._timeline(join, left, time)
        right, right_time = self.times.with_window_time(right, right_window)
        high = shifted("<=", left_time, right_time, -left_shift)
        low = shifted(">", left_time, right_time, -shape.size_us - left_shift)
        return replace(
            join,
            left=self.times.only_mark(left, left_time),
            right=self.times.only_mark(right, right_time),
            condition=conjunction([*conjuncts(join.condition), low, high]),
        )

    def _without_partner(self, join: Join) -> Node:
        """An anti-join as an outer join whose partner is missing."""
        marks = self.times.marked(join.right)
        partner = next(column for column in join.right.columns if column in marks)
        outer = replace(join, kind=JoinKind.LEFT)
        missing = Call("is_null", (replace(partner, nullable=True),), BOOL, False)
        return Project(Filter(outer, missing, join.offset), tuple((column, column) for column in join.left.columns))

    def _needs_equality(self, join: Join, parts: Sequence[Expr]) -> None:
        left, right = set(join.left.columns), set(join.right.columns)
        for part in parts:
            if isinstance(part, Call) and part.op in ("=", "<=>"):
                a, b = (columns_in(arg) for arg in part.args)
                if a and b and ((a <= left and b <= right) or (a <= right and b <= left)):
                    return
        raise Unsupported(
            join.offset,
            f"{_name(join)} needs an equality between the two sides",
            "add ON a.key = b.key, or join within a WINDOW",
        )

    def _window_pairs(self, join: Join) -> list[_WindowPair]:
        left, right = set(join.left.columns), set(join.right.columns)
        pairs: list[_WindowPair] = []
        for part in conjuncts(join.condition):
            if not isinstance(part, Call) or part.op != "=":
                continue
            a, b = part.args
            if columns_in(a) <= right and columns_in(b) <= left:
                a, b = b, a
            if not (columns_in(a) and columns_in(b) and columns_in(a) <= left and columns_in(b) <= right):
                continue
            mine, theirs = self.times.origin(join.left, a), self.times.origin(join.right, b)
            if isinstance(mine, WindowOrigin) and isinstance(theirs, WindowOrigin) and mine.which == theirs.which:
                pairs.append(_WindowPair(part, mine, theirs, a, b))
        return pairs

    def _is_time(self, side: Node, expr: Expr) -> bool:
        return isinstance(self.times.origin(side, expr), (ScanOrigin, WindowOrigin))


def _name(join: Join) -> str:
    match join.kind:
        case JoinKind.SEMI:
            return "IN or EXISTS"
        case JoinKind.ANTI:
            return "NOT EXISTS"
        case kind:
            return f"{kind} JOIN"
