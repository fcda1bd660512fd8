"""Types: their spelling, their mapping without loss, and what widens to what."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.catalog import v1 as catalog
from headgate_common.errors import HeadgateError
from headgate_coordinator.errors import EMPTY_SCHEMA, INVALID_SCHEMA
from headgate_coordinator.sql import types
from headgate_coordinator.sql.types import DataType, Kind, StructField, TypeSyntaxError, parse_type, widens

PLAIN = [DataType(kind) for kind in types.TYPES if kind not in ("DECIMAL", "CHAR", "ARRAY", "MAP", "STRUCT")]
FIELD_NAMES = st.text(st.characters(codec="utf-8", categories=("L", "N", "Zs", "P")), min_size=1, max_size=8).filter(
    str.isprintable
)


def decimals() -> st.SearchStrategy[DataType]:
    return st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: types.decimal(p, s)))


def scalars() -> st.SearchStrategy[DataType]:
    lengths = st.integers(1, types.model.MAX_LENGTH)
    return st.one_of(st.sampled_from(PLAIN), decimals(), lengths.map(types.char), lengths.map(types.varchar))


def structs(inner: st.SearchStrategy[DataType]) -> st.SearchStrategy[DataType]:
    names = st.lists(FIELD_NAMES, min_size=1, max_size=3, unique_by=str.lower)
    return names.flatmap(
        lambda listed: st.tuples(*(st.builds(StructField, st.just(name), inner, st.booleans()) for name in listed)).map(
            lambda fields: types.struct(*fields)
        )
    )


def any_type() -> st.SearchStrategy[DataType]:
    return st.recursive(
        scalars(),
        lambda inner: st.one_of(
            inner.map(types.array), st.tuples(scalars(), inner).map(lambda kv: types.map_of(*kv)), structs(inner)
        ),
        max_leaves=6,
    )


@settings(deadline=None)
@given(any_type())
def test_spelling_and_parsing_are_inverse(type_: DataType) -> None:
    assert parse_type(str(type_)) == type_
    assert parse_type(f" {type_!s} ") == type_


@settings(deadline=None)
@given(any_type())
def test_tree_of_sqlglot_and_back(type_: DataType) -> None:
    assert types.from_tree(types.to_tree(type_)) == type_


@settings(deadline=None)
@given(any_type(), any_type(), any_type())
def test_widening_is_reflexive_and_transitive(a: DataType, b: DataType, c: DataType) -> None:
    assert widens(a, a)
    assert widens(types.NULL, a)
    if widens(a, b) and widens(b, c):
        assert widens(a, c)
    if widens(a, b) and widens(b, a):
        assert types.spark_type(a).lower() == types.spark_type(b).lower()


@settings(deadline=None)
@given(decimals(), decimals())
def test_decimals_widen_where_every_digit_has_a_place(source: DataType, target: DataType) -> None:
    whole = target.precision - target.scale >= source.precision - source.scale
    assert widens(source, target) == (whole and target.scale >= source.scale)


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("CHAR(3)", "VARCHAR", True),
        ("CHAR(3)", "VARCHAR(3)", True),
        ("VARCHAR(4)", "CHAR(3)", False),
        ("VARCHAR", "VARCHAR(1000)", False),
        ("DATE", "TIMESTAMP", True),
        ("TIMESTAMP", "DATE", False),
        ("UINT8", "INT8", False),
        ("UINT64", "INT64", False),
        ("UINT64", "DECIMAL(20,0)", True),
        ("UINT64", "DECIMAL(20,1)", False),
        ("INT64", "DECIMAL(19,0)", True),
        ("INT32", "VARCHAR", False),
        ("BOOL", "INT8", False),
        ("ARRAY<INT8>", "ARRAY<INT64>", True),
        ("MAP<INT8, FLOAT32>", "MAP<INT16, FLOAT64>", True),
        ("STRUCT<a: INT8>", "STRUCT<A: INT16>", True),
        ("STRUCT<a: INT8>", "STRUCT<b: INT8>", False),
        ("STRUCT<a: INT8>", "STRUCT<a: INT8, b: INT8>", False),
        ("STRUCT<a: INT8>", "STRUCT<a: INT8 NOT NULL>", False),
        ("STRUCT<a: INT8 NOT NULL>", "STRUCT<a: INT8>", True),
    ],
)
def test_widening_of_particular_types(source: str, target: str, expected: bool) -> None:
    assert widens(parse_type(source), parse_type(target)) is expected


INTEGER_RANGES = [(DataType(kind), row.low, row.high) for kind, row in types.TYPES.items() if row.low is not None]


@pytest.mark.parametrize(("type_", "low", "high"), INTEGER_RANGES, ids=str)
def test_limits_of_integers_survive_arrow_and_the_arrow_of_spark(type_: DataType, low: int, high: int) -> None:
    own = getattr(pa, types.arrow_type(type_))()
    assert pa.array([low, high, None], own).to_pylist() == [low, high, None]
    spelled = types.spark_arrow_type(type_)
    if spelled.startswith("decimal128"):
        crossing = pa.decimal128(20, 0)
        values = pa.array([Decimal(low), Decimal(high)], crossing)
        assert [int(value) for value in values.to_pylist()] == [low, high]
    else:
        crossing = getattr(pa, spelled)()
        assert pa.array([low, high], crossing).to_pylist() == [low, high]
    assert str(crossing) == spelled
    with pytest.raises((pa.ArrowInvalid, OverflowError)):
        pa.array([high + 1], own)


@pytest.mark.parametrize(("source", "_low", "high"), INTEGER_RANGES, ids=str)
@pytest.mark.parametrize("target", [types.FLOAT32, types.FLOAT64])
def test_integers_widen_to_floats_only_where_all_values_are_exact(
    source: DataType, _low: int, high: int, target: DataType
) -> None:
    bits = 24 if target is types.FLOAT32 else 53
    assert widens(source, target) == (high < 2**bits)


@pytest.mark.parametrize(("source", "low", "high"), INTEGER_RANGES, ids=str)
@settings(deadline=None)
@given(target=decimals())
def test_integers_widen_to_decimals_that_hold_their_limits(
    source: DataType, low: int, high: int, target: DataType
) -> None:
    largest = 10 ** (target.precision - target.scale) - 1
    if widens(source, target):
        assert -largest <= low and high <= largest
    else:
        # One digit more than the largest value has is the least that is promised.
        assert target.precision - target.scale < len(str(high))


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("int", "INT32"),
        ("Integer", "INT32"),
        ("long", "INT64"),
        ("double  precision", "FLOAT64"),
        ("numeric", "DECIMAL(10,0)"),
        ("decimal(5)", "DECIMAL(5,0)"),
        ("decimal ( 5 , 2 )", "DECIMAL(5,2)"),
        ("char", "CHAR(1)"),
        ("character varying(7)", "VARCHAR(7)"),
        ("varsized", "VARCHAR"),
        ("timestamp with local time zone", "TIMESTAMP"),
        ("int[][]", "ARRAY<ARRAY<INT32>>"),
        ("array(int)", "ARRAY<INT32>"),
        ("map<string,array<double>>", "MAP<VARCHAR, ARRAY<FLOAT64>>"),
        ("struct<a int not null, `b c`: text>", "STRUCT<a: INT32 NOT NULL, `b c`: VARCHAR>"),
        ("array< /* of */ int -- these\n>", "ARRAY<INT32>"),
    ],
)
def test_synonyms_have_one_canonical_spelling(text: str, canonical: str) -> None:
    assert str(parse_type(text)) == canonical


@pytest.mark.parametrize(
    ("text", "message", "offset", "suggestion"),
    [
        ("", "expected a type", 0, ""),
        ("INTT", "there is no type `INTT`", 0, "did you mean `INT`?"),
        ("INT4", "there is no type `INT4`", 0, "write INT32 or INT"),
        ("DECIMAL(39,0)", "the precision of a DECIMAL is from 1 to 38, not 39", 0, ""),
        ("DECIMAL(0)", "the first parameter of DECIMAL is at least 1", 8, ""),
        ("DECIMAL(4,5)", "the scale of DECIMAL(4,5) is not from 0 to its precision", 0, ""),
        ("DECIMAL(1,2,3)", "DECIMAL takes at most 2 parameters", 12, ""),
        ("DECIMAL(99999999999)", "`99999999999` is too large a parameter of DECIMAL", 8, ""),
        ("VARCHAR(0)", "the first parameter of VARCHAR is at least 1", 8, ""),
        ("ARRAY", "expected `<` after ARRAY", 5, ""),
        ("ARRAY<INT", "expected `>` to close ARRAY, found the end", 9, ""),
        ("MAP<INT>", "expected `,` between key and value of MAP, found `>`", 7, ""),
        ("MAP<MAP<INT,INT>,INT>", "the key of a MAP cannot contain a MAP", 0, ""),
        ("STRUCT<>", "expected the name of a field of the STRUCT", 7, ""),
        ("STRUCT<a INT, A TEXT>", "the field 'A' comes twice in a STRUCT", 0, ""),
        ("TIMESTAMP(6)", "TIMESTAMP takes no parameters", 9, "microseconds are always kept"),
        ("INT INT", "unexpected `INT` after the type INT32", 4, ""),
        ("INT;", "`;` cannot be part of a type", 3, ""),
        ("\0", "`\N{REPLACEMENT CHARACTER}` cannot be part of a type", 0, ""),
    ],
)
def test_bad_types_say_what_and_where(text: str, message: str, offset: int, suggestion: str) -> None:
    with pytest.raises(TypeSyntaxError) as refused:
        parse_type(text)
    assert (refused.value.message, refused.value.offset, refused.value.suggestion) == (message, offset, suggestion)


@settings(deadline=None)
@given(st.text('ARYINTMPSUC<>(),:[]` 0123456789"', max_size=60))
def test_any_text_is_a_type_or_refused(text: str) -> None:
    try:
        type_ = parse_type(text)
    except TypeSyntaxError as error:
        assert 0 <= error.offset <= len(text)
    else:
        assert parse_type(str(type_)) == type_


@pytest.mark.parametrize("text", ["ARRAY<" * 10_000 + "INT" + ">" * 10_000, "INT" + "[]" * 40_000, "(" * 60_000])
@pytest.mark.slow
def test_deep_types_are_refused_without_a_trace(text: str) -> None:
    with pytest.raises(TypeSyntaxError):
        parse_type(text)


def test_spark_and_arrow_spell_nested_types() -> None:
    type_ = parse_type("STRUCT<a: ARRAY<UINT64>, `b c`: MAP<CHAR(3), UINT8> NOT NULL>")
    assert types.spark_type(type_) == "struct<a:array<decimal(20,0)>,`b c`:map<string,smallint> NOT NULL>"
    assert types.arrow_type(type_) == "struct<a: list<element: uint64>, b c: map<string, uint8> not null>"
    assert types.spark_arrow_type(type_) == (
        "struct<a: list<element: decimal128(20, 0)>, b c: map<string, int16> not null>"
    )


def schema(*fields: tuple[str, str]) -> catalog.Schema:
    return catalog.Schema(fields=[catalog.Field(name=name, type=type_) for name, type_ in fields])


def test_schema_is_answered_in_canonical_spelling() -> None:
    checked = types.validate_schema(schema(("A", "int"), ("b", "string")))
    assert [(field.name, field.type) for field in checked.fields] == [("A", "INT32"), ("b", "VARCHAR")]


def test_empty_schema_is_refused() -> None:
    with pytest.raises(HeadgateError) as refused:
        types.validate_schema(catalog.Schema())
    assert refused.value.reason is EMPTY_SCHEMA


def test_everything_wrong_with_a_schema_is_said_at_once() -> None:
    with pytest.raises(HeadgateError) as refused:
        types.validate_schema(
            schema(("a", "INT"), ("A", "INT"), ("b", "FOO"), ("", "INT"), ("x\0", "INT"), (" y", "INT"))
        )
    assert refused.value.reason is INVALID_SCHEMA
    for part in ("`A` comes twice", "no type `FOO`", "column 4: the name is empty", "control character", "a space"):
        assert part in refused.value.message


def test_too_many_columns_are_refused_before_they_are_looked_at() -> None:
    many = schema(*((f"c{i}", "NO SUCH TYPE") for i in range(10_000)))
    with pytest.raises(HeadgateError) as refused:
        types.validate_schema(many)
    assert refused.value.message == "a schema has at most 2,000 columns, not 10,000"
    fine = schema(*((f"c{i}", "INT") for i in range(2_000)))
    assert len(types.validate_schema(fine).fields) == 2_000
    with pytest.raises(HeadgateError):
        types.validate_schema(fine, types.SchemaLimits(max_columns=1_999))


def test_every_kind_that_can_be_declared_is_in_the_table() -> None:
    inner = {Kind.NULL, Kind.DAY_TIME_INTERVAL, Kind.YEAR_MONTH_INTERVAL}
    assert set(types.TYPES) == set(Kind) - inner


def test_every_synonym_of_the_table_is_taken() -> None:
    for kind, row in types.TYPES.items():
        for synonym in row.synonyms:
            text = {"T[]": "INT[]", "ROW": "ROW<a: INT>"}.get(synonym, synonym)
            assert parse_type(text).kind is kind
