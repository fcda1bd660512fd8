"""FROM: sources, sub-selects, WITH queries, windows on them, and joins."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from headgate_common.errors import HeadgateError
from headgate_coordinator.catalog.descriptors import is_built_in
from headgate_coordinator.errors import (
    LOGICAL_SOURCE_NOT_FOUND,
    NO_PHYSICAL_SOURCE,
    STATEMENT_TOO_LARGE,
)
from headgate_coordinator.sql.algebra import (
    Expr,
    Join,
    JoinKind,
    Node,
    Scan,
    Source,
)
from headgate_coordinator.sql.arguments import argument_name, describe
from headgate_coordinator.sql.binding import BindQuery, Bound, Context, WithQuery
from headgate_coordinator.sql.errors import MAX_PROBLEMS, Step, did_you_mean, quoted
from headgate_coordinator.sql.expressions import Clause
from headgate_coordinator.sql.names import fold
from headgate_coordinator.sql.nodes import offset_of, window_of
from headgate_coordinator.sql.operators import BindingAbandoned
from headgate_coordinator.sql.scope import Range, Scope
from headgate_coordinator.sql.typecheck import BAD, is_bad
from headgate_coordinator.sql.types import columns_of
from headgate_coordinator.sql.windowing import WindowBinder

_NOT_OFFERED = {
    "db": ("sources have no schema or database before their name", "write the name alone"),
    "catalog": ("sources have no schema or database before their name", "write the name alone"),
    "sample": ("TABLESAMPLE is not offered", "filter on a column instead"),
    "pivots": ("PIVOT is not offered", "use aggregates with FILTER"),
    "method": ("NATURAL, ASOF and the like are no joins here", "write JOIN ... ON or JOIN ... USING"),
}


class RelationBinder:
    """Binds what stands in FROM. `query` binds a sub-select."""

    def __init__(self, context: Context, query: BindQuery) -> None:
        self.context = context
        self.query = query
        self.windows = WindowBinder(context)

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
            raise BindingAbandoned
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
            self.context.with_queries_used.add(id(with_query.query))
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
            if len(context.problems.found) >= MAX_PROBLEMS:
                raise BindingAbandoned
            return None
        physical = tuple(sorted(context.view.physical_sources(logical.uid), key=lambda p: p.name))
        if not physical:
            built_in = is_built_in(logical.uid)
            context.problems.add(
                Step.BIND,
                offset_of(table),
                f"nothing feeds the {'built-in ' if built_in else ''}source {quoted(logical.name)}",
                "start an agent with --roles log,fragments"
                if built_in
                else f"CREATE PHYSICAL SOURCE FOR {logical.name} TYPE ... first",
                NO_PHYSICAL_SOURCE,
            )
        source = Source(logical, physical)
        context.sources[name] = source
        return source

    def _subquery(self, table: exp.Subquery, visible: Mapping[str, WithQuery], scope: Scope) -> Node | None:
        if not self._only(table, "this", "alias", "stream_window", "joins"):
            scope.ranges.append(Range(table.alias_or_name, (), None, wild=True))
            return None
        if isinstance(table.this, (exp.Table, exp.Subquery)) and not table.alias and window_of(table) is None:
            return self._relation(table.this, visible, scope)
        if not isinstance(table.this, exp.Query):
            self.context.refuse(table, f"{describe(table.this)} in FROM is not offered")
            scope.ranges.append(Range(table.alias_or_name, (), None, wild=True))
            return None
        return self._named(self.query(table.this, visible, None), table, (), scope)

    def named(self, bound: Bound | None, table: exp.Expr, columns: tuple[str, ...]) -> None:
        """Checks the names that a query which nothing reads gives to its columns."""
        self._named(bound, table, columns, Scope())

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
        assigned = self.windows.assign(bound.node, window, only)
        if assigned is None:
            scope.ranges.append(Range(name, (), None, wild=True))
            return None
        node, bound_window = assigned
        bounds = (("window_start", bound_window.bound("start")), ("window_end", bound_window.bound("end")))
        taken = {column.lower() for column, _ in outputs}
        extra = tuple((column, expr) for column, expr in bounds if column not in taken)
        scope.ranges.append(Range(name, (*outputs, *extra), bound_window))
        return node

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
                plain = f"{argument_name(key)} of {describe(node)} is not offered", ""
                self.context.refuse(node, *_NOT_OFFERED.get(key, plain))
                return False
        return True
