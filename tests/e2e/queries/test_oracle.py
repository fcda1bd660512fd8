"""Queries of the SQL reference through a whole cluster: agents that read, edges, an engine with its own sources, state
and commits, and files at the end. The results are held against the oracle's.

`tests/integration/planner_spark/test_oracle.py` compares every feature, on streams of Spark's own. Here are those with
state, with several inputs and with several uses of one input: what comes of them depends on how an engine runs them.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
from confluent_kafka import Producer

from headgate.catalog import v1 as catalog
from headgate_agent.fragments.types import arrow_schema, columns_of
from headgate_common.errors import HeadgateError
from tests.e2e.queries.kit import QueryCluster, query_cluster, until
from tests.integration.planner_spark.oracle import joins, shapes, windows
from tests.integration.planner_spark.oracle.case import (
    Case,
    Row,
    catalog_view,
    differences,
    duck,
    expected_rows,
    planned,
)
from tests.integration.planner_spark.oracle.rows import ARRIVING, LATENESS

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

WAIT_SECONDS = 300.0
# Queries at a time: beyond it they would wait for each other within Spark.
AT_ONCE = 4
SOURCES = ("lrb", "orders", "payments", "shipments", "ticks")
CASES = {case.name: case for case in (*shapes.CASES, *windows.CASES, *joins.CASES)}
CHOSEN = (
    "same_source_twice_in_a_union",
    "with_query_used_twice",
    "grouping_with_itself_in_a_union",
    "union_of_windowed_queries",
    "distinct_rows_of_a_window",
    "first_rows_of_each_group",
    "sliding",
    "sessions_of_each_group",
    "integer_time",
    "windows_of_sessions_by_their_last_instant",
    "distinct_filters_first_and_last",
    "full_within_a_time_range",
    "full_within_a_window_then_grouped",
    "equal_windows_of_both_sides",
    "three_streams_within_time_ranges",
    "with_itself_by_using",
    "join_then_window",
    "in_a_grouped_window",
    "not_exists_then_grouped",
)
# The same sources as topics, by the way in which an engine reads them.
TOPICS = {"grpc": "cars_grpc", "kafka": "cars_kafka"}
OVER_TOPICS = ("with_query_used_twice", "grouping_with_itself_in_a_union")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, spark_kafka_jars: list[Path]) -> Iterator[QueryCluster]:
    lateness = f"timings.lateness={LATENESS.total_seconds():g}s"
    with query_cluster(tmp_path_factory.mktemp("oracle"), settings=("--set", lateness)) as made:
        view = catalog_view()
        for name in SOURCES:
            schema = view.logical[name].schema
            path = made.files / f"{name}.json"
            path.write_text("".join(_line(row) for rows in ARRIVING[name] for row in rows))
            made.sql(
                f"CREATE LOGICAL SOURCE {name} ({_columns(schema)}); CREATE PHYSICAL SOURCE FOR {name} TYPE FILE ON a "
                f"SET('{path}' AS `SOURCE`.file_path, 'JSON' AS PARSER.`type`)"
            )
        for transport, name in TOPICS.items():
            made.sql(
                f"CREATE TOPIC {name} PARTITIONS 2; "
                f"CREATE LOGICAL SOURCE {name} ({_columns(view.logical['lrb'].schema)}); "
                f"CREATE PHYSICAL SOURCE FOR {name} TYPE TOPIC SET('{name}' AS `SOURCE`.topic, "
                f"'{transport}' AS `SOURCE`.transport, 'earliest' AS `SOURCE`.start, 'JSON' AS PARSER.`type`)"
            )
        yield made


@pytest.fixture(scope="module")
def oracle() -> Iterator[duckdb.DuckDBPyConnection]:
    with duck(lambda schema: arrow_schema(columns_of(schema))) as connection:
        yield connection


@pytest.fixture(scope="module")
def verdicts(cluster: QueryCluster, oracle: duckdb.DuckDBPyConnection) -> Mapping[str, str]:
    """How the results of each query differ from the oracle's; empty where they do not."""

    def check(name: str) -> tuple[str, str]:
        case = CASES[name]
        try:
            make(cluster, name, case.query)
            cluster.wait(name, "TERMINATED", seconds=WAIT_SECONDS)
            return name, compared(case, results(cluster, name, case.query), oracle)
        except (HeadgateError, AssertionError) as error:
            return name, repr(error)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(pool.map(check, CHOSEN))


