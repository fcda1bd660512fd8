"""What a condition says of the time between the rows of two streams."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headgate_coordinator.sql.algebra import Call, Column, Expr, Join, Literal, Node, columns_in, conjuncts
from headgate_coordinator.sql.types import BOOL, DAY_TIME_INTERVAL, TIMESTAMP, Kind

_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


@dataclass(frozen=True, slots=True)
class _Moment:
    """A time of one side: an expression plus microseconds."""

    base: Expr
    shift_us: int


@dataclass(slots=True)
class TimeRange:
    """`low <= right - left <= high` in microseconds, with the conjuncts that say so."""

    left: Expr
    right: Expr
    low: tuple[int, bool] | None = None
    high: tuple[int, bool] | None = None
    said_by: tuple[Expr, ...] = ()

    @property
    def bounded(self) -> bool:
        return self.low is not None and self.high is not None


def time_ranges(join: Join, is_time: Callable[[Node, Expr], bool]) -> list[TimeRange]:
    """What the condition says of the distance between a time of the left and a time of the right."""
    left, right = set(join.left.columns), set(join.right.columns)
    spans: dict[tuple[Expr, Expr], TimeRange] = {}
    for part in conjuncts(join.condition):
        if not isinstance(part, Call) or part.op not in _FLIPPED or part.args[0].type.kind is not Kind.TIMESTAMP:
            continue
        a, b = _moment(part.args[0]), _moment(part.args[1])
        op = part.op
        if a is None or b is None:
            continue
        if columns_in(a.base) <= left and columns_in(b.base) <= right:
            a, b, op = b, a, _FLIPPED[op]
        elif not (columns_in(a.base) <= right and columns_in(b.base) <= left):
            continue
        # Now a is of the right, b of the left: a.base + a.shift op b.base + b.shift.
        if not is_time(join.right, a.base) or not is_time(join.left, b.base):
            continue
        span = spans.setdefault((b.base, a.base), TimeRange(b.base, a.base))
        distance = b.shift_us - a.shift_us
        if op in (">", ">=", "="):
            span.low = _tighter(span.low, (distance, op == ">"), max)
        if op in ("<", "<=", "="):
            span.high = _tighter(span.high, (distance, op == "<"), min)
        span.said_by = (*span.said_by, part)
    return list(spans.values())


def _tighter(known: tuple[int, bool] | None, new: tuple[int, bool], choose: object) -> tuple[int, bool]:
    if known is None:
        return new
    if known[0] == new[0]:
        return known[0], known[1] or new[1]
    return choose(known, new, key=lambda bound: bound[0])  # type: ignore[operator,no-any-return]


def _moment(expr: Expr) -> _Moment | None:
    """A timestamp as an expression plus or minus a fixed time; None where it reads no column."""
    shift = 0
    while isinstance(expr, Call) and expr.op in ("+", "-"):
        a, b = expr.args
        if expr.op == "+" and _is_interval(a):
            a, b = b, a
        if not _is_interval(b) or not isinstance(b, Literal) or not isinstance(b.value, int):
            break
        shift += b.value if expr.op == "+" else -b.value
        expr = a
    return _Moment(expr, shift) if columns_in(expr) and expr.type.kind is Kind.TIMESTAMP else None


def _is_interval(expr: Expr) -> bool:
    return isinstance(expr, Literal) and expr.type == DAY_TIME_INTERVAL


def shifted(op: str, left: Column, right: Column, shift_us: int) -> Expr:
    """`left op right + shift`, in the form that Spark reads a time range from."""
    moved: Expr = right
    if shift_us:
        sign, length = ("+", shift_us) if shift_us > 0 else ("-", -shift_us)
        moved = Call(sign, (right, Literal(length, DAY_TIME_INTERVAL)), TIMESTAMP, right.nullable)
    return Call(op, (left, moved), BOOL, left.nullable or right.nullable)
