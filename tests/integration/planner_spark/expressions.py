"""Expressions as a user would write them, for comparing our types and results with Spark's."""

from __future__ import annotations

from hypothesis import strategies as st

from headgate.catalog import v1 as catalog
from headgate_coordinator.sql.algebra import Expr, Project
from headgate_coordinator.sql.bind import bind
from headgate_coordinator.sql.errors import Problems, StatementError
from headgate_coordinator.sql.settings import PlannerSettings
from headgate_coordinator.sql.spark import predicate_text
from headgate_coordinator.sql.types import DataType
from tests.unit.planner.kit import CATALOG, MemoryView, parse_query

VIEW = MemoryView(CATALOG)
TYPES_SCHEMA: catalog.Schema = VIEW.logical["types"].schema

_NUMBERS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f32", "f64", "d10", "d38", "must")
_LITERALS = ("0", "1", "-7", "100", "5000000000", "1.5", "0.001", "2.50", "1e3", "12345678901234567890")


def bound(text: str, source: str = "types") -> Expr | None:
    """The expression over a source; None where it is refused."""
    try:
        statement = parse_query(f"SELECT {text} AS x FROM {source}")
    except StatementError:
        return None
    problems = Problems(statement.source)
    query, _ = bind(statement.select, VIEW, problems, PlannerSettings(), 0, True)
    if query is None or problems:
        return None
    assert isinstance(query.node, Project)
    return query.node.items[0][1]


def spark_text(expr: Expr) -> str:
    return predicate_text(expr)


def type_of(expr: Expr) -> DataType:
    return expr.type


def numbers() -> st.SearchStrategy[str]:
    """Expressions that are numbers, more often than not."""
    leaves = st.sampled_from(_NUMBERS + _LITERALS)
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds("({} {} {})".format, inner, st.sampled_from(("+", "-", "*", "/", "%", "DIV")), inner),
            st.builds("(-{})".format, inner),
            st.builds("{}({})".format, st.sampled_from(("abs", "round", "ceil", "floor", "sqrt", "sign")), inner),
            st.builds("round({}, {})".format, inner, st.integers(-3, 6)),
            st.builds("COALESCE({}, {})".format, inner, inner),
            st.builds("CASE WHEN b THEN {} ELSE {} END".format, inner, inner),
            st.builds("greatest({}, {}, {})".format, inner, inner, inner),
            st.builds("nullif({}, {})".format, inner, inner),
            st.builds("CAST({} AS {})".format, inner, st.sampled_from(_CASTS)),
            st.builds("mod({}, {})".format, inner, inner),
        ),
        max_leaves=8,
    )


_CASTS = (
    "INT8",
    "INT32",
    "INT64",
    "UINT8",
    "UINT64",
    "FLOAT32",
    "FLOAT64",
    "DECIMAL(12,3)",
    "DECIMAL(38,0)",
    "VARCHAR",
)


def others() -> st.SearchStrategy[str]:
    """Expressions of other types."""
    text = st.sampled_from(("s", "c", "doc", "'x'", "upper(s)", "substring(s, 2, 3)", "CAST(i32 AS VARCHAR)"))
    time = st.sampled_from(("ts", "TIMESTAMP '2026-01-31 12:00:00'", "date_trunc('DAY', ts)", "timestamp_millis(i64)"))
    day = st.sampled_from(("day", "DATE '2026-01-31'", "CAST(ts AS DATE)", "day + 3"))
    length = st.sampled_from(("INTERVAL 5 SECONDS", "INTERVAL '2' DAYS", "INTERVAL 1 MONTH"))
    nested = st.sampled_from(("ints", "names", "tags", "place", "place.at", "ARRAY(i8, i64)", "STRUCT(i32 AS a, d10)"))
    anything = st.one_of(text, time, day, numbers(), nested)
    return st.one_of(
        st.builds("{} || {}".format, text, text),
        st.builds("{} + {}".format, time, length),
        st.builds("{} - {}".format, day, length),
        st.builds("timestampdiff(SECOND, {}, {})".format, time, time),
        st.builds("{} {} {}".format, anything, st.sampled_from(("=", "<", ">=", "<=>", "<>")), anything),
        st.builds("COALESCE({}, {})".format, anything, anything),
        st.builds("CASE WHEN i32 > 3 THEN {} WHEN b THEN {} END".format, anything, anything),
        st.builds("ARRAY({}, {})".format, anything, anything),
        st.builds("{} IN ({}, {})".format, anything, anything, anything),
        st.builds("element_at(names, {})".format, st.integers(1, 3)),
        st.builds("CAST({} AS {})".format, anything, st.sampled_from((*_CASTS, "DATE", "TIMESTAMP", "BOOL", "BINARY"))),
        st.builds("STRUCT({} AS p, {} AS q)".format, anything, anything),
        st.builds("if(b, {}, {})".format, anything, anything),
    )
