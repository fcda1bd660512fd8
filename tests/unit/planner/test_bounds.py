"""Hostile statements end in a typed error, soon, whatever they are."""

from __future__ import annotations

from dataclasses import fields

import pytest

from headgate_coordinator.config import Limits
from headgate_coordinator.errors import STATEMENT_TOO_LARGE, UNSUPPORTED
from headgate_coordinator.sql.errors import StatementError
from headgate_coordinator.sql.limits import StatementLimits
from headgate_coordinator.sql.parse import parse_statements
from headgate_coordinator.sql.planner import plan_query
from headgate_coordinator.sql.settings import PlannerSettings
from headgate_coordinator.sql.statements import QueryStatement
from tests.unit.planner.kit import CATALOG, MemoryView, plan

VIEW = MemoryView(CATALOG).apply("CREATE SINK out(vehicle INT32) TYPE PRINT ON edge")


def refused(text: str, settings: PlannerSettings | None = None) -> StatementError:
    with pytest.raises(StatementError) as raised:
        plan(text, VIEW, settings)
    return raised.value


def test_too_many_values_in_a_list() -> None:
    values = ", ".join(str(number) for number in range(101))
    error = refused(f"SELECT vehicle FROM lrb WHERE vehicle IN ({values}) INTO out", PlannerSettings(max_in_list=100))
    assert error.reason == STATEMENT_TOO_LARGE
    assert "IN has 101 values; at most 100 are taken" in error.message


@pytest.mark.slow
def test_as_many_values_as_are_allowed_are_planned() -> None:
    values = ", ".join(str(number) for number in range(10_000))
    made = plan(f"SELECT vehicle FROM lrb WHERE vehicle IN ({values}) INTO out", VIEW)
    assert made.fragments[0].source.filter == ""


def _doubled(times: int) -> str:
    return ", ".join(["vehicle AS a0", *(f"a{i - 1} & a{i - 1} AS a{i}" for i in range(1, times + 1))])


def _nested(times: int, form: str, innermost: str) -> str:
    for _ in range(times):
        innermost = form.format(innermost)
    return innermost


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT a60 AS vehicle FROM (SELECT {_doubled(60)} FROM lrb)",
        f"SELECT {_doubled(60)} FROM lrb",
        "SELECT a.vehicle FROM (" + _nested(60, "SELECT *, * FROM ({})", "SELECT vehicle FROM lrb") + ") a",
        "SELECT vehicle FROM lrb WHERE " + _nested(50, "({}) BETWEEN FALSE AND TRUE", "direction"),
        "SELECT vehicle FROM lrb WHERE 1 = " + _nested(50, "CASE {} WHEN 1 THEN 2 WHEN 3 THEN 4 END", "vehicle"),
        "SELECT " + ", ".join(["vehicle AS b0", *(f"b{i - 1} + 1 AS b{i}" for i in range(1, 1_000))]) + " FROM lrb",
    ],
    ids=["sub_select", "columns", "star", "between", "case", "chain"],
)
@pytest.mark.slow
def test_what_stands_for_more_than_it_says_is_stopped(query: str) -> None:
    error = refused(f"{query} INTO out")
    assert error.reason == STATEMENT_TOO_LARGE
    assert "more than 100,000 parts" in error.message


def test_struct_that_doubles_is_stopped() -> None:
    inner = _nested(60, "SELECT struct(a AS x, a AS y) AS a FROM ({})", "SELECT vehicle AS a FROM lrb")
    error = refused(f"SELECT 1 AS vehicle FROM ({inner}) WHERE a IS NOT NULL INTO out")
    assert error.reason == STATEMENT_TOO_LARGE
    assert "more than 10,000 fields" in error.message


def test_text_that_doubles_is_left_to_spark() -> None:
    view = MemoryView(CATALOG).apply("CREATE SINK out(a VARCHAR) TYPE PRINT ON edge")
    inner = _nested(60, "SELECT a || a AS a FROM ({})", "SELECT 'abcdefgh' AS a FROM lrb")
    made = plan(f"SELECT a FROM ({inner}) INTO out", view)
    assert len(made.SerializeToString()) < 1_000_000


@pytest.mark.parametrize(
    "columns",
    ["'{0}' AS a, {1} FROM lrb", "{1} FROM (SELECT vehicle, '{0}' AS a FROM lrb)"],
    ids=["alias", "sub_select"],
)
@pytest.mark.slow
def test_long_text_is_not_written_out_at_every_use(columns: str) -> None:
    view = MemoryView(CATALOG).apply("CREATE SINK out(c0 INT32) TYPE PRINT ON edge")
    uses = ", ".join(f"length(a) + {i} AS c{i}" for i in range(1_000))
    query = f"SELECT c0 + {' + '.join(f'c{i}' for i in range(1, 300))} AS c0 FROM (SELECT " + columns.format(
        "x" * 500_000, uses
    )
    try:
        assert len(plan(f"{query}) INTO out", view).SerializeToString()) < 5_000_000
    except StatementError as error:
        assert error.reason == STATEMENT_TOO_LARGE


