"""Binds a query against the catalog: from sqlglot's tree to typed algebra.

Names are resolved, types worked out and every clause given its place:

    FROM, JOIN -> window -> WHERE (IN and EXISTS become semi-joins) -> GROUP BY, aggregates -> HAVING
    -> ROW_NUMBER -> QUALIFY -> columns -> DISTINCT -> ORDER BY with LIMIT

Nothing here knows what Spark can do with a stream: that is `rewrite`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard

from sqlglot import exp

from headgate_coordinator.sql.algebra import (
    Agg,
    Aggregate,
    Call,
    Column,
    Distinct,
    Expr,
    Filter,
    Join,
    JoinKind,
    Literal,
    Node,
    Order,
    Project,
    TopN,
    Union,
    Window,
    columns_in,
    conjunction,
    conjuncts,
    type_of_window,
    walk,
)
from headgate_coordinator.sql.coercion import common_type, is_orderable
from headgate_coordinator.sql.errors import Problems, Step, quoted
from headgate_coordinator.sql.expressions import Clause, ExpressionBinder, describe
from headgate_coordinator.sql.nodes import offset_of, window_of
from headgate_coordinator.sql.relations import Bound, Context, RelationBinder, TooManyRelations, WithQuery
from headgate_coordinator.sql.scope import BoundWindow, NameProblem, Scope
from headgate_coordinator.sql.settings import PlannerSettings
from headgate_coordinator.sql.typecheck import BAD, is_bad
from headgate_coordinator.sql.types import INT32, Kind
from headgate_coordinator.sql.view import CatalogView

_SELECT_ARGS = (
    *("expressions", "from_", "joins", "where", "group", "having", "order", "limit", "distinct", "qualify"),
    *("stream_window", "with_"),
)
_NOT_OFFERED = {
    "offset": ("OFFSET", "a stream has no beginning to skip from"),
    "windows": ("WINDOW name AS (...)", "write the window where it is used"),
    "laterals": ("LATERAL VIEW", "keep the ARRAY, or split it before it reaches the source"),
    "sort": ("SORT BY", "a stream is not sorted; ORDER BY ... LIMIT n gives the first n of a window"),
    "cluster": ("CLUSTER BY", "Spark decides how rows are spread"),
    "distribute": ("DISTRIBUTE BY", "Spark decides how rows are spread"),
    "sample": ("TABLESAMPLE", "filter on a column instead"),
    "pivots": ("PIVOT", "use aggregates with FILTER"),
}


def bind(
    query: exp.Query,
    view: CatalogView,
    problems: Problems,
    settings: PlannerSettings,
    lateness_us: int,
    exactly_once: bool,
) -> tuple[Bound | None, Context]:
    """The query bound against the catalog; None where problems were noted that leave nothing to go on with."""
    context = Context(view, problems, settings, lateness_us, exactly_once)
    try:
        return QueryBinder(context).query(query, {}, None), context
    except TooManyRelations:
        return None, context


@dataclass(slots=True)
class Item:
    """One column of a SELECT: its name (empty for none), where it was written, and what it is."""

    name: str
    node: exp.Expr | None
    expr: Expr


class QueryBinder:
    """Binds queries of one statement, sub-selects included."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.relations = RelationBinder(context, self.query)

    def query(self, query: exp.Query, visible: Mapping[str, WithQuery], outer: Scope | None) -> Bound | None:
        while isinstance(query, exp.Subquery):
            if any(value for key, value in query.args.items() if key not in ("this", "alias", "with_")):
                self.context.refuse(query, "clauses after a bracketed query are not offered", "write them inside")
                return None
            query = query.this
        visible = self._with(query, visible)
        if isinstance(query, exp.Select):
            return SelectBinder(self, query, visible, outer).bind()
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
        for cte in clause.expressions:
            if any(value for key, value in cte.args.items() if key not in ("this", "alias", "materialized")):
                self.context.refuse(cte, "this form of WITH is not offered")
            names = tuple(column.name for column in cte.args["alias"].columns) if cte.args.get("alias") else ()
            if not isinstance(cte.this, exp.Query):
                self.context.refuse(cte, f"{describe(cte.this)} in WITH is not offered")
                continue
            known[cte.alias.lower()] = WithQuery(cte.this, names, dict(known))
        return known

    def _union(self, union: exp.SetOperation, visible: Mapping[str, WithQuery]) -> Bound | None:
        branches: list[exp.Query] = []
        stack: list[exp.Expr] = [union]
        while stack:
            current = stack.pop()
            if isinstance(current, exp.SetOperation):
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
                self.context.refuse(union.expression, f"{key.strip('_').upper()} of UNION ALL is not offered")
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


