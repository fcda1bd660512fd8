"""Types, errors and progress: what is made of what Spark and plans say."""

from __future__ import annotations

import json

import pytest

from headgate.catalog import v1 as catalog
from headgate_coordinator.sql.types import parse_type
from headgate_coordinator.sql.types import spark_type as planned
from headgate_engine.executor.wire import EdgeError
from headgate_engine.fragments.errors import failure_of, sentence
from headgate_engine.fragments.progress import Counts
from headgate_engine.types import UnknownType, ddl, required, spark_type

TYPES = [
    "BOOL",
    "INT8",
    "UINT8",
    "UINT32",
    "UINT64",
    "FLOAT32",
    "DECIMAL(10,2)",
    "VARCHAR",
    "VARCHAR(20)",
    "CHAR(3)",
    "BINARY",
    "DATE",
    "TIMESTAMP",
    "ARRAY<INT64>",
    "MAP<VARCHAR, ARRAY<FLOAT64>>",
    "STRUCT<a: INT32, `b c`: ARRAY<STRUCT<x: DECIMAL(5,1) NOT NULL>>>",
]


@pytest.mark.parametrize("spelling", TYPES)
def test_types_are_those_that_the_planner_worked_out(spelling: str) -> None:
    ours, theirs = spark_type(spelling), planned(parse_type(spelling))
    plain = str.maketrans("", "", "` ")
    assert ours.translate(plain).lower() == theirs.translate(plain).lower().replace("notnull", "")


@pytest.mark.parametrize("spelling", ["", "NUMBER", "ARRAY<INT64", "STRUCT<a INT32>", "INT32 INT32", "MAP<INT32>"])
def test_a_type_that_is_none_is_refused(spelling: str) -> None:
    with pytest.raises(UnknownType):
        spark_type(spelling)


def test_names_are_quoted() -> None:
    schema = catalog.Schema(fields=[catalog.Field(name="a`b", type="INT32"), catalog.Field(name="c d", type="BOOL")])
    assert ddl(schema) == "`a``b` int, `c d` boolean"


def test_what_is_not_null_is_found_in_columns_and_in_what_they_are_made_of() -> None:
    fields = [
        catalog.Field(name="a", type="INT32", not_null=True),
        catalog.Field(name="b", type="STRUCT<x: INT32 NOT NULL, y: STRUCT<z: BOOL NOT NULL>>"),
        catalog.Field(name="c d", type="ARRAY<STRUCT<x: INT32 NOT NULL>>", not_null=True),
        catalog.Field(name="e", type="MAP<VARCHAR, ARRAY<STRUCT<x: INT32 NOT NULL, y: INT32>>>"),
        catalog.Field(name="f", type="TIMESTAMP"),
    ]
    assert required(catalog.Schema(fields=fields)) == (
        (".a",),
        (".b", ".x"),
        (".b", ".y", ".z"),
        (".c d",),
        (".c d", "[]", ".x"),
        (".e", "{}", "[]", ".x"),
    )
    assert required(catalog.Schema(fields=[catalog.Field(name="a", type="MAP<VARCHAR, INT32>")])) == ()


def test_an_edges_reason_survives_its_way_through_spark() -> None:
    text = (
        "[STREAM_FAILED] Query [id = x] terminated with exception: Job aborted: Traceback (most recent call last):\n"
        "headgate_engine.executor.wire.EdgeError: STALE_EPOCH: epoch 3 is not that of the writer\n\n\tat org.apache.X"
    )
    failure = failure_of(RuntimeError(text))
    assert (failure.reason.name, failure.transient) == ("STALE_EPOCH", False)
    assert failure.message == "epoch 3 is not that of the writer"


@pytest.mark.parametrize(
    ("reason", "ours", "transient"),
    [
        ("UNREACHABLE", "EDGE_FAILED", True),
        ("NOT_LEADER", "EDGE_FAILED", True),
        ("STALE_EPOCH", "STALE_EPOCH", False),
        ("DATA_LOSS", "EDGE_DATA_LOST", False),
    ],
)
def test_what_an_edge_answers_says_whether_another_start_may_help(reason: str, ours: str, transient: bool) -> None:
    failure = failure_of(EdgeError(reason, "so it is"))
    assert (failure.reason.name, failure.transient) == (ours, transient)


def test_of_wrapped_errors_the_innermost_is_told() -> None:
    text = (
        "[STREAM_FAILED] Query terminated with exception: [FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred. "
        "[CAST_INVALID_INPUT] The value 'x' cannot be cast. SQLSTATE: 22018\n== SQL (line 1) ==\nSELECT"
    )
    failure = failure_of(RuntimeError(text))
    assert (failure.reason.name, failure.error_class) == ("QUERY_FAILED", "CAST_INVALID_INPUT")
    assert failure.message == "The value 'x' cannot be cast."


def test_of_a_python_trace_only_the_error_is_told() -> None:
    text = (
        "[PYTHON_DATA_SOURCE_ERROR] Failed to plan Python data source: Traceback (most recent call last):\n"
        "  File \"x.py\", line 3, in main\nModuleNotFoundError: No module named 'y'\n SQLSTATE: 38000"
    )
    failure = failure_of(RuntimeError(text))
    assert failure.message == "Failed to plan Python data source: ModuleNotFoundError: No module named 'y'"


def test_a_sentence_has_no_trace_and_no_plan() -> None:
    text = "[UNRESOLVED_COLUMN] A column `a` cannot be resolved. SQLSTATE: 42703; line 1 pos 7;\n'Project ['a]\n+- View"
    assert sentence(text) == "A column `a` cannot be resolved."
    assert sentence("boom\n\tat org.apache.spark.X(Y.scala:1)") == "boom"


def report(batch: int, rows: int, late: int = 0, bad: int = 0, **more: object) -> str:
    source = {"latestOffset": {"0": 12, "1": 5}, "endOffset": {"0": 10, "1": 5, "mark": 99}, "numInputRows": 1000}
    return json.dumps(
        {
            "batchId": batch,
            "durationMs": {"addBatch": 5},
            "batchDuration": 10,
            "timestamp": "2026-01-01T00:00:00.000Z",
            "sources": [source],
            "observedMetrics": {"input0": {"rows": rows, "bad": bad, "latest_us": batch * 10}},
            "stateOperators": [{"numRowsTotal": 3, "memoryUsedBytes": 7, "numRowsDroppedByWatermark": late}],
            **more,
        }
    )


def test_progress_adds_up_over_batches_and_counts_each_once() -> None:
    counts = Counts()
    counts.wrote(0, 4)
    assert counts.saw(report(0, 10, late=1))
    assert not counts.saw(report(0, 10, late=1))
    counts.wrote(1, 6)
    assert counts.saw(report(1, 20, bad=2))
    found = counts.to_proto()
    assert (found.rows_in, found.rows_out, found.rows_late, found.bad_records) == (30, 10, 1, 2)
    assert (found.batch_id, found.lag, found.state_rows, found.state_bytes) == (1, 2, 3, 7)
    assert found.rows_out_per_second == 600.0
    assert (counts.latest_us, counts.spoke) == ({"input0": 10}, {"input0": 1})


@pytest.mark.parametrize(
    ("watermark", "shown"),
    [("1970-01-01T00:00:00.000Z", False), ("2026-01-01T00:00:07.000Z", True), ("9999-12-30T23:59:58.000Z", False)],
)
def test_a_watermark_is_shown_only_where_rows_made_it(watermark: str, shown: bool) -> None:
    counts = Counts()
    counts.saw(report(0, 1, eventTime={"watermark": watermark}))
    assert counts.to_proto().HasField("watermark") is shown
