"""What is written on the command line becomes the request that it means."""

from __future__ import annotations

import pytest
import typer

from headgate.catalog import v1 as catalog
from headgate_cli.commands.lifecycle import stop_mode
from headgate_cli.commands.read import list_request
from headgate_cli.commands.watch import changes, watch_request
from headgate_cli.kinds import AGENT, FRAGMENT, QUERY


def test_filters_become_fields_of_the_list_call() -> None:
    request = list_request(QUERY, ["state=running", "agent=a", "name-prefix=x"])
    assert request == catalog.ListQueriesRequest(state=catalog.QUERY_STATE_RUNNING, agent="a", name_prefix="x")
    assert list_request(AGENT, ["min_free_slots=3"]).min_free_slots == 3


@pytest.mark.parametrize("text", ["colour=red", "state", "page_size=3"])
def test_a_filter_that_the_kind_does_not_have_is_refused_with_those_it_has(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="filtered by query, agent, state"):
        list_request(FRAGMENT, [text])


def test_a_filter_is_checked_by_its_type() -> None:
    with pytest.raises(typer.BadParameter, match="is a number"):
        list_request(AGENT, ["min_free_slots=many"])


def test_a_watch_is_of_kinds_of_one_name_or_a_statement() -> None:
    kinds = [catalog.RESOURCE_KIND_QUERY, catalog.RESOURCE_KIND_FRAGMENT]
    assert watch_request(["queries", "fragments"], "", 4) == catalog.WatchRequest(kinds=kinds, from_revision=4)
    assert watch_request(["query/x"], "", 0) == catalog.WatchRequest(kinds=kinds[:1], name="x")
    assert watch_request([], "", 0) == catalog.WatchRequest()
    assert watch_request(["select * from agents"], "", 0).statement == "WATCH select * from agents"
    assert watch_request(["WATCH SELECT 1"], "", 0).statement == "WATCH SELECT 1"


@pytest.mark.parametrize(
    ("what", "where"), [(["query/x", "agents"], ""), (["agents", "sinks"], "state = 1"), (["SELECT 1"], "x")]
)
def test_a_watch_that_contradicts_itself_is_refused(what: list[str], where: str) -> None:
    with pytest.raises(typer.BadParameter):
        watch_request(what, where, 0)


def test_a_change_is_told_by_what_differs() -> None:
    before = catalog.Query(name="x", state=catalog.QUERY_STATE_DEPLOYING, fragment_count=3)
    after = catalog.Query(name="x", state=catalog.QUERY_STATE_RUNNING, fragment_count=3)
    assert changes(QUERY, after, before) == "state=DEPLOYING -> RUNNING"
    assert "fragments=3" in changes(QUERY, after, None)


def test_soft_and_hard_exclude_each_other() -> None:
    assert stop_mode(False, False) == catalog.STOP_MODE_UNSPECIFIED
    assert stop_mode(True, False) == catalog.STOP_MODE_SOFT
    with pytest.raises(typer.BadParameter):
        stop_mode(True, True)
