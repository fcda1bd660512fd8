"""Which parts of a plan are the same, so that they stay the same when columns are dropped.

A WITH query is bound anew at each use, with columns of its own. Two uses are one step of the Spark SQL as long as they
are spelled alike; dropping the columns that one of them does not read would make them differ. So parts that keep state
are compared by their shape, in which columns are numbered in the order in which they come.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable

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
    walk_plan,
)

_STATEFUL = (Aggregate, Distinct, Join, TopN)


def shared_parts(plan: Node) -> dict[int, int]:
    """Numbers of groups of equal stateful parts, by the identity of each part; parts that are alone are left out."""
    written: dict[Hashable, list[Node]] = defaultdict(list)
    for node in walk_plan(plan):
        if isinstance(node, _STATEFUL):
            # The uses of one text have one place in it; only those are worth comparing.
            written[type(node), node.offset, tuple(column.name for column in node.columns)].append(node)
    groups: dict[int, int] = {}
    shapes: dict[Hashable, int] = {}
    for candidates in written.values():
        if len(candidates) < 2:
            continue
        for node in candidates:
            groups[id(node)] = shapes.setdefault(_Shape().of(node), len(shapes))
    members: dict[int, int] = defaultdict(int)
    for number in groups.values():
        members[number] += 1
    return {part: number for part, number in groups.items() if members[number] > 1}


class _Shape:
    """What a part of a plan does, as a value that is equal for parts that do the same."""

    def __init__(self) -> None:
        self._numbers: dict[Column, int] = {}

    def of(self, node: Node) -> Hashable:
        inputs = tuple(self.of(part) for part in node.inputs)
        return type(node).__name__, inputs, self._own(node)

    def _own(self, node: Node) -> Hashable:
        match node:
            case Scan():
                fields = self._made(node.fields)
                time = node.event_time
                marked = (
                    None
                    if time is None
                    else (self._expr(time.expression), self._made([time.column]), int(time.lateness_us))
                )
                return node.source.logical.uid, fields, marked, self._exprs(node.pushed)
            case Filter():
                return self._expr(node.predicate)
            case Project():
                return self._exprs(item for _, item in node.items), self._made(node.columns)
            case AssignWindow():
                times = tuple((entry.relation, self._optional(entry.column)) for entry in node.times)
                return node.window, self._optional(node.time), int(node.lateness_us), times, self._made([node.column])
            case Aggregate():
                parts = self._exprs([*(item for _, item in node.keys), *(agg for _, agg in node.aggregates)])
                return len(node.keys), parts, self._made(node.columns)
            case Distinct():
                return ()
            case Join():
                return node.kind, self._optional(node.condition), self._optional(node.outer_time)
            case Union():
                return self._made(node.columns)
            case TopN():
                order = tuple((self._expr(term.expr), term.descending, term.nulls_first) for term in node.order)
                number = self._made([node.number]) if node.number is not None else ()
                return self._exprs(node.partition), order, node.limit, number
            case Inline():
                made = [*node.items, *([node.number] if node.number is not None else [])]
                return self._expr(node.array), self._exprs(node.kept), node.number is None, self._made(made)

    def _made(self, columns: Iterable[Column]) -> Hashable:
        """Numbers new columns; their names count, because they are what Spark SQL calls them."""
        return tuple((self._numbers.setdefault(column, len(self._numbers)), column.name) for column in columns)

    def _exprs(self, exprs: Iterable[Expr]) -> Hashable:
        return tuple(self._expr(expr) for expr in exprs)

    def _optional(self, expr: Expr | None) -> Hashable:
        return None if expr is None else self._expr(expr)

    def _expr(self, expr: Expr) -> Hashable:
        match expr:
            case Column():
                return self._numbers.get(expr, -1)
            case Literal():
                return expr
            case Call():
                return expr.op, expr.type, self._exprs(expr.args)
            case Agg():
                rest = expr.distinct, expr.ignore_nulls, self._optional(expr.filter)
                return expr.op, expr.type, self._exprs(expr.args), rest
