"""From expressions over rows to expressions over groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headgate_coordinator.sql.algebra import (
    Agg,
    Call,
    Column,
    Expr,
    Ids,
    Literal,
)
from headgate_coordinator.sql.errors import Step, quoted
from headgate_coordinator.sql.expressions import ExpressionBinder
from headgate_coordinator.sql.nodes import offset_of


class Lift:
    """Rewrites expressions over rows into expressions over groups, and gathers the keys and aggregates they need."""

    def __init__(self, expressions: ExpressionBinder, ids: Ids, keys: Sequence[Expr], free: set[Column]) -> None:
        self.expressions = expressions
        self.ids = ids
        self.free = free
        self.failed = False
        self.keys: list[tuple[Column, Expr]] = []
        self.aggregates: list[tuple[Column, Agg]] = []
        self._columns: dict[Expr, Column] = {}
        self._noted: set[Column] = set()
        for key in keys:
            column = key if isinstance(key, Column) else self._fresh(key)
            self.keys.append((column, key))
            self._columns[key] = column

    def _fresh(self, expr: Expr) -> Column:
        name = "key"
        if isinstance(expr, Call) and expr.op == "field" and isinstance(expr.args[1], Literal):
            name = str(expr.args[1].value)
        elif isinstance(expr, Agg):
            name = expr.op
        return self.ids.column(name, expr.type, expr.nullable)

    def __call__(self, expr: Expr, name: str = "") -> Expr:
        """The expression over groups; `name` is what the user calls it."""
        known = self._columns.get(expr)
        if known is not None:
            return known
        if isinstance(expr, Agg):
            column = self._fresh(expr)
            column = replace(column, name=name or column.name)
            self._columns[expr] = column
            self.aggregates.append((column, expr))
            return column
        if isinstance(expr, Column):
            if expr not in self.free:
                self._ungrouped(expr)
            return expr
        if isinstance(expr, Call):
            return replace(expr, args=tuple(self(arg) for arg in expr.args))
        return expr

    def _ungrouped(self, column: Column) -> None:
        self.failed = True
        if column in self._noted:
            return
        self._noted.add(column)
        self.expressions.problems.add(
            Step.BIND,
            offset_of(self.expressions.places.get(column)),
            f"the column {quoted(column.name)} is neither grouped nor in an aggregate",
            "add it to GROUP BY, or use FIRST or LAST",
        )