def test_bound_on_parts_is_a_setting() -> None:
    query = f"SELECT a4 AS vehicle FROM (SELECT {_doubled(4)} FROM lrb) INTO out"
    assert plan(query, VIEW, PlannerSettings(max_parts=1_000)).fragments
    error = refused(query, PlannerSettings(max_parts=100))
    assert error.reason == STATEMENT_TOO_LARGE
    assert "more than 100 parts" in error.message


def test_overlap_of_windows_is_a_setting() -> None:
    query = "SELECT MAX(vehicle) AS vehicle FROM lrb WINDOW SLIDING(creationTS, SIZE 10 SEC, ADVANCE BY 1 SEC) INTO out"
    assert plan(query, VIEW, PlannerSettings(max_overlap=10)).fragments
    error = refused(query, PlannerSettings(max_overlap=9))
    assert error.reason == UNSUPPORTED
    assert "each row would be in 10 windows; at most 9 are allowed" in error.message


def test_with_queries_that_double_each_other_are_stopped() -> None:
    steps = ["q0 AS (SELECT vehicle FROM lrb)"]
    steps += [f"q{i} AS (SELECT vehicle FROM q{i - 1} UNION ALL SELECT vehicle FROM q{i - 1})" for i in range(1, 40)]
    error = refused(f"WITH {', '.join(steps)} SELECT vehicle FROM q39 INTO out")
    assert error.reason == STATEMENT_TOO_LARGE
    assert "more than 200 relations" in error.message


@pytest.mark.parametrize(
    "condition",
    [
        " AND ".join(["speed > 1"] * 300),
        " OR ".join(f"vehicle = {i}" for i in range(300)),
        "vehicle = " + " + ".join(["1"] * 300),
        "(" * 50 + "speed > 1" + ")" * 50,
        "NOT " * 40 + "direction",
    ],
    ids=["and", "or", "plus", "brackets", "not"],
)
def test_long_and_deep_conditions_within_the_limits_are_planned(condition: str) -> None:
    assert plan(f"SELECT vehicle FROM lrb WHERE {condition} INTO out", VIEW).fragments


def test_deep_sub_selects_within_the_limits_are_planned() -> None:
    text = "SELECT vehicle FROM lrb"
    for _ in range(40):
        text = f"SELECT vehicle FROM ({text}) WHERE vehicle > 3"
    assert plan(f"{text} INTO out", VIEW).fragments[0].source.filter == "vehicle > 3"


def test_more_problems_than_a_person_reads_are_cut() -> None:
    columns = ", ".join(f"nothing{i}" for i in range(300))
    error = refused(f"SELECT {columns} FROM lrb INTO out")
    assert len(error.problems) == len(error.details) == 50


@pytest.mark.slow
def test_wide_rows_are_planned() -> None:
    columns = ", ".join(f"c{i} INT32" for i in range(2_000))
    view = MemoryView(CATALOG).apply(
        f"CREATE LOGICAL SOURCE wide({columns}); CREATE PHYSICAL SOURCE FOR wide TYPE TOPIC SET('w' AS `SOURCE`.TOPIC);"
        f"CREATE SINK out({columns}) TYPE VOID"
    )
    assert len(plan("SELECT * FROM wide INTO out", view).fragments[0].compute.output.fields) == 2_000


@pytest.mark.parametrize(
    "condition",
    [
        "(" * 126 + "speed > 1" + ")" * 126,
        "CASE WHEN speed > 1 THEN " * 120 + "TRUE" + " END" * 120,
        " AND ".join(f"1 < {number} + highway" for number in range(999)),
        " + ".join(["highway"] * 999) + " > 1",
    ],
    ids=["brackets", "case", "and", "plus"],
)
def test_the_largest_limits_that_can_be_set_are_held_to_the_end(condition: str) -> None:
    settings = {field.name: field for field in fields(Limits)}
    limits = StatementLimits(
        max_depth=settings["nesting"].metadata["maximum"], max_chain=settings["chain"].metadata["maximum"]
    )
    (statement,) = parse_statements(f"SELECT vehicle FROM lrb WHERE {condition} INTO out", limits)
    assert isinstance(statement, QueryStatement)
    made = plan_query(statement, VIEW, None)
    assert made.fragments
