"""Pushing filters into source fragments changes no result, whatever the rows are."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from headgate_coordinator.sql.errors import StatementError
from tests.integration.planner_spark.expressions import TYPES_SCHEMA
from tests.integration.planner_spark.streams import compute_of, schema_ddl
from tests.unit.fragments.generated import ROWS, VIEW, predicates
from tests.unit.planner.kit import plan
from tests.unit.planner.predicates import keeps

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


def _numbers_of(spark: SparkSession, text: str) -> list[int]:
    return sorted(row[0] for row in spark.sql(text).collect())


def _check(spark: SparkSession, rows: Sequence[Mapping[str, Any]], conditions: Sequence[str]) -> int:
    """Compares each condition pushed down with the same text given to Spark; answers how many were pushed."""
    schema = StructType.fromDDL(schema_ddl(TYPES_SCHEMA))
    numbered = [{**row, "must": number} for number, row in enumerate(rows)]
    table = spark.createDataFrame([tuple(row.get(field.name) for field in schema) for row in numbered], schema)
    # Not cached: a cache leaves out rows by the least and greatest value of a column, and forgets NaN there.
    table.coalesce(1).createOrReplaceTempView("whole")
    pushed = 0
    for condition in conditions:
        try:
            made = plan(f"SELECT must, s FROM types WHERE {condition} INTO out", VIEW)
        except StatementError:
            continue
        source = made.fragments[0].source
        wanted = _numbers_of(spark, f"SELECT must FROM whole WHERE {condition}")
        columns = ", ".join(f"`{name}`" for name in source.columns)
        kept = f"SELECT {columns}, must AS number FROM whole WHERE {source.filter or 'true'}"
        spark.sql(kept).createOrReplaceTempView("input_1")
        assert _numbers_of(spark, f"SELECT must FROM ({compute_of(made).spark_sql})") == wanted, condition
        if source.filter:
            pushed += 1
            ours = [row["must"] for row in numbered if keeps(source.predicate, row)]
            assert _numbers_of(spark, "SELECT number FROM input_1") == ours, (condition, source.filter)
    return pushed


@settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    # Shrinking would run hundreds of Spark jobs; the condition that fails is in the message.
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(rows=st.lists(ROWS, min_size=5, max_size=20), conditions=st.lists(predicates(), min_size=6, max_size=10))
def test_same_rows_with_and_without_push_down(
    spark: SparkSession, rows: list[dict[str, Any]], conditions: list[str]
) -> None:
    assume(_check(spark, rows, conditions) > 0)


def test_a_filter_pushed_with_another_meaning_is_noticed(spark: SparkSession) -> None:
    rows = [{"f64": math.nan}, {"f64": 1.0}]
    assert _check(spark, rows, ["f64 > 5"]) == 1
    made = plan("SELECT must, s FROM types WHERE f64 > 5 INTO out", VIEW)
    assert keeps(made.fragments[0].source.predicate, {"f64": math.nan})
    assert not keeps(made.fragments[0].source.predicate, {"f64": None})
