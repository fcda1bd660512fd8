"""Filters on Arrow batches keep the rows that Spark keeps."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from headgate_agent.fragments.pushdown import compile_pushdown
from headgate_agent.fragments.types import columns_of
from headgate_coordinator.sql.errors import StatementError
from tests.integration.planner_spark.expressions import TYPES_SCHEMA
from tests.integration.planner_spark.streams import schema_ddl
from tests.unit.fragments.generated import ROWS, predicates
from tests.unit.fragments.test_pushdown import batch_of, source_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@settings(
    max_examples=6,
    deadline=None,
    derandomize=True,
    # Shrinking would run hundreds of Spark jobs; the condition that fails is in the message.
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(rows=st.lists(ROWS, min_size=10, max_size=30), conditions=st.lists(predicates(), min_size=40, max_size=60))
def test_an_agent_keeps_the_rows_that_spark_keeps(
    spark: SparkSession, rows: list[dict[str, Any]], conditions: list[str]
) -> None:
    schema = StructType.fromDDL(schema_ddl(TYPES_SCHEMA))
    numbered = [{**row, "must": number} for number, row in enumerate(rows)]
    table = spark.createDataFrame([tuple(row.get(field.name) for field in schema) for row in numbered], schema)
    table.coalesce(1).createOrReplaceTempView("whole")
    batch = batch_of(TYPES_SCHEMA, numbered)
    filters: list[str] = []
    kept: list[list[int]] = []
    for condition in conditions:
        try:
            source = source_of(condition)
        except StatementError:
            continue
        if source.HasField("predicate"):
            filters.append(source.filter)
            kept.append(compile_pushdown(source, columns_of(source.schema)).apply(batch).column("must").to_pylist())
    assume(filters)
    # All in one job: each costs more than what it computes.
    columns = ", ".join(f"({text}) IS TRUE AS kept{number}" for number, text in enumerate(filters))
    theirs = spark.sql(f"SELECT must, {columns} FROM whole ORDER BY must").collect()
    for number, (text, ours) in enumerate(zip(filters, kept, strict=True)):
        assert ours == [row[0] for row in theirs if row[number + 1]], text
