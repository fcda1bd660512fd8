"""Windows of a query: their shape, and the time that they go by."""

from __future__ import annotations

from sqlglot import exp

from headgate_common.durations import show_duration
from headgate_coordinator.sql.algebra import (
    AssignWindow,
    Call,
    Expr,
    Literal,
    Node,
    Window,
    WindowTime,
    columns_in,
    type_of_window,
)
from headgate_coordinator.sql.binding import Context
from headgate_coordinator.sql.coercion import is_decimal, is_integral
from headgate_coordinator.sql.errors import Step, quoted
from headgate_coordinator.sql.expressions import Clause
from headgate_coordinator.sql.nodes import StreamWindow, TimeUnit, WindowKind, offset_of
from headgate_coordinator.sql.scope import BoundWindow, Scope, parts_of
from headgate_coordinator.sql.typecheck import is_bad
from headgate_coordinator.sql.types import INT32, INT64, TIMESTAMP, Kind

_UNIT_FUNCTIONS = {
    TimeUnit.SECONDS: "timestamp_seconds",
    TimeUnit.MILLISECONDS: "timestamp_millis",
    TimeUnit.MICROSECONDS: "timestamp_micros",
    TimeUnit.NANOSECONDS: "timestamp_micros",
}


class WindowBinder:
    """Assigns windows to rows."""

    def __init__(self, context: Context) -> None:
        self.context = context

    def assign(self, node: Node, window: StreamWindow, scope: Scope) -> tuple[Node, BoundWindow] | None:
        """The rows with the windows they are in."""
        shape = Window(
            window.window_kind,
            (window.gap_us if window.window_kind is WindowKind.SESSION else window.size_us) or 0,
            window.advance_us or 0,
            window.offset_us or 0,
        )
        if not self._overlap_allowed(shape, window):
            return None
        lateness = window.lateness_us if window.lateness_us is not None else self.context.lateness_us
        time: Expr | None = None
        times: tuple[WindowTime, ...] = ()
        if window.time_column is not None:
            times = self._times(window, scope)
            named = [entry for entry in times if entry.column is not None]
            if not named:
                return None
            time = named[0].column
            if len(times) == 1:
                times = ()
        elif window.unit is not None:
            self.context.refuse(window, "UNIT belongs to an integer time column, and the window names none")
            return None
        column = self.context.ids.column("window", type_of_window, False)
        assigned = AssignWindow(node, shape, time, column, lateness, offset_of(window), times)
        return assigned, BoundWindow(shape, column, window.spelling)

    def _overlap_allowed(self, shape: Window, window: StreamWindow) -> bool:
        """Refuses windows that overlap so much that every row would be kept many times over."""
        most = self.context.settings.max_overlap
        overlap = -(-shape.size_us // shape.step_us) if shape.step_us else 1
        if overlap <= most:
            return True
        least = show_duration(-(-shape.size_us // most))
        self.context.refuse(
            window,
            f"each row would be in {overlap:,} windows; at most {most:,} are allowed",
            f"ADVANCE BY at least {least}, or make SIZE smaller",
        )
        return False

    def _times(self, window: StreamWindow, scope: Scope) -> tuple[WindowTime, ...]:
        """How each relation tells the time of the window; empty after a problem was noted."""
        assert window.time_column is not None
        parts = [part.name for part in parts_of(window.time_column)]
        several = len(scope.ranges) > 1 and not any(source.wild for source in scope.ranges)
        if not several or len(parts) > 2:
            expr = self._time(window, window.time_column, scope)
            return () if expr is None else (WindowTime("", frozenset(), expr),)
        entries: list[WindowTime] = []
        holders = [source for source in scope.ranges if len(source.find(parts[-1])) == 1]
        if not holders or (len(parts) == 2 and scope.range_of(parts[0]) not in holders):
            self._time(window, window.time_column, scope)
            return ()
        for source in sorted(scope.ranges, key=lambda s: len(parts) == 2 and s.alias.lower() != parts[0].lower()):
            columns = frozenset(columns_in(*(expr for _, expr in source.columns)))
            only = exp.column(parts[-1])
            time = self._time(window, only, Scope([source])) if source in holders else None
            if source in holders and time is None:
                return ()
            entries.append(WindowTime(source.alias, columns, time))
        return tuple(entries)

    def _time(self, window: StreamWindow, column: exp.Column, scope: Scope) -> Expr | None:
        expr = self.context.expressions(scope).bind(column, Clause("WINDOW"))
        if is_bad(expr):
            return None
        place = offset_of(window.time_column)
        unit = window.unit
        if expr.type.kind is Kind.TIMESTAMP:
            if unit is None:
                return expr
            self.context.problems.add(
                Step.TYPE,
                place,
                f"UNIT belongs to an integer time column; {quoted(column.name)} is TIMESTAMP",
                "remove it",
            )
            return None
        integral = is_integral(expr.type) or (is_decimal(expr.type) and expr.type.is_integer)
        if not integral:
            self.context.problems.add(
                Step.TYPE,
                place,
                f"the time of a window is TIMESTAMP, and {quoted(column.name)} is {expr.type}",
                "use to_timestamp in a sub-select" if expr.type.is_text else "",
            )
            return None
        if unit is None:
            self.context.problems.add(
                Step.TYPE,
                place,
                f"the time of a window is TIMESTAMP, and {quoted(column.name)} is {expr.type}",
                f"say what it counts: {column.name} UNIT MILLISECONDS",
            )
            return None
        if not is_integral(expr.type):
            expr = Call("cast", (expr,), INT64, expr.nullable)
        if unit is TimeUnit.NANOSECONDS:
            expr = Call("div", (expr, Literal(1000, INT32)), INT64, expr.nullable)
        return Call(_UNIT_FUNCTIONS[unit], (expr,), TIMESTAMP, expr.nullable)
