"""CSV becomes rows exactly, and what is no row is told alone."""

from __future__ import annotations

import csv
import io
import random
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate_agent.errors import SOURCE_MISMATCH
from headgate_agent.fragments.formats.csv_decode import CsvDecoder, CsvOptions
from headgate_agent.fragments.formats.rows import Decoded
from headgate_agent.fragments.types import columns_of
from headgate_common.errors import HeadgateError
from tests.examples import examples
from tests.unit.fragments.kit import schema_of


def decoder(columns: str, **options: str) -> CsvDecoder:
    return CsvDecoder(columns_of(schema_of(columns)), CsvOptions.read(options))


def decode(data: bytes, columns: str, **options: str) -> Decoded:
    return decoder(columns, **options).decode(data)


def value(text: str, type_: str) -> Any:
    """The value that a text becomes; the reason if it becomes none."""
    decoded = decode(f"{text},\n".encode(), f"a {type_}, b VARCHAR")
    return decoded.batch.column(0)[0].as_py() if decoded.batch.num_rows else decoded.faults[0].reason


@pytest.mark.parametrize(
    ("text", "type_", "wanted"),
    [
        ("127", "INT8", 127),
        ("-128", "INT8", -128),
        ("255", "UINT8", 255),
        ("18446744073709551615", "UINT64", 2**64 - 1),
        ("-9223372036854775808", "INT64", -(2**63)),
        ("1.20", "DECIMAL(4,2)", Decimal("1.20")),
        ("-99999999999999999999999999999999999999", "DECIMAL(38,0)", Decimal("-" + "9" * 38)),
        ("true", "BOOL", True),
        ("FALSE", "BOOL", False),
        ("2026-01-31", "DATE", date(2026, 1, 31)),
        ("2026-01-01T00:00:00Z", "TIMESTAMP", datetime(2026, 1, 1, tzinfo=UTC)),
        ("2026-01-01T02:00:00+02:00", "TIMESTAMP", datetime(2026, 1, 1, tzinfo=UTC)),
        ("2026-01-01 00:00:00.000001", "TIMESTAMP", datetime(2026, 1, 1, microsecond=1, tzinfo=UTC)),
        ("2026-01-01", "TIMESTAMP", datetime(2026, 1, 1, tzinfo=UTC)),
        ("aGk=", "BINARY", b"hi"),
        ('"x, y"', "VARCHAR", "x, y"),
        ('"a""b"', "VARCHAR", 'a"b'),
        ("", "VARCHAR", None),
        ('""', "VARCHAR", ""),
        ("äöü", "VARCHAR(3)", "äöü"),
    ],
)
def test_a_text_is_the_value_it_stands_for(text: str, type_: str, wanted: Any) -> None:
    assert value(text, type_) == wanted


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("128", "INT8"),
        ("-1", "UINT8"),
        ("18446744073709551616", "UINT64"),
        ("1.0", "INT32"),
        ("one", "INT32"),
        ('""', "INT32"),
        ("1.234", "DECIMAL(4,2)"),
        ("100", "DECIMAL(4,2)"),
        ("yes", "BOOL"),
        ("2026-02-30", "DATE"),
        ("2026-01-01T00:00:00.1234567Z", "TIMESTAMP"),
        ("0001-01-01T00:00:00+01:00", "TIMESTAMP"),
        ("now", "TIMESTAMP"),
        ("!!!", "BINARY"),
        ("abcd", "VARCHAR(3)"),
        ("ab", "CHAR(1)"),
    ],
)
def test_what_is_no_value_of_the_type_is_malformed_with_column_and_text(text: str, type_: str) -> None:
    reason = value(text, type_)
    assert reason == f"column a: {text.strip(chr(34))!r} is not a {type_}"


