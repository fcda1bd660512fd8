"""FROM: sources, sub-selects, WITH queries, windows on them, and joins."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from headgate_common.errors import HeadgateError
from headgate_coordinator.errors import (
    LOGICAL_SOURCE_NOT_FOUND,
    STATEMENT_TOO_LARGE,
    UNSUPPORTED,
)
from headgate_coordinator.sql.algebra import (
    AssignWindow,
    Call,
    Column,
    Expr,
    Ids,
    Join,
    JoinKind,
    Literal,
    Node,
    Scan,
    Source,
    Window,
    WindowTime,
    columns_in,
    type_of_window,
)
from headgate_coordinator.sql.coercion import is_decimal, is_integral
from headgate_coordinator.sql.errors import Problems, Step, did_you_mean, quoted
from headgate_coordinator.sql.expressions import Clause, ExpressionBinder, describe
from headgate_coordinator.sql.names import fold
from headgate_coordinator.sql.nodes import StreamWindow, TimeUnit, WindowKind, offset_of, window_of
from headgate_coordinator.sql.scope import BoundWindow, Range, Scope, parts_of
from headgate_coordinator.sql.settings import PlannerSettings
from headgate_coordinator.sql.typecheck import BAD, is_bad
from headgate_coordinator.sql.types import INT32, INT64, TIMESTAMP, Kind, columns_of
from headgate_coordinator.sql.view import CatalogView

_UNIT_FUNCTIONS = {
    TimeUnit.SECONDS: "timestamp_seconds",
    TimeUnit.MILLISECONDS: "timestamp_millis",
    TimeUnit.MICROSECONDS: "timestamp_micros",
    TimeUnit.NANOSECONDS: "timestamp_micros",
}


_NOT_OFFERED = {
    "db": ("sources have no schema or database before their name", "write the name alone"),
    "catalog": ("sources have no schema or database before their name", "write the name alone"),
    "sample": ("TABLESAMPLE is not offered", "filter on a column instead"),
    "pivots": ("PIVOT is not offered", "use aggregates with FILTER"),
    "method": ("NATURAL, ASOF and the like are no joins here", "write JOIN ... ON or JOIN ... USING"),
}


@dataclass(frozen=True, slots=True)
class Bound:
    """A bound query: what it does and what its columns are called. `window` is the one its rows are in, if there is
    one.

    `time_name` is what the user called the time of that window. `correlated` are conditions that speak of the query
    around it as well.
    """

    node: Node
    outputs: tuple[tuple[str, Column], ...]
    places: tuple[exp.Expr | None, ...] = ()
    window: BoundWindow | None = None
    time_name: str = ""
    correlated: tuple[Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class WithQuery:
    """A query of a WITH clause, and what its own FROM can see."""

    query: exp.Query
    columns: tuple[str, ...]
    visible: Mapping[str, WithQuery]


@dataclass(slots=True)
class Context:
    """What all parts of one statement's binding share."""

    view: CatalogView
    problems: Problems
    settings: PlannerSettings
    lateness_us: int
    exactly_once: bool
    ids: Ids = field(default_factory=Ids)
    relations: int = 0
    sources: dict[str, Source | None] = field(default_factory=dict)

    def refuse(self, node: exp.Expr | None, message: str, suggestion: str = "") -> None:
        self.problems.add(Step.BIND, offset_of(node), message, suggestion, UNSUPPORTED)

    def expressions(self, scope: Scope) -> ExpressionBinder:
        return ExpressionBinder(scope, self.problems, self.settings.max_in_list, self.exactly_once)


class TooManyRelations(Exception):
    """More relations than a statement may have; already noted as a problem."""


BindQuery = Callable[[exp.Query, Mapping[str, WithQuery], Scope | None], Bound | None]


