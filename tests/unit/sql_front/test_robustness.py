"""Whatever is sent: statements, or a typed error of bounded size. Never a trace, never without end."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate.catalog import v1 as catalog
from headgate_common.errors import to_status
from headgate_coordinator.errors import PARSE_ERROR, STATEMENT_TOO_LARGE
from headgate_coordinator.sql.conditions import compile_text
from headgate_coordinator.sql.errors import StatementError
from headgate_coordinator.sql.limits import StatementLimits
from headgate_coordinator.sql.parse import parse_query_statement, parse_statements
from tests.examples import examples
from tests.unit.sql_front.test_statement_corpus import all_cases

pytestmark = pytest.mark.slow

SEEDS = [text for _, _, text in all_cases()]
WORDS = sorted(
    {word for text in SEEDS for word in text.replace("(", " ( ").replace(")", " ) ").replace(",", " , ").split()}
)
# Words that the parser of queries has ways of its own for, most of which no statement of ours uses.
STRANGE = [
    "PIVOT",
    "UNPIVOT",
    "LATERAL",
    "VIEW",
    "TABLESAMPLE",
    "QUALIFY",
    "MATCH_RECOGNIZE",
    "CONNECT",
    "BY",
    "START",
    "WITH",
    "PRIOR",
    "OVER",
    "PARTITION",
    "ROWS",
    "BETWEEN",
    "UNBOUNDED",
    "PRECEDING",
    "CUBE",
    "ROLLUP",
    "GROUPING",
    "SETS",
    "VALUES",
    "UNNEST",
    "WITHIN",
    "GROUP",
    "FILTER",
    "IGNORE",
    "NULLS",
    "AT",
    "TIME",
    "ZONE",
    "CLUSTER",
    "DISTRIBUTE",
    "SORT",
    "NATURAL",
    "CROSS",
    "SEMI",
    "ANTI",
    "FULL",
    "OUTER",
    "USING",
    "RECURSIVE",
    "INTERSECT",
    "EXCEPT",
    "ALL",
    "DISTINCT",
    "ANY",
    "SOME",
    "ESCAPE",
    "INTERVAL",
    "STRUCT",
    "<",
    ">",
    "ARRAY",
    "[",
    "]",
    "MAP",
    "{",
    "}",
    "::",
    "->",
    "=>",
    ":=",
    "?",
    "$",
    "@",
    "#",
    "|",
    "||",
    "&",
    "^",
    "~",
    "!",
    "!=",
    "<=>",
    "%",
    ".",
    ";",
    "'",
    '"',
    "`",
    "--",
    "/*",
    "*/",
    "/*+",
    "\\",
    "X'",
    "0x",
    "1e9",
    "1e",
    "LOCK",
    "FOR",
    "UPDATE",
    "OF",
    "FETCH",
    "FIRST",
    "OFFSET",
    "LIMIT",
    "TOP",
    "KILL",
    "USE",
    "CACHE",
    "LOAD",
    "COPY",
    "MERGE",
    "TRANSFORM",
    "SUMMARIZE",
    "XMLTABLE",
    "CURRENT_TIMESTAMP",
    "EXTRACT",
    "CAST",
    "TRIM",
    "SUBSTRING",
    "OVERLAY",
    "POSITION",
    "CHAR",
    "JSON_TABLE",
    "DECODE",
    "CONVERT",
    "NEXT",
    "VALUE",
    "IF",
]


def outcome(text: str, limits: StatementLimits | None = None) -> StatementError | None:
    try:
        statements = parse_statements(text, limits)
    except StatementError as error:
        check(error, text)
        return error
    assert statements
    for statement in statements:
        assert text[statement.offset :].startswith(statement.text)
    return None


def check(error: StatementError, text: str) -> None:
    lines = text.count("\n") + 1
    for problem in error.problems:
        assert 0 <= problem.line <= lines
        assert (problem.line == 0) == (problem.column == 0)
        assert problem.message and len(problem.message) < 2_000
    assert len(to_status(error).SerializeToString()) < 100_000


@settings(deadline=None, max_examples=examples(300), suppress_health_check=[HealthCheck.too_slow])
@given(st.text(max_size=400))
def test_any_text(text: str) -> None:
    outcome(text)


@settings(deadline=None, max_examples=examples(500), suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.sampled_from(WORDS + STRANGE), max_size=40))
def test_any_sequence_of_words(words: list[str]) -> None:
    outcome(" ".join(words))
    outcome("SELECT " + " ".join(words))


@settings(deadline=None, max_examples=examples(500), suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(SEEDS), st.data())
def test_mutated_statements(text: str, data: st.DataObject) -> None:
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 12)))
        put = data.draw(
            st.one_of(st.just(""), st.sampled_from(WORDS + STRANGE), st.text(max_size=4), st.just(text[start:end] * 3))
        )
        text = text[:start] + put + text[end:]
    outcome(text)


@settings(deadline=None, max_examples=examples(200), suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.sampled_from(
            [
                *STRANGE,
                "name",
                "state",
                "slots",
                "'ACTIVE'",
                "=",
                "1",
                "NULL",
                "AND",
                "OR",
                "NOT",
                "(",
                ")",
                "IN",
                "LIKE",
            ]
        ),
        max_size=20,
    )
)
def test_any_condition(words: list[str]) -> None:
    try:
        compile_text(catalog.RESOURCE_KIND_AGENT, " ".join(words))(catalog.Agent(name="a"))
    except StatementError as error:
        check(error, " ".join(words))


NESTED = {
    "brackets": ("SELECT ", "(", "1", ")"),
    "calls": ("SELECT ", "f(", "1", ")"),
    "calls_in_brackets": ("SELECT ", "f((", "1", "))"),
    "types_as_calls": ("SELECT ", "date(", "1", ")"),
    "decimals_as_calls": ("SELECT ", "decimal(", "1", ")"),
    "structs": ("SELECT ", "struct(", "1", ")"),
    "casts": ("SELECT ", "cast(", "1", " as int)"),
    "cases": ("SELECT ", "case when ", "1", " then 1 end"),
    "elses": ("SELECT ", "case when a then b else ", "1", " end"),
    "sub_selects": ("SELECT * FROM ", "(SELECT * FROM ", "t", ")"),
    "exists": ("SELECT ", "EXISTS(SELECT ", "1", ")"),
    "in_selects": ("SELECT 1 WHERE ", "a IN (SELECT a FROM t WHERE ", "b", ")"),
    "minus": ("SELECT ", "- ", "1", ""),
    "not": ("SELECT ", "NOT ", "a", ""),
    "lambdas": ("SELECT ", "f(x -> ", "1", ")"),
    "arrows": ("SELECT f(", "a -> ", "1", ")"),
    "indexes": ("SELECT a", "[1", "", "]"),
    "arrays": ("SELECT ", "[", "1", "]"),
    "intervals": ("SELECT ", "INTERVAL ", "1", ""),
    "with": ("", "WITH a AS (", "SELECT 1", ") SELECT 1"),
    "unions": ("", "(", "SELECT 1", " UNION ALL SELECT 1)"),
    "joins": ("SELECT * FROM a ", "JOIN (a ", "", ")"),
    "between": ("SELECT ", "a BETWEEN ", "1", " AND 2"),
    "overs": ("SELECT f() ", "OVER (ORDER BY f() ", "", ")"),
    "windows": ("SELECT * FROM ", "TUMBLE((SELECT * FROM ", "t", "), ts, '5 s')"),
    "types": ("SELECT CAST(a AS ", "ARRAY<", "INT", ">"),
    "declared_types": ("CREATE SINK s (a ", "ARRAY<", "INT", ">"),
    "structs_of_types": ("CREATE SINK s (a ", "STRUCT<x: ", "INT", ">"),
    "options": ("CREATE SINK s (a INT) TYPE VOID SET", "(", "", ")"),
    "cubes": ("SELECT a GROUP BY ", "CUBE(", "a", ")"),
    "and_not": ("SELECT ", "a AND NOT (", "a", ")"),
}


@pytest.mark.parametrize("depth", [30, 64, 10_000])
@pytest.mark.parametrize("name", NESTED)
def test_nesting(name: str, depth: int) -> None:
    before, opening, inner, closing = NESTED[name]
    error = outcome(before + opening * depth + inner + closing * depth)
    if depth == 10_000:
        assert error is not None
    outcome(before + opening * depth)


@pytest.mark.parametrize(
    "name", ["brackets", "calls", "cases", "sub_selects", "exists", "casts", "structs", "minus", "not"]
)
def test_nesting_within_the_limit_is_read(name: str) -> None:
    before, opening, inner, closing = NESTED[name]
    depth = 60
    assert outcome(before + opening * depth + inner + closing * depth) is None


@pytest.mark.parametrize("operator", ["AND", "OR", "+", "||", "*", "UNION ALL SELECT"])
def test_long_chains(operator: str) -> None:
    assert outcome("SELECT a" + f" {operator} a" * 300) is None
    error = outcome("SELECT a" + f" {operator} a" * 10_000)
    assert error is not None and error.reason is STATEMENT_TOO_LARGE


MIB = 1 << 20
LARGE = {
    "too_long": "SELECT " + "1," * (5 * MIB),
    "numbers": "SELECT " + "1," * (MIB // 2 - 10) + "1",
    "semicolons": ";" * MIB,
    "backslashes": "\\" * MIB,
    "quotes": "'" * (MIB - 1),
    "dollars": "$" * MIB,
    "open_comments": "/*" * (MIB // 2),
    "brackets": "(" * MIB,
    "nul": "SELECT 1" + "\0" * 1_000,
    "one_string": "SELECT '" + "a" * MIB,
    "hexadecimal": "x'" * (MIB // 2),
    "columns": "CREATE SINK s (" + ",".join(f"c{i} INT" for i in range(10_000)) + ") TYPE VOID",
    "statements": "SELECT 1;" * 2_000,
    "name": "DROP SINK " + "a" * (MIB - 100),
    "type": "CREATE SINK s (a " + "x" * (MIB - 100) + ") TYPE VOID",
    "option": "CREATE SINK s (a INT) TYPE FILE SET('" + "x" * (MIB - 100) + "' AS SINK.FILE_PATH)",
    "alternating": "a'b`c\"d" * (MIB // 8),
    "joins": "SELECT * FROM a " + "JOIN a " * 10_000,
    "digits": "SELECT a FROM t WINDOW TUMBLING(ts, SIZE " + "9" * 500_000 + " SEC)",
}


@pytest.mark.parametrize("name", LARGE)
def test_large_texts_are_refused(name: str) -> None:
    assert outcome(LARGE[name]) is not None


def test_nul_is_refused_at_its_place() -> None:
    error = outcome("SELECT 1;\nSELECT '\0'")
    assert error is not None and error.reason is PARSE_ERROR
    assert (error.problems[0].line, error.problems[0].column) == (2, 9)


def test_limits_are_configurable() -> None:
    assert outcome("SELECT 1", StatementLimits(max_length=7)) is not None
    assert outcome("SELECT 1, 2", StatementLimits(max_tokens=3)) is not None
    assert outcome("SELECT ((1))", StatementLimits(max_depth=1)) is not None
    assert outcome("SELECT 1; SELECT 2", StatementLimits(max_statements=1)) is not None
    assert outcome("SELECT 1 + 1 + 1 + 1", StatementLimits(max_chain=2)) is not None


def test_one_query_is_expected_where_one_is_asked_for() -> None:
    assert parse_query_statement("SELECT 1;").sink is None
    for text in ("SELECT 1; SELECT 2", "SHOW QUERIES", "EXPLAIN SELECT 1"):
        with pytest.raises(StatementError):
            parse_query_statement(text)
