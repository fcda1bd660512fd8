"""Functions of numbers, of bits, and those that choose between values."""

from __future__ import annotations

from collections.abc import Sequence

from headgate_coordinator.sql.algebra import Expr
from headgate_coordinator.sql.coercion import (
    MAX_PRECISION,
    arithmetic,
    bounded_decimal,
    common_type,
    comparable,
    computed,
    is_orderable,
)
from headgate_coordinator.sql.functions.signature import (
    ANY,
    COMPARABLE,
    FLOATING,
    INTEGER,
    NUMBER,
    SMALL,
    SMALL_LITERAL,
    ArgumentFault,
    Function,
    Param,
    as_computed,
    literal_int,
)
from headgate_coordinator.sql.types import BOOL, FLOAT64, INT32, INT64, VARCHAR, DataType, Kind


def _rounded(args: Sequence[Expr]) -> DataType:
    type_ = computed(args[0].type)
    scale = literal_int(args, 1, 0)
    if not -MAX_PRECISION <= scale <= MAX_PRECISION:
        raise ArgumentFault(1, f"must be from -{MAX_PRECISION} to {MAX_PRECISION}")
    if type_.kind is not Kind.DECIMAL:
        return type_
    before = type_.precision - type_.scale + 1
    if scale < 0:
        return bounded_decimal(max(before, -scale + 1), 0)
    kept = min(type_.scale, scale)
    return bounded_decimal(before + kept, kept)


def _whole(args: Sequence[Expr]) -> DataType:
    type_ = computed(args[0].type)
    if len(args) > 1:
        return _whole_at(type_, literal_int(args, 1, 0))
    if type_.kind is Kind.DECIMAL:
        if type_.scale == 0:
            return type_
        return bounded_decimal(type_.precision - type_.scale + 1, 0)
    return INT64


def _whole_at(type_: DataType, scale: int) -> DataType:
    if type_.kind is not Kind.DECIMAL:
        raise ArgumentFault(0, f"with a scale must be a DECIMAL, not {type_}", "use round, or CAST(x AS DECIMAL(p,s))")
    before = type_.precision - type_.scale + 1
    if scale < 0:
        return bounded_decimal(max(before, -scale + 1), 0)
    kept = min(type_.scale, scale)
    return bounded_decimal(before + kept, kept)


def _arithmetic(op: str) -> object:
    def result(args: Sequence[Expr]) -> DataType:
        type_ = arithmetic(op, args[0], args[1])
        if type_ is None:
            raise ArgumentFault(1, f"does not go with {args[0].type}")
        return type_

    return result


def _common(first: int = 0) -> object:
    def result(args: Sequence[Expr]) -> DataType:
        type_ = common_type(arg.type for arg in args[first:])
        if type_ is None:
            wrong = next(
                index
                for index in range(first + 1, len(args))
                if common_type((args[first].type, args[index].type)) is None
            )
            raise ArgumentFault(
                wrong, f"is {args[wrong].type}, which does not go with {args[first].type}", "CAST one of them"
            )
        return type_

    return result


def _greatest(args: Sequence[Expr]) -> DataType:
    type_: DataType = _common()(args)  # type: ignore[operator]
    if not is_orderable(type_):
        raise ArgumentFault(0, f"cannot be sorted: {type_}")
    return type_


def _nullif(args: Sequence[Expr]) -> DataType:
    if not comparable(args[0].type, args[1].type):
        raise ArgumentFault(1, f"is {args[1].type}, which cannot be compared with {args[0].type}")
    return args[0].type


def _f(name: str, params: Sequence[Param], result: object, group: str = "Numbers", **more: object) -> Function:
    return Function(name, tuple(params), result, group=group, **more)  # type: ignore[arg-type]


_DOUBLES = (
    *("sqrt", "cbrt", "exp", "expm1", "sin", "cos", "tan", "cot", "asin", "acos", "atan", "sinh", "cosh", "tanh"),
    *("asinh", "acosh", "atanh", "degrees", "radians", "rint"),
)

