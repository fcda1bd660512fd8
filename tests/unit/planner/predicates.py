"""The meaning of `catalog.Predicate`, row by row: what an agent's evaluation on Arrow batches has to agree with."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from headgate.catalog import v1 as catalog
from headgate_coordinator.sql.types import DataType, Kind, parse_type

_OPERATORS = {
    catalog.COMPARISON_OPERATOR_EQUAL: lambda order: order == 0,
    catalog.COMPARISON_OPERATOR_NOT_EQUAL: lambda order: order != 0,
    catalog.COMPARISON_OPERATOR_LESS: lambda order: order < 0,
    catalog.COMPARISON_OPERATOR_LESS_OR_EQUAL: lambda order: order <= 0,
    catalog.COMPARISON_OPERATOR_GREATER: lambda order: order > 0,
    catalog.COMPARISON_OPERATOR_GREATER_OR_EQUAL: lambda order: order >= 0,
}


def keeps(predicate: catalog.Predicate, row: Mapping[str, Any]) -> bool:
    """Whether a row stays."""
    return evaluate(predicate, row) is True


def evaluate(predicate: catalog.Predicate, row: Mapping[str, Any]) -> bool | None:
    """TRUE, FALSE or NULL."""
    match predicate.WhichOneof("predicate"):
        case "column":
            value = row[predicate.column]
            return None if value is None else bool(value)
        case "all_of":
            parts = [evaluate(part, row) for part in predicate.all_of.predicates]
            return False if False in parts else None if None in parts else True
        case "any_of":
            parts = [evaluate(part, row) for part in predicate.any_of.predicates]
            return True if True in parts else None if None in parts else False
        case "negated":
            inner = evaluate(predicate.negated, row)
            return None if inner is None else not inner
        case "null_column":
            return row[predicate.null_column] is None
        case "comparison":
            return _compare(predicate.comparison, row)
        case "one_of":
            type_ = parse_type(predicate.one_of.type)
            value = _as(row[predicate.one_of.column], type_)
            if value is None:
                return None
            return any(_order(value, _literal(text, type_)) == 0 for text in predicate.one_of.values)
        case other:
            raise AssertionError(other)


def _compare(comparison: catalog.Comparison, row: Mapping[str, Any]) -> bool | None:
    type_ = parse_type(comparison.type)
    left, right = (_operand(side, row, type_) for side in (comparison.left, comparison.right))
    if comparison.operator == catalog.COMPARISON_OPERATOR_NOT_DISTINCT:
        if left is None or right is None:
            return left is right
        return _order(left, right) == 0
    if left is None or right is None:
        return None
    return _OPERATORS[comparison.operator](_order(left, right))


def _operand(operand: catalog.Operand, row: Mapping[str, Any], type_: DataType) -> Any:
    if operand.HasField("column"):
        return _as(row[operand.column], type_)
    return _literal(operand.value, type_)


def _as(value: Any, type_: DataType) -> Any:
    if value is None:
        return None
    if type_.is_float:
        return float(value)
    if type_.kind is Kind.DECIMAL:
        return Decimal(value)
    if type_.is_text:
        return str(value).encode()
    if isinstance(value, datetime):
        since = value.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
        return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    return value


def _literal(text: str, type_: DataType) -> Any:
    if type_.kind is Kind.BOOL:
        return text == "true"
    if type_.is_text:
        return text.encode()
    if type_.kind is Kind.DATE:
        return date.fromisoformat(text)
    if type_.is_float:
        return float(text)
    return Decimal(text) if type_.kind is Kind.DECIMAL else int(text)


def _order(left: Any, right: Any) -> int:
    """-1, 0 or 1. NaN is equal to itself and greater than every number."""
    if isinstance(left, float) and isinstance(right, float) and (math.isnan(left) or math.isnan(right)):
        return int(math.isnan(left)) - int(math.isnan(right))
    return (left > right) - (left < right)
