"""What an agent evaluates by itself on Arrow batches, with Spark's meaning: the one place that says it.

    predicate  = predicate AND predicate | predicate OR predicate | NOT predicate
               | column                                     -- a BOOL
               | column IS NULL
               | column IN (literal, ...)
               | operand (= | <> | < | <= | > | >= | <=>) operand
    operand    = column | literal                           -- at least one is a column

over columns of BOOL, integers, FLOAT32 and FLOAT64, DECIMAL, VARCHAR and CHAR, DATE and TIMESTAMP, where an integer
column is compared only with numbers that it can hold. Nothing in it can fail, so a row that some later filter would
have removed raises no error here. Its meaning:

- three-valued logic; a row stays only where the predicate is TRUE;
- both operands are compared as the type of the comparison, to which either widens without loss;
- numbers by value; NaN equals NaN and is greater than every other number; 0.0 equals -0.0;
- text by its UTF-8 bytes; times as microseconds; FALSE is less than TRUE.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

from headgate.catalog import v1 as catalog
from headgate_coordinator.sql.algebra import Call, Column, Expr, Literal
from headgate_coordinator.sql.coercion import common_type, computed
from headgate_coordinator.sql.types import INTEGERS, TYPES, DataType, Kind, widens

_KINDS = frozenset(
    {*INTEGERS, Kind.BOOL, Kind.FLOAT32, Kind.FLOAT64, Kind.DECIMAL, Kind.VARCHAR, Kind.CHAR, Kind.DATE, Kind.TIMESTAMP}
)
_COMPARISONS = {
    "=": catalog.COMPARISON_OPERATOR_EQUAL,
    "<>": catalog.COMPARISON_OPERATOR_NOT_EQUAL,
    "<": catalog.COMPARISON_OPERATOR_LESS,
    "<=": catalog.COMPARISON_OPERATOR_LESS_OR_EQUAL,
    ">": catalog.COMPARISON_OPERATOR_GREATER,
    ">=": catalog.COMPARISON_OPERATOR_GREATER_OR_EQUAL,
    "<=>": catalog.COMPARISON_OPERATOR_NOT_DISTINCT,
}
# An agent gets no predicate larger than this: it is sent with every start.
MAX_LITERALS = 1_000


def is_pushable(expr: Expr) -> bool:
    """Whether an agent can evaluate the predicate."""
    match expr:
        case Column():
            return expr.type.kind is Kind.BOOL
        case Call(op="and" | "or" | "not"):
            return all(is_pushable(arg) for arg in expr.args)
        case Call(op="is_null"):
            return isinstance(expr.args[0], Column)
        case Call(op="in"):
            operand, *items = expr.args
            return (
                isinstance(operand, Column)
                and len(items) <= MAX_LITERALS
                and all(_is_value(item) for item in items)
                and _compared_as(*expr.args) is not None
            )
        case Call(op=op) if op in _COMPARISONS:
            left, right = expr.args
            columns = sum(isinstance(side, Column) for side in (left, right))
            literals = sum(_is_value(side) for side in (left, right))
            return columns >= 1 and columns + literals == 2 and _compared_as(left, right) is not None
        case _:
            return False


def _is_value(expr: Expr) -> bool:
    return isinstance(expr, Literal) and expr.value is not None


def _compared_as(*operands: Expr) -> DataType | None:
    """The type in which Spark compares the operands, if each widens to it without loss."""
    type_ = common_type(computed(operand.type) for operand in operands)
    if type_ is None or any(operand.type.kind not in _KINDS for operand in operands):
        return None
    if any(_beyond(column, literal) for column in operands for literal in operands):
        return None
    for operand in operands:
        lossless = widens(computed(operand.type), type_) or isinstance(operand, Literal)
        if not lossless or (operand.type.kind is Kind.DATE) != (type_.kind is Kind.DATE):
            return None
    return type_


def _beyond(column: Expr, literal: Expr) -> bool:
    """Whether a number is outside of what a column can hold.

    Spark decides such comparisons without looking at the row, and takes NULL for a number where it does: that is not to
    be repeated.
    """
    row = TYPES.get(column.type.kind)
    if not isinstance(literal, Literal) or not isinstance(literal.value, (int, Decimal)) or row is None:
        return False
    return row.low is not None and row.high is not None and not row.low <= literal.value <= row.high


def to_proto(expr: Expr) -> catalog.Predicate:
    """A pushable predicate as an agent gets it."""
    match expr:
        case Column():
            return catalog.Predicate(column=expr.name)
        case Call(op="and"):
            return catalog.Predicate(all_of=catalog.Predicates(predicates=[to_proto(arg) for arg in expr.args]))
        case Call(op="or"):
            return catalog.Predicate(any_of=catalog.Predicates(predicates=[to_proto(arg) for arg in expr.args]))
        case Call(op="not"):
            return catalog.Predicate(negated=to_proto(expr.args[0]))
        case Call(op="is_null"):
            return catalog.Predicate(null_column=_column(expr.args[0]))
        case Call(op="in"):
            type_ = _compared_as(*expr.args)
            assert type_ is not None
            values = [_value(item, type_) for item in expr.args[1:]]
            return catalog.Predicate(one_of=catalog.OneOf(column=_column(expr.args[0]), values=values, type=str(type_)))
        case Call():
            type_ = _compared_as(*expr.args)
            assert type_ is not None
            left, right = (_operand(arg, type_) for arg in expr.args)
            compared = catalog.Comparison(operator=_COMPARISONS[expr.op], left=left, right=right, type=str(type_))
            return catalog.Predicate(comparison=compared)
        case _:
            raise ValueError(f"not a predicate: {expr}")


def _column(expr: Expr) -> str:
    assert isinstance(expr, Column)
    return expr.name


def _operand(expr: Expr, type_: DataType) -> catalog.Operand:
    if isinstance(expr, Column):
        return catalog.Operand(column=expr.name)
    return catalog.Operand(value=_value(expr, type_))


def _value(expr: Expr, type_: DataType) -> str:
    """A literal of the comparison's type as text: digits, the text itself, an ISO date, or microseconds since 1970."""
    assert isinstance(expr, Literal)
    value = expr.value
    if isinstance(value, bool):
        return "true" if value else "false"
    if type_.is_float:
        return repr(float(value))  # type: ignore[arg-type]
    if isinstance(value, datetime):
        return str(micros(value))
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return format(value, "f")
    return str(value)


def micros(moment: datetime) -> int:
    """Microseconds since 1970, exactly."""
    since = moment.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
