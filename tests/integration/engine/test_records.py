"""Which records are rows, and what is said of those that are none, on a Spark of the test's own."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from headgate.catalog import v1 as catalog
from headgate_engine.executor.decoding import BAD
from headgate_engine.fragments.records import bad_records, decoded

pytestmark = pytest.mark.spark

NO_OBJECT = "the record is not a JSON object of the declared columns"
NO_LINE = "the record is not a line of the declared columns"


def field(text: str) -> catalog.Field:
    name, type_ = text.split(" ", 1)
    return catalog.Field(name=name, type=type_.removesuffix(" NOT NULL"), not_null=type_.endswith(" NOT NULL"))


def topic(columns: list[str], kind: str = "JSON") -> catalog.ComputeInput:
    origin = catalog.TopicOrigin(physical_source="s", options={"topic": "t"}, parser_options={"type": kind})
    return catalog.ComputeInput(view="v", schema=catalog.Schema(fields=map(field, columns)), topic=origin)


def records(spark: SparkSession, *values: bytes | None) -> DataFrame:
    rows = [(value, 0, offset) for offset, value in enumerate(values)]
    return spark.createDataFrame(rows, "value binary, partition int, offset bigint")


def reasons(spark: SparkSession, columns: list[str], *values: bytes | None, kind: str = "JSON") -> list[str | None]:
    """What is said of each value; None of a row. Both ways to find it agree."""
    entry, given = topic(columns, kind), records(spark, *values)
    found: list[Any] = [row[BAD] for row in decoded(given, entry, fail=False).collect()]
    kept = {row["place"]: row["reason"] for row in bad_records(given, entry).collect()}
    places = [f"partition 0, offset {offset} of topic t (source s)" for offset in range(len(values))]
    assert kept == {place: reason for place, reason in zip(places, found, strict=True) if reason is not None}
    return found


def lacks(path: str) -> str:
    return f"column {path} is NOT NULL and there is NULL"


def test_a_json_record_that_lacks_a_column_that_is_not_null_names_it(spark: SparkSession) -> None:
    columns = ["id INT32 NOT NULL", "ts TIMESTAMP NOT NULL", "name VARCHAR"]
    values = [
        b'{"id":1,"ts":"2026-01-01T00:00:00Z"}',
        b'{"id":1}',
        b'{"id":1,"ts":null}',
        b'{"ts":"2026-01-01T00:00:00Z","name":"x"}',
        b"{}",
        b'{"id":"x","ts":"2026-01-01T00:00:00Z"}',
        None,
    ]
    found = reasons(spark, columns, *values)
    assert found == [None, lacks("ts"), lacks("ts"), lacks("id"), lacks("id"), NO_OBJECT, "the record has no value"]


@pytest.mark.parametrize("columns", [["id INT32", "name VARCHAR"], ["id INT32"], ["id INT32 NOT NULL"]])
def test_a_json_record_that_is_no_object_is_bad_and_one_without_members_is_not(
    spark: SparkSession, columns: list[str]
) -> None:
    values = [b"", b" ", b"\n\t ", b"null", b"[]", b"7", b'{"id":1}']
    assert reasons(spark, columns, *values) == [NO_OBJECT] * 6 + [None]
    assert reasons(spark, columns, b"{}") == [lacks("id") if "NOT NULL" in columns[0] else None]


def test_a_csv_record_that_lacks_a_column_that_is_not_null_names_it(spark: SparkSession) -> None:
    columns = ["id INT32 NOT NULL", "name VARCHAR"]
    values = [b"1,x", b"1,", b",x", b"x,1", b"1", b"", b" "]
    assert reasons(spark, columns, *values, kind="CSV") == [None, None, lacks("id"), *[NO_LINE] * 4]


def test_a_blank_csv_record_of_one_column_is_a_row_with_nothing_in_it(spark: SparkSession) -> None:
    assert reasons(spark, ["name VARCHAR"], b"x", b"", kind="CSV") == [None, None]
    assert reasons(spark, ["name VARCHAR NOT NULL"], b"x", b"", kind="CSV") == [None, lacks("name")]


@pytest.mark.parametrize(
    ("column", "good", "bad", "path"),
    [
        ("c STRUCT<x: INT32 NOT NULL,y: INT32>", '[null,{"x":1}]', '{"y":1}', "c.x"),
        ("c ARRAY<STRUCT<x: INT32 NOT NULL>>", '[null,[],[null,{"x":1}]]', '[{"x":1},{"x":null}]', "c[].x"),
        ("c MAP<VARCHAR, STRUCT<x: INT32 NOT NULL>>", '[null,{},{"k":{"x":1},"l":null}]', '{"k":{}}', "c{}.x"),
        ("c STRUCT<p: STRUCT<x: INT32 NOT NULL>>", '[null,{},{"p":{"x":1}}]', '{"p":{}}', "c.p.x"),
    ],
)
def test_a_field_that_is_not_null_is_looked_for_where_what_is_around_it_is_there(
    spark: SparkSession, column: str, good: str, bad: str, path: str
) -> None:
    values = [json.dumps({"c": value}).encode() for value in [*json.loads(good), json.loads(bad)]]
    assert reasons(spark, [column], *values) == [*[None] * (len(values) - 1), lacks(path)]


def test_a_schema_in_which_everything_may_be_null_costs_no_further_look(spark: SparkSession) -> None:
    plans = [
        str(decoded(records(spark, b"{}"), topic(columns), fail=False)._jdf.queryExecution().optimizedPlan().toString())
        for columns in (["a INT32", "b STRUCT<x: INT32>"], ["a INT32 NOT NULL", "b STRUCT<x: INT32>"])
    ]
    assert ["is NOT NULL and" in plan for plan in plans] == [False, True]
