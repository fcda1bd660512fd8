"""The columns of a SELECT: what was written, with * taken apart."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from headgate_coordinator.sql.algebra import (
    Expr,
)
from headgate_coordinator.sql.binding import Context
from headgate_coordinator.sql.errors import Step, quoted
from headgate_coordinator.sql.expressions import Clause, ExpressionBinder
from headgate_coordinator.sql.nodes import offset_of
from headgate_coordinator.sql.scope import Scope
from headgate_coordinator.sql.typecheck import BAD, is_bad
from headgate_coordinator.sql.types import Kind


@dataclass(slots=True)
class Item:
    """One column of a SELECT: its name (empty for none), where it was written, and what it is."""

    name: str
    node: exp.Expr | None
    expr: Expr


class ColumnBinder:
    """Binds the columns of one SELECT."""

    def __init__(self, context: Context, select: exp.Select, scope: Scope, expressions: ExpressionBinder) -> None:
        self.context = context
        self.problems = context.problems
        self.select = select
        self.scope = scope
        self.expressions = expressions

    def items(self) -> list[Item]:
        items: list[Item] = []
        earlier: dict[str, Expr] = {}
        for node in self.select.expressions:
            if isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star)):
                stood_for = self._star(node)
                items.extend(stood_for)
                earlier.update((item.name.lower(), item.expr) for item in stood_for if item.name)
                continue
            inner = node.this if isinstance(node, exp.Alias) else node
            expr = self.expressions.bind(inner, Clause("the columns", aggregates=True, aliases=earlier))
            named = isinstance(node, (exp.Alias, exp.Column, exp.Dot))
            name = (node.expression.name if isinstance(node, exp.Dot) else node.alias_or_name) if named else ""
            items.append(Item(name, node, expr))
            if name:
                earlier[name.lower()] = expr
        return items

    def _star(self, node: exp.Star | exp.Column) -> list[Item]:
        star = node if isinstance(node, exp.Star) else node.this
        excepted = {column.name.lower() for column in star.args.get("except_") or []}
        for key, value in star.args.items():
            if value and key != "except_":
                self.context.refuse(node, f"* {key.strip('_').upper()} is not offered", "list the columns")
                return [Item("", node, BAD)]
        # A star of a star of a star doubles with each.
        self.expressions.spend(sum(len(source.columns) for source in self.scope.ranges), node)
        pairs: list[tuple[str, Expr]]
        if isinstance(node, exp.Star):
            pairs = list(self.scope.star())
        else:
            source = self.scope.range_of(node.table)
            if source is None:
                return self._struct_star(node)
            pairs = list(source.columns)
            if source.wild:
                return [Item("", node, BAD)]
        if any(source.wild for source in self.scope.ranges):
            return [Item("", node, BAD)]
        names = {name.lower() for name, _ in pairs}
        for column in star.args.get("except_") or []:
            if column.name.lower() not in names:
                self.problems.add(Step.BIND, offset_of(column), f"unknown column {quoted(column.name)} in EXCEPT")
        return [Item(name, node, expr) for name, expr in pairs if name.lower() not in excepted]

    def _struct_star(self, node: exp.Column) -> list[Item]:
        whole = exp.Column(this=node.args["table"].copy())
        expr = self.expressions.bind(whole, Clause("the columns"))
        if is_bad(expr):
            return [Item("", node, BAD)]
        if expr.type.kind is not Kind.STRUCT:
            self.problems.add(Step.BIND, offset_of(node), f"{quoted(node.table)} is neither a relation nor a STRUCT")
            return [Item("", node, BAD)]
        return [
            Item(field.name, node, self.expressions.types.field(expr, field.name, node)) for field in expr.type.fields
        ]
