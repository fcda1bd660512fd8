"""The type that we work out for an expression is the one that Spark reports."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from headgate_coordinator.sql.algebra import Call, Column, Expr, Literal
from headgate_coordinator.sql.coercion import (
    arithmetic,
    common_type,
    comparable,
    interval_arithmetic,
    is_orderable,
    time_arithmetic,
)
from headgate_coordinator.sql.functions import AGGREGATE_FUNCTIONS, SCALAR_FUNCTIONS, ArgumentFault, Function
from headgate_coordinator.sql.spark import ExpressionWriter
from headgate_coordinator.sql.types import (
    BINARY,
    BOOL,
    DATE,
    DAY_TIME_INTERVAL,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    TIMESTAMP,
    VARCHAR,
    YEAR_MONTH_INTERVAL,
    DataType,
    Kind,
    StructField,
    array,
    decimal,
    map_of,
    spark_type,
    struct,
)
from tests.integration.planner_spark.expressions import TYPES_SCHEMA, bound, numbers, others, spark_text
from tests.integration.planner_spark.streams import schema_ddl

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

# One statement is analysed about as fast as one expression.
AT_ONCE = 60

COLUMNS = {
    "b": BOOL,
    "i8": INT8,
    "i16": INT16,
    "i32": INT32,
    "i64": INT64,
    "f": FLOAT32,
    "d": FLOAT64,
    "d10": decimal(10, 2),
    "d38": decimal(38, 10),
    "d20": decimal(20, 0),
    "d38b": decimal(38, 0),
    "d5": decimal(5, 5),
    "s": VARCHAR,
    "bin": BINARY,
    "dt": DATE,
    "ts": TIMESTAMP,
    "ai": array(INT32),
    "texts": array(VARCHAR),
    "m": map_of(VARCHAR, INT32),
    "st": struct(StructField("a", INT32), StructField("b", VARCHAR)),
}
CELLS: dict[DataType, Column] = {
    type_: Column(number, name, type_) for number, (name, type_) in enumerate(COLUMNS.items())
}
WRITER = ExpressionWriter({column: column.name for column in CELLS.values()})


@pytest.fixture(scope="module")
def table(spark: SparkSession) -> SparkSession:
    ddl = ", ".join(f"{name} {spark_type(type_)}" for name, type_ in COLUMNS.items())
    spark.createDataFrame([], StructType.fromDDL(ddl)).createOrReplaceTempView("cells")
    spark.createDataFrame([], StructType.fromDDL(schema_ddl(TYPES_SCHEMA))).createOrReplaceTempView("types")
    return spark


def _disagreements(
    spark: SparkSession, table: str, expressions: Sequence[tuple[str, DataType]], group: str = ""
) -> list[str]:
    """Expressions whose type is another in Spark, or which it does not take."""
    wrong: list[str] = []
    for start in range(0, len(expressions), AT_ONCE):
        part = expressions[start : start + AT_ONCE]
        items = ", ".join(f"{text} AS x{number}" for number, (text, _) in enumerate(part))
        try:
            fields = spark.sql(f"SELECT {items} FROM {table}{group}").schema.fields
            reported = [field.dataType.simpleString() for field in fields]
        except Exception:
            reported = [_alone(spark, table, text, group) for text, _ in part]
        for (text, type_), theirs in zip(part, reported, strict=True):
            ours = StructType.fromDDL(f"x {spark_type(type_)}")[0].dataType.simpleString()
            if _family(theirs) != _family(ours):
                wrong.append(f"{text}: ours {ours}, Spark's {theirs}")
    return wrong


def _alone(spark: SparkSession, table: str, text: str, group: str) -> str:
    try:
        return spark.sql(f"SELECT {text} AS x FROM {table}{group}").schema[0].dataType.simpleString()
    except Exception as error:
        return str(error).split("\n")[0]


def _family(type_: str) -> str:
    """Spark tells intervals apart by their units; they never leave a query."""
    if type_ in ("interval day", "interval second", "interval hour", "interval minute"):
        return "interval day to second"
    return "interval year to month" if type_ in ("interval month", "interval year") else type_


# Constants for arguments that must be ones, where any will not do.
_CONSTANTS: dict[tuple[str, int], Literal] = {
    **{(name, 1): Literal("UTF-8", VARCHAR) for name in ("encode", "decode")},
    **{(name, 1): Literal("yyyy", VARCHAR) for name in ("to_timestamp", "try_to_timestamp", "to_date", "date_format")},
    **{(name, 1): Literal("UTC", VARCHAR) for name in ("from_utc_timestamp", "to_utc_timestamp")},
    ("from_unixtime", 1): Literal("yyyy", VARCHAR),
    **{(name, 1): Literal("(x)", VARCHAR) for name in ("regexp_extract", "regexp_extract_all")},
    ("format_string", 0): Literal("%s", VARCHAR),
    ("get_json_object", 1): Literal("$.a", VARCHAR),
    ("from_json", 1): Literal("STRUCT<a: INT32, b: ARRAY<VARCHAR>>", VARCHAR),
    ("date_trunc", 0): Literal("HOUR", VARCHAR),
    ("next_day", 1): Literal("MONDAY", VARCHAR),
    ("sha2", 1): Literal(256, INT32),
    ("percentile", 1): Literal(1, INT32),
    ("percentile_approx", 1): Literal(1, INT32),
}


def _calls(function: Function, most: int) -> list[tuple[Expr, ...]]:
    """Arguments of every sort that a function takes."""
    shapes = [function.params + function.optional[:count] for count in range(len(function.optional) + 1)]
    if function.variadic is not None:
        shapes += [function.params + (function.variadic,) * count for count in (1, 2)]
    found: list[tuple[Expr, ...]] = []
    for shape in shapes:
        choices: list[list[Expr]] = []
        for index, param in enumerate(shape):
            constant = _CONSTANTS.get((function.name, index))
            if constant is not None:
                choices.append([constant])
            elif param.literal:
                choices.append(_literals(param.samples[0]))
            else:
                choices.append([CELLS[type_] for type_ in param.samples if type_ in CELLS])
        combined = list(itertools.product(*choices))
        found.extend(combined[:: max(1, len(combined) // most)])
    return found


def _literals(type_: DataType) -> list[Expr]:
    if type_ == BOOL:
        return [Literal(True, BOOL)]
    return [Literal("x", VARCHAR)] if type_ == VARCHAR else [Literal(value, INT32) for value in (-1, 0, 1, 3)]


def test_every_scalar_function_gives_the_type_we_say(table: SparkSession) -> None:
    expressions = []
    for function in SCALAR_FUNCTIONS:
        for args in _calls(function, 60):
            try:
                type_ = function.result_type(args)
            except ArgumentFault:
                continue
            expressions.append((WRITER.write(Call(function.name, args, type_)), type_))
    assert len(expressions) > 2_000
    assert _disagreements(table, "cells", expressions) == []


def test_every_aggregate_gives_the_type_we_say(table: SparkSession) -> None:
    expressions = []
    for function in AGGREGATE_FUNCTIONS:
        for args in _calls(function, 40):
            try:
                type_ = function.result_type(args)
            except ArgumentFault:
                continue
            expressions.append((f"{function.name}({', '.join(WRITER.write(arg) for arg in args)})", type_))
    assert len(expressions) > 200
    assert _disagreements(table, "cells", expressions, " GROUP BY i32") == []


_OPERANDS: list[Expr] = [
    *CELLS.values(),
    Literal(5, INT32),
    Literal(5_000_000_000, INT64),
    Literal(5_000_000, DAY_TIME_INTERVAL),
    Literal(86_400_000_000, DAY_TIME_INTERVAL),
    Literal(2, YEAR_MONTH_INTERVAL),
    Literal(1e3, FLOAT64),
]


def test_every_operator_over_every_two_types_gives_the_type_we_say(table: SparkSession) -> None:
    expressions: list[tuple[str, DataType]] = []
    for left, right in itertools.product(_OPERANDS, _OPERANDS):
        for op in ("+", "-", "*", "/", "%", "div"):
            type_ = arithmetic(op, left, right)
            if type_ is None and op in ("+", "-"):
                type_ = time_arithmetic(op, left, right)
            if type_ is None and op in ("*", "/"):
                type_ = interval_arithmetic(op, left, right)
            if type_ is not None:
                expressions.append((WRITER.write(Call(op, (left, right), type_)), type_))
        together = common_type((left.type, right.type))
        if together is not None:
            expressions.append((WRITER.write(Call("coalesce", (left, right), together)), together))
            if is_orderable(together) and together.kind is not Kind.NULL:
                expressions.append((WRITER.write(Call("greatest", (left, right), together)), together))
        if comparable(left.type, right.type):
            expressions.append((WRITER.write(Call("<=", (left, right), BOOL)), BOOL))
    assert len(expressions) > 1_000
    assert _disagreements(table, "cells", expressions) == []


@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    # Shrinking would run hundreds of Spark jobs; the condition that fails is in the message.
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(texts=st.lists(st.one_of(numbers(), others()), min_size=20, max_size=40))
def test_generated_expressions_have_the_type_we_say(table: SparkSession, texts: list[str]) -> None:
    expressions = []
    for text in texts:
        expr = bound(text)
        if expr is not None and expr.type.kind is not Kind.NULL:
            expressions.append((spark_text(expr), expr.type))
    assert _disagreements(table, "types", expressions) == []