def test_malformed_rows_are_left_out_one_by_one_with_their_place() -> None:
    lines = [b"%d,x\n" % number for number in range(5_000)]
    bad = {7: b"seven,x\n", 8: b"8\n", 2_500: b"2500,x,y\n", 4_999: b",x\n"}
    for number, line in bad.items():
        lines[number] = line
    data = b"".join(lines)
    decoded = decode(data, "a INT32 NOT NULL, b VARCHAR")
    assert decoded.batch.column(0).to_pylist() == [n for n in range(5_000) if n not in bad]
    assert [fault.raw for fault in decoded.faults] == list(bad.values())
    assert all(data[fault.offset :].startswith(fault.raw) for fault in decoded.faults)
    assert decoded.faults[1].reason == "1 values where there are 2 columns"


@pytest.mark.slow
def test_many_malformed_rows_are_all_found_in_order() -> None:
    data = b"".join(b"%d\n" % n if n % 3 else b"x\n" for n in range(3_000))
    decoded = decode(data, "a INT32")
    assert decoded.batch.column(0).to_pylist() == [n for n in range(3_000) if n % 3]
    assert len(decoded.faults) == 1_000
    assert [f.offset for f in decoded.faults] == sorted(f.offset for f in decoded.faults)


def test_not_null_and_invalid_utf8_are_malformed() -> None:
    decoded = decode(b"1,\n,x\n2,\xff\n3,y\n", "a INT32 NOT NULL, b VARCHAR")
    assert decoded.batch.to_pylist() == [{"a": 1, "b": None}, {"a": 3, "b": "y"}]
    assert [fault.reason.split(" ")[1] for fault in decoded.faults] == ["a", "b:"]


def test_null_string_stands_for_null_only_where_it_is_not_quoted() -> None:
    decoded = decode(b'NULL,NULL\n1,"NULL"\n2,\n', "a INT32, b VARCHAR", null_string="NULL")
    assert decoded.batch.to_pylist() == [{"a": None, "b": None}, {"a": 1, "b": "NULL"}, {"a": 2, "b": ""}]


def test_zoned_and_plain_timestamps_may_be_mixed() -> None:
    data = b"2026-01-01T00:00:00Z\n2026-01-01T00:00:00\n\n2026-01-01\n" * 50
    wanted = [datetime(2026, 1, 1, tzinfo=UTC)] * 2 + [None, datetime(2026, 1, 1, tzinfo=UTC)]
    assert decode(data, "a TIMESTAMP").batch.column(0).to_pylist() == wanted * 50


@pytest.mark.parametrize("ending", [b"\n", b"\r\n"])
def test_both_line_endings_are_read_and_blank_lines_are_no_rows(ending: bytes) -> None:
    data = ending.join([b"1,a", b"", b'2,"x' + ending + b'y"', b"3,c", b""])
    rows = decode(data, "a INT32, b VARCHAR").batch.to_pylist()
    assert [row["a"] for row in rows] == [1, 2, 3]
    assert rows[1]["b"] == "x" + ending.decode() + "y"


def test_a_carriage_return_alone_is_part_of_a_value() -> None:
    assert decode(b"a\rb,1\nc,2\r\n", "a VARCHAR, b INT32").batch.to_pylist() == [
        {"a": "a\rb", "b": 1},
        {"a": "c", "b": 2},
    ]


def test_delimiters_of_many_characters_and_other_quotes() -> None:
    options = {"field_delimiter": "||", "tuple_delimiter": "<>", "quote": "'", "null_string": "-"}
    plain = decode(b"1||a<>2||-<>", "a INT32, b VARCHAR", **options)
    assert plain.batch.to_pylist() == [{"a": 1, "b": "a"}, {"a": 2, "b": None}]
    quoted = decode(b"1||'a||''<>'<>x||b<>3||c\nd", "a INT32, b VARCHAR", **options)
    assert quoted.batch.to_pylist() == [{"a": 1, "b": "a||'<>"}, {"a": 3, "b": "c\nd"}]
    assert [(fault.offset, fault.raw) for fault in quoted.faults] == [(14, b"x||b<>")]


