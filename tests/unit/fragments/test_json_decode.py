"""JSON becomes rows exactly, and what is no row is told alone."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from headgate_agent.fragments.formats.json_decode import JsonDecoder
from headgate_agent.fragments.formats.rows import Decoded
from headgate_agent.fragments.types import columns_of
from tests.unit.fragments.kit import schema_of


def decode(data: bytes, columns: str, **options: str) -> Decoded:
    return JsonDecoder(columns_of(schema_of(columns)), options).decode(data)


def value(text: str, type_: str) -> Any:
    decoded = decode(f'{{"a": {text}}}\n'.encode(), f"a {type_}")
    return decoded.batch.column(0)[0].as_py() if decoded.batch.num_rows else decoded.faults


# Each way of reading must give the same: by the block, and (with a MAP beside it) by hand.
WAYS = ["a {}", "a {}, m MAP<VARCHAR,INT32>"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("text", "type_", "wanted"),
    [
        ("127", "INT8", 127),
        ("18446744073709551615", "UINT64", 2**64 - 1),
        ("1.25", "DECIMAL(4,2)", Decimal("1.25")),
        ('"1.25"', "DECIMAL(4,2)", Decimal("1.25")),
        ("99999999999999999999999999999999999999", "DECIMAL(38,0)", Decimal("9" * 38)),
        ("1", "FLOAT64", 1.0),
        ('"Infinity"', "FLOAT64", float("inf")),
        ("true", "BOOL", True),
        ('"2026-01-31"', "DATE", date(2026, 1, 31)),
        ('"2026-01-01T02:00:00+02:00"', "TIMESTAMP", datetime(2026, 1, 1, tzinfo=UTC)),
        ('"2026-01-01T00:00:00"', "TIMESTAMP", datetime(2026, 1, 1, tzinfo=UTC)),
        ('"aGk="', "BINARY", b"hi"),
        ('"\\ud83d\\ude00"', "VARCHAR", "😀"),
        ("null", "INT32", None),
        ("[1, null]", "ARRAY<INT32>", [1, None]),
        ('{"x": 1}', "STRUCT<x: INT8 NOT NULL,y: VARCHAR>", {"x": 1, "y": None}),
        ('["2026-01-31"]', "ARRAY<DATE>", [date(2026, 1, 31)]),
    ],
)
def test_a_json_value_is_the_value_of_the_type(text: str, type_: str, wanted: Any, way: str) -> None:
    decoded = decode(f'{{"a": {text}}}\n'.encode(), way.format(type_.replace(", ", ",")))
    assert decoded.faults == ()
    assert decoded.batch.column(0)[0].as_py() == wanted


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("128", "INT8"),
        ("-1", "UINT64"),
        ("1.5", "INT32"),
        ('"1"', "INT32"),
        ("true", "INT32"),
        ("1", "BOOL"),
        ("1.234", "DECIMAL(4,2)"),
        ("100", "DECIMAL(4,2)"),
        ("5", "VARCHAR"),
        ('"abcd"', "VARCHAR(3)"),
        ('"2026-02-30"', "DATE"),
        ('"soon"', "TIMESTAMP"),
        ("17", "TIMESTAMP"),
        ('"!"', "BINARY"),
        ("null", "INT32 NOT NULL"),
        ('{"y": "a"}', "STRUCT<x: INT8 NOT NULL,y: VARCHAR>"),
        ('["abcd"]', "ARRAY<VARCHAR(3)>"),
        ('"x" "y"', "VARCHAR"),
        ('1, "a": 2', "INT32"),
    ],
)
def test_what_is_no_value_of_the_type_is_malformed(text: str, type_: str, way: str) -> None:
    decoded = decode(f'{{"a": {text}}}\n'.encode(), way.format(type_))
    assert decoded.batch.num_rows == 0
    assert len(decoded.faults) == 1
    assert decoded.faults[0].reason


def test_maps_are_objects_by_key() -> None:
    decoded = decode(b'{"m": {"1": "a", "2": null}}\n{"m": {"x": "b"}}\n', "m MAP<INT32,VARCHAR>")
    assert decoded.batch.column(0)[0].as_py() == [(1, "a"), (2, None)]
    assert len(decoded.faults) == 1


def test_malformed_rows_are_left_out_one_by_one_with_their_place() -> None:
    lines = [b'{"a": %d}\n' % number for number in range(3_000)]
    bad = {3: b"{\n", 1_500: b'{"a": "x"}\n', 1_501: b'{"a": 1}{"a": 2}\n', 2_999: b"[1]\n"}
    for number, line in bad.items():
        lines[number] = line
    data = b"".join(lines)
    decoded = decode(data, "a INT32")
    assert decoded.batch.column(0).to_pylist() == [n for n in range(3_000) if n not in bad]
    assert [fault.raw + b"\n" for fault in decoded.faults] == list(bad.values())
    assert all(data[fault.offset :].startswith(fault.raw) for fault in decoded.faults)


def test_an_object_over_two_lines_is_two_malformed_rows() -> None:
    decoded = decode(b'{"a":\n1}\n{"a": 2}\n', "a INT32")
    assert decoded.batch.column(0).to_pylist() == [2]
    assert [fault.raw for fault in decoded.faults] == [b'{"a":', b"1}"]


@pytest.mark.parametrize(
    "hostile", ["null", " null", '{"a": 1} null', '{"a": 1}null{"a": 2}', '{"a": 1} null {"a": 2}']
)
def test_a_null_that_stands_alone_is_malformed_and_brings_nothing_down(hostile: str) -> None:
    decoded = decode(f'{{"a": 1}}\n{hostile}\n{{"a": 2, "b": "}}null"}}\n'.encode(), "a INT32, b VARCHAR")
    assert decoded.batch.column(0).to_pylist() == [1, 2]
    assert [fault.raw for fault in decoded.faults] == [hostile.strip().encode()]


def test_other_members_are_ignored_missing_ones_are_null_and_blank_lines_are_no_rows() -> None:
    decoded = decode(b'\n{"b": {"deep": [1]}}\n\n  \r\n{"a": 1}', "a INT32")
    assert decoded.batch.column(0).to_pylist() == [None, 1]
    assert decoded.faults == ()


def test_invalid_utf8_is_malformed() -> None:
    decoded = decode(b'{"a": "\xff"}\n{"a": "ok"}\n', "a VARCHAR")
    assert decoded.batch.column(0).to_pylist() == ["ok"]
    assert len(decoded.faults) == 1


def test_another_delimiter_lets_objects_have_lines() -> None:
    decoded = decode(
        b'{\n "a": 1,\n "b": "x\\"y"\n};{"a": 2, "b": "p\nq"};{"a": 3}', "a INT32, b VARCHAR", tuple_delimiter=";"
    )
    assert decoded.batch.to_pylist() == [{"a": 1, "b": 'x"y'}, {"a": 3, "b": None}]
    assert len(decoded.faults) == 1
