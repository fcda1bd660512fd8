"""NULL where a column is NOT NULL, in records that are Arrow streams."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from headgate_engine.executor.decoding import BAD, decoding, judging
from headgate_engine.executor.reading import schema_text
from headgate_engine.executor.required import missing, paths_of, paths_text
from headgate_engine.executor.topics import read_rows
from headgate_engine.executor.wire import EdgeError
from headgate_engine.executor.writing import to_record

POINT = pa.struct([("x", pa.int32()), ("y", pa.int32())])
SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])
TS = ((".ts",),)
REASON = "column ts is NOT NULL and there is NULL"


def records(*values: bytes | None) -> pa.RecordBatch:
    columns = {
        "value": pa.array(values, pa.binary()),
        "partition": pa.array([3] * len(values), pa.int32()),
        "offset": pa.array(range(7, 7 + len(values)), pa.int64()),
    }
    return pa.RecordBatch.from_pydict(columns)


def record(*rows: dict[str, Any], schema: pa.Schema = SCHEMA) -> bytes:
    return to_record(pa.RecordBatch.from_pylist(list(rows), schema=schema))


GOOD = record({"id": 1, "ts": 1_000_000}, {"id": None, "ts": 2_000_000})
NULL = record({"id": 2, "ts": 3_000_000}, {"id": 3, "ts": None})
LACKING = record({"id": 4}, schema=pa.schema([("id", pa.int64())]))
EMPTY = record(schema=pa.schema([("id", pa.int64())]))


def test_an_arrow_record_with_null_in_a_column_that_is_not_null_is_bad_as_a_whole() -> None:
    values = records(GOOD, NULL, LACKING, EMPTY)
    text = schema_text(SCHEMA)
    rows = [row for batch in decoding(text, TS)(iter([values])) for row in batch.to_pylist()]
    assert [row["id"] for row in rows if row[BAD] is None] == [1, None]
    assert [row[BAD] for row in rows if row[BAD] is not None] == [REASON, REASON]
    (judged,) = judging(text, TS, 0)(iter([values]))
    assert [(row["offset"], row[BAD]) for row in judged.to_pylist()] == [(8, REASON), (9, REASON)]
    with pytest.raises(EdgeError, match=f"BAD_RECORD: partition 3, offset 8 of topic t: {REASON}"):
        list(decoding(text, TS, fail="topic t")(iter([values])))
    # The same for native topics, whose stream decodes them itself.
    read = [row for batch in read_rows(iter([values]), text, TS, "") for row in batch.to_pylist()]
    assert [row[BAD] for row in read if row[BAD] is not None] == [REASON, REASON]


def test_where_nothing_is_not_null_such_records_are_good() -> None:
    values = records(GOOD, NULL, LACKING)
    rows = [row for batch in decoding(schema_text(SCHEMA), ())(iter([values])) for row in batch.to_pylist()]
    assert [row["id"] for row in rows] == [1, None, 2, 3, 4]
    assert all(row[BAD] is None for row in rows)


@pytest.mark.parametrize(
    ("type_", "path", "good", "bad"),
    [
        (POINT, (".x",), [None, {"x": 1, "y": None}], {"x": None, "y": 1}),
        (pa.list_(POINT), ("[]", ".x"), [None, [], [None, {"x": 1}]], [{"x": 1}, {"x": None}]),
        (pa.map_(pa.string(), POINT), ("{}", ".x"), [None, [], [("k", None), ("l", {"x": 1})]], [("k", {"x": None})]),
        (pa.struct([("p", POINT)]), (".p", ".x"), [None, {"p": None}, {"p": {"x": 1}}], {"p": {"x": None}}),
    ],
)
def test_a_field_that_is_not_null_is_looked_for_where_what_is_around_it_is_there(
    type_: pa.DataType, path: tuple[str, ...], good: list[Any], bad: Any
) -> None:
    schema = pa.schema([("c", type_)])
    paths = paths_of(paths_text(((".c", *path),)))
    assert missing(pa.RecordBatch.from_arrays([pa.array(good, type_)], schema=schema), paths) == ""
    found = missing(pa.RecordBatch.from_arrays([pa.array([*good, bad], type_)], schema=schema), paths)
    cut = pa.array([bad, *good], type_).slice(1)
    assert missing(pa.RecordBatch.from_arrays([cut], schema=schema), paths) == ""
    assert found == f"column c{''.join(path)} is NOT NULL and there is NULL"
