"""Filters and projections on Arrow batches mean what the reference evaluator says, row by row."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate.catalog import v1 as catalog
from headgate_agent.errors import PLAN_UNSUPPORTED
from headgate_agent.fragments.pushdown import compile_pushdown
from headgate_agent.fragments.types import arrow_schema, columns_of
from headgate_common.errors import HeadgateError
from headgate_coordinator.sql.errors import StatementError
from tests.examples import examples
from tests.unit.fragments.generated import ROWS, VIEW, predicates
from tests.unit.planner.kit import plan
from tests.unit.planner.predicates import keeps


def batch_of(schema: catalog.Schema, rows: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
    columns = columns_of(schema)
    arrays = []
    for column in columns:
        values = [row.get(column.name) for row in rows]
        if column.type.kind == "UINT64":
            values = [int(value) if isinstance(value, Decimal) else value for value in values]
        arrays.append(pa.array(values, column.arrow))
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(columns))


def source_of(condition: str) -> catalog.SourceFragment:
    return plan(f"SELECT must, s FROM types WHERE {condition} INTO out", VIEW).fragments[0].source


def kept(source: catalog.SourceFragment, rows: Sequence[Mapping[str, Any]]) -> list[int]:
    pushdown = compile_pushdown(source, columns_of(source.schema))
    return list(pushdown.apply(batch_of(source.schema, rows)).column("must").to_pylist())


@settings(
    max_examples=examples(120), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(rows=st.lists(ROWS, min_size=1, max_size=25), condition=predicates())
@pytest.mark.slow
def test_the_rows_that_stay_are_those_of_the_reference(rows: list[dict[str, Any]], condition: str) -> None:
    numbered = [{**row, "must": number} for number, row in enumerate(rows)]
    try:
        source = source_of(condition)
    except StatementError:
        return
    if not source.HasField("predicate"):
        return
    assert kept(source, numbered) == [row["must"] for row in numbered if keeps(source.predicate, row)], condition


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("condition", "values", "wanted"),
    [
        ("f64 > 5", [NAN, INF, 5.0, None], [0, 1]),
        ("f64 = 0", [0.0, -0.0, NAN, None], [0, 1]),
        ("f64 <> 0", [0.0, -0.0, NAN, None, 1.0], [2, 4]),
        ("f64 <= 5", [NAN, -INF, 5.0], [1, 2]),
        ("f64 = f64", [NAN, 1.0, None], [0, 1]),
        ("f64 IN (0, 1)", [-0.0, 1.0, NAN, None], [0, 1]),
        ("NOT f64 IN (0, 1)", [-0.0, 1.0, NAN, None], [2]),
        ("NOT s IN ('a', 'b')", ["a", "c", None], [1]),
        ("s < 'é'", ["e\u0301", "z", "é", "😀", "\ue000", None], [0, 1]),
        ("s < '😀'", ["\ue000", "\uffff", "😀", "a"], [0, 1, 3]),
        ("u64 = 18446744073709551615", [Decimal(2**64 - 1), Decimal(2**63), None], [0]),
        ("b", [True, False, None], [0]),
        ("NOT b", [True, False, None], [1]),
        ("b IS NULL", [True, False, None], [2]),
        ("d10 = 1.5", [Decimal("1.50"), Decimal("1.51"), None], [0]),
    ],
)
def test_the_corners_of_the_meaning(condition: str, values: list[Any], wanted: list[int]) -> None:
    found = re.search(r"\b(f64|u64|d10|s|b)\b", condition)
    assert found is not None
    name = found.group()
    rows = [{name: value, "must": number} for number, value in enumerate(values)]
    assert kept(source_of(condition), rows) == wanted


def test_only_the_columns_of_the_edge_are_carried_in_their_order() -> None:
    source = source_of("i32 > 1")
    source.columns[:] = ["s", "must"]
    pushdown = compile_pushdown(source, columns_of(source.schema))
    made = pushdown.apply(batch_of(source.schema, [{"must": 1, "i32": 2, "s": "x"}, {"must": 2, "i32": 1}]))
    assert made.schema.names == ["s", "must"]
    assert made.to_pylist() == [{"s": "x", "must": 1}]


def test_a_predicate_that_is_not_known_is_refused_before_any_row() -> None:
    source = source_of("i32 > 1")
    source.predicate.comparison.operator = catalog.COMPARISON_OPERATOR_UNSPECIFIED
    with pytest.raises(HeadgateError) as raised:
        compile_pushdown(source, columns_of(source.schema))
    assert raised.value.reason is PLAN_UNSUPPORTED
