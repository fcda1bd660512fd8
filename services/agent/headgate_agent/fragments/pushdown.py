"""Pushed-down filters and projections on Arrow batches, with exactly Spark's meaning.

Three-valued logic, and a row stays only where the predicate is TRUE; both sides of a comparison as its type; NaN equals
NaN and is greater than every other number, 0.0 equals -0.0; text by its UTF-8 bytes; decimals and times by value; FALSE
less than TRUE. A predicate is compiled once, when a fragment starts: what cannot be evaluated is PLAN_UNSUPPORTED then,
and nothing can fail on a row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headgate.catalog import v1 as catalog
from headgate_agent.errors import PLAN_UNSUPPORTED
from headgate_agent.fragments.types import Column, arrow_type
from headgate_common.column_types import ColumnType, read_type
from headgate_common.errors import HeadgateError

# A boolean array, or a boolean scalar, with NULLs.
Truth = Any
Evaluate = Callable[[pa.RecordBatch], Truth]
Order = Callable[[Any, Any], Truth]


@dataclass(frozen=True, slots=True)
class Pushdown:
    """What a source fragment does with decoded rows: keeps those of the predicate, and the edge's columns."""

    columns: tuple[str, ...]
    keeps: Evaluate | None

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows and columns that go to the edge, in the order of the batch."""
        kept = batch if self.keeps is None else self._filtered(batch, self.keeps)
        return kept.select(list(self.columns))

    @staticmethod
    def _filtered(batch: pa.RecordBatch, keeps: Evaluate) -> pa.RecordBatch:
        truth = keeps(batch)
        if isinstance(truth, pa.Scalar):
            return batch if truth.as_py() is True else batch.slice(0, 0)
        if truth.true_count == len(truth):
            # Every row stays: nothing is copied.
            return batch
        # NULL drops the row, as FALSE does.
        return batch.filter(truth, null_selection_behavior="drop")


def compile_pushdown(fragment: catalog.SourceFragment, columns: Sequence[Column]) -> Pushdown:
    """The push-down of a fragment over the columns of its source; PLAN_UNSUPPORTED if it cannot be done."""
    known = {column.name: column for column in columns}
    missing = [name for name in fragment.columns if name not in known]
    if missing or not fragment.columns:
        raise HeadgateError(
            PLAN_UNSUPPORTED, f"the edge's columns are not of the source: {', '.join(missing) or 'none'}"
        )
    keeps = _Compiler(known).predicate(fragment.predicate) if fragment.HasField("predicate") else None
    return Pushdown(tuple(fragment.columns), keeps)


class _Compiler:
    def __init__(self, columns: Mapping[str, Column]) -> None:
        self._columns = columns

    def predicate(self, predicate: catalog.Predicate) -> Evaluate:
        match predicate.WhichOneof("predicate"):
            case "column":
                return self._column(predicate.column)
            case "all_of":
                return self._joined(predicate.all_of, pc.and_kleene)
            case "any_of":
                return self._joined(predicate.any_of, pc.or_kleene)
            case "negated":
                inner = self.predicate(predicate.negated)
                return lambda batch: pc.invert(inner(batch))
            case "null_column":
                column = self._column(predicate.null_column)
                # NaN is a value.
                return lambda batch: pc.is_null(column(batch), nan_is_null=False)
            case "comparison":
                return self._comparison(predicate.comparison)
            case "one_of":
                return self._one_of(predicate.one_of)
            case other:
                raise HeadgateError(PLAN_UNSUPPORTED, f"a predicate that this agent does not know: {other}")

    def _joined(self, predicates: catalog.Predicates, join: Callable[[Truth, Truth], Truth]) -> Evaluate:
        parts = [self.predicate(part) for part in predicates.predicates]

        def evaluate(batch: pa.RecordBatch) -> Truth:
            truth = parts[0](batch)
            for part in parts[1:]:
                truth = join(truth, part(batch))
            return truth

        return evaluate

    def _column(self, name: str) -> Callable[[pa.RecordBatch], Any]:
        if name not in self._columns:
            raise HeadgateError(PLAN_UNSUPPORTED, f"the predicate is about a column that the source lacks: {name}")
        return lambda batch: batch.column(name)

    def _comparison(self, comparison: catalog.Comparison) -> Evaluate:
        type_ = read_type(comparison.type)
        left, right = self._operand(comparison.left, type_), self._operand(comparison.right, type_)
        order = _order(comparison.operator, type_)
        return lambda batch: order(left(batch), right(batch))

    def _operand(self, operand: catalog.Operand, type_: ColumnType) -> Callable[[pa.RecordBatch], Any]:
        if operand.HasField("column"):
            return self._compared(operand.column, type_)
        scalar = _comparable_scalar(operand.value, type_)
        return lambda batch: scalar

    def _compared(self, name: str, type_: ColumnType) -> Callable[[pa.RecordBatch], Any]:
        """The values of a column, in the form in which values of the comparison's type are compared."""
        column = self._column(name)
        target = arrow_type(type_)
        if self._columns[name].arrow == target and type_.kind != "BOOL":
            return column
        if type_.kind == "BOOL":
            return lambda batch: pc.cast(column(batch), pa.uint8())
        return lambda batch: pc.cast(column(batch), target)

    def _one_of(self, one_of: catalog.OneOf) -> Evaluate:
        type_ = read_type(one_of.type)
        values = self._compared(one_of.column, type_)
        if type_.is_float:
            return _one_of_floats(values, [float(text) for text in one_of.values], arrow_type(type_))
        texts = list(one_of.values)
        members = pa.array([_comparable(text, type_) for text in texts], _compared_type(type_))

        def evaluate(batch: pa.RecordBatch) -> Truth:
            column = values(batch)
            # `is_in` takes NULL for FALSE; here it stays NULL.
            return pc.if_else(pc.is_valid(column), pc.is_in(column, value_set=members), pa.scalar(None, pa.bool_()))

        return evaluate