NUMBER_FUNCTIONS = (
    *(_f(name, [NUMBER], FLOAT64) for name in _DOUBLES),
    # NULL outside their domain.
    *(_f(name, [NUMBER], FLOAT64, null_if="always") for name in ("ln", "log10", "log2", "log1p")),
    _f("log", [NUMBER], FLOAT64, optional=(NUMBER,), null_if="always"),
    _f("power", [NUMBER, NUMBER], FLOAT64, synonyms=("pow",)),
    _f("atan2", [NUMBER, NUMBER], FLOAT64),
    _f("hypot", [NUMBER, NUMBER], FLOAT64),
    _f("pi", [], FLOAT64),
    _f("e", [], FLOAT64),
    _f("abs", [NUMBER], as_computed()),
    _f("sign", [NUMBER], FLOAT64, synonyms=("signum",)),
    _f("negative", [NUMBER], as_computed()),
    _f("positive", [NUMBER], as_computed()),
    _f("ceil", [NUMBER], _whole, optional=(SMALL_LITERAL,), synonyms=("ceiling",)),
    _f("floor", [NUMBER], _whole, optional=(SMALL_LITERAL,)),
    _f("round", [NUMBER], _rounded, optional=(SMALL_LITERAL,)),
    _f("bround", [NUMBER], _rounded, optional=(SMALL_LITERAL,)),
    _f("mod", [NUMBER, NUMBER], _arithmetic("%"), null_if="always"),
    _f("pmod", [NUMBER, NUMBER], _arithmetic("%"), null_if="always"),
    _f("try_add", [NUMBER, NUMBER], _arithmetic("+"), null_if="always"),
    _f("try_subtract", [NUMBER, NUMBER], _arithmetic("-"), null_if="always"),
    _f("try_multiply", [NUMBER, NUMBER], _arithmetic("*"), null_if="always"),
    _f("try_divide", [NUMBER, NUMBER], _arithmetic("/"), null_if="always"),
    _f("factorial", [SMALL], INT64, null_if="always"),
    _f("width_bucket", [NUMBER, NUMBER, NUMBER, INTEGER], INT64, null_if="always"),
    _f("isnan", [FLOATING], BOOL, null_if="never"),
    _f("nanvl", [FLOATING, FLOATING], _common()),
    _f("bin", [INTEGER], VARCHAR),
    _f("bit_count", [INTEGER], INT32),
    _f("shiftleft", [INTEGER, SMALL], lambda args: INT64 if computed(args[0].type) == INT64 else INT32),
    _f("shiftright", [INTEGER, SMALL], lambda args: INT64 if computed(args[0].type) == INT64 else INT32),
    _f("rand", [], FLOAT64, optional=(SMALL_LITERAL,), null_if="never", stable=False, synonyms=("random",)),
    _f("randn", [], FLOAT64, optional=(SMALL_LITERAL,), null_if="never", stable=False),
    _f("uuid", [], VARCHAR, null_if="never", stable=False),
)

CHOICE_FUNCTIONS = (
    _f("coalesce", [ANY], _common(), "Choices", variadic=ANY, null_if="all"),
    _f("ifnull", [ANY, ANY], _common(), "Choices", null_if="all", spark="coalesce({*})", synonyms=("nvl",)),
    _f("nvl2", [ANY, ANY, ANY], _common(1), "Choices", null_if="always"),
    _f("nullif", [COMPARABLE, COMPARABLE], _nullif, "Choices", null_if="always"),
    _f("greatest", [ANY, ANY], _greatest, "Choices", variadic=ANY, null_if="all"),
    _f("least", [ANY, ANY], _greatest, "Choices", variadic=ANY, null_if="all"),
    _f("isnull", [ANY], BOOL, "Choices", null_if="never"),
    _f("isnotnull", [ANY], BOOL, "Choices", null_if="never"),
)
