"""The SQL shell offers what can stand where the cursor is."""

from __future__ import annotations

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from headgate.catalog import v1 as catalog
from headgate.log import v1 as log
from headgate_cli.completion import SqlCompleter

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
    ],
)
def test_words_and_names_are_offered_where_they_can_stand(typed: str, wanted: list[str]) -> None:
    assert offered(typed) == wanted


def test_topics_that_queries_made_for_themselves_are_not_offered() -> None:
    assert offered("DROP TOPIC __") == []
