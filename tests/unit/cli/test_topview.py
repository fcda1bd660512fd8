"""`top` shows queries and agents of one moment, in no more room than there is."""

from __future__ import annotations

import io
from datetime import UTC, datetime

import pytest
from rich.console import Console

from headgate.catalog import v1 as catalog
from headgate_cli.topview import View, render, view

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
RUNNING, PENDING, FAILED = catalog.QUERY_STATE_RUNNING, catalog.QUERY_STATE_PENDING, catalog.QUERY_STATE_FAILED


def query(name: str, state: catalog.QueryState.ValueType = RUNNING) -> catalog.Query:
    return catalog.Query(name=name, uid=f"uid-{name}", state=state)


def fragment(name: str, agent: str, rate: float) -> catalog.Fragment:
    return catalog.Fragment(
        query=name,
        query_uid=f"uid-{name}",
        agent=agent,
        kind=catalog.FRAGMENT_KIND_SOURCE,
        slots_held=True,
        progress=catalog.FragmentProgress(rows_in_per_second=rate),
    )


def text(shown: View, width: int = 120, height: int | None = None) -> list[str]:
    written = io.StringIO()
    Console(file=written, width=width, height=height or 200).print(render(shown, width, height))
    return written.getvalue().splitlines()


def test_fragments_count_for_their_query_and_their_agent() -> None:
    shown = view(
        "c:1",
        NOW,
        [query("q"), query("other")],
        [fragment("q", "a", 5.0), fragment("q", "b", 6.0), fragment("other", "b", 1.0)],
        [catalog.Agent(name="a"), catalog.Agent(name="b", resources=catalog.AgentResources(cpu=0.5))],
    )
    told = shown.as_json()
    assert {each["name"]: each["rows_in_per_second"] for each in told["queries"]} == {"q": 11.0, "other": 1.0}
    assert [(each["fragments"], each["cpu"]) for each in told["agents"]] == [(1, None), (2, 0.5)]


def test_fragments_of_an_earlier_query_of_the_same_name_do_not_count() -> None:
    former = fragment("q", "a", 5.0)
    former.query_uid = "uid-former"
    shown = view("c:1", NOW, [query("q")], [former], [])
    assert shown.as_json()["queries"][0]["rows_in_per_second"] is None


def test_queries_that_have_ended_are_counted_and_shown_only_when_asked_for() -> None:
    queries = [query("z", FAILED), query("b"), query("a", PENDING)]
    assert [line.query.name for line in view("c:1", NOW, queries, [], []).queries] == ["b", "a"]
    assert view("c:1", NOW, queries, [], []).ended == 1
    assert [line.query.name for line in view("c:1", NOW, queries, [], [], everything=True).queries] == ["b", "a", "z"]


@pytest.mark.parametrize("height", [10, 16, 24, 50])
@pytest.mark.parametrize(("queries", "agents"), [(0, 0), (3, 3), (100, 3), (3, 100), (100, 100)])
@pytest.mark.slow
def test_it_fits_the_terminal_and_counts_what_does_not(height: int, queries: int, agents: int) -> None:
    shown = view(
        "c:1",
        NOW,
        [query(f"q{index:03}") for index in range(queries)],
        [],
        [catalog.Agent(name=f"agent{index:03}", state_reason="unreachable " * 20) for index in range(agents)],
    )
    lines = text(shown, 80, height)
    assert len(lines) <= height
    assert all(len(line) <= 80 for line in lines)
    for kind, count in (("q", queries), ("agent", agents)):
        seen = sum(line.startswith(f"{kind}0") for line in lines)
        left = count - seen
        assert not left or any(f"... and {left} more" in line for line in lines)


def test_trouble_is_told_at_the_top() -> None:
    shown = View("c:1", NOW, (), (), 0, "no answer (UNREACHABLE)")
    assert "no answer (UNREACHABLE)" in text(shown)[0]
