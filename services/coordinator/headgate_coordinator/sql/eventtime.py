"""Event time through a plan: where a time comes from, and how its watermark gets to where it is needed.

Spark knows a watermark as a mark on a column. Renaming keeps it, computing loses it; a window column takes it over from
the time column it was made of, and the `window_time` of that window from the window. At most one marked column may
reach a join. So a time that a window or a join needs is traced down to the scan it comes from, the scan is told to mark
it, and the marked column is carried up by every operator in between (`Times.carry`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from headgate_coordinator.sql.algebra import (
    Aggregate,
    AssignWindow,
    Call,
    Column,
    EventTime,
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
    Union,
    Window,
    columns_in,
    substitute,
    walk,
    with_inputs,
)
from headgate_coordinator.sql.nodes import WindowKind
from headgate_coordinator.sql.types import TIMESTAMP

_ONE_SIDED = (JoinKind.SEMI, JoinKind.ANTI)


class NoEventTime(Exception):
    """An expression that cannot be an event time, and why."""


@dataclass(frozen=True, slots=True)
class WindowOrigin:
    """A time that is a bound of a window: "start", "end", or "time" for the last instant in it."""

    column: Column
    window: Window
    which: str

    @property
    def after_time_us(self) -> int | None:
        """How far it is after the window's last instant; None for the start of a SESSION, which has no fixed length."""
        if self.which == "time":
            return 0
        if self.which == "end":
            return 1
        return None if self.window.kind is WindowKind.SESSION else 1 - self.window.size_us


@dataclass(frozen=True, slots=True)
class ScanOrigin:
    """A time that is computed from one row of a scan; `expression` is over the scan's columns."""

    expression: Expr


Origin = WindowOrigin | ScanOrigin


