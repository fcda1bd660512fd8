"""The GENERATOR source: the same rows from any position, at the rate that was asked for."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.catalog import v1 as catalog
from headgate_agent.errors import PLAN_UNSUPPORTED
from headgate_agent.fragments.sources.build import build_source
from headgate_agent.fragments.sources.makers import Rows, maker_of
from headgate_agent.fragments.sources.source import Outcome, Source, run_source
from headgate_agent.fragments.types import columns_of
from headgate_common.errors import HeadgateError
from headgate_coordinator.catalog.descriptors.generator import MAKERS, default_maker
from headgate_coordinator.sql.types import TYPES, parse_type
from tests.examples import examples
from tests.unit.fragments.kit import MemoryEdge, around, schema_of, simulated, source_fragment

NOW = 1_767_225_600_000_000


def generator(columns: str, **options: str) -> Source:
    fragment = source_fragment(catalog.SOURCE_TYPE_GENERATOR, options, columns)
    return build_source(fragment, around(batch_rows=1_000))


def made(call: str, type_: str, count: int = 1_000, first: int = 0, seed: int = 0) -> list[Any]:
    (column,) = columns_of(schema_of(f"a {type_}"))
    array = maker_of(call, column, seed)(Rows(first, count, NOW))
    assert array.type == column.arrow
    array.validate(full=True)
    assert len(array) == count
    return list(array.to_pylist())


EVERY = [
    ("sequence(5, -2)", "INT32"),
    ("sequence()", "FLOAT32"),
    ("sequence(0.5, 0.25)", "DECIMAL(10,2)"),
    ("uniform(-3, 3)", "INT8"),
    ("uniform(0, 18446744073709551615)", "UINT64"),
    ("uniform(-1.5, 1.5)", "DECIMAL(38,10)"),
    ("uniform(0, 1)", "FLOAT64"),
    ("normal(100, 15)", "INT16"),
    ("normal(0, 1)", "FLOAT64"),
    ("normal(5, 1)", "DECIMAL(5,3)"),
    ("choice('a', 'b', 'it''s')", "VARCHAR"),
    ("choice(1, 2)", "UINT64"),
    ("choice(true, false)", "BOOL"),
    ("choice('2026-01-01', '2026-01-02')", "DATE"),
    ("constant(1.25)", "DECIMAL(5,2)"),
    ("constant('2026-01-01T00:00:00Z')", "TIMESTAMP"),
    ("text(13)", "VARCHAR"),
    ("text(20)", "CHAR(4)"),
    ("chance(0.25)", "BOOL"),
    ("now()", "TIMESTAMP"),
    ("now()", "INT64"),
    ("clock('2026-01-01T00:00:00Z', '90 s')", "TIMESTAMP"),
    ("clock('2026-01-01T00:00:00Z', '12h')", "DATE"),
]


def test_every_maker_that_the_coordinator_offers_is_tried_here() -> None:
    assert {call.split("(")[0] for call, _ in EVERY} == set(MAKERS)


@pytest.mark.parametrize(("call", "type_"), EVERY)
def test_rows_are_the_same_in_whatever_pieces_they_are_made(call: str, type_: str) -> None:
    whole = made(call, type_, 300)
    assert made(call, type_, 100, 0) + made(call, type_, 1, 100) + made(call, type_, 199, 101) == whole


def test_every_type_gets_values_where_nothing_is_said() -> None:
    for kind, row in TYPES.items():
        declared = {"DECIMAL(p,s)": "DECIMAL(5,2)", "CHAR(n)": "CHAR(3)"}.get(row.declared_as, row.declared_as)
        if "<" in declared:
            continue
        call = default_maker(parse_type(declared))
        if call is not None:
            assert None not in made(call, declared, 50), kind


def test_values_are_what_the_call_says() -> None:
    assert made("sequence(5, -2)", "INT32", 4) == [5, 3, 1, -1]
    assert made("sequence(0.5, 0.25)", "DECIMAL(10,2)", 3) == [Decimal("0.50"), Decimal("0.75"), Decimal("1.00")]
    assert set(made("uniform(-3, 3)", "INT8")) == set(range(-3, 4))
    assert all(-1 <= value <= 1 for value in made("uniform(-1, 1)", "FLOAT64"))
    assert max(made("uniform(0, 18446744073709551615)", "UINT64")) > 2**63
    assert min(made("uniform(-9223372036854775808, 9223372036854775807)", "INT64")) < -(2**62)
    assert {len(text) for text in made("text(13)", "VARCHAR", 20)} == {13}
    assert made("text(20)", "CHAR(4)", 1)[0].isalpha()
    assert 200 < sum(made("chance(0.25)", "BOOL")) < 300
    assert made("now()", "INT64", 2) == [NOW, NOW]
    moments = made("clock('2026-01-01T00:00:00Z', '90 s')", "TIMESTAMP", 3)
    assert moments == [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=90 * n) for n in range(3)]
    assert made("clock('2026-01-01T00:00:00Z', '12h')", "DATE", 3) == [date(2026, 1, n) for n in (1, 1, 2)]


def test_numbers_are_spread_evenly_and_normally() -> None:
    counts = Counter(made("choice(1, 2, 3, 4)", "INT8", 4_000))
    assert all(850 < count < 1_150 for count in counts.values())
    normal = made("normal(10, 2)", "FLOAT64", 4_000)
    mean = sum(normal) / len(normal)
    assert abs(mean - 10) < 0.2
    assert abs((sum((x - mean) ** 2 for x in normal) / len(normal)) ** 0.5 - 2) < 0.15


def test_a_sequence_wraps_around_within_its_type() -> None:
    assert made("sequence(126)", "INT8", 4) == [126, 127, -128, -127]
    assert made("sequence(255)", "UINT8", 2) == [255, 0]
    assert made("sequence(18446744073709551615)", "UINT64", 2) == [2**64 - 1, 0]
    assert made("sequence(9.9, 0.1)", "DECIMAL(2,1)", 2) == [Decimal("9.9"), Decimal("-9.9")]


def test_seeds_and_columns_have_their_own_numbers() -> None:
    assert made("uniform(0, 1000000)", "INT32", 10) != made("uniform(0, 1000000)", "INT32", 10, seed=1)
    assert made("uniform(0, 1000000)", "INT32", 10, seed=-1) == made("uniform(0, 1000000)", "INT32", 10, seed=-1)


@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 10**15))
@settings(max_examples=examples(50), deadline=None)
def test_any_seed_and_row_is_made(seed: int, first: int) -> None:
    assert len(made("uniform(0, 9)", "INT32", 3, first, seed)) == 3


@pytest.mark.parametrize(
    ("call", "type_"), [("uniform(1.2, 1.8)", "INT32"), ("choice('long')", "CHAR(2)"), ("x", "INT8")]
)
def test_what_cannot_be_made_is_refused_before_the_first_row(call: str, type_: str) -> None:
    with pytest.raises(HeadgateError) as raised:
        made(call, type_)
    assert raised.value.reason is PLAN_UNSUPPORTED


@pytest.mark.slow
def test_so_many_rows_and_then_the_end_also_across_restarts() -> None:
    edge = MemoryEdge()
    whole = MemoryEdge()
    options = {"rows": "2500", "rate": "100000", "seed": "7", "field.a": "uniform(0, 99)"}
    assert simulated(run_source(generator("a INT32", **options), whole, asyncio.Event())) is Outcome.ENDED
    while edge.last is None or not edge.last.ended:
        edge.uncertain = {edge.appends + 1}
        with pytest.raises(ConnectionError):
            simulated(run_source(generator("a INT32", **options), edge, asyncio.Event()))
    assert edge.column("a") == whole.column("a")
    assert len(whole.column("a")) == 2_500


@pytest.mark.parametrize(("rate", "seconds", "wanted"), [("10.0", 10, 101), ("0.5", 10, 6), ("5000.0", 3, 15_001)])
def test_the_rate_is_kept_on_the_clock(rate: str, seconds: float, wanted: int) -> None:
    edge = MemoryEdge()
    source = generator("a INT32", rate=rate)

    async def main() -> None:
        stopping = asyncio.Event()
        task = asyncio.create_task(run_source(source, edge, stopping))
        await asyncio.sleep(seconds + 0.001)
        stopping.set()
        assert await task is Outcome.STOPPED

    simulated(main())
    assert abs(len(edge.column("a")) - wanted) <= max(1, float(rate) * 0.06)
    assert edge.last is not None
    assert edge.last.ended


def test_time_that_was_spent_waiting_is_not_made_up_for_beyond_a_second() -> None:
    edge = MemoryEdge(max_lag=1)
    source = generator("a INT32", rate="100.0")

    async def main() -> None:
        task = asyncio.create_task(run_source(source, edge, asyncio.Event()))
        await asyncio.sleep(60)
        before = len(edge.column("a"))
        edge.max_lag = None
        await edge.trim(len(edge.batches))
        await asyncio.sleep(0.02)
        assert len(edge.column("a")) - before < 250
        task.cancel()
        await asyncio.wait((task,))

    simulated(main())


def test_the_time_of_a_row_is_the_agents() -> None:
    edge = MemoryEdge()
    simulated(run_source(generator("a TIMESTAMP", rows="1"), edge, asyncio.Event()))
    assert edge.column("a")[0] == datetime(2026, 1, 1, tzinfo=UTC)
