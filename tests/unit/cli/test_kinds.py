"""Kinds and references as people write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import typer

from headgate.catalog import v1 as catalog
from headgate_cli import kinds
from headgate_cli.kinds import KINDS, find, long, parse_reference, short


@pytest.mark.parametrize("word", ["query", "queries", "Query", "QUERIES"])
def test_a_kind_is_found_in_any_number_and_case(word: str) -> None:
    assert find(word) is kinds.QUERY


@pytest.mark.parametrize("word", ["logical-source", "logical_sources", "source", "LOGICAL SOURCE"])
def test_a_kind_of_two_words_is_found_however_they_are_joined(word: str) -> None:
    assert find(word) is kinds.LOGICAL_SOURCE


def test_an_unknown_kind_is_refused_with_the_known_ones() -> None:
    with pytest.raises(typer.BadParameter, match="agents, network-links"):
        find("worker")


def test_a_reference_is_kind_and_name_in_one_word_or_two() -> None:
    assert parse_reference("query/x", None) == parse_reference("query", "x") == (kinds.QUERY, "x")
    with pytest.raises(typer.BadParameter, match="one too many"):
        parse_reference("query/x", "y")


def test_a_link_is_named_by_its_two_ends() -> None:
    assert kinds.NETWORK_LINK.reference("a:b") == {"from_agent": "a", "to_agent": "b"}
    with pytest.raises(typer.BadParameter, match="FROM:TO"):
        kinds.NETWORK_LINK.reference("a")


def test_every_kind_has_the_calls_that_the_table_says_it_has() -> None:
    for kind in KINDS:
        assert kind.plural in kind.message(f"{kind.list_method}Response").DESCRIPTOR.fields_by_name
        if kind.addressable:
            assert kind.name in kind.message(f"Get{kind.camel}Response").DESCRIPTOR.fields_by_name
            assert kind.name in kind.message(f"Drop{kind.camel}Response").DESCRIPTOR.fields_by_name


def test_every_resource_of_the_api_has_a_kind() -> None:
    assert {kind.name for kind in KINDS} == {field.name for field in catalog.Resource.DESCRIPTOR.fields}
    assert {kind.number for kind in KINDS} == set(catalog.ResourceKind.values()) - {0}


def test_states_are_short_for_people_and_long_for_the_api() -> None:
    assert short(catalog.QueryState, catalog.QUERY_STATE_RUNNING) == "RUNNING"
    assert short(catalog.QueryState, 0) == ""
    assert short(catalog.QueryState, 99) == "99"
    assert (
        long(catalog.QueryState, "running") == long(catalog.QueryState, "QUERY_STATE_RUNNING") == "QUERY_STATE_RUNNING"
    )
    with pytest.raises(typer.BadParameter, match="not one of PENDING"):
        long(catalog.QueryState, "walking")


@pytest.mark.parametrize(("elapsed", "shown"), [(5, "5s"), (119, "119s"), (120, "2m"), (7200, "2h"), (200_000, "2d")])
def test_an_age_has_one_unit(elapsed: int, shown: str) -> None:
    now = datetime(2030, 1, 2, tzinfo=UTC)
    query = catalog.Query()
    query.create_time.FromDatetime(now - timedelta(seconds=elapsed))
    assert kinds.age(query, now) == shown


def test_a_failed_query_tells_its_failure_rather_than_what_it_waits_for() -> None:
    query = catalog.Query(waiting=catalog.Waiting(reason=catalog.WAITING_REASON_RETRYING, message="agent b"))
    assert kinds.waiting_text(query) == "RETRYING: agent b"
    query.failure.reason, query.failure.message = "FRAGMENT_REFUSED", "no disk"
    assert kinds.waiting_text(query) == "FRAGMENT_REFUSED: no disk"
