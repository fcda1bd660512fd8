"""A constant that we compute is the value, of the type, that Spark computes."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from headgate_coordinator.sql.algebra import Literal
from headgate_coordinator.sql.fold import fold
from tests.integration.planner_spark.expressions import bound, spark_text

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

_LITERALS = (
    *("0", "1", "-7", "100", "2147483647", "-2147483648", "5000000000", "9223372036854775807", "1.5", "0.001", "2.50"),
    *("99999999999999999999", "FLOAT32(40)", "CAST(5 AS INT8)", "CAST(1.25 AS FLOAT64)", "CAST(300 AS INT16)"),
)


def _numbers() -> st.SearchStrategy[str]:
    return st.recursive(
        st.sampled_from(_LITERALS),
        lambda inner: st.one_of(
            st.builds("({} {} {})".format, inner, st.sampled_from(("+", "-", "*", "/", "%", "DIV")), inner),
            st.builds("(-{})".format, inner),
            st.builds("CASE WHEN {} > {} THEN {} ELSE {} END".format, inner, inner, inner, inner),
            st.builds("CAST({} AS {})".format, inner, st.sampled_from(("INT64", "DECIMAL(30,4)", "FLOAT64"))),
        ),
        max_leaves=6,
    )


def _others() -> st.SearchStrategy[str]:
    truth = st.sampled_from(("TRUE", "FALSE", "NULL", "b"))
    text = st.sampled_from(("'a'", "'B'", "'é'", "''"))
    return st.one_of(
        st.builds("({} AND {}) OR NOT {}".format, truth, truth, truth),
        st.builds("{} {} {}".format, _numbers(), st.sampled_from(("=", "<", ">=", "<>")), _numbers()),
        st.builds("{} {} {}".format, text, st.sampled_from(("=", "<", ">=")), text),
        st.builds("{} || {}".format, text, text),
        st.builds("CASE WHEN {} THEN {} WHEN {} THEN {} ELSE 'z' END".format, truth, text, truth, text),
        st.builds("TIMESTAMP '2026-01-31 12:00:00' + INTERVAL {} SECONDS".format, st.integers(-1000, 1000)),
        st.builds("{} IS NULL".format, truth),
    )


def _value(spark: SparkSession, text: str) -> tuple[str, str]:
    """Type and value in Spark; the kind of error where there is none."""
    try:
        frame = spark.sql(f"SELECT {text} AS x FROM VALUES (CAST(NULL AS BOOLEAN)) AS t(b)")
        return frame.schema[0].dataType.simpleString(), repr(frame.collect()[0][0])
    except Exception as error:
        return "error", str(error)[1:24]


@settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(texts=st.lists(st.one_of(_numbers(), _others()), min_size=10, max_size=20))
def test_folded_constants_are_what_spark_computes(spark: SparkSession, texts: list[str]) -> None:
    for text in texts:
        expr = bound(text)
        if expr is None:
            continue
        folded = fold(expr)
        if folded == expr:
            continue
        before, after = _value(spark, spark_text(expr)), _value(spark, spark_text(folded))
        assert before == after, (text, spark_text(expr), spark_text(folded))


def test_common_constants_are_folded() -> None:
    for text in (
        "1 + 2 * 3",
        "'a' || 'b'",
        "NOT TRUE",
        "FLOAT32(40)",
        "10 DIV 3",
        "1 > 2 OR TRUE",
        "CAST(5 AS INT64) + 1",
    ):
        expr = bound(text)
        assert expr is not None
        assert isinstance(fold(expr), Literal), text
    overflow = bound("2147483647 + 1")
    assert overflow is not None
    assert not isinstance(fold(overflow), Literal)