class RelationBinder:
    """Binds what stands in FROM. `query` binds a sub-select."""

    def __init__(self, context: Context, query: BindQuery) -> None:
        self.context = context
        self.query = query

    def from_clause(self, select: exp.Select, visible: Mapping[str, WithQuery], scope: Scope) -> Node | None:
        """The relations of FROM and JOIN, joined; their names are added to the scope."""
        clause = select.args.get("from_")
        if clause is None:
            self.context.refuse(select, "a continuous query reads at least one source", "add FROM")
            return None
        node = self._relation(clause.this, visible, scope)
        for join in select.args.get("joins") or []:
            node = self._join(node, join, visible, scope)
        return node

    def _relation(self, table: exp.Expr, visible: Mapping[str, WithQuery], scope: Scope) -> Node | None:
        self.context.relations += 1
        if self.context.relations > self.context.settings.max_relations:
            limit = self.context.settings.max_relations
            self.context.problems.add(
                Step.BIND,
                offset_of(table),
                f"the query reads more than {limit} relations, each use of a WITH query counted with all that it reads",
                "split it into several queries with a TOPIC between",
                STATEMENT_TOO_LARGE,
            )
            raise TooManyRelations
        joins = table.args.get("joins") or []
        if isinstance(table, exp.Table):
            node = self._table(table, visible, scope)
        elif isinstance(table, exp.Subquery):
            node = self._subquery(table, visible, scope)
        else:
            self.context.refuse(
                table, f"{describe(table)} in FROM is not offered", "name a source or write a sub-select"
            )
            scope.ranges.append(Range(table.alias_or_name, (), None, wild=True))
            return None
        for join in joins:
            node = self._join(node, join, visible, scope)
        return node

    def _table(self, table: exp.Table, visible: Mapping[str, WithQuery], scope: Scope) -> Node | None:
        if not self._only(table, "this", "alias", "stream_window", "joins"):
            scope.ranges.append(Range(table.alias_or_name, (), None, wild=True))
            return None
        if not isinstance(table.this, exp.Identifier):
            self.context.refuse(
                table,
                f"{describe(table.this)} in FROM is not offered",
                "TUMBLE, HOP and SESSION are the table functions",
            )
            scope.ranges.append(Range(table.alias_or_name, (), None, wild=True))
            return None
        with_query = visible.get(table.name.lower())
        if with_query is not None:
            bound = self.query(with_query.query, with_query.visible, None)
            return self._named(bound, table, with_query.columns, scope)
        source = self._source(table)
        if source is None:
            scope.ranges.append(Range(table.alias_or_name, (), None, wild=True))
            return None
        fields = tuple(
            self.context.ids.column(column.name, column.type, not column.not_null)
            for column in columns_of(source.logical.schema)
        )
        bound = Bound(Scan(source, fields, offset_of(table)), tuple((column.name, column) for column in fields))
        return self._named(bound, table, (), scope)

    def _source(self, table: exp.Table) -> Source | None:
        context = self.context
        try:
            name = fold(table.name, "source")
        except HeadgateError as error:
            context.problems.add(Step.BIND, offset_of(table), error.message, "", error.reason)
            return None
        if name in context.sources:
            return context.sources[name]
        logical = context.view.logical_source(name)
        if logical is None:
            context.problems.add(
                Step.BIND,
                offset_of(table),
                f"unknown source {quoted(table.name)}",
                did_you_mean(name, context.view.logical_source_names()),
                LOGICAL_SOURCE_NOT_FOUND,
            )
            context.sources[name] = None
            return None
        physical = tuple(sorted(context.view.physical_sources(logical.uid), key=lambda p: p.name))
        if not physical:
            context.problems.add(
                Step.BIND,
                offset_of(table),
                f"nothing feeds the source {quoted(logical.name)}",
                f"CREATE PHYSICAL SOURCE FOR {logical.name} TYPE ... first",
            )
        source = Source(logical, physical)
        context.sources[name] = source
        return source

    def _subquery(self, table: exp.Subquery, visible: Mapping[str, WithQuery], scope: Scope) -> Node | None:
        if not self._only(table, "this", "alias", "stream_window", "joins"):
            scope.ranges.append(Range(table.alias_or_name, (), None, wild=True))
            return None
        if isinstance(table.this, (exp.Table, exp.Subquery)) and not table.alias:
            return self._relation(table.this, visible, scope)
        if not isinstance(table.this, exp.Query):
            self.context.refuse(table, f"{describe(table.this)} in FROM is not offered")
            scope.ranges.append(Range(table.alias_or_name, (), None, wild=True))
            return None
        return self._named(self.query(table.this, visible, None), table, (), scope)

    def _named(self, bound: Bound | None, table: exp.Expr, columns: tuple[str, ...], scope: Scope) -> Node | None:
        """Gives a bound relation its alias, its column aliases and its window."""
        alias = table.args.get("alias")
        renamed = tuple(column.name for column in alias.columns) if isinstance(alias, exp.TableAlias) else ()
        columns = renamed or columns
        name = table.alias_or_name
        if scope.range_of(name) is not None and name:
            self.context.problems.add(
                Step.BIND, offset_of(table), f"{quoted(name)} comes twice in FROM", "give one of them another alias"
            )
        if bound is None:
            scope.ranges.append(Range(name, (), None, wild=True))
            return None
        outputs = bound.outputs
        if columns:
            if len(columns) != len(outputs):
                self.context.problems.add(
                    Step.BIND,
                    offset_of(table),
                    f"{quoted(name)} has {len(outputs)} columns, and {len(columns)} names are given",
                )
                scope.ranges.append(Range(name, (), None, wild=True))
                return None
            outputs = tuple((new, column) for new, (_, column) in zip(columns, outputs, strict=True))
        source = Range(name, tuple(outputs), None)
        window = window_of(table)
        if window is None:
            scope.ranges.append(source)
            return bound.node
        only = Scope([source])
        assigned = self.assign_window(bound.node, window, only)
        if assigned is None:
            scope.ranges.append(Range(name, (), None, wild=True))
            return None
        node, bound_window = assigned
        bounds = (("window_start", bound_window.bound("start")), ("window_end", bound_window.bound("end")))
        taken = {column.lower() for column, _ in outputs}
        extra = tuple((column, expr) for column, expr in bounds if column not in taken)
        scope.ranges.append(Range(name, (*outputs, *extra), bound_window))
        return node

    def assign_window(self, node: Node, window: StreamWindow, scope: Scope) -> tuple[Node, BoundWindow] | None:
        """The rows with the windows they are in."""
        shape = Window(
            window.window_kind,
            (window.gap_us if window.window_kind is WindowKind.SESSION else window.size_us) or 0,
            window.advance_us or 0,
            window.offset_us or 0,
        )
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

    def _join(self, left: Node | None, join: exp.Join, visible: Mapping[str, WithQuery], scope: Scope) -> Node | None:
        before = list(scope.ranges)
        inner = Scope(outer=scope.outer)
        right = self._relation(join.this, visible, inner)
        for source in inner.ranges:
            if source.alias and scope.range_of(source.alias) is not None:
                self.context.problems.add(
                    Step.BIND,
                    offset_of(join.this),
                    f"{quoted(source.alias)} comes twice in FROM",
                    "give one of them another alias",
                )
        kind = self._kind(join)
        scope.ranges.extend(inner.ranges)
        condition = self._condition(join, kind, before, inner.ranges, scope)
        if kind in (JoinKind.SEMI, JoinKind.ANTI):
            scope.ranges[:] = before
        elif kind is not None:
            outer_left = kind in (JoinKind.RIGHT, JoinKind.FULL)
            outer_right = kind in (JoinKind.LEFT, JoinKind.FULL)
            scope.ranges[:] = [
                *(source.optional() if outer_left else source for source in before),
                *(source.optional() if outer_right else source for source in inner.ranges),
            ]
        if left is None or right is None or kind is None or is_bad(condition):
            return None
        return Join(kind, left, right, condition, offset_of(join))

    def _kind(self, join: exp.Join) -> JoinKind | None:
        if not self._only(join, "this", "on", "using", "side", "kind"):
            return None
        side, kind = join.side.upper(), join.kind.upper()
        match side, kind:
            case "", ("" | "INNER" | "CROSS"):
                return JoinKind.INNER
            case (("LEFT" | "RIGHT" | "FULL"), ("" | "OUTER")):
                return JoinKind(side)
            case (("" | "LEFT"), ("SEMI" | "ANTI")):
                return JoinKind(kind)
            case _:
                self.context.refuse(join, f"{side} {kind} JOIN is not offered".replace("  ", " "))
                return None

    def _condition(
        self, join: exp.Join, kind: JoinKind | None, left: list[Range], right: list[Range], scope: Scope
    ) -> Expr | None:
        using = join.args.get("using") or []
        if using:
            return self._using(join, using, kind, Scope(left, merged=scope.merged), Scope(right), scope)
        condition = join.args.get("on")
        if condition is None:
            return None
        return self.context.expressions(scope).condition(condition, Clause("ON"))

    def _using(
        self, join: exp.Join, using: list[exp.Expr], kind: JoinKind | None, left: Scope, right: Scope, scope: Scope
    ) -> Expr | None:
        parts: list[Expr] = []
        lefts, rights = self.context.expressions(left), self.context.expressions(right)
        for name in using:
            column = name if isinstance(name, exp.Column) else exp.Column(this=name.copy())
            mine, theirs = lefts.bind(column, Clause("USING")), rights.bind(column, Clause("USING"))
            parts.append(lefts.types.comparison("=", mine, theirs, name))
            if is_bad(parts[-1]):
                return BAD
            merged: Expr = theirs if kind is JoinKind.RIGHT else mine
            if kind is JoinKind.FULL:
                merged = lefts.types.call("coalesce", [mine, theirs], name, [])
            scope.merged[name.name.lower()] = merged
        return lefts.types.logical("and", parts, join) if len(parts) > 1 else parts[0]

    def _only(self, node: exp.Expr, *understood: str) -> bool:
        for key, value in node.args.items():
            if value and key not in understood:
                plain = f"{key.strip('_').upper().replace('_', ' ')} of {describe(node)} is not offered", ""
                self.context.refuse(node, *_NOT_OFFERED.get(key, plain))
                return False
        return True
