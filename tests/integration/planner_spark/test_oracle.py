"""Every SELECT feature of the reference runs on Spark over real rows, and gives what an independent oracle gives.

Queries are planned by our planner from our dialect and run as streams of several batches, to the end; the oracle is
DuckDB over the same rows, or plain Python where DuckDB has no such thing. A section, an example or a function of
`docs/sql/select.md` that no case has is found at the end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark.sql import SparkSession

from headgate_coordinator.sql.functions import AGGREGATE_FUNCTIONS, SCALAR_FUNCTIONS
from tests.integration.planner_spark.oracle import joins, scalars, shapes, windows
from tests.integration.planner_spark.oracle.case import (
    Case,
    columns_apart,
    differences,
    duck,
    expected_rows,
    spark_rows,
)
from tests.integration.planner_spark.oracle.rows import PAGE
from tests.integration.planner_spark.streams import Streams, schema_ddl

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

# Most of a query's time is waiting, so that more of them than there are cores run at a time.
WORKERS = 4
CASES = {case.name: case for case in (*shapes.CASES, *windows.CASES, *joins.CASES)}
GROUPS = {f"functions: {name}": group for name, group in scalars.GROUPS.items()}


@pytest.fixture(scope="module")
def verdicts(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, str]:
    """How the results of each selected case differ from the oracle's; empty where they do not."""
    items = [item for item in request.session.items if getattr(item, "module", None) is request.module]
    selected = [item.callspec.params["name"] for item in items if hasattr(item, "callspec")]
    folder = tmp_path_factory.mktemp("oracle")
    streams = Streams(spark, folder)
    connection = duck(lambda schema: streams.arrow_schema(schema_ddl(schema)))

    def check(name: str) -> tuple[str, str]:
        # In a session of its own, because views have names.
        own = Streams(spark.newSession(), folder / re.sub(r"\W+", "_", name))
        return name, _caught(lambda: _of_group(name, own) if name in GROUPS else _of_case(CASES[name], own))

    def _of_case(case: Case, own: Streams) -> str:
        found = spark_rows(own, case.query)
        expected = expected_rows(case, connection)
        assert expected, f"{case.name} expects nothing, which shows nothing"
        return differences(case.seen(found) if case.seen is not None else found, expected)

    def _of_group(name: str, own: Streams) -> str:
        group = GROUPS[name]
        return columns_apart(spark_rows(own, scalars.query(group)), scalars.expected(group, connection), ["n", *group])

    with ThreadPoolExecutor(WORKERS) as pool:
        return dict(pool.map(check, selected))


def _caught(check: Callable[[], str]) -> str:
    try:
        return check()
    except Exception as error:
        return f"{type(error).__name__}: {str(error).split('JVM stacktrace')[0][:2000]}"


@pytest.mark.parametrize("name", [*CASES, *GROUPS])
def test_results_are_those_of_the_oracle(name: str, verdicts: Mapping[str, str]) -> None:
    assert verdicts[name] == ""


def test_a_wrong_result_is_noticed() -> None:
    assert differences([(1, 2.0), (1, 2.0)], [(1, 2.0)]).startswith("lost 0")
    assert differences([(1, 2.0)], [(1, 2.0000001)]) != ""
    assert differences([(1, float("nan"), None)], [(1, float("nan"), None)]) == ""
    assert "x in row 1" in columns_apart([(1, "a")], [(1, "b")], ["n", "x"])
    assert "rows" in columns_apart([(1, "a")], [(1, "a"), (2, "a")], ["n", "x"])


# Sections without a SELECT of their own.
NOT_QUERIES = {
    "Queries": "introduces the page; every case is one",
    "Functions": "each function is looked for by its name",
}


def _normal(text: str) -> str:
    return " ".join(text.split())


def test_every_section_of_the_reference_has_a_case() -> None:
    sections = {match[1] for match in re.finditer(r"^#+ (.+)$", PAGE.read_text(), re.MULTILINE)}
    assert set(NOT_QUERIES) <= sections
    assert sections - set(NOT_QUERIES) == {case.section for case in CASES.values()}


def test_every_example_of_the_reference_is_a_case() -> None:
    examples = re.findall(r"^```sql\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    wanted = {_normal(text) for text in examples if not text.startswith("CREATE ")}
    assert len(wanted) > 15
    assert wanted - {_normal(case.query) for case in CASES.values()} == set()


def test_every_function_of_the_reference_is_called_by_a_case() -> None:
    queries = [case.query for case in CASES.values()] + [text for group in scalars.GROUPS.values() for text in group]
    called = {name.lower() for query in queries for name in re.findall(r"(\w+)\(", query)}
    listed = {name for one in (*AGGREGATE_FUNCTIONS, *SCALAR_FUNCTIONS) for name in (one.name, *one.synonyms)}
    written = set(re.findall(r"`(\w+)`", PAGE.read_text().partition("<!-- functions -->")[2].partition("<!-- end")[0]))
    assert listed == written
    assert listed - called == set()
