"""Aggregate functions."""

from __future__ import annotations

from collections.abc import Sequence

from headgate_coordinator.sql.algebra import Expr, Literal
from headgate_coordinator.sql.coercion import bounded_decimal, computed
from headgate_coordinator.sql.functions.signature import (
    ANY,
    BOOLEAN,
    COMPARABLE,
    INTEGER,
    NUMBER,
    ORDERABLE,
    SMALL_LITERAL,
    ArgumentFault,
    Function,
    Param,
    as_computed,
    literal_int,
    same,
)
from headgate_coordinator.sql.types import BOOL, FLOAT64, INT64, DataType, Kind, array


def _sum(args: Sequence[Expr]) -> DataType:
    type_ = computed(args[0].type)
    if type_.kind is Kind.DECIMAL:
        return bounded_decimal(type_.precision + 10, type_.scale)
    return FLOAT64 if type_.is_float else INT64


def _average(args: Sequence[Expr]) -> DataType:
    type_ = computed(args[0].type)
    if type_.kind is Kind.DECIMAL:
        return bounded_decimal(type_.precision + 4, type_.scale + 4)
    return FLOAT64


def _fraction(result: object) -> object:
    """For a second argument that is a literal from 0 to 1."""

    def check(args: Sequence[Expr]) -> DataType:
        share = args[1]
        value = share.value if isinstance(share, Literal) else None
        if value is None or isinstance(value, (str, bytes, bool)) or not 0 <= float(value) <= 1:  # type: ignore[arg-type]
            raise ArgumentFault(1, "must be a literal number from 0 to 1")
        if literal_int(args, 2, 1) < 1:
            raise ArgumentFault(2, "must be at least 1")
        return result(args) if callable(result) else result  # type: ignore[return-value]

    return check


def _f(name: str, params: Sequence[Param], result: object, **more: object) -> Function:
    more.setdefault("null_if", "always")
    return Function(name, tuple(params), result, group="Aggregates", **more)  # type: ignore[arg-type]


AGGREGATE_FUNCTIONS = (
    _f("count", [ANY], INT64, variadic=ANY, null_if="never"),
    _f("count_if", [BOOLEAN], INT64, null_if="never"),
    _f("sum", [NUMBER], _sum),
    _f("avg", [NUMBER], _average, synonyms=("mean",)),
    _f("min", [ORDERABLE], same()),
    _f("max", [ORDERABLE], same()),
    _f("stddev", [NUMBER], FLOAT64, synonyms=("std", "stddev_samp")),
    _f("stddev_pop", [NUMBER], FLOAT64),
    _f("variance", [NUMBER], FLOAT64, synonyms=("var_samp",)),
    _f("var_pop", [NUMBER], FLOAT64),
    _f("skewness", [NUMBER], FLOAT64),
    _f("kurtosis", [NUMBER], FLOAT64),
    _f("corr", [NUMBER, NUMBER], FLOAT64),
    _f("covar_pop", [NUMBER, NUMBER], FLOAT64),
    _f("covar_samp", [NUMBER, NUMBER], FLOAT64),
    # By event time: see `rewrite`.
    _f("first", [ANY], same(), synonyms=("first_value",)),
    _f("last", [ANY], same(), synonyms=("last_value",)),
    _f("any_value", [ORDERABLE], same()),
    _f("max_by", [ANY, ORDERABLE], same()),
    _f("min_by", [ANY, ORDERABLE], same()),
    _f("bool_and", [BOOLEAN], BOOL, synonyms=("every",)),
    # Not ANY: that is part of comparisons in SQL.
    _f("bool_or", [BOOLEAN], BOOL, synonyms=("some",)),
    _f("bit_and", [INTEGER], as_computed()),
    _f("bit_or", [INTEGER], as_computed()),
    _f("bit_xor", [INTEGER], as_computed()),
    _f("approx_count_distinct", [COMPARABLE], INT64, null_if="never"),
    _f("percentile", [NUMBER, NUMBER], _fraction(FLOAT64)),
    _f("median", [NUMBER], FLOAT64),
    _f(
        "percentile_approx",
        [NUMBER, NUMBER],
        _fraction(as_computed()),
        optional=(SMALL_LITERAL,),
        synonyms=("approx_percentile",),
    ),
    _f("collect_list", [ORDERABLE], lambda args: array(args[0].type), null_if="never", synonyms=("array_agg",)),
    _f("collect_set", [ORDERABLE], lambda args: array(args[0].type), null_if="never"),
)