def _one_of_floats(values: Callable[[pa.RecordBatch], Any], members: list[float], target: pa.DataType) -> Evaluate:
    # Adding 0.0 makes 0.0 of -0.0, so that the bits of equal numbers are equal; NaN is looked for by itself.
    numbers = pa.array([member + 0.0 for member in members if not math.isnan(member)], target)
    with_nan = any(math.isnan(member) for member in members)

    def evaluate(batch: pa.RecordBatch) -> Truth:
        column = values(batch)
        found = pc.is_in(pc.add(column, pa.scalar(0.0, target)), value_set=numbers)
        if with_nan:
            found = pc.or_kleene(found, pc.is_nan(column))
        return pc.if_else(pc.is_valid(column), found, pa.scalar(None, pa.bool_()))

    return evaluate


def _compared_type(type_: ColumnType) -> pa.DataType:
    return pa.uint8() if type_.kind == "BOOL" else arrow_type(type_)


def _comparable(text: str, type_: ColumnType) -> Any:
    """A constant as Python has it. BOOL is compared as 0 and 1."""
    match type_.kind:
        case "BOOL":
            return 1 if text == "true" else 0
        case "DATE":
            return date.fromisoformat(text)
        case "DECIMAL":
            return Decimal(text)
        case "FLOAT32" | "FLOAT64":
            return float(text)
        case "VARCHAR" | "CHAR":
            return text
        case "ARRAY" | "MAP" | "STRUCT" | "BINARY":
            raise HeadgateError(PLAN_UNSUPPORTED, f"values of {type_.kind} are not compared by an agent")
        case _:
            return int(text)


def _comparable_scalar(text: str, type_: ColumnType) -> Any:
    return pa.scalar(_comparable(text, type_), _compared_type(type_))


_PLAIN: dict[catalog.ComparisonOperator.ValueType, Order] = {
    catalog.COMPARISON_OPERATOR_EQUAL: pc.equal,
    catalog.COMPARISON_OPERATOR_NOT_EQUAL: pc.not_equal,
    catalog.COMPARISON_OPERATOR_LESS: pc.less,
    catalog.COMPARISON_OPERATOR_LESS_OR_EQUAL: pc.less_equal,
    catalog.COMPARISON_OPERATOR_GREATER: pc.greater,
    catalog.COMPARISON_OPERATOR_GREATER_OR_EQUAL: pc.greater_equal,
}


def _float_equal(left: Any, right: Any) -> Truth:
    return pc.or_kleene(pc.equal(left, right), pc.and_kleene(pc.is_nan(left), pc.is_nan(right)))


def _float_less(left: Any, right: Any) -> Truth:
    return pc.or_kleene(pc.less(left, right), pc.and_kleene(pc.is_nan(right), pc.invert(pc.is_nan(left))))


_FLOATS: dict[catalog.ComparisonOperator.ValueType, Order] = {
    catalog.COMPARISON_OPERATOR_EQUAL: _float_equal,
    catalog.COMPARISON_OPERATOR_NOT_EQUAL: lambda left, right: pc.invert(_float_equal(left, right)),
    catalog.COMPARISON_OPERATOR_LESS: _float_less,
    catalog.COMPARISON_OPERATOR_LESS_OR_EQUAL: lambda left, right: pc.invert(_float_less(right, left)),
    catalog.COMPARISON_OPERATOR_GREATER: lambda left, right: _float_less(right, left),
    catalog.COMPARISON_OPERATOR_GREATER_OR_EQUAL: lambda left, right: pc.invert(_float_less(left, right)),
}


def _order(operator: catalog.ComparisonOperator.ValueType, type_: ColumnType) -> Order:
    orders = _FLOATS if type_.is_float else _PLAIN
    if operator == catalog.COMPARISON_OPERATOR_NOT_DISTINCT:
        equal = orders[catalog.COMPARISON_OPERATOR_EQUAL]
        return lambda left, right: _not_distinct(equal, left, right)
    if operator not in orders:
        raise HeadgateError(PLAN_UNSUPPORTED, f"a comparison that this agent does not know: {operator}")
    return orders[operator]


def _not_distinct(equal: Order, left: Any, right: Any) -> Truth:
    """TRUE where both are NULL or both are equal values; never NULL."""
    both_null = pc.and_(_is_null(left), _is_null(right))
    return pc.or_(both_null, pc.fill_null(equal(left, right), False))


def _is_null(value: Any) -> Truth:
    if isinstance(value, pa.Scalar):
        return pa.scalar(not value.is_valid)
    return pc.is_null(value, nan_is_null=False)