def test_delimiters_that_are_not_ascii() -> None:
    options = {"field_delimiter": "§", "quote": "¿"}
    rows = decode("1§a\n2§¿b§¿\n".encode(), "a INT32, b VARCHAR", **options).batch.to_pylist()
    assert rows == [{"a": 1, "b": "a"}, {"a": 2, "b": "b§"}]


def test_a_mark_at_the_beginning_of_a_block_is_part_of_the_value() -> None:
    assert decode("\ufeffx,1\n".encode(), "a VARCHAR, b INT32").batch.column(0).to_pylist() == ["\ufeffx"]


def test_without_a_quote_quotes_are_text() -> None:
    assert decode(b'"a",1\n', "a VARCHAR, b INT32", quote="").batch.to_pylist() == [{"a": '"a"', "b": 1}]


def test_a_quote_inside_of_a_value_is_text_and_one_that_is_not_closed_is_malformed() -> None:
    decoded = decode(b'5" pipe,1\n"open,2\n', "a VARCHAR, b INT32")
    assert decoded.batch.to_pylist() == [{"a": '5" pipe', "b": 1}]
    assert [fault.reason for fault in decoded.faults] == ["a quote is not closed"]


def test_the_header_decides_the_order_and_other_columns_are_left_out() -> None:
    made = decoder("a INT32 NOT NULL, b VARCHAR, c INT32", header="true").with_header(b'B,other,"A"\r\n')
    assert made.decode(b"x,?,1\ny,?,2\n").batch.to_pylist() == [
        {"a": 1, "b": "x", "c": None},
        {"a": 2, "b": "y", "c": None},
    ]


@pytest.mark.parametrize("header", [b"b,c\n", b"1,2,3\n", b"a,A\n"])
def test_a_header_that_does_not_fit_the_columns_is_refused(header: bytes) -> None:
    with pytest.raises(HeadgateError) as raised:
        decoder("a INT32 NOT NULL, b VARCHAR", header="true").with_header(header)
    assert raised.value.reason is SOURCE_MISMATCH


_CELL = st.text(st.sampled_from(["a", ",", '"', "\n", "\r", "é", " ", "0"]), max_size=5)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.tuples(_CELL, _CELL), max_size=12), st.integers(1, 40))
@pytest.mark.slow
def test_what_pythons_writer_writes_is_read_back_in_blocks_of_any_size(rows: list[tuple[str, str]], size: int) -> None:
    out = io.StringIO(newline="")
    csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    data = out.getvalue().encode()
    made = decoder("a VARCHAR, b VARCHAR")
    found: list[tuple[str, str]] = []
    at = 0
    length = size
    while at < len(data):
        block = data[at : at + length]
        whole = made.whole(block, at + len(block) == len(data))
        if not whole:
            length *= 2
            continue
        decoded = made.decode(block[:whole])
        assert not decoded.faults
        found += [(row["a"], row["b"]) for row in decoded.batch.to_pylist()]
        at, length = at + whole, size
    assert found == rows


@settings(max_examples=examples(300), deadline=None)
@given(
    st.lists(
        st.sampled_from([b"1", b",", b'"', b"\n", b"\r\n", b"\r", b"x", b"\xff", b"\xef\xbb\xbf"]), max_size=30
    ).map(b"".join)
)
def test_any_bytes_give_the_same_rows_and_faults_whole_and_record_by_record(data: bytes) -> None:
    made = decoder("a INT32, b VARCHAR")
    quick, exact = made.decode(data), made._exact(data, 0)
    assert quick.batch.to_pylist() == exact.batch.to_pylist()
    assert quick.faults == exact.faults


