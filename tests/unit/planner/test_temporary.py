"""A SELECT without INTO: its rows go to whoever asked for them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate.catalog import v1 as catalog
from headgate_coordinator.sql.errors import StatementError
from headgate_coordinator.sql.planner import plan_query
from tests.unit.planner.kit import CATALOG, MemoryView, parse_query

VIEW = MemoryView(CATALOG)


def planned(text: str) -> catalog.QueryPlan:
    return plan_query(replace(parse_query(text), temporary=True), VIEW)


def sink_of(plan: catalog.QueryPlan) -> catalog.SinkFragment:
    return plan.fragments[-1].sink


def test_the_sink_has_the_columns_of_the_query() -> None:
    sink = sink_of(planned("SELECT vehicle, speed AS fast FROM lrb"))
    assert sink.type == catalog.SINK_TYPE_RESULT
    assert [(field.name, field.type) for field in sink.schema.fields] == [("vehicle", "INT32"), ("fast", "FLOAT32")]


def test_columns_without_a_name_or_with_the_same_one_are_told_apart() -> None:
    sink = sink_of(planned("SELECT vehicle, vehicle, vehicle + 1, NULL FROM lrb"))
    assert [field.name for field in sink.schema.fields] == ["vehicle", "vehicle_2", "column3", "column4"]
    assert sink.schema.fields[3].type == "VARCHAR"


def test_an_interval_cannot_be_a_column() -> None:
    with pytest.raises(StatementError, match="interval"):
        planned("SELECT INTERVAL 1 DAY AS i FROM lrb")


def test_a_limit_ends_the_query_where_nothing_orders_the_rows() -> None:
    assert sink_of(planned("SELECT vehicle FROM lrb LIMIT 7")).options["limit"] == "7"
    with pytest.raises(StatementError, match="LIMIT"):
        planned("SELECT vehicle FROM lrb LIMIT 0")


def test_an_aggregate_without_a_window_gives_each_new_result() -> None:
    plan = planned("SELECT vehicle, COUNT(*) AS n FROM lrb GROUP BY vehicle")
    assert plan.fragments[-2].compute.output_mode == "update"


def test_the_edge_is_no_safer_than_its_reader_and_no_sink_is_used() -> None:
    plan = planned("SELECT vehicle FROM lrb")
    assert plan.edges[-1].durability == "WAL"
    assert not plan.fragments[-1].node_local
    assert "sink" not in {use.kind for use in plan.uses}


@pytest.mark.parametrize(
    "text", ["SELECT vehicle FROM lrb INTO csv_sink", "SELECT vehicle FROM lrb WITH (mode = 'realtime')"]
)
def test_what_a_temporary_query_cannot_have_is_refused(text: str) -> None:
    with pytest.raises(StatementError, match="temporary"):
        planned(text)
