"""Scalar expressions: from sqlglot's tree to typed expressions over columns.

What is not listed in `_HANDLERS` is refused by its name: a node that nobody reads must never be dropped in silence. The
same holds for every argument of a node (`_only`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlglot import exp

from headgate_coordinator.sql.algebra import Agg, Call, Expr, Literal
from headgate_coordinator.sql.arguments import describe
from headgate_coordinator.sql.errors import did_you_mean, quoted
from headgate_coordinator.sql.functions import AGGREGATES, COUNTED_UNITS, REFUSED, SCALARS
from headgate_coordinator.sql.nodes import StreamWindow
from headgate_coordinator.sql.operators import (
    ARITHMETIC,
    BITWISE,
    COMPARISONS,
    SHIFTS,
    Clause,
    OperatorBinder,
)
from headgate_coordinator.sql.typecheck import BAD, is_bad
from headgate_coordinator.sql.types import INT64, VARCHAR, Kind

_TRIMMED_SIDES = {"trim": "BOTH", "ltrim": "LEADING", "rtrim": "TRAILING"}


class ExpressionBinder(OperatorBinder):
    """Binds expressions in one scope. Problems are noted; what is wrong becomes BAD."""

    def _bind(self, node: exp.Expr) -> Expr:
        self.spend(1, node)
        handler = _HANDLERS.get(type(node))
        if handler is None:
            hint = _INSTEAD.get(type(node), REFUSED.get(describe(node).lower(), ""))
            return self.refuse(node, f"{describe(node)} cannot be part of a query", hint)
        expr = handler(self, node)
        if expr.size > self.effort.limit:
            self.spend(expr.size, node)
        return expr

    def _call(self, node: exp.Expr) -> Expr:
        name = str(node.this)
        folded = name.lower()
        if folded in AGGREGATES and folded not in SCALARS:
            return self._aggregate(node, name)
        if folded in ("struct", "named_struct"):
            return self._struct(node, folded)
        if folded in ("timestampadd", "timestampdiff"):
            return self._count_units(node, folded)
        if folded in _TRIMMED_SIDES and len(node.expressions) == 2:
            side = _TRIMMED_SIDES[folded]
            return self.refuse(
                node,
                f"which argument of {name.upper()} is trimmed differs from system to system",
                f"TRIM({side} x FROM y)",
            )
        if folded == "row_number":
            return self.refuse(
                node, "ROW_NUMBER() needs OVER (...)", "ROW_NUMBER() OVER (PARTITION BY ... ORDER BY ...)"
            )
        for argument in node.expressions:
            if isinstance(argument, exp.Distinct):
                return self.refuse(argument, f"{name.upper()} takes no DISTINCT")
            if isinstance(argument, exp.Lambda):
                return self.refuse(argument, f"{name.upper()} takes no function as an argument")
        function = SCALARS.get(folded)
        if function is not None and not function.stable and self.exactly_once:
            return self.refuse(
                node,
                f"{name.upper()} differs when a batch is run again after a crash, so that rows would not count once",
                "carry the value from the source, use hash(column), or WITH (mode = 'realtime')",
            )
        args = self._all(node.expressions)
        return self.types.call(name, args, node, node.expressions)

    def _struct(self, node: exp.Expr, folded: str) -> Expr:
        names: list[str] = []
        values: list[exp.Expr] = []
        if folded == "named_struct":
            for index, part in enumerate(node.expressions):
                if index % 2:
                    values.append(part)
                elif isinstance(part, exp.Literal) and part.is_string:
                    names.append(str(part.this))
                else:
                    return self.types.refuse(part, "the name of a field is a literal text")
            if len(names) != len(values) or not names:
                return self.types.refuse(node, "NAMED_STRUCT takes names and values in turn")
        else:
            for index, part in enumerate(node.expressions, start=1):
                inner = part.this if isinstance(part, exp.Alias) else part
                names.append(part.alias_or_name if isinstance(part, (exp.Alias, exp.Column)) else f"col{index}")
                values.append(inner)
        return self.types.make_struct(names, self._all(values), node)

    def _count_units(self, node: exp.Expr, folded: str) -> Expr:
        if len(node.expressions) != 3:
            return self.types.refuse(node, f"{folded.upper()} takes a unit and two values")
        unit_node, *rest = node.expressions
        unit = unit_node.name.upper().removesuffix("S")
        if unit not in COUNTED_UNITS:
            return self.types.refuse(
                unit_node, f"there is no unit {quoted(unit_node.name)}", did_you_mean(unit, COUNTED_UNITS)
            )
        first, second = self._all(rest)
        if is_bad(first, second):
            return BAD
        times = (Kind.DATE, Kind.TIMESTAMP)
        if folded == "timestampdiff":
            if first.type.kind not in times or second.type.kind not in times:
                return self.types.refuse(node, "TIMESTAMPDIFF takes two times")
            args = (Literal(unit, VARCHAR), first, second)
            return Call("timestampdiff", args, INT64, first.nullable or second.nullable)
        if first.type.kind not in (Kind.INT8, Kind.INT16, Kind.INT32) or second.type.kind is not Kind.TIMESTAMP:
            return self.types.refuse(node, "TIMESTAMPADD takes an integer of at most 32 bits and a TIMESTAMP")
        args = (Literal(unit, VARCHAR), first, second)
        return Call("timestampadd", args, second.type, first.nullable or second.nullable)

    def _aggregate(self, node: exp.Expr, name: str, ignore_nulls: bool = False) -> Expr:
        if not self._clause.aggregates:
            return self.refuse(
                node,
                f"{name.upper()} is an aggregate and cannot stand in {self._clause.name}",
                "use HAVING" if self._clause.name == "WHERE" else "",
            )
        if self._in_aggregate:
            return self.types.refuse(
                node, f"{name.upper()} stands inside another aggregate", "compute it in a sub-select"
            )
        arguments, distinct = list(node.expressions), False
        if len(arguments) == 1 and isinstance(arguments[0], exp.Distinct):
            if not self._only(arguments[0], "expressions"):
                return BAD
            arguments, distinct = arguments[0].expressions, True
        if len(arguments) == 1 and isinstance(arguments[0], (exp.IgnoreNulls, exp.RespectNulls)):
            ignore_nulls = isinstance(arguments[0], exp.IgnoreNulls)
            arguments = [arguments[0].this]
        self._in_aggregate = True
        try:
            if name.lower() == "count" and len(arguments) == 1 and isinstance(arguments[0], exp.Star) and not distinct:
                if any(arguments[0].args.values()):
                    return self.refuse(arguments[0], "COUNT(*) counts rows and takes no EXCEPT, REPLACE or RENAME")
                args: list[Expr] = [Literal(1, self.types.number("1", None).type)]
            else:
                for argument in arguments:
                    if isinstance(argument, exp.Order):
                        return self.refuse(argument, f"ORDER BY in {name.upper()} is not offered")
                args = self._all(arguments)
        finally:
            self._in_aggregate = False
        places = arguments
        return self.types.aggregate(name, args, node, places, distinct=distinct, ignore_nulls=ignore_nulls)

    def _nulls(self, node: exp.Expr) -> Expr:
        inner = node.this
        if isinstance(inner, exp.Anonymous) and str(inner.this).lower() in AGGREGATES:
            return self._aggregate(inner, str(inner.this), isinstance(node, exp.IgnoreNulls))
        return self.refuse(node, "IGNORE NULLS belongs to FIRST and LAST")

    def _filter(self, node: exp.Expr) -> Expr:
        aggregate = self._bind(node.this)
        clause, self._clause = self._clause, Clause("FILTER")
        try:
            where = node.expression
            condition = self.types.condition(self._bind(where.this), "FILTER", where.this)
        finally:
            self._clause = clause
        if is_bad(aggregate, condition):
            return BAD
        if not isinstance(aggregate, Agg):
            return self.refuse(node, "FILTER belongs to an aggregate")
        return Agg(
            aggregate.op,
            aggregate.args,
            aggregate.type,
            True if aggregate.op not in ("count", "count_if", "approx_count_distinct") else aggregate.nullable,
            aggregate.distinct,
            condition,
            aggregate.ignore_nulls,
        )

    def _over(self, node: exp.Expr) -> Expr:
        if id(node) in self.row_numbers:
            return self.row_numbers[id(node)]
        inner = node.this
        while isinstance(inner, (exp.IgnoreNulls, exp.RespectNulls, exp.Filter)):
            inner = inner.this
        name = str(inner.this).upper() if isinstance(inner, exp.Anonymous) else describe(inner)
        hint = REFUSED.get(name.lower(), "")
        if name == "ROW_NUMBER":
            hint = "write it as a column of its own in a sub-select and compare it with a number in WHERE"
        elif name.lower() in AGGREGATES:
            hint = "GROUP BY with a WINDOW clause"
        return self.refuse(node, f"{name} OVER (...) cannot run as part of a continuous query", hint)

    def _window_call(self, node: exp.Expr) -> Expr:
        return self.refuse(
            node, "window(...) stands here without GROUP BY", "write it in GROUP BY, or WINDOW TUMBLING(...)"
        )

    def _scalar_subquery(self, node: exp.Expr) -> Expr:
        return self.refuse(node, "a sub-select as a value is not offered", "join it within a window instead")

    def _no_star(self, node: exp.Expr) -> Expr:
        return self.refuse(node, "* stands only alone among the columns, or in COUNT(*)")


_INSTEAD: dict[type[exp.Expr], str] = {
    exp.AtTimeZone: "times are UTC; use from_utc_timestamp(ts, 'Europe/Berlin') for the local time elsewhere",
    exp.Collate: "text is compared by its bytes; use lower(x) to compare without case",
    exp.Lambda: "functions of functions are not taken",
}

_HANDLERS: dict[type[Any], Callable[[ExpressionBinder, Any], Expr]] = {
    exp.Paren: ExpressionBinder._paren,
    exp.Column: ExpressionBinder._column,
    exp.Literal: ExpressionBinder._literal,
    exp.Boolean: ExpressionBinder._boolean,
    exp.Null: ExpressionBinder._null,
    exp.HexString: ExpressionBinder._hex,
    exp.Concat: ExpressionBinder._adjacent,
    exp.Neg: ExpressionBinder._neg,
    exp.Not: ExpressionBinder._not,
    exp.And: ExpressionBinder._connected,
    exp.Or: ExpressionBinder._connected,
    **dict.fromkeys(COMPARISONS, ExpressionBinder._comparison),
    exp.NullSafeNEQ: ExpressionBinder._distinct_from,
    **dict.fromkeys(ARITHMETIC, ExpressionBinder._arithmetic),
    **dict.fromkeys(BITWISE, ExpressionBinder._bitwise),
    **dict.fromkeys(SHIFTS, ExpressionBinder._shift),
    exp.BitwiseNot: ExpressionBinder._bitwise_not,
    exp.DPipe: ExpressionBinder._pipes,
    exp.Is: ExpressionBinder._is,
    exp.Between: ExpressionBinder._between,
    exp.In: ExpressionBinder._in,
    exp.Exists: ExpressionBinder._subquery_predicate,
    exp.Like: ExpressionBinder._like,
    exp.ILike: ExpressionBinder._like,
    exp.Escape: ExpressionBinder._escape,
    exp.RegexpLike: ExpressionBinder._regexp,
    exp.Cast: ExpressionBinder._cast,
    exp.TryCast: ExpressionBinder._cast,
    exp.Case: ExpressionBinder._case,
    exp.If: ExpressionBinder._if,
    exp.Extract: ExpressionBinder._extract,
    exp.Trim: ExpressionBinder._trim,
    exp.Substring: ExpressionBinder._substring,
    exp.StrPosition: ExpressionBinder._position,
    exp.Overlay: ExpressionBinder._overlay,
    exp.Bracket: ExpressionBinder._bracket,
    exp.Dot: ExpressionBinder._dot,
    exp.Array: ExpressionBinder._array,
    exp.VarMap: ExpressionBinder._map,
    exp.Interval: ExpressionBinder._interval,
    exp.CurrentTimestamp: ExpressionBinder._current_time,
    exp.CurrentDate: ExpressionBinder._current_time,
    exp.Anonymous: ExpressionBinder._call,
    exp.IgnoreNulls: ExpressionBinder._nulls,
    exp.RespectNulls: ExpressionBinder._nulls,
    exp.Filter: ExpressionBinder._filter,
    exp.Window: ExpressionBinder._over,
    StreamWindow: ExpressionBinder._window_call,
    exp.Subquery: ExpressionBinder._scalar_subquery,
    exp.Star: ExpressionBinder._no_star,
}


__all__ = ["Clause", "ExpressionBinder"]
