"""WHERE: filters, and IN and EXISTS of sub-selects as semi-joins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeGuard

from sqlglot import exp

from headgate_coordinator.sql.algebra import (
    Call,
    Column,
    Expr,
    Filter,
    Join,
    JoinKind,
    Node,
    columns_in,
    conjunction,
    conjuncts,
)
from headgate_coordinator.sql.binding import BindQuery, Bound, Context, WithQuery
from headgate_coordinator.sql.errors import Step
from headgate_coordinator.sql.expressions import Clause, ExpressionBinder
from headgate_coordinator.sql.nodes import offset_of
from headgate_coordinator.sql.scope import NameProblem
from headgate_coordinator.sql.typecheck import BAD, is_bad
from headgate_coordinator.sql.types import Kind


class WhereBinder:
    """Binds the WHERE of one SELECT. `correlated` are the conditions that speak of the query around it."""

    def __init__(
        self,
        context: Context,
        query: BindQuery,
        select: exp.Select,
        visible: Mapping[str, WithQuery],
        expressions: ExpressionBinder,
    ) -> None:
        self.context = context
        self.problems = context.problems
        self.query = query
        self.select = select
        self.visible = visible
        self.scope = expressions.scope
        self.expressions = expressions
        self.correlated: list[Expr] = []

    def bind(self, node: Node | None) -> Node | None:
        clause = self.select.args.get("where")
        if clause is None:
            return node
        predicates: list[Expr] = []
        semis: list[exp.Expr] = []
        for part in _conjunct_nodes(clause.this):
            if _is_subquery_predicate(part):
                semis.append(part)
                continue
            bound = self.expressions.condition(part, Clause("WHERE"))
            if is_bad(bound):
                node = None
            elif self.scope.outer is not None and not columns_in(bound) <= self._own_columns(node):
                self.correlated.extend(conjuncts(bound))
            else:
                predicates.extend(conjuncts(bound))
        predicate = conjunction(predicates)
        if node is not None and predicate is not None:
            node = Filter(node, predicate, offset_of(clause))
            self.scope.is_present({part.args[0] for part in map(_negated, predicates) if _is_null_test(part)})
        for part in semis:
            node = self._semi_join(node, part)
        return node

    def _own_columns(self, node: Node | None) -> set[Column]:
        return set(node.columns) if node is not None else set()

    def _semi_join(self, node: Node | None, part: exp.Expr) -> Node | None:
        negated = isinstance(part, exp.Not)
        predicate = part.this if negated else part
        while isinstance(predicate, exp.Paren):
            predicate = predicate.this
        if negated and isinstance(predicate, exp.In):
            self.context.refuse(
                part,
                "NOT IN (SELECT ...) is never true once the sub-select has a NULL",
                "write NOT EXISTS (SELECT 1 FROM ... WHERE ...)",
            )
            return None
        query = predicate.args["query"] if isinstance(predicate, exp.In) else predicate.this
        bound = self.query(query, self.visible, self.scope)
        matches = self._matches(predicate, bound) if isinstance(predicate, exp.In) else []
        if node is None or bound is None or is_bad(*matches):
            return None
        condition = conjunction([*matches, *bound.correlated])
        kind = JoinKind.ANTI if negated else JoinKind.SEMI
        return Join(kind, node, bound.node, condition, offset_of(part), self._outer_time(bound))

    def _matches(self, predicate: exp.In, bound: Bound | None) -> list[Expr]:
        left = predicate.this
        nodes = left.expressions if isinstance(left, exp.Tuple) else [left]
        exprs = [self.expressions.bind(node, Clause("WHERE")) for node in nodes]
        if bound is None:
            return [BAD]
        if len(exprs) != len(bound.outputs):
            self.problems.add(
                Step.TYPE,
                offset_of(predicate),
                f"IN compares {len(exprs)} with {len(bound.outputs)} columns of the sub-select",
            )
            return [BAD]
        columns = [column for _, column in bound.outputs]
        return [
            self.expressions.types.comparison("=", expr, column, node)
            for expr, column, node in zip(exprs, columns, nodes, strict=True)
        ]

    def _outer_time(self, bound: Bound) -> Expr | None:
        """The column of this query that is called as the sub-select's time is."""
        if not bound.time_name:
            return None
        try:
            expr, _ = self.scope.resolve([bound.time_name])
        except NameProblem:
            return None
        return expr if expr.type.kind is Kind.TIMESTAMP and not is_bad(expr) else None


def _conjunct_nodes(node: exp.Expr) -> list[exp.Expr]:
    parts: list[exp.Expr] = []
    stack = [node]
    while stack:
        current = stack.pop()
        if isinstance(current, exp.And):
            stack.extend((current.expression, current.this))
        elif isinstance(current, exp.Paren):
            stack.append(current.this)
        else:
            parts.append(current)
    return parts


def _negated(predicate: Expr) -> Expr | None:
    return predicate.args[0] if isinstance(predicate, Call) and predicate.op == "not" else None


def _is_null_test(part: Expr | None) -> TypeGuard[Call]:
    return isinstance(part, Call) and part.op == "is_null"


def _is_subquery_predicate(node: exp.Expr) -> bool:
    while isinstance(node, (exp.Not, exp.Paren)):
        node = node.this
    return isinstance(node, exp.Exists) or (isinstance(node, exp.In) and node.args.get("query") is not None)