class SelectBinder:
    """Binds one SELECT."""

    def __init__(
        self, queries: QueryBinder, select: exp.Select, visible: Mapping[str, WithQuery], outer: Scope | None
    ) -> None:
        self.queries = queries
        self.context = queries.context
        self.problems: Problems = self.context.problems
        self.select = select
        self.visible = visible
        self.scope = Scope(outer=outer)
        self.expressions: ExpressionBinder = self.context.expressions(self.scope)
        self.correlated: list[Expr] = []
        self.window: BoundWindow | None = None
        self.time_name = ""
        self.items: list[Item] = []

    def bind(self) -> Bound | None:
        if not self._understood():
            return None
        node = self.queries.relations.from_clause(self.select, self.visible, self.scope)
        node = self._windowed(node)
        node = self._where(node)
        numbers = self._row_numbers()
        items = self.items = self._items()
        aliases = {item.name.lower(): item.expr for item in items if item.name}
        keys = self._group_keys(aliases)
        having = self._having(aliases, keys)
        qualify = self._condition_of("qualify", Clause("QUALIFY", aggregates=True, aliases=aliases))
        order = self._order(items, aliases)
        optional = (having, qualify, *(term.expr for term in order or ()), *keys)
        exprs = [*(item.expr for item in items), *(expr for expr in optional if expr is not None)]
        if node is None or is_bad(*exprs) or order is None or numbers is None:
            return None
        if self._speaks_of_outer(exprs):
            return None
        parts = _Parts(items, keys, having, qualify, order, numbers)
        grouped = bool(self.select.args.get("group")) or having is not None
        if grouped or any(isinstance(part, Agg) for expr in exprs for part in walk(expr)):
            aggregated = self._aggregate(node, parts)
            if aggregated is None:
                return None
            node, parts = aggregated
        return self._finish(node, parts)

    def _understood(self) -> bool:
        understood = True
        for key, value in self.select.args.items():
            if value and key not in _SELECT_ARGS:
                what, hint = _NOT_OFFERED.get(key, (key.strip("_").upper(), ""))
                place = value[0] if isinstance(value, list) else value
                self.context.refuse(
                    place if isinstance(place, exp.Expr) else self.select, f"{what} is not offered", hint
                )
                understood = False
        return understood

    def _windowed(self, node: Node | None) -> Node | None:
        window = window_of(self.select)
        inherited = [source.window for source in self.scope.ranges if source.window is not None]
        if window is None:
            self.window = inherited[0] if inherited else None
            return node
        self.time_name = window.time_column.name if window.time_column is not None else ""
        assigned = None if node is None else self.queries.relations.assign_window(node, window, self.scope)
        if assigned is None:
            # Its bounds are still known by name, so that only what is wrong is reported.
            shape = Window(window.window_kind, 0)
            self.window = BoundWindow(shape, self.context.ids.column("window", type_of_window), window.spelling)
            node = None
        else:
            node, self.window = assigned
        self.scope.window = self.window
        return node

    def _where(self, node: Node | None) -> Node | None:
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
        bound = self.queries.query(query, self.visible, self.scope)
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

    def _row_numbers(self) -> list[tuple[exp.Window, Column]] | None:
        """ROW_NUMBER() OVER (...) among the columns and in QUALIFY, each as a column of its own."""
        places: list[exp.Expr] = list(self.select.expressions)
        if self.select.args.get("qualify") is not None:
            places.append(self.select.args["qualify"])
        numbers: list[tuple[exp.Window, Column]] = []
        for place in places:
            for over in place.find_all(exp.Window):
                name = over.this
                if not (isinstance(name, exp.Anonymous) and str(name.this).lower() == "row_number"):
                    continue
                known = next((column for node, column in numbers if node == over), None)
                column = known or self.context.ids.column("row_number", INT32, False)
                if known is None:
                    numbers.append((over, column))
                self.expressions.row_numbers[id(over)] = column
        if len(numbers) > 1:
            self.context.refuse(numbers[1][0], "one SELECT takes one ROW_NUMBER()", "use a sub-select for the other")
            return None
        return numbers

    def _items(self) -> list[Item]:
        items: list[Item] = []
        for node in self.select.expressions:
            if isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star)):
                items.extend(self._star(node))
                continue
            inner = node.this if isinstance(node, exp.Alias) else node
            earlier = {item.name.lower(): item.expr for item in items if item.name}
            expr = self.expressions.bind(inner, Clause("the columns", aggregates=True, aliases=earlier))
            named = isinstance(node, (exp.Alias, exp.Column, exp.Dot))
            name = (node.expression.name if isinstance(node, exp.Dot) else node.alias_or_name) if named else ""
            items.append(Item(name, node, expr))
        return items

    def _star(self, node: exp.Star | exp.Column) -> list[Item]:
        star = node if isinstance(node, exp.Star) else node.this
        excepted = {column.name.lower() for column in star.args.get("except_") or []}
        for key, value in star.args.items():
            if value and key != "except_":
                self.context.refuse(node, f"* {key.strip('_').upper()} is not offered", "list the columns")
                return [Item("", node, BAD)]
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

    def _group_keys(self, aliases: Mapping[str, Expr]) -> list[Expr]:
        group = self.select.args.get("group")
        keys: list[Expr] = []
        if self.scope.window is not None:
            keys.append(self.scope.window.column)
        if group is None:
            return keys
        for key, value in group.args.items():
            if value and key != "expressions":
                self._refuse_grouping(group, key.strip("_").upper().replace("_", " "))
                return [*keys, BAD]
        for node in group.expressions:
            if isinstance(node, (exp.Rollup, exp.Cube, exp.GroupingSets)):
                self._refuse_grouping(node, describe(node))
                return [*keys, BAD]
            if isinstance(node, exp.Literal) and not node.is_string:
                expr = self._ordinal(node, "GROUP BY")
            else:
                expr = self.expressions.bind(node, Clause("GROUP BY", aliases=aliases))
            if any(isinstance(part, Agg) for part in walk(expr)):
                self.context.refuse(node, "GROUP BY cannot stand on an aggregate", "group in a sub-select first")
                expr = BAD
            if not is_bad(expr) and not is_orderable(expr.type):
                self.problems.add(Step.TYPE, offset_of(node), f"GROUP BY cannot compare {expr.type}")
                expr = BAD
            expr = self._whole_window(expr)
            if expr not in keys or is_bad(expr):
                keys.append(expr)
        return keys

    def _refuse_grouping(self, node: exp.Expr, what: str) -> None:
        self.context.refuse(
            node, f"GROUP BY {what} is not offered", "write one SELECT for each grouping, and UNION ALL"
        )

    def _whole_window(self, key: Expr) -> Expr:
        """A bound of a window of FROM stands for the window itself, so that the other bound is known too."""
        windows = {source.window.column for source in self.scope.ranges if source.window is not None}
        if isinstance(key, Call) and key.op in ("field", "window_time") and key.args[0] in windows:
            return key.args[0]
        return key

    def _ordinal(self, node: exp.Expr, clause: str) -> Expr:
        position = int(str(node.this)) if str(node.this).isdigit() else 0
        items = self.items
        if not 1 <= position <= len(items):
            self.problems.add(
                Step.BIND, offset_of(node), f"{clause} {node.this}: there are {len(items)} columns", "count from 1"
            )
            return BAD
        return items[position - 1].expr

    def _having(self, aliases: Mapping[str, Expr], keys: Sequence[Expr]) -> Expr | None:
        clause = Clause("HAVING", aggregates=True, aliases=aliases, grouped=frozenset(keys))
        return self._condition_of("having", clause)

    def _condition_of(self, key: str, clause: Clause) -> Expr | None:
        node = self.select.args.get(key)
        return None if node is None else self.expressions.condition(node.this, clause)

    def _order(self, items: Sequence[Item], aliases: Mapping[str, Expr]) -> tuple[Order, ...] | None:
        order, limit = self.select.args.get("order"), self.select.args.get("limit")
        if limit is not None and order is None:
            self.context.refuse(limit, "LIMIT without ORDER BY takes rows by chance", "add ORDER BY")
            return None
        if order is None:
            return ()
        if limit is None:
            self.context.refuse(
                order,
                "ORDER BY cannot sort a stream, which has no end",
                "add LIMIT n to a query with a WINDOW for the first n rows of each window",
            )
            return None
        return self._terms(order, Clause("ORDER BY", aggregates=True, aliases=aliases, grouped=frozenset()))

    def _terms(self, order: exp.Expr, clause: Clause) -> tuple[Order, ...]:
        terms = []
        for term in order.expressions:
            ordered = isinstance(term, exp.Ordered)
            node = term.this if ordered else term
            if isinstance(node, exp.Literal) and not node.is_string and clause.name == "ORDER BY":
                expr = self._ordinal(node, "ORDER BY")
            else:
                expr = self.expressions.bind(node, clause)
            if ordered and term.args.get("with_fill"):
                self.context.refuse(term, "WITH FILL is not offered")
                expr = BAD
            if not is_bad(expr) and not is_orderable(expr.type):
                self.problems.add(Step.TYPE, offset_of(node), f"{expr.type} cannot be sorted")
                expr = BAD
            descending = bool(ordered and term.args.get("desc"))
            nulls_first = bool(term.args.get("nulls_first")) if ordered else True
            terms.append(Order(expr, descending, nulls_first))
        return tuple(terms)

    def _limit(self) -> int | None:
        limit = self.select.args.get("limit")
        if limit is None:
            return None
        count = limit.expression if isinstance(limit, exp.Limit) else None
        if (
            not isinstance(count, exp.Literal)
            or count.is_string
            or not str(count.this).isdigit()
            or int(count.this) < 1
        ):
            self.context.refuse(limit, "LIMIT takes a literal number from 1", "write LIMIT 10")
            return 0
        return int(count.this)

    def _speaks_of_outer(self, exprs: Sequence[Expr]) -> bool:
        """Whether an expression outside WHERE reads the query around this one."""
        if self.scope.outer is None:
            return False
        used = columns_in(*exprs) & self.scope.correlated
        if not used:
            return False
        place = self.expressions.places.get(next(iter(sorted(used, key=lambda c: c.id))))
        self.context.refuse(place, "a sub-select may speak of the query around it in WHERE only")
        return True

    def _aggregate(self, node: Node, parts: _Parts) -> tuple[Node, _Parts] | None:
        """Groups and aggregates; what comes after speaks of the groups."""
        if self.correlated:
            self.context.refuse(
                self.select,
                "an aggregating sub-select cannot speak of the query around it",
                "compare its columns outside: WHERE k IN (SELECT k ... GROUP BY k WINDOW ...)",
            )
            return None
        lift = _Lift(self, parts.keys, {column for _, column in parts.numbers})
        items = [Item(item.name, item.node, lift(item.expr, item.name)) for item in parts.items]
        having = lift(parts.having) if parts.having is not None else None
        qualify = lift(parts.qualify) if parts.qualify is not None else None
        order = tuple(replace(term, expr=lift(term.expr)) for term in parts.order)
        numbers = [(over, column, *self._over(over, lift)) for over, column in parts.numbers]
        if lift.failed:
            return None
        grouped: Node = Aggregate(node, tuple(lift.keys), tuple(lift.aggregates), offset_of(self.select))
        if having is not None:
            grouped = Filter(grouped, having, offset_of(self.select.args["having"]))
        for over, column, partition, terms in numbers:
            grouped = TopN(grouped, partition, terms, None, column, offset_of(over))
        return grouped, _Parts(items, [], None, qualify, order, [])

    def _over(self, over: exp.Window, lift: _Lift | None) -> tuple[tuple[Expr, ...], tuple[Order, ...]]:
        for key, value in over.args.items():
            if value and key not in ("this", "partition_by", "order", "over"):
                self.context.refuse(over, f"{key.strip('_').upper()} of ROW_NUMBER() OVER is not offered")
        clause = Clause("OVER", aggregates=True)
        partition = [self.expressions.bind(node, clause) for node in over.args.get("partition_by") or []]
        if self.scope.window is not None:
            partition.append(self.scope.window.column)
        order = over.args.get("order")
        if order is None:
            self.context.refuse(over, "ROW_NUMBER() OVER needs ORDER BY")
            return (), ()
        terms = self._terms(order, clause)
        if lift is not None:
            partition = [lift(expr) for expr in partition]
            terms = tuple(replace(term, expr=lift(term.expr)) for term in terms)
        return tuple(partition), terms

    def _finish(self, node: Node, parts: _Parts) -> Bound | None:
        for over, column in parts.numbers:
            partition, terms = self._over(over, None)
            if is_bad(*partition, *(term.expr for term in terms)) or not terms:
                return None
            node = TopN(node, partition, terms, None, column, offset_of(over))
        if parts.qualify is not None:
            node = Filter(node, parts.qualify, offset_of(self.select.args["qualify"]))
        distinct = self.select.args.get("distinct")
        limit = self._limit()
        if limit == 0 or (distinct is not None and distinct.args.get("on") is not None):
            if distinct is not None and distinct.args.get("on") is not None:
                self.context.refuse(distinct, "DISTINCT ON is not offered", "use ROW_NUMBER() <= 1")
            return None
        if limit is not None and distinct is None:
            node = TopN(node, (), parts.order, limit, None, offset_of(self.select.args["limit"]))
        outputs: list[tuple[str, Column]] = []
        projected: list[tuple[Column, Expr]] = []
        seen: set[Column] = set()
        for item in parts.items:
            expr = item.expr
            if isinstance(expr, Column) and expr not in seen and expr.name == item.name:
                column = expr
            else:
                column = self.context.ids.column(item.name, expr.type, expr.nullable)
            seen.add(column)
            projected.append((column, expr))
            outputs.append((item.name, column))
        if self.correlated:
            inner = set(node.columns)
            kept = sorted(columns_in(*self.correlated) & inner - seen, key=lambda c: c.id)
            projected.extend((column, column) for column in kept)
        node = Project(node, tuple(projected))
        if distinct is not None:
            node = Distinct(node, offset_of(self.select))
            if limit is not None:
                order = self._order_of_outputs(parts, projected)
                if order is None:
                    return None
                node = TopN(node, (), order, limit, None, offset_of(self.select.args["limit"]))
        places = tuple(item.node for item in parts.items)
        return Bound(node, tuple(outputs), places, self.window, self.time_name, tuple(self.correlated))

    def _order_of_outputs(self, parts: _Parts, projected: Sequence[tuple[Column, Expr]]) -> tuple[Order, ...] | None:
        """ORDER BY of SELECT DISTINCT: only what is selected is still there."""
        by_expr = {expr: column for column, expr in projected}
        terms = []
        for term in parts.order:
            column = by_expr.get(term.expr)
            if column is None:
                self.context.refuse(
                    self.select.args["order"],
                    "SELECT DISTINCT is ordered by its own columns only",
                    "select that column",
                )
                return None
            terms.append(replace(term, expr=column))
        return tuple(terms)


@dataclass(slots=True)
class _Parts:
    """The bound clauses of a SELECT after FROM and WHERE."""

    items: list[Item]
    keys: list[Expr]
    having: Expr | None
    qualify: Expr | None
    order: tuple[Order, ...]
    numbers: list[tuple[exp.Window, Column]]


class _Lift:
    """Rewrites expressions over rows into expressions over groups, and gathers the keys and aggregates they need."""

    def __init__(self, binder: SelectBinder, keys: Sequence[Expr], free: set[Column]) -> None:
        self.binder = binder
        self.free = free
        self.failed = False
        self.keys: list[tuple[Column, Expr]] = []
        self.aggregates: list[tuple[Column, Agg]] = []
        self._columns: dict[Expr, Column] = {}
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
        return self.binder.context.ids.column(name, expr.type, expr.nullable)

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
        binder = self.binder
        binder.problems.add(
            Step.BIND,
            offset_of(binder.expressions.places.get(column)),
            f"the column {quoted(column.name)} is neither grouped nor in an aggregate",
            "add it to GROUP BY, or use FIRST or LAST",
        )


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