class Times:
    """Traces and carries event times within one plan."""

    def __init__(self, ids: Ids) -> None:
        self.ids = ids
        # The shape of every window column of the plan.
        self.windows: dict[Column, Window] = {}

    def origin(self, node: Node, expr: Expr) -> Origin | None:
        """Where an expression over the output of an operator comes from; None where it is no time of a row below."""
        found = self._bound(expr)
        if found is not None:
            return found
        match node:
            case Scan():
                return ScanOrigin(expr) if columns_in(expr) <= set(node.columns) and columns_in(expr) else None
            case Project():
                below = substitute(expr, dict(node.items))
                return None if _is_unmarked(below) else self.origin(node.input, below)
            case Join():
                side = self._side(node, expr)
                return None if side is None else self.origin(side, expr)
            case Aggregate():
                keys = dict(node.keys)
                if not columns_in(expr) <= set(keys):
                    return None
                return self.origin(node.input, substitute(expr, keys))
            case Union():
                origins = [
                    self.origin(branch, substitute(expr, dict(zip(node.columns, branch.columns, strict=False))))
                    for branch in node.branches
                ]
                first = origins[0]
                if all(isinstance(origin, ScanOrigin) for origin in origins):
                    return first
                windows = [origin for origin in origins if isinstance(origin, WindowOrigin)]
                same = len(windows) == len(origins) and all(
                    (w.window, w.which) == (windows[0].window, windows[0].which) for w in windows
                )
                return first if same else None
            case Inline():
                return self.origin(node.input, expr) if columns_in(expr) <= set(node.kept) else None
            case _:
                return self.origin(node.input, expr)

    def _bound(self, expr: Expr) -> WindowOrigin | None:
        if isinstance(expr, Column) and expr in self.windows:
            return WindowOrigin(expr, self.windows[expr], "time")
        if isinstance(expr, Call) and expr.op in ("field", "window_time"):
            inner = expr.args[0]
            if isinstance(inner, Column) and inner in self.windows:
                which = expr.args[1] if expr.op == "field" else None
                named = str(which.value) if isinstance(which, Literal) else "time"
                return WindowOrigin(inner, self.windows[inner], named)
        return None

    @staticmethod
    def _side(join: Join, expr: Expr) -> Node | None:
        columns = columns_in(expr)
        if columns <= set(join.left.columns):
            return join.left
        if join.kind not in _ONE_SIDED and columns <= set(join.right.columns):
            return join.right
        return None

    def carry(self, node: Node, expr: Expr, lateness_us: int) -> tuple[Node, Column]:
        """The operator with a marked column among its outputs: the timestamp itself, or the window it is a bound of.

        NoEventTime where there can be none.
        """
        match node:
            case Scan():
                return self._mark(node, expr, lateness_us)
            case Project():
                return self._through_project(node, expr, lateness_us)
            case AssignWindow() if isinstance(bound := self._bound(expr), WindowOrigin) and bound.column == node.column:
                return node, node.column
            case Join():
                return self._through_join(node, expr, lateness_us)
            case Aggregate():
                return self._through_aggregate(node, expr, lateness_us)
            case Union():
                return self._through_union(node, expr, lateness_us)
            case Inline():
                bound = self._bound(expr)
                if bound is not None and bound.column in node.kept:
                    return node, bound.column
                raise NoEventTime("the first rows of a window keep no time of their own but the window's")
            case _:
                below, column = self.carry(node.inputs[0], expr, lateness_us)
                return with_inputs(node, (below,)), column

    def _mark(self, scan: Scan, expr: Expr, lateness_us: int) -> tuple[Node, Column]:
        name = scan.source.logical.name
        processing = not columns_in(expr)
        if not columns_in(expr) <= set(scan.fields):
            raise NoEventTime(f"it does not come from {name}")
        known = scan.event_time
        if known is None:
            column = expr if isinstance(expr, Column) else self._extra_column(scan, processing)
            return replace(scan, event_time=EventTime(column, expr, lateness_us)), column
        if known.expression != expr:
            raise NoEventTime(f"{name} has another event time already in this query: a stream has one")
        widest = max(known.lateness_us, lateness_us)
        return replace(scan, event_time=replace(known, lateness_us=widest)), known.column

    def _extra_column(self, scan: Scan, processing: bool) -> Column:
        """A column for a time that is computed, with a name that the source does not have."""
        taken = {field.name.lower() for field in scan.source.logical.schema.fields}
        name = "processing_time" if processing else "event_time"
        while name in taken:
            name = f"_{name}"
        return self.ids.column(name, TIMESTAMP, not processing)

    def _through_project(self, node: Project, expr: Expr, lateness_us: int) -> tuple[Node, Column]:
        traced = substitute(expr, dict(node.items))
        if _is_unmarked(traced):
            raise NoEventTime("a join below goes by another time of these rows, and only that one passes it")
        below, column = self.carry(node.input, traced, lateness_us)
        for output, item in node.items:
            if item == column:
                if column in self.windows:
                    self.windows[output] = self.windows[column]
                return replace(node, input=below), output
        return Project(below, (*node.items, (column, column))), column

    def _through_join(self, node: Join, expr: Expr, lateness_us: int) -> tuple[Node, Column]:
        columns = columns_in(expr)
        if columns <= set(node.left.columns):
            left, column = self.carry(node.left, expr, lateness_us)
            return replace(node, left=left), column
        if node.kind not in _ONE_SIDED and columns <= set(node.right.columns):
            right, column = self.carry(node.right, expr, lateness_us)
            return replace(node, right=right), column
        # A column that is not among the outputs: it lies below one of the sides.
        for side in ("left", "right")[: 1 if node.kind in _ONE_SIDED else 2]:
            try:
                below, column = self.carry(getattr(node, side), expr, lateness_us)
            except NoEventTime:
                continue
            return (replace(node, left=below) if side == "left" else replace(node, right=below)), column
        raise NoEventTime("it is made of columns of both sides of a join")

    def _through_aggregate(self, node: Aggregate, expr: Expr, lateness_us: int) -> tuple[Node, Column]:
        bound = self._bound(expr)
        keys = dict(node.keys)
        if bound is not None and bound.column in keys:
            return node, bound.column
        if isinstance(expr, Column) and expr in keys:
            below, column = self.carry(node.input, keys[expr], lateness_us)
            changed = tuple((key, column if key == expr else value) for key, value in node.keys)
            return replace(node, input=below, keys=changed), expr
        traced = self._bound(substitute(expr, keys)) if columns_in(expr) <= set(keys) else None
        if traced is not None and traced.column in keys:
            return node, traced.column
        raise NoEventTime("a group has no time but that of its window")

    def _through_union(self, node: Union, expr: Expr, lateness_us: int) -> tuple[Node, Column]:
        carried: list[tuple[Node, Column]] = []
        for branch in node.branches:
            mapping: dict[Column, Expr] = dict(zip(node.columns, branch.columns, strict=False))
            if columns_in(expr) <= set(mapping):
                carried.append(self.carry(branch, substitute(expr, mapping), lateness_us))
            else:
                window = self.carry_window(branch)
                if window is None:
                    raise NoEventTime("one of the queries of UNION ALL has no such window")
                carried.append(window)
        places = {
            branch.columns.index(column) if column in branch.columns[: len(node.columns)] else -1
            for branch, column in carried
        }
        if len(places) == 1 and -1 not in places:
            column = node.columns[places.pop()]
            return replace(node, branches=tuple(branch for branch, _ in carried)), self._same_window(column, carried)
        width = len(node.columns)
        branches = tuple(
            Project(branch, (*((c, c) for c in branch.columns[:width]), self._extra(branch, width, column)))
            for branch, column in carried
        )
        first = carried[0][1]
        column = self._same_window(self.ids.column(first.name, first.type, first.nullable), carried)
        return Union(branches, (*node.columns, column)), column

    def _extra(self, branch: Node, width: int, column: Column) -> tuple[Column, Expr]:
        if column in branch.columns[:width]:
            copy = self.ids.column(column.name, column.type, column.nullable)
            if column in self.windows:
                self.windows[copy] = self.windows[column]
            return copy, column
        return column, column

    def _same_window(self, column: Column, carried: list[tuple[Node, Column]]) -> Column:
        window = self.windows.get(carried[0][1])
        if window is not None:
            self.windows[column] = window
        return column

    def window(self, node: Node) -> Window | None:
        """The shape of the window that rows of an operator are in, if they are in one."""
        match node:
            case Scan():
                return None
            case AssignWindow():
                return node.window
            case Aggregate():
                return next((self.windows[key] for key, _ in node.keys if key in self.windows), None)
            case Inline():
                return next((self.windows[column] for column in node.kept if column in self.windows), None)
            case Join(kind=JoinKind.RIGHT):
                return self.window(node.right)
            case Join(kind=JoinKind.INNER):
                return self.window(node.left) or self.window(node.right)
            case Join(kind=JoinKind.FULL):
                return None
            case Union():
                shapes = {self.window(branch) for branch in node.branches}
                return shapes.pop() if len(shapes) == 1 else None
            case _:
                return self.window(node.inputs[0])

    def carry_window(self, node: Node) -> tuple[Node, Column] | None:
        """The operator with the window that its rows are in among its outputs; None where they are in none."""
        if self.window(node) is None:
            return None
        match node:
            case AssignWindow():
                return node, node.column
            case Aggregate():
                return node, next(key for key, _ in node.keys if key in self.windows)
            case Inline():
                return node, next(column for column in node.kept if column in self.windows)
            case Project():
                below = self.carry_window(node.input)
                assert below is not None
                inner, column = below
                for output, item in node.items:
                    if item == column:
                        self.windows[output] = self.windows[column]
                        return replace(node, input=inner), output
                return Project(inner, (*node.items, (column, column))), column
            case Join():
                right = node.kind is JoinKind.RIGHT or (node.kind is JoinKind.INNER and self.window(node.left) is None)
                below = self.carry_window(node.right if right else node.left)
                assert below is not None
                inner, column = below
                return (replace(node, right=inner) if right else replace(node, left=inner)), column
            case Union():
                return self._through_union(node, Column(-1, "window", TIMESTAMP), 0)
            case _:
                below = self.carry_window(node.inputs[0])
                assert below is not None
                inner, column = below
                return with_inputs(node, (inner,)), column

    def marked(self, node: Node) -> set[Column]:
        """The output columns that carry a watermark."""
        match node:
            case Scan():
                return {node.event_time.column} if node.event_time is not None else set()
            case Project():
                below = self.marked(node.input)
                return {column for column, item in node.items if _keeps_mark(item, below)}
            case AssignWindow():
                below = self.marked(node.input)
                return below | {node.column} if node.time in below else below
            case Aggregate():
                below = self.marked(node.input)
                return {key for key, item in node.keys if _keeps_mark(item, below) or _is_session(item)}
            case Join():
                left = self.marked(node.left)
                return left if node.kind in _ONE_SIDED else left | self.marked(node.right)
            case Union():
                marks = [
                    {index for index, column in enumerate(branch.columns) if column in self.marked(branch)}
                    for branch in node.branches
                ]
                common = set.intersection(*marks)
                return {column for index, column in enumerate(node.columns) if index in common}
            case Inline():
                return self.marked(node.input) & set(node.kept)
            case Filter():
                return self.marked(node.input)
            case _:
                return self.marked(node.inputs[0])

    def with_window_time(self, node: Node, window: Column) -> tuple[Node, Column]:
        """The operator with the last instant of a window as a marked column of its own."""
        last = self.ids.column("window_time", TIMESTAMP, window.nullable)
        items = tuple((column, column) for column in node.columns)
        return Project(node, (*items, (last, Call("window_time", (window,), TIMESTAMP, window.nullable)))), last

    def window_keys(self, node: Node, window: Column) -> tuple[Node, tuple[Column, ...]]:
        """The operator with no mark but that of a window, and the columns to group its rows by window.

        Spark would take groups of a SESSION for sessions again, and merge them: those go by their last instant.
        """
        if self.windows[window].kind is not WindowKind.SESSION:
            return self.only_mark(node, window), (window,)
        timed, last = self.with_window_time(node, window)
        return self.only_mark(timed, last), (last, window)

    def only_mark(self, node: Node, kept: Column) -> Node:
        """The operator with no mark but that of `kept`: the others become plain values."""
        extra = self.marked(node) - {kept}
        if not extra:
            return node
        items = tuple((column, _unmarked(column) if column in extra else column) for column in node.columns)
        return Project(node, items)


def _keeps_mark(item: Expr, marked: set[Column]) -> bool:
    if isinstance(item, Call) and item.op == "window_time":
        item = item.args[0]
    return isinstance(item, Column) and item in marked


def _is_session(item: Expr) -> bool:
    return isinstance(item, Call) and item.op == "session_window"


def _is_unmarked(expr: Expr) -> bool:
    return any(isinstance(part, Call) and part.op == "unmarked" for part in walk(expr))


def _unmarked(column: Column) -> Expr:
    return Call("unmarked", (column,), column.type, column.nullable)


def expose(node: Node, column: Column) -> Node:
    """The operator with a column of something below it among its outputs. LookupError where that cannot be."""
    if column in node.columns:
        return node
    match node:
        case Project():
            return Project(expose(node.input, column), (*node.items, (column, column)))
        case Join():
            try:
                return replace(node, left=expose(node.left, column))
            except LookupError:
                if node.kind in _ONE_SIDED:
                    raise
                return replace(node, right=expose(node.right, column))
        case Scan() | Aggregate() | Union() | Inline():
            raise LookupError(column.name)
        case _:
            return with_inputs(node, (expose(node.inputs[0], column),))
