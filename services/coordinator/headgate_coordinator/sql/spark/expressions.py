"""Expressions as Spark SQL."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal

from sqlglot.dialects.spark import Spark

from headgate_coordinator.sql.algebra import Agg, Call, Column, Expr, Literal, columns_in, type_of_window
from headgate_coordinator.sql.coercion import computed
from headgate_coordinator.sql.functions import AGGREGATES, SCALARS
from headgate_coordinator.sql.types import TYPES, DataType, Kind, element_of, spark_type

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KEYWORDS = frozenset(word.lower() for word in Spark.Tokenizer.KEYWORDS if _PLAIN.fullmatch(word)) | {
    *("cross", "anti", "semi", "left", "right", "full", "inner", "natural", "on", "using", "union", "except", "minus"),
    *("intersect", "lateral", "having", "where", "limit", "offset", "qualify", "and", "or", "not", "null", "true"),
    *("false", "case", "when", "then", "else", "end", "cast", "interval", "to", "from", "time"),
}
_INFIX = {"and": "AND", "or": "OR", "div": "DIV"}
_BINARY = ("=", "<>", "<", "<=", ">", ">=", "<=>", "+", "-", "*", "/", "%", "div", "&", "|", "^", "and", "or")
_INTEGER_SUFFIX = {Kind.INT8: "Y", Kind.INT16: "S", Kind.INT32: "", Kind.INT64: "L"}
_UNITS = (
    (86_400_000_000, "DAY"),
    (3_600_000_000, "HOUR"),
    (60_000_000, "MINUTE"),
    (1_000_000, "SECOND"),
)
_WORDS = (
    (86_400_000_000, "day"),
    (3_600_000_000, "hour"),
    (60_000_000, "minute"),
    (1_000_000, "second"),
    (1_000, "millisecond"),
    (1, "microsecond"),
)


def quote(name: str) -> str:
    """A name as Spark reads it back: in backticks unless it is plain."""
    if _PLAIN.fullmatch(name) and name.lower() not in _KEYWORDS:
        return name
    return "`" + name.replace("`", "``") + "`"


def text_literal(text: str) -> str:
    """A text in single quotes. Control characters are escaped, so that a statement is one readable text."""
    out = []
    for character in text:
        if character in ("'", "\\"):
            out.append("\\" + character)
        elif character == "\n":
            out.append("\\n")
        elif ord(character) < 32 or ord(character) == 127:
            out.append(f"\\u{ord(character):04x}")
        else:
            out.append(character)
    return "'" + "".join(out) + "'"


def duration_text(microseconds: int) -> str:
    """A length of time as Spark's functions take it: '5 seconds'."""
    for factor, word in _WORDS:
        if microseconds % factor == 0:
            count = microseconds // factor
            return f"'{count} {word}{'' if count == 1 else 's'}'"
    raise AssertionError("microseconds are whole")


def type_text(type_: DataType) -> str:
    """A type as Spark's CAST takes it."""
    spelled = spark_type(computed(type_))
    return spelled if type_.is_nested else spelled.upper()


