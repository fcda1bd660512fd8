"""Every accepted query of the corpus is analysed, checked and run by Spark as a stream, with the types we said."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headgate.catalog import v1 as catalog
from headgate_coordinator.sql.errors import StatementError
from tests.integration.planner_spark.streams import Streams, compute_of, schema_ddl, simple_types
from tests.unit.planner.kit import Case, cases, corpus_files, plan

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]

# Most of a query's time is waiting, so that more of them than there are cores run at a time.
WORKERS = 4


def _accepted(path: Path) -> list[Case]:
    if path.stem.startswith("refused"):
        return []
    return [case for case in cases(path) if not case.name.startswith("refused")]


CASES = {f"{path.stem}-{case.name}": case for path in corpus_files() for case in _accepted(path)}


def _check(spark: SparkSession, folder: Path, case: Case) -> str:
    """What Spark has against a plan; empty if nothing. In a session of its own, because views have names."""
    try:
        compute = compute_of(plan(case.query, case.view()))
    except StatementError as error:
        return f"refused: {error}"
    own = Streams(spark.newSession(), folder)
    for entry in compute.inputs:
        own.register(entry, own.empty(schema_ddl(entry.schema)))
    try:
        frame = own.spark.sql(compute.spark_sql)
        types = [(field.name, field.dataType.simpleString()) for field in frame.schema]
        if types != simple_types(compute.output):
            return f"Spark's types are {types}, ours {simple_types(compute.output)}"
        own.check_supported(frame, compute.output_mode)
        if compute.stateful:
            # What state needs (one event time at each join, an equality, ...) shows only when a batch is planned.
            own.run(frame, compute.output_mode)
    except Exception as error:
        return f"{str(error).split('JVM stacktrace')[0][:2000]}\n{compute.spark_sql}"
    return ""


@pytest.fixture(scope="module")
def verdicts(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, str]:
    """What Spark says to each of the selected queries."""
    items = [item for item in request.session.items if getattr(item, "module", None) is request.module]
    selected = [item.callspec.params["name"] for item in items if hasattr(item, "callspec")]
    folder = tmp_path_factory.mktemp("corpus")

    def check(name: str) -> tuple[str, str]:
        own = folder / name
        own.mkdir()
        return name, _check(spark, own, CASES[name])

    with ThreadPoolExecutor(WORKERS) as pool:
        return dict(pool.map(check, selected))


@pytest.mark.parametrize("name", list(CASES))
def test_spark_runs_the_query_as_a_stream_with_our_types(name: str, verdicts: Mapping[str, str]) -> None:
    assert verdicts[name] == ""


def test_a_plan_that_spark_refuses_is_noticed(spark: SparkSession, tmp_path: Path) -> None:
    case = next(case for case in CASES.values() if case.name == "exact_distinct")
    broken = plan(case.query, case.view())
    compute = compute_of(broken)
    own = Streams(spark.newSession(), tmp_path)
    for entry in compute.inputs:
        own.register(entry, own.empty(schema_ddl(entry.schema)))
    frame = own.spark.sql("SELECT count(DISTINCT vehicle) AS n FROM input_1 GROUP BY window(creationTS, '1 minute')")
    with pytest.raises(Exception, match="Distinct aggregations"):
        own.check_supported(frame, "append")
    assert broken.mode == catalog.QUERY_MODE_EXACTLY_ONCE
