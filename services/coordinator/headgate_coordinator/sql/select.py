"""One SELECT, clause by clause."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from headgate_coordinator.sql.algebra import (
    Agg,
    Aggregate,
    Call,
    Column,
    Distinct,
    Expr,
    Filter,
    Node,
    Order,
    Project,
    TopN,
    Window,
    columns_in,
    type_of_window,
    walk,
)
from headgate_coordinator.sql.arguments import argument_name, describe
from headgate_coordinator.sql.binding import Bound, Context, WithQuery
from headgate_coordinator.sql.coercion import is_orderable
from headgate_coordinator.sql.columns import ColumnBinder, Item
from headgate_coordinator.sql.errors import Problems, Step
from headgate_coordinator.sql.expressions import Clause, ExpressionBinder
from headgate_coordinator.sql.functions import AGGREGATES
from headgate_coordinator.sql.groups import Lift
from headgate_coordinator.sql.nodes import offset_of, window_of
from headgate_coordinator.sql.relations import RelationBinder
from headgate_coordinator.sql.scope import BoundWindow, Scope
from headgate_coordinator.sql.typecheck import BAD, is_bad
from headgate_coordinator.sql.types import INT32
from headgate_coordinator.sql.where import WhereBinder

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
    "locks": ("FOR UPDATE and the like", "a query reads streams and locks nothing"),
    "kind": ("SELECT AS STRUCT or AS VALUE", "build a STRUCT among the columns: struct(a, b)"),
    "connect": ("CONNECT BY", ""),
}
_LIMIT_OPTIONS = {"expressions": "BY", "offset": "OFFSET"}


class SelectBinder:
    """Binds one SELECT."""

    def __init__(
        self,
        context: Context,
        relations: RelationBinder,
        select: exp.Select,
        visible: Mapping[str, WithQuery],
        outer: Scope | None,
    ) -> None:
        self.context = context
        self.relations = relations
        self.problems: Problems = self.context.problems
        self.select = select
        self.visible = visible
        self.scope = Scope(outer=outer)
        self.expressions: ExpressionBinder = self.context.expressions(self.scope)
        self.window: BoundWindow | None = None
        self.time_name = ""
        self.items: list[Item] = []
        self.correlated: list[Expr] = []

    def bind(self) -> Bound | None:
        if not self._understood():
            return None
        node = self.relations.from_clause(self.select, self.visible, self.scope)
        node = self._windowed(node)
        where = WhereBinder(self.context, self.relations.query, self.select, self.visible, self.expressions)
        node = where.bind(node)
        self.correlated = where.correlated
        numbers = self._row_numbers()
        items = self.items = ColumnBinder(self.context, self.select, self.scope, self.expressions).items()
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
                what, hint = _NOT_OFFERED.get(key, (argument_name(key), ""))
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
        assigned = None if node is None else self.relations.windows.assign(node, window, self.scope)
        if assigned is None:
            # Its bounds are still known by name, so that only what is wrong is reported.
            shape = Window(window.window_kind, 0)
            self.window = BoundWindow(shape, self.context.ids.column("window", type_of_window), window.spelling)
            node = None
        else:
            node, self.window = assigned
        self.scope.window = self.window
        return node

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

    def _group_keys(self, aliases: Mapping[str, Expr]) -> list[Expr]:
        group = self.select.args.get("group")
        keys: list[Expr] = []
        if self.scope.window is not None:
            keys.append(self.scope.window.column)
        if group is None:
            return keys
        for key, value in group.args.items():
            if value and key != "expressions":
                self._refuse_grouping(group, argument_name(key))
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
        for key, value in limit.args.items():
            if value and key not in ("expression", "count", "direction"):
                how = _LIMIT_OPTIONS.get(key)
                if key == "limit_options":
                    how = next((name for name in ("percent", "with_ties") if value.args.get(name)), None)
                    if how is None:
                        continue
                self.context.refuse(
                    limit, f"{argument_name(how or key)} of LIMIT is not offered", "write LIMIT n, in each window"
                )
                return 0
        count = limit.expression if isinstance(limit, exp.Limit) else limit.args.get("count")
        if count is None and isinstance(limit, exp.Fetch):
            return 1
        literal = isinstance(count, exp.Literal) and not count.is_string and str(count.this).isdigit()
        if not literal or int(count.this) < 1:
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
        lift = Lift(self.expressions, self.context.ids, parts.keys, {column for _, column in parts.numbers})
        items = [Item(item.name, item.node, lift(item.expr, item.name)) for item in parts.items]
        having = lift(parts.having) if parts.having is not None else None
        qualify = lift(parts.qualify) if parts.qualify is not None else None
        order = tuple(replace(term, expr=lift(term.expr)) for term in parts.order)
        numbers = [(over, column, *self._over(over, lift)) for over, column in parts.numbers]
        if lift.failed:
            return None
        grouped: Node = Aggregate(node, tuple(lift.keys), tuple(lift.aggregates), self._place_of_groups())
        if having is not None:
            grouped = Filter(grouped, having, offset_of(self.select.args["having"]))
        for over, column, partition, terms in numbers:
            grouped = TopN(grouped, partition, terms, None, column, offset_of(over))
        return grouped, _Parts(items, [], None, qualify, order, [])

    def _place_of_groups(self) -> int | None:
        """Where groups are asked for: GROUP BY, else the first aggregate."""
        for clause in (self.select.args.get("group"), *self.select.expressions):
            if isinstance(clause, exp.Group):
                return offset_of(clause)
            for call in clause.find_all(exp.Anonymous) if clause is not None else ():
                if str(call.this).lower() in AGGREGATES:
                    return offset_of(call)
        return offset_of(self.select)

    def _over(self, over: exp.Window, lift: Lift | None) -> tuple[tuple[Expr, ...], tuple[Order, ...]]:
        for key, value in over.args.items():
            if value and key not in ("this", "partition_by", "order", "over"):
                self.context.refuse(over, f"{argument_name(key)} of ROW_NUMBER() OVER is not offered")
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