class ExpressionWriter:
    """Writes expressions over columns whose names it knows."""

    def __init__(self, names: Mapping[Column, str]) -> None:
        self.names = names

    def write(self, expr: Expr) -> str:
        match expr:
            case Column():
                return self.names[expr]
            case Literal():
                return literal(expr)
            case Agg():
                return self._aggregate(expr)
            case Call():
                special = _SPECIAL.get(expr.op)
                if special is not None:
                    return special(self, expr)
                if expr.op in _BINARY:
                    sign = _INFIX.get(expr.op, expr.op)
                    return f" {sign} ".join(self._operand(arg) for arg in expr.args)
                return self._function(expr)

    def _operand(self, expr: Expr) -> str:
        """An operand, in brackets unless it binds tighter than every operator."""
        written = self.write(expr)
        loose = isinstance(expr, Call) and (expr.op in _BINARY or expr.op in _LOOSE)
        negative = isinstance(expr, Literal) and written.startswith("-")
        return f"({written})" if loose or negative else written

    def _list(self, exprs: tuple[Expr, ...]) -> str:
        return ", ".join(self.write(expr) for expr in exprs)

    def _function(self, expr: Call) -> str:
        function = SCALARS.get(expr.op)
        form = function.spark if function is not None else ""
        if form and "{*}" in form:
            return form.replace("{*}", self._list(expr.args))
        if form and form.count("{") == len(expr.args):
            return form.format(*(self.write(arg) for arg in expr.args))
        return f"{expr.op}({self._list(expr.args)})"

    def _aggregate(self, agg: Agg) -> str:
        assert agg.op in AGGREGATES and not agg.distinct
        written = f"{agg.op}({self._list(agg.args)})"
        return written if agg.filter is None else f"{written} FILTER (WHERE {self.write(agg.filter)})"

    def not_(self, expr: Call) -> str:
        (operand,) = expr.args
        if isinstance(operand, Call) and operand.op == "is_null":
            return f"{self._operand(operand.args[0])} IS NOT NULL"
        return f"NOT {self._operand(operand)}"

    def is_null(self, expr: Call) -> str:
        return f"{self._operand(expr.args[0])} IS NULL"

    def neg(self, expr: Call) -> str:
        return f"-({self.write(expr.args[0])})"

    def in_(self, expr: Call) -> str:
        return f"{self._operand(expr.args[0])} IN ({self._list(expr.args[1:])})"

    def like(self, expr: Call) -> str:
        written = f"{self._operand(expr.args[0])} {expr.op.upper()} {self._operand(expr.args[1])}"
        return f"{written} ESCAPE {self.write(expr.args[2])}" if len(expr.args) > 2 else written

    def case(self, expr: Call) -> str:
        args = list(expr.args)
        default = args.pop() if len(args) % 2 else None
        parts = [
            f"WHEN {self.write(condition)} THEN {self.write(value)}"
            for condition, value in zip(args[::2], args[1::2], strict=True)
        ]
        if default is not None:
            parts.append(f"ELSE {self.write(default)}")
        return f"CASE {' '.join(parts)} END"

    def cast(self, expr: Call) -> str:
        (operand,) = expr.args
        function = "TRY_CAST" if expr.op == "try_cast" else "CAST"
        written = f"{function}({self.write(operand)} AS {type_text(expr.type)})"
        if expr.type.is_text and expr.type.length:
            return f"left({written}, {expr.type.length})"
        row = TYPES.get(expr.type.kind)
        if row is None or not expr.type.is_unsigned or _within(operand.type, expr.type):
            return written
        fits = f"CASE WHEN {written} BETWEEN {row.low} AND {row.high} THEN {written}"
        if expr.op == "try_cast":
            return f"{fits} END"
        message = text_literal(f"a value is no {expr.type}: it is not from {row.low} to {row.high}")
        return f"{fits} WHEN {written} IS NOT NULL THEN CAST(raise_error({message}) AS {type_text(expr.type)}) END"

    def field(self, expr: Call) -> str:
        operand, name = expr.args
        assert isinstance(name, Literal) and isinstance(name.value, str)
        return f"{self._operand(operand)}.{quote(name.value)}"

    def index(self, expr: Call) -> str:
        return f"{self._operand(expr.args[0])}[{self.write(expr.args[1])}]"

    def struct(self, expr: Call) -> str:
        parts = [
            f"{text_literal(field.name)}, {self.write(value)}"
            for field, value in zip(expr.type.fields, expr.args, strict=True)
        ]
        return f"named_struct({', '.join(parts)})"

    def extract(self, expr: Call) -> str:
        unit, operand = expr.args
        assert isinstance(unit, Literal)
        return f"EXTRACT({unit.value!s} FROM {self.write(operand)})"

    def count_units(self, expr: Call) -> str:
        unit, *rest = expr.args
        assert isinstance(unit, Literal)
        return f"{expr.op.upper()}({unit.value!s}, {self._list(tuple(rest))})"

    def from_json(self, expr: Call) -> str:
        return f"from_json({self.write(expr.args[0])}, {text_literal(spark_type(computed(expr.type)))})"

    def session_window(self, expr: Call) -> str:
        time, gap = expr.args
        assert isinstance(gap, Literal) and isinstance(gap.value, int)
        return f"session_window({self.write(time)}, {duration_text(gap.value)})"

    def unmarked(self, expr: Call) -> str:
        """The value without its watermark: any computation takes it off."""
        written = self._operand(expr.args[0])
        if expr.type == type_of_window:
            return f"named_struct('start', {written}.`start`, 'end', {written}.`end`)"
        return f"timestamp_micros(unix_micros({written}))"

    def count_of_array(self, expr: Call) -> str:
        return f"CAST(size({self.write(expr.args[0])}) AS BIGINT)"

    def sum_of_array(self, expr: Call) -> str:
        return self._sum(expr.args[0], expr.type, "")

    def avg_of_array(self, expr: Call) -> str:
        (values,) = expr.args
        count = f" / size({self.write(values)})"
        if element_of(computed(values.type)).kind is Kind.DECIMAL:
            average = self._sum(values, DataType(Kind.DECIMAL, 38, expr.type.scale), count)
            return f"CAST({average} AS {type_text(expr.type)})"
        return self._sum(values, expr.type, count)

    def _sum(self, values: Expr, type_: DataType, then: str) -> str:
        array, name = self.write(values), type_text(type_)
        total = f"aggregate({array}, CAST(0 AS {name}), (total, value) -> CAST(total + value AS {name}))"
        return f"CASE WHEN size({array}) > 0 THEN {total}{then} END"

    def values_in_order(self, expr: Call) -> str:
        return f"transform(array_sort({self.write(expr.args[0])}), pair -> pair.f2)"

    def first_sorted(self, expr: Call) -> str:
        rows, limit, terms = expr.args
        assert isinstance(limit, Literal) and isinstance(terms, Literal) and isinstance(terms.value, str)
        compared = "0"
        for term in reversed(terms.value.split(";")):
            name, direction, nulls = term.split(":")
            compared = _compared(name, direction, nulls, compared)
        return f"slice(array_sort({self.write(rows)}, (a, b) -> {compared}), 1, {limit.value!s})"


