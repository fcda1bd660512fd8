"""Literals that Spark reads only when a row comes: what it would then fail on is refused, and nothing else."""

from __future__ import annotations

import random
import string

import pytest
from pyspark.sql import SparkSession

from headgate_coordinator.sql.functions.formats import FormatFault, check_format
from headgate_coordinator.sql.functions.regular import RegularFault, check_regular, check_replacement
from headgate_coordinator.sql.functions.times import TimePatternFault, check_time_pattern
from headgate_coordinator.sql.types import FLOAT64, INT32, VARCHAR, decimal

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

PIECES = [
    *("a", "b", "z", "0", "é", "-", "]", "[", "[^", "[]", "[^]", "[a-z]", "[z-a]", "[a-\\d]", "[\\d-a]", "[a&&b]"),
    *("[a[b]]", "(", "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?<n>", "(?<m1>", "(?P<n>", "(?(1)a|b)", "(?i)"),
    *("(?i:", "(?x)", "(?-x)", "(?z)", ")", ")", ")", "|", "*", "+", "?", "*?", "+?", "?+", "{2}", "{2,}", "{2,3}"),
    *("{3,2}", "{,2}", "{", "}", "\\d", "\\w", "\\b", "\\1", "\\k<n>", "\\Q", "\\E", "\\p{L}", "\\pL", "\\x41"),
    *("\\u0041", "\\x{41}", "\\c", "\\y", "\\i", "\\.", "\\\\", "\\-", "\\]", "\\", "&&", "&", "^", "$", ".", "#"),
    *(" ", "\n", "\\07", "\\0", "\\R", "\\X", "\\G", "\\A", "\\z", "\\Z", "\\h", "\\v"),
]


def _text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _runs(spark: SparkSession, expression: str) -> bool:
    try:
        spark.sql(f"SELECT {expression} AS x").collect()
    except Exception:
        return False
    return True


def test_regular_expressions_are_read_as_java_reads_them(spark: SparkSession) -> None:
    assert spark._jvm is not None
    compiler = spark._jvm.java.util.regex.Pattern
    chance = random.Random(4)
    patterns = [*PIECES, *("".join(chance.choices(PIECES, k=chance.randint(2, 5))) for _ in range(2_500))]
    accepted = 0
    for pattern in patterns:
        try:
            java: int | None = compiler.compile(pattern).matcher("").groupCount()
        except Exception:
            java = None
        try:
            ours: int | None = check_regular(pattern)
        except RegularFault:
            ours = None
        assert ours == java, repr(pattern)
        accepted += ours is not None
    assert 300 < accepted < len(patterns) - 300


@pytest.mark.parametrize("replacement", ["$1", "$2", "$0", "$", "$x", "a\\", "\\$", "$1$1", "\\\\", "$19"])
def test_replacements_are_read_as_java_reads_them(spark: SparkSession, replacement: str) -> None:
    try:
        check_replacement(replacement, 1)
        ours = True
    except RegularFault:
        ours = False
    assert _runs(spark, f"regexp_replace('a', '(a)', {_text(replacement)})") is ours


def _time_patterns() -> list[str]:
    """Every letter, as often as it may stand in a row and once more."""
    counts = (
        dict.fromkeys(string.ascii_letters, (1,)) | dict.fromkeys("GMLEQqzO", (4, 5)) | dict.fromkeys("dHKs", (2, 3))
    )
    counts |= {"y": (6, 7), "D": (3, 4), "S": (9, 10), "a": (1, 2), "F": (1, 2), "X": (5, 6), "Z": (5, 6), "V": (1, 2)}
    counted = [letter * count for letter, several in counts.items() for count in several]
    return [*counted, "yyyy-MM-dd'T'HH:mm:ssZ", "yyyy''MM", "a'b", "[HH]", "HH]", "[HH", "{", "'{'", "é", "#"]


@pytest.mark.parametrize("reading", [False, True], ids=["written", "read"])
def test_patterns_of_times_are_those_that_spark_takes(spark: SparkSession, reading: bool) -> None:
    wrong = []
    for pattern in _time_patterns():
        try:
            check_time_pattern(pattern, reading)
            ours = True
        except TimePatternFault:
            ours = False
        literal = _text(pattern)
        written = f"date_format(TIMESTAMP'2026-01-31 12:34:56', {literal})"
        expression = f"to_timestamp('?', {literal})" if reading else written
        try:
            spark.sql(f"SELECT {expression} AS x").collect()
            sparks = True
        except Exception as error:
            # A text that does not match the pattern is the row's fault.
            sparks = reading and "CANNOT_PARSE_TIMESTAMP" in str(error)
        if ours is not sparks:
            wrong.append((pattern, ours))
    assert wrong == []


VALUES = {"1": INT32, "1.5D": FLOAT64, "CAST(1.5 AS DECIMAL(10,2))": decimal(10, 2), "'x'": VARCHAR}


def test_formats_fit_their_arguments_as_in_java(spark: SparkSession) -> None:
    cases = [(f"%{letter}", value) for letter in "dxcfegshb" for value in VALUES]
    texts = ["%5d", "%-d", "%05d", "%0d", "%.2d", "%,d", "%1$s %1$s", "%2$s", "%<s", "%s %<s", "%%", "%n", "%", "%5"]
    cases += [(text, "1") for text in (*texts, "a", "%s%s", "%-05d", "%++d", "%.3s", "%+ d", "%k", "%5n")]
    wrong = []
    for text, value in cases:
        try:
            check_format(text, [VALUES[value]])
            ours = True
        except FormatFault:
            ours = False
        if _runs(spark, f"format_string({_text(text)}, {value})") is not ours:
            wrong.append((text, value, ours))
    assert wrong == []
