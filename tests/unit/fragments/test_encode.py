"""What sinks write, the parsers read back as the same rows."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from headgate_agent.fragments.formats.csv_decode import CsvDecoder, CsvOptions
from headgate_agent.fragments.formats.csv_encode import CsvEncoder
from headgate_agent.fragments.formats.json_decode import JsonDecoder
from headgate_agent.fragments.formats.json_encode import JsonEncoder
from headgate_agent.fragments.types import arrow_schema, columns_of, spark_arrow_type
from headgate_common.column_types import read_type
from tests.examples import examples
from tests.integration.planner_spark.expressions import TYPES_SCHEMA
from tests.unit.fragments.generated import ROWS
from tests.unit.fragments.kit import schema_of
from tests.unit.fragments.test_pushdown import batch_of

# Rows of every type are slow to shrink, and a failure names what differs.
PROPERTY = settings(
    max_examples=examples(60),
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
FLAT = columns_of(TYPES_SCHEMA)
NAMES = [c.name for c in FLAT if not c.type.is_nested and c.name != "must"]


def _flat(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    # `c` is a CHAR(3).
    fitting = [{**row, "c": row["c"] and row["c"][:3], "must": n} for n, row in enumerate(rows)]
    return batch_of(TYPES_SCHEMA, fitting).select(NAMES)


def _plain(batch: pa.RecordBatch) -> dict[str, list[Any]]:
    """Values that are equal only where they are the same: NaN is, and -0.0 is not 0.0."""
    return {
        name: [repr(v) if isinstance(v, float) else v for v in batch.column(name).to_pylist()]
        for name in batch.schema.names
    }


@settings(PROPERTY)
@given(
    rows=st.lists(ROWS, min_size=1, max_size=8),
    delimiter=st.sampled_from([",", ";", "\t", "||", "-", "e", "."]),
    null=st.sampled_from(["", "NULL", "0", "a", "true"]),
)
@pytest.mark.slow
def test_csv_is_read_back_as_the_same_rows(rows: list[dict[str, Any]], delimiter: str, null: str) -> None:
    assume(delimiter not in null)
    batch = _flat(rows)
    columns = [column for column in FLAT if column.name in NAMES]
    options = CsvOptions.read({"field_delimiter": delimiter, "null_string": null})
    decoded = CsvDecoder(columns, options).decode(CsvEncoder(delimiter, null).encode(batch))
    assert decoded.faults == ()
    assert _plain(decoded.batch) == _plain(batch)


@settings(PROPERTY)
@given(rows=st.lists(ROWS, min_size=1, max_size=8))
@pytest.mark.slow
def test_json_is_read_back_as_the_same_rows_and_is_json(rows: list[dict[str, Any]]) -> None:
    batch = _flat(rows)
    text = JsonEncoder().encode(batch)
    lines = text.decode().split("\n")
    assert lines.pop() == ""
    for line in lines:
        json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    columns = [column for column in FLAT if column.name in NAMES]
    decoded = JsonDecoder(columns, {}).decode(text)
    assert decoded.faults == ()
    assert _plain(decoded.batch) == _plain(batch)


def test_a_value_that_ends_in_a_part_of_the_delimiter_is_read_back() -> None:
    columns = columns_of(schema_of("a VARCHAR, b VARCHAR"))
    batch = pa.RecordBatch.from_pylist([{"a": "x|", "b": "|y"}], schema=arrow_schema(columns))
    options = CsvOptions.read({"field_delimiter": "||"})
    decoded = CsvDecoder(columns, options).decode(CsvEncoder("||", "").encode(batch))
    assert decoded.batch.to_pylist() == batch.to_pylist()


def test_nested_values_are_read_back() -> None:
    schema = schema_of(
        "s STRUCT<a: INT32,b: ARRAY<VARCHAR>>, m MAP<VARCHAR,DECIMAL(5,2)>, t ARRAY<TIMESTAMP>, f ARRAY<FLOAT64>"
    )
    columns = columns_of(schema)
    moment = datetime(99, 1, 1, 0, 0, 0, 5, tzinfo=UTC)
    row = {"s": {"a": 1, "b": ['x"y', None]}, "m": [("k", Decimal("1.50"))], "t": [moment, None], "f": [0.1, math.inf]}
    batch = pa.RecordBatch.from_pylist([row, dict.fromkeys(row)], schema=arrow_schema(columns))
    decoded = JsonDecoder(columns, {}).decode(JsonEncoder().encode(batch))
    assert decoded.faults == ()
    assert decoded.batch.to_pylist() == batch.to_pylist()


def test_rows_in_sparks_types_are_written_like_the_declared_ones() -> None:
    spark = pa.array([2**64 - 1, None], spark_arrow_type(read_type("UINT64")))
    ours = pa.array([2**64 - 1, None], pa.uint64())
    for encoder in (CsvEncoder(), JsonEncoder()):
        made = [encoder.encode(pa.RecordBatch.from_arrays([array], names=["u"])) for array in (spark, ours)]
        assert made[0] == made[1]


def test_values_are_written_as_people_expect_them() -> None:
    batch = pa.RecordBatch.from_pylist(
        [{"t": datetime(2026, 1, 1, tzinfo=UTC), "d": Decimal("0.0000001"), "x": b"hi", "s": "a,b"}],
        schema=arrow_schema(columns_of(schema_of("t TIMESTAMP, d DECIMAL(10,7), x BINARY, s VARCHAR"))),
    )
    assert CsvEncoder().encode(batch) == b'2026-01-01T00:00:00.000000Z,0.0000001,aGk=,"a,b"\n'
    assert JsonEncoder().encode(batch) == (b'{"t":"2026-01-01T00:00:00.000000Z","d":0.0000001,"x":"aGk=","s":"a,b"}\n')