def predicate_text(expr: Expr) -> str:
    """An expression over the columns of one source, by their own names."""
    return ExpressionWriter({column: quote(column.name) for column in columns_in(expr)}).write(expr)


def _compared(name: str, direction: str, nulls: str, then: str) -> str:
    """-1, 0 or 1 for two rows by one field, and by the next terms where that is equal."""
    less, greater = ("1", "-1") if direction == "desc" else ("-1", "1")
    first, last = ("-1", "1") if nulls == "first" else ("1", "-1")
    return (
        f"CASE WHEN a.{name} <=> b.{name} THEN {then} WHEN a.{name} IS NULL THEN {first} "
        f"WHEN b.{name} IS NULL THEN {last} WHEN a.{name} < b.{name} THEN {less} ELSE {greater} END"
    )


def _within(source: DataType, target: DataType) -> bool:
    mine, theirs = TYPES.get(source.kind), TYPES[target.kind]
    if mine is None or mine.low is None or mine.high is None or theirs.low is None or theirs.high is None:
        return False
    return theirs.low <= mine.low and mine.high <= theirs.high


_SPECIAL: dict[str, Callable[[ExpressionWriter, Call], str]] = {
    "not": ExpressionWriter.not_,
    "is_null": ExpressionWriter.is_null,
    "neg": ExpressionWriter.neg,
    "in": ExpressionWriter.in_,
    "like": ExpressionWriter.like,
    "ilike": ExpressionWriter.like,
    "case": ExpressionWriter.case,
    "cast": ExpressionWriter.cast,
    "try_cast": ExpressionWriter.cast,
    "field": ExpressionWriter.field,
    "index": ExpressionWriter.index,
    "struct": ExpressionWriter.struct,
    "extract": ExpressionWriter.extract,
    "timestampadd": ExpressionWriter.count_units,
    "timestampdiff": ExpressionWriter.count_units,
    "from_json": ExpressionWriter.from_json,
    "session_window": ExpressionWriter.session_window,
    "unmarked": ExpressionWriter.unmarked,
    "count_of_array": ExpressionWriter.count_of_array,
    "sum_of_array": ExpressionWriter.sum_of_array,
    "avg_of_array": ExpressionWriter.avg_of_array,
    "values_in_order": ExpressionWriter.values_in_order,
    "first_sorted": ExpressionWriter.first_sorted,
}
# Forms with words in them, which bind no tighter than operators.
_LOOSE = ("not", "is_null", "in", "like", "ilike", "neg")


def literal(expr: Literal) -> str:
    """A constant of exactly its type."""
    value, type_ = expr.value, expr.type
    match value:
        case None:
            return "NULL" if type_.kind is Kind.NULL else f"CAST(NULL AS {type_text(type_)})"
        case bool():
            return "true" if value else "false"
        case str():
            return text_literal(value)
        case bytes():
            return f"X'{value.hex().upper()}'"
        case datetime():
            shown = value.astimezone(UTC).replace(tzinfo=None).isoformat(sep=" ")
            return f"TIMESTAMP'{shown.zfill(19)}Z'"
        case date():
            return f"DATE'{value.isoformat()}'"
        case _:
            return _number(value, type_)


def _number(value: int | float | Decimal, type_: DataType) -> str:
    wide = computed(type_)
    if type_.kind is Kind.DAY_TIME_INTERVAL:
        return _interval(int(value))
    if type_.kind is Kind.YEAR_MONTH_INTERVAL:
        return f"INTERVAL '{value}' MONTH"
    if wide.kind in _INTEGER_SUFFIX:
        return _integer(int(value), wide)
    if wide.kind is Kind.DECIMAL:
        return _decimal(Decimal(value), wide)
    number = float(value)
    if math.isnan(number) or math.isinf(number):
        word = "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
        return f"CAST('{word}' AS {type_text(type_)})"
    return f"{number!r}{'F' if type_.kind is Kind.FLOAT32 else 'D'}"


def _integer(value: int, type_: DataType) -> str:
    row = TYPES[type_.kind]
    if value == row.low and type_.kind is not Kind.INT32:
        # -128Y is read as -(128Y), which does not fit.
        return f"CAST({value if type_.kind is not Kind.INT64 else repr(str(value))} AS {type_text(type_)})"
    return f"{value}{_INTEGER_SUFFIX[type_.kind]}"


def _decimal(value: Decimal, type_: DataType) -> str:
    shown = format(value, "f")
    scale = max(0, -int(value.as_tuple().exponent))
    precision = max(len(value.as_tuple().digits), scale)
    if (precision, scale) == (type_.precision, type_.scale):
        return f"{shown}BD"
    return f"CAST({shown}BD AS {type_text(type_)})"


def _interval(microseconds: int) -> str:
    sign = "-" if microseconds < 0 else ""
    length = abs(microseconds)
    for factor, unit in _UNITS:
        if length % factor == 0 and length:
            return f"INTERVAL '{sign}{length // factor}' {unit}"
    whole, fraction = divmod(length, 1_000_000)
    return f"INTERVAL '{sign}{whole}.{fraction:06d}' SECOND"
