"""The SQL shell offers what can stand where the cursor is."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from headgate.catalog import v1 as catalog
from headgate.log import v1 as log
from headgate_cli.completion import SqlCompleter
from headgate_cli.dialect import FUNCTIONS, WATCHED
from headgate_coordinator.sql.functions import AGGREGATES, SCALARS
from headgate_coordinator.sql.parse.show import WATCHED as WATCHED_KINDS

RESOURCES = [
    catalog.Resource(agent=catalog.Agent(name="edge-1")),
    catalog.Resource(
        logical_source=catalog.LogicalSource(
            name="cars", schema=catalog.Schema(fields=[catalog.Field(name="speedLimit", type="INT32")])
        )
    ),
    catalog.Resource(physical_source=catalog.PhysicalSource(name="gate-1")),
    catalog.Resource(sink=catalog.Sink(name="alarms")),
    catalog.Resource(query=catalog.Query(name="slow")),
    catalog.Resource(topic=log.Topic(name="Orders.v1")),
    catalog.Resource(topic=log.Topic(name="__headgate.edge.1", internal=True)),
]


def offered(text: str) -> list[str]:
    completer = SqlCompleter()
    completer.learn(RESOURCES)
    return [each.text for each in completer.get_completions(Document(text), CompleteEvent())]


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("SEL", ["SELECT"]),
        ("sel", ["select"]),
        ("SHOW AGENTS; wa", ["watch"]),
        ("SELECT speed FROM c", ["cars"]),
        ("SELECT a FROM cars JOIN ", ["cars"]),
        ("DROP QUERY ", ["slow"]),
        ("DROP LOGICAL SOURCE ", ["cars"]),
        ("DROP PHYSICAL SOURCE ga", ["gate-1"]),
        ("SELECT a FROM cars INTO ", ["alarms"]),
        ("DROP TOPIC o", ["Orders.v1"]),
        ("ALTER ", ["TOPIC"]),
        ("ALTER TOPIC o", ["Orders.v1"]),
        ("ALTER TOPIC Orders.v1 ", ["SET", "RESET"]),
        ("ALTER TOPIC Orders.v1 SET (ret", ["retention", "retention_bytes"]),
        ("ALTER TOPIC Orders.v1 RESET (retention, l", ["linger"]),
        ("ALTER TOPIC Orders.v1 SET (dur", []),
        ("CREATE SINK x (a INT32) TYPE File ON ed", ["edge-1"]),
        ("SELECT speedl", ["speedLimit"]),
        ("WATCH SELECT name FROM qu", ["queries"]),
        ("WATCH SELECT * FROM pa", ["partitions"]),
        ("WATCH SELECT * FROM tr", ["transfers"]),
        ("WATCH SELECT * FROM ne", ["network_links"]),
        ("SELECT a FROM cars LIM", ["LIMIT"]),
        ("SELECT a FROM cars ord", ["order", "Orders.v1"]),
        ("SELECT a FROM cars WINDOW SES", ["SESSION"]),
        ("SELECT a FROM cars WINDOW TUMBLING(siz", ["size"]),
        ("SELECT a FROM cars WINDOW SLIDING(size = 1m, adv", ["advance"]),
        ("SELECT a FROM cars JOIN cars us", ["using"]),
        ("SELECT approx_", ["approx_count_distinct", "approx_percentile"]),
    ],
)
def test_words_and_names_are_offered_where_they_can_stand(typed: str, wanted: list[str]) -> None:
    assert offered(typed) == wanted


def test_every_function_and_every_kind_that_the_coordinator_knows_is_offered() -> None:
    assert set(FUNCTIONS) == {name.upper() for name in (*SCALARS, *AGGREGATES)}
    numbers = {WATCHED_KINDS[word] for word in WATCHED}
    assert numbers == set(WATCHED_KINDS.values()) and len(numbers) == len(WATCHED)


def test_topics_that_queries_made_for_themselves_are_not_offered() -> None:
    assert offered("DROP TOPIC __") == []


@given(st.text(alphabet="aS(*,;'\"`/-. \n\\", max_size=12))
@example("(")
@example("SELECT 1; (")
@example("SELECT /* abc ")
def test_whatever_is_typed_the_shell_goes_on(text: str) -> None:
    offered(text)
