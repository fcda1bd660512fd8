"""Constant folding: what can be computed now is, with Spark's meaning and without changing a type.

Only what is exact is folded. What would fail at run time (an overflow, a division by zero) is left as it is, and fails
there if a row reaches it.
"""

from __future__ import annotations

import operator
import struct as binary
from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal, localcontext
from typing import Any

from headgate_coordinator.sql.algebra import (
    FALSE,
    TRUE,
    Agg,
    Aggregate,
    AssignWindow,
    Call,
    Expr,
    Filter,
    Join,
    Literal,
    Node,
    Project,
    TopN,
    transform,
    with_inputs,
)
from headgate_coordinator.sql.coercion import computed
from headgate_coordinator.sql.types import BOOL, TYPES, VARCHAR, DataType, Kind

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_EXACT = Context(prec=80)
# Longer texts are put together by Spark: a text joined to itself again and again would have no end here.
_MAX_TEXT = 10_000


def fold(expr: Expr) -> Expr:
    """The expression with its constant parts computed."""
    return transform(expr, _fold)


def fold_plan(node: Node) -> Node:
    """The plan with the constant parts of its expressions computed; filters that are always true disappear."""
    node = with_inputs(node, tuple(fold_plan(part) for part in node.inputs))
    match node:
        case Filter():
            predicate = fold(node.predicate)
            return node.input if predicate == TRUE else replace(node, predicate=predicate)
        case Project():
            return replace(node, items=tuple((column, fold(item)) for column, item in node.items))
        case Aggregate():
            return replace(
                node,
                keys=tuple((column, item if column == item else fold(item)) for column, item in node.keys),
                aggregates=tuple((column, _fold_agg(agg)) for column, agg in node.aggregates),
            )
        case Join() if node.condition is not None:
            condition = fold(node.condition)
            return replace(node, condition=None if condition == TRUE else condition)
        case TopN():
            order = tuple(replace(term, expr=fold(term.expr)) for term in node.order)
            return replace(node, partition=tuple(fold(part) for part in node.partition), order=order)
        case AssignWindow() if node.time is not None:
            return replace(node, time=fold(node.time))
        case _:
            return node


def _fold_agg(agg: Agg) -> Agg:
    folded = fold(agg)
    assert isinstance(folded, Agg)
    return replace(folded, filter=None) if folded.filter == TRUE else folded


def _fold(expr: Expr) -> Expr:
    if not isinstance(expr, Call):
        return expr
    match expr.op:
        case "and" | "or":
            return _connected(expr)
        case "not":
            (operand,) = expr.args
            if isinstance(operand, Literal) and isinstance(operand.value, bool):
                return FALSE if operand.value else TRUE
            if isinstance(operand, Call) and operand.op == "not":
                return operand.args[0]
            return expr
        case "is_null":
            return (TRUE if expr.args[0].value is None else FALSE) if isinstance(expr.args[0], Literal) else expr
        case "case":
            return _case(expr)
        case "in" if len(expr.args) == 2:
            return Call("=", expr.args, BOOL, expr.nullable)
    if not all(isinstance(arg, Literal) and arg.value is not None for arg in expr.args):
        return expr
    values = [arg.value for arg in expr.args if isinstance(arg, Literal)]
    types = [arg.type for arg in expr.args]
    match expr.op:
        case "=" | "<>" | "<" | "<=" | ">" | ">=":
            return _comparison(expr, types, values)
        case "+" | "-" | "*" | "/" | "%" | "div":
            return _arithmetic(expr, types, values)
        case "neg":
            return _number(expr, -values[0]) if _is_exact(types[0]) else expr  # type: ignore[operator]
        case "cast" | "try_cast":
            return _cast(expr, types[0], values[0])
        case "concat" if all(type_.is_text for type_ in types):
            if sum(len(str(value)) for value in values) > _MAX_TEXT:
                return expr
            return Literal("".join(str(value) for value in values), VARCHAR)
        case _:
            return expr


def _connected(expr: Call) -> Expr:
    neutral, final = (TRUE, FALSE) if expr.op == "and" else (FALSE, TRUE)
    flat: list[Expr] = []
    for arg in expr.args:
        flat.extend(arg.args if isinstance(arg, Call) and arg.op == expr.op else (arg,))
    if final in flat:
        return final
    kept = tuple(dict.fromkeys(part for part in flat if part != neutral))
    if not kept:
        return neutral
    return kept[0] if len(kept) == 1 else replace(expr, args=kept)


