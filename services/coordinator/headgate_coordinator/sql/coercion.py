"""Which types meet in an operator and what comes out: Spark's rules with `spark.sql.ansi.enabled`, as far as we use
them.

We are stricter than Spark in one thing: text is never turned into a number, nor a number into text, unless the
statement says CAST. Everything that is accepted here has the type that Spark gives it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headgate_coordinator.sql.algebra import Expr, Literal
from headgate_coordinator.sql.types import (
    DATE,
    DAY_TIME_INTERVAL,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    NULL,
    TIMESTAMP,
    VARCHAR,
    YEAR_MONTH_INTERVAL,
    DataType,
    Kind,
    StructField,
    array,
    decimal,
    element_of,
    key_of,
    map_of,
    struct,
)

MAX_PRECISION = 38
# Digits after the point that a result keeps at least, where it would need more than 38 digits in all.
MIN_ADJUSTED_SCALE = 6

_SIGNED = (INT8, INT16, INT32, INT64)
_UNSIGNED_AS = {
    Kind.UINT8: INT16,
    Kind.UINT16: INT32,
    Kind.UINT32: INT64,
    Kind.UINT64: decimal(20, 0),
}
_AS_DECIMAL = {Kind.INT8: (3, 0), Kind.INT16: (5, 0), Kind.INT32: (10, 0), Kind.INT64: (20, 0)}
DAY_US = 86_400_000_000


def computed(type_: DataType) -> DataType:
    """The type as Spark computes with it: no unsigned integers, no lengths of text."""
    match type_.kind:
        case Kind.UINT8 | Kind.UINT16 | Kind.UINT32 | Kind.UINT64:
            return _UNSIGNED_AS[type_.kind]
        case Kind.VARCHAR | Kind.CHAR:
            return VARCHAR
        case Kind.ARRAY:
            return array(computed(element_of(type_)))
        case Kind.MAP:
            return map_of(computed(key_of(type_)), computed(element_of(type_)))
        case Kind.STRUCT:
            return struct(*(StructField(f.name, computed(f.type)) for f in type_.fields))
        case _:
            return type_


def is_integral(type_: DataType) -> bool:
    """Whether Spark computes with it as one of its four integer types."""
    return computed(type_) in _SIGNED


def is_decimal(type_: DataType) -> bool:
    return computed(type_).kind is Kind.DECIMAL


def is_numeric(type_: DataType) -> bool:
    return computed(type_).is_numeric


def bounded_decimal(precision: int, scale: int) -> DataType:
    """DECIMAL cut to 38 digits, without regard to what is lost."""
    return decimal(min(precision, MAX_PRECISION), min(scale, MAX_PRECISION))


def adjusted_decimal(precision: int, scale: int) -> DataType:
    """DECIMAL cut to 38 digits, digits before the point kept first."""
    if precision <= MAX_PRECISION:
        return decimal(precision, scale)
    integral = precision - scale
    kept = max(MAX_PRECISION - integral, min(scale, MIN_ADJUSTED_SCALE))
    return decimal(MAX_PRECISION, kept)


def as_decimal(expr: Expr) -> DataType:
    """The DECIMAL that stands for an integer or decimal operand; a literal needs no more digits than it has."""
    type_ = computed(expr.type)
    if type_.kind is Kind.DECIMAL:
        return type_
    if isinstance(expr, Literal) and isinstance(expr.value, int):
        return decimal(max(1, len(str(abs(expr.value)))), 0)
    return decimal(*_AS_DECIMAL[type_.kind])


def arithmetic(op: str, left: Expr, right: Expr) -> DataType | None:
    """The type of `left op right` for + - * / % div over numbers; None where there is none."""
    a, b = computed(left.type), computed(right.type)
    if a.kind is Kind.NULL and b.kind is Kind.NULL:
        return INT64 if op == "div" else FLOAT64
    if a.kind is Kind.NULL and op == "/":
        return FLOAT64 if b.is_numeric else None
    if a.kind is Kind.NULL:
        a, left = b, Literal(None, b)
    if b.kind is Kind.NULL:
        b, right = a, Literal(None, a)
    if not (a.is_numeric and b.is_numeric):
        return None
    if op == "div":
        return None if a.is_float or b.is_float else INT64
    if a.is_float or b.is_float:
        return FLOAT32 if a == b == FLOAT32 and op != "/" else FLOAT64
    if a.kind is Kind.DECIMAL or b.kind is Kind.DECIMAL:
        return _decimal_arithmetic(op, as_decimal(left), as_decimal(right))
    return FLOAT64 if op == "/" else _SIGNED[max(_SIGNED.index(a), _SIGNED.index(b))]


def _decimal_arithmetic(op: str, a: DataType, b: DataType) -> DataType:
    scale = max(a.scale, b.scale)
    before = (a.precision - a.scale, b.precision - b.scale)
    match op:
        case "+" | "-":
            return adjusted_decimal(max(before) + scale + 1, scale)
        case "*":
            return adjusted_decimal(a.precision + b.precision + 1, a.scale + b.scale)
        case "/":
            scale = max(MIN_ADJUSTED_SCALE, a.scale + b.precision + 1)
            return adjusted_decimal(before[0] + b.scale + scale, scale)
        case _:
            return adjusted_decimal(min(before) + scale, scale)


def time_arithmetic(op: str, left: Expr, right: Expr) -> DataType | None:
    """The type of `left op right` where one of them is a date, a timestamp or an interval; None where there is none."""
    a, b = computed(left.type), computed(right.type)
    if op == "+" and (a.is_interval or (b == DATE and is_integral(a))):
        a, b, left, right = b, a, right, left
    match a.kind, b.kind:
        case Kind.TIMESTAMP, (Kind.DAY_TIME_INTERVAL | Kind.YEAR_MONTH_INTERVAL):
            return TIMESTAMP
        case ((Kind.TIMESTAMP | Kind.DATE), (Kind.TIMESTAMP | Kind.DATE)) if op == "-":
            return DAY_TIME_INTERVAL
        case Kind.DATE, Kind.YEAR_MONTH_INTERVAL:
            return DATE
        case Kind.DATE, Kind.DAY_TIME_INTERVAL:
            # An interval of whole days leaves a date a date; only of a literal can that be known.
            if not isinstance(right, Literal) or not isinstance(right.value, int):
                return None
            return DATE if right.value % DAY_US == 0 else TIMESTAMP
        case Kind.DATE, (Kind.INT8 | Kind.INT16 | Kind.INT32):
            return DATE
        case (Kind.DAY_TIME_INTERVAL, Kind.DAY_TIME_INTERVAL) | (Kind.YEAR_MONTH_INTERVAL, Kind.YEAR_MONTH_INTERVAL):
            return a
        case _:
            return None


def interval_arithmetic(op: str, left: Expr, right: Expr) -> DataType | None:
    """The type of an interval times or divided by a number; None where there is none."""
    a, b = computed(left.type), computed(right.type)
    if op == "*" and a.is_numeric:
        a, b = b, a
    return a if a in (DAY_TIME_INTERVAL, YEAR_MONTH_INTERVAL) and b.is_numeric else None


def wider_decimal(a: DataType, b: DataType) -> DataType:
    """The DECIMAL that holds both; where that needs more than 38 digits, those after the point give way."""
    scale = max(a.scale, b.scale)
    before = max(a.precision - a.scale, b.precision - b.scale)
    scale = min(scale, MAX_PRECISION - before)
    return decimal(before + scale, scale)


def common_type(types: Iterable[DataType]) -> DataType | None:
    """The type that CASE, COALESCE, IN, UNION ALL and the like give values of these types; None where there is none.

    Equal declared types stay what they were declared as.
    """
    result: DataType | None = None
    for type_ in types:
        result = type_ if result is None else _common(result, type_)
        if result is None:
            return None
    return result


def _common(a: DataType, b: DataType) -> DataType | None:
    if a == b or b.kind is Kind.NULL:
        return a
    if a.kind is Kind.NULL:
        return b
    a, b = computed(a), computed(b)
    if a == b:
        return a
    if a.is_numeric and b.is_numeric:
        return _common_number(a, b)
    match a.kind, b.kind:
        case (Kind.DATE, Kind.TIMESTAMP) | (Kind.TIMESTAMP, Kind.DATE):
            return TIMESTAMP
        case Kind.ARRAY, Kind.ARRAY:
            element = _common(element_of(a), element_of(b))
            return None if element is None else array(element)
        case Kind.MAP, Kind.MAP:
            key, value = _common(key_of(a), key_of(b)), _common(element_of(a), element_of(b))
            return None if key is None or value is None else map_of(key, value)
        case Kind.STRUCT, Kind.STRUCT:
            return _common_struct(a, b)
        case _:
            return None


def _common_number(a: DataType, b: DataType) -> DataType:
    if a.is_float or b.is_float:
        return FLOAT32 if a == b == FLOAT32 else FLOAT64
    if a.kind is Kind.DECIMAL or b.kind is Kind.DECIMAL:
        wide = [t if t.kind is Kind.DECIMAL else decimal(*_AS_DECIMAL[t.kind]) for t in (a, b)]
        return wider_decimal(*wide)
    return _SIGNED[max(_SIGNED.index(a), _SIGNED.index(b))]


def _common_struct(a: DataType, b: DataType) -> DataType | None:
    if [f.name.lower() for f in a.fields] != [f.name.lower() for f in b.fields]:
        return None
    fields = []
    for mine, theirs in zip(a.fields, b.fields, strict=True):
        type_ = _common(mine.type, theirs.type)
        if type_ is None:
            return None
        fields.append(StructField(mine.name, type_))
    return struct(*fields)


def comparable(left: DataType, right: DataType) -> bool:
    """Whether two values can be compared with =."""
    type_ = common_type((left, right))
    return type_ is not None and not contains_map(type_)


def contains_map(type_: DataType) -> bool:
    match type_.kind:
        case Kind.MAP:
            return True
        case Kind.ARRAY:
            return contains_map(element_of(type_))
        case _:
            return any(contains_map(f.type) for f in type_.fields)


def is_orderable(type_: DataType) -> bool:
    """Whether values can be sorted and compared with <."""
    return not contains_map(type_) and type_.kind is not Kind.NULL


def all_null(types: Sequence[DataType]) -> bool:
    return all(type_ == NULL for type_ in types)