_WIDE = (
    "ts TIMESTAMP NOT NULL, day DATE, n INT32, small UINT8, f FLOAT32, price DECIMAL(8,2), ok BOOL, name VARCHAR(8), "
    "bin BINARY"
)
_GOOD = [b"2026-01-01T00:00:00.5Z", b"2026-01-31", b"-7", b"200", b"1.5", b"12.25", b"true", b"driver 1", b"aGk="]
# What some value of a row may be instead, by its place; and some that look odd and are values.
_ODD: list[tuple[int, bytes]] = [
    (0, b"never"),
    (0, b""),
    (0, b"2026-01-01 00:00:00"),
    (0, b"2026-13-01T00:00:00Z"),
    (0, b"0000-01-01T00:00:00Z"),
    (1, b"2026-02-30"),
    (1, b""),
    (2, b"99999999999"),
    (2, b" 5 "),
    (2, b"+5"),
    (2, b'"6"'),
    (3, b"256"),
    (3, b"0x1F"),
    (4, b"x"),
    (4, b"nan"),
    (5, b"1.234"),
    (5, b"1234567.1"),
    (5, b" 3.50"),
    (6, b"yes"),
    (7, b"much too long"),
    (7, "äöüäöüäö".encode()),
    (7, b"\xff"),
    (7, b'"a, b"'),
    (7, b"a,b"),
    (7, b'"x\ny"'),
    (8, b"no base64"),
]


def odd_rows(source: random.Random, rows: int, every: int, kinds: list[tuple[int, bytes]]) -> bytes:
    """Rows of which about one in `every` has something odd in it, and some are blank or too short."""
    lines = []
    for _ in range(rows):
        values = list(_GOOD)
        if source.randrange(every) == 0:
            place, value = source.choice(kinds)
            values[place] = value
        lines.append(b",".join(values[:-1] if source.randrange(every * 20) == 0 else values))
        if source.randrange(every * 10) == 0:
            lines.append(b"")
    return b"\n".join(lines) + source.choice((b"", b"\n"))


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.slow
def test_rows_with_faults_of_every_kind_are_the_same_at_once_and_record_by_record(seed: int) -> None:
    source = random.Random(seed)
    kinds = source.sample(_ODD, source.choice((1, 2, 5, len(_ODD))))
    data = odd_rows(source, 400, source.choice((2, 10, 100)), kinds)
    made = decoder(_WIDE)
    quick, exact = made.decode(data), decoder(_WIDE)._exact(data, 0)
    # NaN is not equal to itself, but written alike.
    assert repr(quick.batch.to_pylist()) == repr(exact.batch.to_pylist())
    assert quick.faults == exact.faults
    assert all(data[fault.offset :].startswith(fault.raw) for fault in quick.faults)


@pytest.mark.parametrize(
    "kind", [one for one in _ODD if one[0] != 8], ids=lambda one: f"{one[0]} {one[1].decode(errors='replace')}"
)
@pytest.mark.slow
def test_a_few_odd_rows_of_one_kind_are_found_without_halving(
    kind: tuple[int, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def halved(self: Any, bounds: list[int]) -> Decoded:
        raise AssertionError("the block was halved")

    monkeypatch.setattr("headgate_agent.fragments.formats.csv_decode._Search._halved", halved)
    data = odd_rows(random.Random(1), 2_000, 200, [kind])
    quick, exact = decoder(_WIDE).decode(data), decoder(_WIDE)._exact(data, 0)
    # NaN is not equal to itself, but written alike.
    assert repr(quick.batch.to_pylist()) == repr(exact.batch.to_pylist())
    assert quick.faults == exact.faults


def test_the_columns_of_a_header_in_another_order_are_searched_as_they_stand() -> None:
    made = decoder("a INT32, b DATE, c VARCHAR(3)").with_header(b"c,x,a,b\n")
    lines = [f"abc,{n},{n},2026-01-01" for n in range(1_000)]
    lines[10], lines[20], lines[30] = "abcd,1,1,2026-01-01", "abc,1,one,2026-01-01", "abc,1,1,2026-02-30"
    data = "\n".join(lines).encode()
    decoded = made.decode(data)
    assert decoded.batch.num_rows == 997
    assert [data[: fault.offset].count(b"\n") for fault in decoded.faults] == [10, 20, 30]
    assert decoded.faults == made._exact(data, 0).faults