def _case(expr: Call) -> Expr:
    args = list(expr.args)
    default = args.pop() if len(args) % 2 else None
    kept: list[Expr] = []
    for condition, value in zip(args[::2], args[1::2], strict=True):
        if condition == FALSE or (isinstance(condition, Literal) and condition.value is None):
            continue
        if condition == TRUE:
            if not kept:
                return _as(value, expr.type)
            default = value
            break
        kept += [condition, value]
    if not kept:
        return _as(default, expr.type) if default is not None else Literal(None, expr.type)
    return replace(expr, args=(*kept, default) if default is not None else tuple(kept))


def _as(value: Expr, type_: DataType) -> Expr:
    if value.type == type_:
        return value
    return _fold(Call("cast", (value,), type_, value.nullable))


def _comparison(expr: Call, types: list[DataType], values: list[Any]) -> Expr:
    a, b = computed(types[0]), computed(types[1])
    exact = (a == b and not a.is_nested) or (_is_exact(a) and _is_exact(b))
    if not exact or isinstance(values[0], float) != isinstance(values[1], float):
        return expr
    if a.kind is Kind.VARCHAR:
        values = [value.encode() for value in values]
    return TRUE if _COMPARE[expr.op](values[0], values[1]) else FALSE


def _is_exact(type_: DataType) -> bool:
    return computed(type_).is_integer or computed(type_).kind is Kind.DECIMAL


def _arithmetic(expr: Call, types: list[DataType], values: list[Any]) -> Expr:
    a, b = values
    if isinstance(a, datetime) and types[1].kind is Kind.DAY_TIME_INTERVAL and expr.op in ("+", "-"):
        try:
            moved = a + timedelta(microseconds=b if expr.op == "+" else -b)
        except OverflowError:
            return expr
        return Literal(moved, expr.type)
    if not (_is_exact(types[0]) and _is_exact(types[1])):
        return expr
    with localcontext(_EXACT):
        match expr.op:
            case "+":
                return _number(expr, a + b)
            case "-":
                return _number(expr, a - b)
            case "*":
                return _number(expr, a * b)
            case _ if b == 0:
                return expr
            case "/" if isinstance(a, int) and isinstance(b, int):
                return Literal(float(a) / float(b), expr.type)
            case "div" if isinstance(a, int) and isinstance(b, int):
                return _number(expr, abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1))
            case "%" if isinstance(a, int) and isinstance(b, int):
                return _number(expr, abs(a) % abs(b) * (-1 if a < 0 else 1))
            case _:
                return expr


def _number(expr: Call, value: Any) -> Expr:
    """The value as a literal of the expression's type, if it is exactly one."""
    type_ = expr.type
    if computed(type_).is_integer and type_.kind in TYPES:
        row = TYPES[type_.kind]
        fits = row.low is not None and row.high is not None and row.low <= value <= row.high
        return Literal(int(value), type_) if fits and value == int(value) else expr
    if type_.kind is Kind.DECIMAL:
        exact = Decimal(value)
        with localcontext(_EXACT):
            scaled = exact.quantize(Decimal(1).scaleb(-type_.scale), rounding=ROUND_HALF_UP)
        fits = scaled == exact and abs(scaled) < Decimal(10) ** (type_.precision - type_.scale)
        return Literal(scaled, type_) if fits else expr
    return expr


def _cast(expr: Call, source: DataType, value: Any) -> Expr:
    target = expr.type
    if isinstance(value, bool):
        return expr
    if _is_exact(source):
        if target.is_integer or target.kind is Kind.DECIMAL:
            return _number(expr, value)
        if target.kind is Kind.FLOAT64:
            return Literal(float(value), target)
        if target.kind is Kind.FLOAT32 and abs(value) < 2**24 and value == int(value):
            return Literal(float(value), target)
        if target.kind is Kind.FLOAT32 and isinstance(value, Decimal):
            return _single(expr, float(value))
        return expr
    if source.kind is Kind.FLOAT64 and target.kind is Kind.FLOAT32:
        return _single(expr, value)
    if source.kind is Kind.FLOAT32 and target.kind is Kind.FLOAT64:
        return Literal(value, target)
    if (
        isinstance(value, date)
        and not isinstance(value, datetime)
        and target.kind is Kind.VARCHAR
        and not target.length
    ):
        return Literal(value.isoformat(), target)
    return expr


def _single(expr: Call, value: float) -> Expr:
    """A FLOAT32 that is exactly the value; a rounded one is left to Spark."""
    try:
        rounded = binary.unpack("f", binary.pack("f", value))[0]
    except OverflowError:
        return expr
    return Literal(rounded, expr.type) if rounded == value else expr
