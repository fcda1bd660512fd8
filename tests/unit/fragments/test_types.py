"""The agent's table of types says the same as the coordinator's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.catalog import v1 as catalog
from headgate_agent.fragments.types import arrow_schema, arrow_type, columns_of, spark_arrow_type
from headgate_common.column_types import read_type
from headgate_coordinator.sql import types as planner
from headgate_coordinator.sql.types import TYPES, DataType, Kind, StructField

PLAIN = [
    DataType(kind)
    for kind in TYPES
    if kind not in (Kind.DECIMAL, Kind.CHAR, Kind.VARCHAR, Kind.ARRAY, Kind.MAP, Kind.STRUCT)
]


def _decimals() -> st.SearchStrategy[DataType]:
    return st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: planner.decimal(p, s)))


def types() -> st.SearchStrategy[DataType]:
    plain = st.one_of(
        st.sampled_from(PLAIN),
        _decimals(),
        st.integers(1, 1_000_000).map(planner.char),
        st.integers(0, 1_000_000).map(planner.varchar),
    )
    names = st.one_of(st.sampled_from(("a", "NOT", "Key", "an id", "a`b", "ß", "1st")), st.just("x1"))

    def struct(parts: list[tuple[str, DataType, bool]]) -> DataType:
        return planner.struct(*(StructField(name, type_, not_null) for name, type_, not_null in parts))

    return st.recursive(
        plain,
        lambda inner: st.one_of(
            inner.map(planner.array),
            st.builds(planner.map_of, plain, inner),
            st.lists(
                st.tuples(names, inner, st.booleans()), min_size=1, max_size=4, unique_by=lambda part: part[0].lower()
            ).map(struct),
        ),
        max_leaves=6,
    )


@given(types())
def test_both_tables_give_the_same_arrow_types(type_: DataType) -> None:
    ours = read_type(str(type_))
    assert str(arrow_type(ours)) == planner.arrow_type(type_)
    assert str(spark_arrow_type(ours)) == planner.spark_arrow_type(type_)


def test_every_kind_that_can_be_declared_is_known() -> None:
    for type_ in PLAIN:
        assert str(arrow_type(read_type(str(type_)))) == planner.arrow_type(type_)


@pytest.mark.parametrize("text", ["", "INT", "int32", "DECIMAL", "ARRAY<INT32", "STRUCT<>", "INT32 x", "MAP<INT32>"])
def test_what_is_not_the_canonical_spelling_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="canonical"):
        read_type(text)


def test_not_null_columns_are_not_nullable_in_arrow() -> None:
    schema = catalog.Schema(fields=[catalog.Field(name="a", type="INT32", not_null=True)])
    assert not arrow_schema(columns_of(schema)).field("a").nullable