@pytest.mark.parametrize("name", CHOSEN)
def test_results_of_a_cluster_are_those_of_the_oracle(name: str, verdicts: Mapping[str, str]) -> None:
    assert verdicts[name] == ""


@pytest.mark.parametrize("transport", TOPICS)
def test_a_grouping_of_a_topic_that_is_used_twice_has_all_its_rows_at_each_use(
    cluster: QueryCluster, oracle: duckdb.DuckDBPyConnection, transport: str
) -> None:
    topic = TOPICS[transport]
    rows = [row for batch in ARRIVING["lrb"] for row in batch]
    produce(cluster, topic, rows)
    # Each query reads the topic once for each use.
    names = {name: f"{name}_{transport}" for name in OVER_TOPICS}
    for name, query in names.items():
        make(cluster, query, CASES[name].query.replace("lrb", topic), CASES[name].query)
    for query in names.values():
        until(lambda query=query: taken(cluster, query) >= len(rows), f"{query} to read", WAIT_SECONDS)  # type: ignore[misc]
        cluster.sql(f"STOP QUERY {query} WITHIN 5 MIN")
    for name, query in names.items():
        cluster.wait(query, "STOPPED", seconds=WAIT_SECONDS)
        assert compared(CASES[name], results(cluster, query, CASES[name].query), oracle) == ""


def make(cluster: QueryCluster, name: str, text: str, like: str = "") -> None:
    """Creates a query into a file; its columns are those of the query that it is `like`."""
    columns = _columns(_schema(like or text))
    cluster.sql(
        f"CREATE SINK {name} ({columns}) TYPE FILE ON a SET('{_out(cluster, name)}' AS `SINK`.file_path, "
        "'JSON' AS `SINK`.input_format)"
    )
    cluster.sql(f"CREATE QUERY {name} AS {text} INTO {name}")


def taken(cluster: QueryCluster, query: str) -> int:
    (compute,) = [one for one in cluster.fragments(query) if one.kind == catalog.FRAGMENT_KIND_COMPUTE]
    return compute.progress.rows_in


def produce(cluster: QueryCluster, topic: str, rows: list[Mapping[str, Any]]) -> None:
    servers = cluster.agents["a"].arguments[cluster.agents["a"].arguments.index("--kafka-listen") + 1]
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for number, row in enumerate(rows):
        # In two partitions; rows are out of order by less than the lateness in each.
        producer.produce(topic, _line(row).encode(), partition=number % 2)
    assert producer.flush(60) == 0


def compared(case: Case, found: list[Row], oracle: duckdb.DuckDBPyConnection) -> str:
    expected = expected_rows(case, oracle)
    assert expected, f"{case.name} expects nothing, which shows nothing"
    return differences(case.seen(found) if case.seen is not None else found, expected)


def results(cluster: QueryCluster, name: str, text: str) -> list[Row]:
    readers = [(field.name, _READ.get(field.type, _itself)) for field in _schema(text).fields]
    lines = _out(cluster, name).read_text().splitlines()
    rows = [json.loads(line, parse_float=Decimal) for line in lines]
    return [tuple(None if row[column] is None else read(row[column]) for column, read in readers) for row in rows]


def _itself(value: Any) -> Any:
    return float(value) if value in ("NaN", "Infinity", "-Infinity") else value


_READ: Mapping[str, Callable[[Any], Any]] = {
    "TIMESTAMP": lambda text: datetime.fromisoformat(text).replace(tzinfo=None),
    "DATE": date.fromisoformat,
}


def _out(cluster: QueryCluster, name: str) -> Path:
    return cluster.files / f"{name}.out.json"


def _schema(text: str) -> catalog.Schema:
    view = catalog_view()
    planned(text, view)
    return view.sinks["out"].schema


def _columns(schema: catalog.Schema) -> str:
    return ", ".join(f"`{field.name}` {field.type}" for field in schema.fields)


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps({name: _plain(value) for name, value in row.items()}) + "\n"


def _plain(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
