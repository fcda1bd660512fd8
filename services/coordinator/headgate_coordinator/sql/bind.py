"""Binds a query against the catalog: from sqlglot's tree to typed algebra.

Names are resolved, types worked out and every clause given its place:

    FROM, JOIN -> window -> WHERE (IN and EXISTS become semi-joins) -> GROUP BY, aggregates -> HAVING
    -> ROW_NUMBER -> QUALIFY -> columns -> DISTINCT -> ORDER BY with LIMIT

Nothing here knows what Spark can do with a stream: that is `rewrite`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from headgate_coordinator.sql.algebra import (
    Call,
    Column,
    Expr,
    Node,
    Project,
    Union,
)
from headgate_coordinator.sql.arguments import argument_name, describe, unread_names
from headgate_coordinator.sql.binding import Bound, Context, WithQuery
from headgate_coordinator.sql.coercion import common_type
from headgate_coordinator.sql.errors import Problems, Step, quoted
from headgate_coordinator.sql.nodes import offset_of
from headgate_coordinator.sql.operators import BindingAbandoned, Effort
from headgate_coordinator.sql.relations import RelationBinder
from headgate_coordinator.sql.scope import Scope
from headgate_coordinator.sql.select import SelectBinder
from headgate_coordinator.sql.settings import PlannerSettings
from headgate_coordinator.sql.view import CatalogView


def bind(
    query: exp.Query,
    view: CatalogView,
    problems: Problems,
    settings: PlannerSettings,
    lateness_us: int,
    exactly_once: bool,
) -> tuple[Bound | None, Context]:
    """The query bound against the catalog; None where problems were noted that leave nothing to go on with."""
    context = Context(view, problems, settings, lateness_us, exactly_once, Effort(settings.max_parts))
    try:
        binder = QueryBinder(context)
        bound = binder.query(query, {}, None)
        binder.unused()
    except BindingAbandoned:
        return None, context
    if not problems:
        for node, what in unread_names(query):
            context.refuse(node, f"{what} is not offered")
    return bound, context


class QueryBinder:
    """Binds queries of one statement, sub-selects included."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.relations = RelationBinder(context, self.query)

    def query(self, query: exp.Query, visible: Mapping[str, WithQuery], outer: Scope | None) -> Bound | None:
        while isinstance(query, exp.Subquery):
            if any(value for key, value in query.args.items() if key not in ("this", "with_")):
                self.context.refuse(
                    query, "an alias or a clause after a bracketed query is not offered", "write it inside"
                )
                return None
            visible = self._with(query, visible)
            query = query.this
        visible = self._with(query, visible)
        if isinstance(query, exp.Select):
            return SelectBinder(self.context, self.relations, query, visible, outer).bind()
        if isinstance(query, exp.SetOperation):
            return self._union(query, visible)
        self.context.refuse(query, f"{describe(query)} is not offered as a query", "write SELECT ... FROM ...")
        return None

    def _with(self, query: exp.Query, visible: Mapping[str, WithQuery]) -> Mapping[str, WithQuery]:
        clause = query.args.get("with_")
        if clause is None:
            return visible
        if clause.args.get("recursive"):
            self.context.refuse(clause, "WITH RECURSIVE is not offered")
        known = dict(visible)
        mine: set[str] = set()
        for cte in clause.expressions:
            if any(value for key, value in cte.args.items() if key not in ("this", "alias")):
                self.context.refuse(cte, "this form of WITH is not offered")
            names = tuple(column.name for column in cte.args["alias"].columns) if cte.args.get("alias") else ()
            if not isinstance(cte.this, exp.Query):
                self.context.refuse(cte, f"{describe(cte.this)} in WITH is not offered")
                continue
            name = cte.alias.lower()
            if name in mine:
                self.context.problems.add(
                    Step.BIND, offset_of(cte), f"{quoted(cte.alias)} comes twice in WITH", "give one another name"
                )
            mine.add(name)
            known[name] = WithQuery(cte.this, names, dict(known))
            self.context.with_queries.setdefault(id(cte.this), (cte, known[name]))
        return known

    def unused(self) -> None:
        """Binds the WITH queries that nothing reads: what is wrong in them is wrong all the same."""
        while True:
            waiting = [key for key in self.context.with_queries if key not in self.context.with_queries_used]
            if not waiting:
                return
            for key in waiting:
                cte, with_query = self.context.with_queries[key]
                self.context.with_queries_used.add(key)
                self.relations.named(self.query(with_query.query, with_query.visible, None), cte, with_query.columns)

    def _union(self, union: exp.SetOperation, visible: Mapping[str, WithQuery]) -> Bound | None:
        branches: list[exp.Query] = []
        stack: list[exp.Expr] = [union]
        while stack:
            current = stack.pop()
            if isinstance(current, exp.SetOperation) and (current is union or not current.args.get("with_")):
                if not self._is_union_all(current):
                    return None
                stack.extend((current.expression, current.this))
            elif isinstance(current, exp.Query):
                branches.append(current)
        bound = [self.query(branch, visible, None) for branch in branches]
        if any(branch is None for branch in bound):
            return None
        return self._united([branch for branch in bound if branch is not None], branches)

    def _is_union_all(self, union: exp.SetOperation) -> bool:
        if not isinstance(union, exp.Union):
            self.context.refuse(
                union.expression, f"{describe(union)} is not offered", "join within a window, or use EXISTS"
            )
            return False
        if union.args.get("distinct"):
            self.context.refuse(
                union.expression,
                "UNION keeps each row once, for which a stream would be remembered for ever",
                "write UNION ALL",
            )
            return False
        for key, value in union.args.items():
            if value and key not in ("this", "expression", "distinct", "with_"):
                self.context.refuse(union.expression, f"{argument_name(key)} of UNION ALL is not offered")
                return False
        return True

    def _united(self, bound: Sequence[Bound], nodes: Sequence[exp.Query]) -> Bound | None:
        first = bound[0]
        for other, node in zip(bound, nodes, strict=True):
            if len(other.outputs) != len(first.outputs):
                self.context.problems.add(
                    Step.TYPE,
                    offset_of(node),
                    f"UNION ALL joins queries of {len(first.outputs)} and {len(other.outputs)} columns",
                )
                return None
        columns: list[Column] = []
        for index, (name, _) in enumerate(first.outputs):
            parts = [other.outputs[index][1] for other in bound]
            type_ = common_type(part.type for part in parts)
            if type_ is None:
                wrong = next(i for i, p in enumerate(parts) if common_type((parts[0].type, p.type)) is None)
                self.context.problems.add(
                    Step.TYPE,
                    offset_of(bound[wrong].places[index] or nodes[wrong]),
                    f"column {index + 1} of UNION ALL is {parts[0].type} in one query, {parts[wrong].type} in another",
                    "CAST one of them",
                )
                return None
            columns.append(self.context.ids.column(name, type_, any(part.nullable for part in parts)))
        branches = tuple(self._cast(other, columns) for other in bound)
        outputs = tuple((name, column) for (name, _), column in zip(first.outputs, columns, strict=True))
        return Bound(Union(branches, tuple(columns)), outputs, first.places)

    def _cast(self, bound: Bound, columns: Sequence[Column]) -> Node:
        """The branch with exactly the columns of the union, in their types."""
        items: list[tuple[Column, Expr]] = []
        for (name, column), target in zip(bound.outputs, columns, strict=True):
            if column.type == target.type:
                items.append((column, column))
            else:
                cast = Call("cast", (column,), target.type, column.nullable)
                items.append((self.context.ids.column(name, target.type, column.nullable), cast))
        return Project(bound.node, tuple(items))
