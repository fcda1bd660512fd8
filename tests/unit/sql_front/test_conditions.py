"""Conditions over resources, with the logic of SQL."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.catalog import v1 as catalog
from headgate_coordinator.sql.conditions import compile_columns, compile_text, compile_where, like
from headgate_coordinator.sql.errors import StatementError
from headgate_coordinator.sql.fields import RESOURCES
from headgate_coordinator.sql.parse import parse_statements
from headgate_coordinator.sql.statements import WatchStatement

AGENT = catalog.RESOURCE_KIND_AGENT
QUERY = catalog.RESOURCE_KIND_QUERY


def agent(**changes: Any) -> catalog.Agent:
    made = catalog.Agent(
        name="edge-1",
        uid="u1",
        state=catalog.AGENT_STATE_ACTIVE,
        slots=4,
        slots_used=1,
        labels={"rack": "r1"},
        create_time=Timestamp(seconds=1_767_225_600),
        peers=["cloud"],
        has_engine=True,
        roles=[catalog.AGENT_ROLE_LOG],
    )
    made.MergeFrom(catalog.Agent(**changes))
    return made


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("state = 'ACTIVE'", True),
        ("state = 'active'", True),
        ("state <> 'UNREACHABLE'", True),
        ("state IN ('UNREACHABLE', 'ACTIVE')", True),
        ("state NOT IN ('UNREACHABLE', 'ACTIVE')", False),
        ("state LIKE 'ACT%'", True),
        ("id = 'edge-1' AND capacity = 4", True),
        ("slots - slots_used >= 3", True),
        ("slots_used * 2 + 1 BETWEEN 3 AND 4", True),
        ("-slots = -4", True),
        ("slots = 4.0", True),
        ("name LIKE 'edge-_'", True),
        ("name NOT LIKE 'edge%'", False),
        ("name ILIKE 'EDGE%'", True),
        ("name LIKE 'edge!-1' ESCAPE '!'", True),
        ("labels.rack = 'r1'", True),
        ("labels.row IS NULL", True),
        ("has_engine", True),
        ("NOT has_engine", False),
        ("has_engine IS TRUE", True),
        ("create_time = '2026-01-01T00:00:00Z'", True),
        ("create_time > TIMESTAMP '2025-12-31 23:00:00'", True),
        ("'ACTIVE' = state", True),
        ("uid IS NOT DISTINCT FROM 'u1'", True),
        ("zone = ''", True),
        ("zone IS NULL", False),
        ("(name = 'x' OR name = 'edge-1') AND TRUE", True),
    ],
)
def test_condition_over_an_agent(where: str, expected: bool) -> None:
    assert compile_text(AGENT, where)(agent()) is expected


@pytest.mark.parametrize(
    "where",
    [
        "labels.row = 'x'",
        "NOT (labels.row = 'x')",
        "labels.row <> 'x'",
        "labels.row NOT LIKE 'x%'",
        "labels.row NOT IN ('x')",
        "labels.row = 'x' AND slots = 4",
        "NOT (labels.row = 'x' AND slots = 4)",
        "slots BETWEEN 1 AND NULL",
        "NULL",
        "NOT NULL",
        "slots = NULL",
        "slots NOT IN (1, NULL)",
    ],
)
def test_a_resource_of_which_nobody_knows_does_not_belong(where: str) -> None:
    assert compile_text(AGENT, where)(agent()) is False


@pytest.mark.parametrize(
    "where", ["labels.row = 'x' OR slots = 4", "NOT (labels.row = 'x' AND slots = 5)", "slots IN (4, NULL)"]
)
def test_what_is_unknown_gives_way_to_what_decides(where: str) -> None:
    assert compile_text(AGENT, where)(agent()) is True


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("stat = 'ACTIVE'", "BIND_ERROR: line 1, column 1: unknown field `stat`: did you mean `state`?"),
        (
            "slots > 1 AND state = 'ACTIV'",
            "TYPE_ERROR: line 1, column 23: `state` is never `ACTIV`: did you mean `ACTIVE`?",
        ),
        ("state > 'ACTIVE'", "TYPE_ERROR: line 1, column 1: states have no order: compare them with = or IN"),
        ("slots = 'four'", "TYPE_ERROR: line 1, column 9: expected a number, found the text `four`"),
        ("name = 4", "TYPE_ERROR: line 1, column 1: a text cannot be compared with a number"),
        ("name + 1 = 2", "TYPE_ERROR: line 1, column 1: expected a number, found text"),
        ("create_time > 'soon'", "TYPE_ERROR: line 1, column 15: `soon` is not a timestamp"),
        ("peers = 'a'", "BIND_ERROR: line 1, column 1: `peers` is a list, and a condition is over single values"),
        ("labels = 'a'", "BIND_ERROR: line 1, column 1: `labels` is a map: name a key of it: labels.key"),
        ("name.x = 'a'", "BIND_ERROR: line 1, column 1: `name` has no fields"),
        ("slots", "TYPE_ERROR: line 1, column 1: `slots` is no condition: compare it with a value"),
        ("slots LIKE '4'", "TYPE_ERROR: line 1, column 1: LIKE is for texts"),
        ("name IN (SELECT name FROM agents)", "BIND_ERROR: line 1, column 1: IN takes a list of values here"),
        ("name = 'a' b", "PARSE_ERROR: line 1, column 12: unexpected `b`"),
        ("", "PARSE_ERROR: line 1, column 1: expected a condition"),
        ("name = 'a'; DROP SINK x", "PARSE_ERROR: line 1, column 11: unexpected `;` in a condition"),
    ],
)
def test_what_is_no_condition_is_refused_with_its_place(where: str, message: str) -> None:
    with pytest.raises(StatementError) as refused:
        compile_text(AGENT, where)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    "where",
    ["upper(name) = 'A'", "CASE WHEN TRUE THEN TRUE END", "1", "EXISTS (SELECT 1)", "window(a, '5 s') = 1", "a -> b"],
)
def test_what_has_no_place_in_a_condition_is_refused(where: str) -> None:
    with pytest.raises(StatementError):
        compile_text(AGENT, where)


def test_a_state_that_is_not_said_is_null() -> None:
    silent = catalog.Query(name="q")
    assert compile_text(QUERY, "stop_mode IS NULL")(silent)
    assert not compile_text(QUERY, "stop_mode <> 'HARD'")(silent)
    assert compile_text(QUERY, "stop_mode <> 'HARD'")(catalog.Query(name="q", stop_mode=catalog.STOP_MODE_SOFT))


def test_nested_fields_of_a_query() -> None:
    query = catalog.Query(name="q", state=catalog.QUERY_STATE_DEPLOYING)
    query.waiting.reason = catalog.WAITING_REASON_AGENT_UNREACHABLE
    query.waiting.message = "fragment 2 of 3: agent b unreachable"
    query.deployment_deadline.FromSeconds(120)
    for where in (
        "waiting.reason = 'AGENT_UNREACHABLE'",
        "waiting.message LIKE '%unreachable%'",
        "deployment_deadline > '1 minute'",
        "failure.reason IS NULL",
    ):
        assert compile_text(QUERY, where)(query), where


def test_watch_of_the_reference_document() -> None:
    (statement,) = parse_statements("WATCH SELECT id, state, capacity FROM workers WHERE state = 'ACTIVE';")
    assert isinstance(statement, WatchStatement) and statement.where is not None
    matches = compile_where(statement.kind, statement.where, statement.source)
    project = compile_columns(statement.kind, statement.columns, statement.source)
    assert matches(agent()) and project is not None
    assert not matches(catalog.Agent(name="b", state=catalog.AGENT_STATE_UNREACHABLE))
    assert project(agent()) == catalog.Agent(name="edge-1", uid="u1", state=catalog.AGENT_STATE_ACTIVE, slots=4)


def test_projection_keeps_what_was_asked_for_and_who_it_is() -> None:
    project = compile_columns(AGENT, ["labels.rack", "peers", "roles", "create_time"])
    assert project is not None
    full = agent(zone="z")
    full.labels["other"] = "x"
    expected = catalog.Agent(
        name="edge-1",
        uid="u1",
        labels={"rack": "r1"},
        peers=["cloud"],
        roles=[catalog.AGENT_ROLE_LOG],
        create_time=full.create_time,
    )
    assert project(full) == expected
    assert full.zone == "z"


def test_projection_keeps_fields_of_a_message_in_a_resource() -> None:
    project = compile_columns(catalog.RESOURCE_KIND_QUERY, ["failure.reason"])
    assert project is not None
    failed = catalog.Query(name="q", uid="u", failure=catalog.QueryFailure(reason="AGENT_GONE", message="gone"))
    assert project(failed) == catalog.Query(name="q", uid="u", failure=catalog.QueryFailure(reason="AGENT_GONE"))


@pytest.mark.parametrize(
    "use", [lambda: compile_text(AGENT, "resources.cpu > 0.5"), lambda: compile_columns(AGENT, ["resources"])]
)
def test_what_only_the_leader_remembers_cannot_be_watched(use: Callable[[], object]) -> None:
    with pytest.raises(StatementError, match="is not in the catalog"):
        use()


def test_no_columns_means_all() -> None:
    assert compile_columns(AGENT, []) is None


@pytest.mark.parametrize("kind", list(RESOURCES))
def test_unknown_columns_of_every_kind_are_refused(kind: catalog.ResourceKind.ValueType) -> None:
    with pytest.raises(StatementError) as refused:
        compile_columns(kind, ["no_such_field"])
    assert "unknown field `no_such_field`" in refused.value.message


@settings(deadline=None)
@given(st.text("ab%_", max_size=8), st.text("ab\n", max_size=10))
def test_like_agrees_with_a_matcher_of_the_library(pattern: str, text: str) -> None:
    assert like(pattern)(text) == fnmatch.fnmatchcase(text, pattern.replace("%", "*").replace("_", "?"))


def test_like_takes_time_in_proportion() -> None:
    assert not like("%a" * 2_000 + "b")("a" * 100_000)
    assert like("%" * 10_000)("a" * 100_000)


def test_unknown_columns_are_shown_where_they_stand() -> None:
    (statement,) = parse_statements("WATCH SELECT name, stat,\n  slotz FROM agents")
    assert isinstance(statement, WatchStatement)
    with pytest.raises(StatementError) as refused:
        compile_columns(statement.kind, statement.columns, statement.source, statement.column_offsets)
    first, second = refused.value.details
    assert isinstance(first, catalog.StatementProblem) and isinstance(second, catalog.StatementProblem)
    assert (first.line, first.column, second.line, second.column) == (1, 20, 2, 3)
    assert second.excerpt == "  slotz FROM agents\n  ^"
