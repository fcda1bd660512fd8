"""A watch shows topics of queries, and their partitions, to who asks for them."""

from __future__ import annotations

import json

import pytest

from headgate.catalog import v1 as catalog
from headgate.log import v1 as log
from headgate_cli.commands.watch import follow
from headgate_cli.connection import Connection
from headgate_cli.output import Output
from headgate_common.errors import INVALID_ARGUMENT, HeadgateError
from tests.unit.cli.scripted import Script

EDGE = "__headgate.edge.q.1"
RESOURCES = [
    catalog.Resource(topic=log.Topic(name="mine")),
    catalog.Resource(topic=log.Topic(name=EDGE, internal=True)),
    catalog.Resource(partition=log.Partition(topic="mine")),
    catalog.Resource(partition=log.Partition(topic=EDGE, internal=True)),
]
TOPICS = [catalog.RESOURCE_KIND_TOPIC]


def messages() -> list[object]:
    changes = [
        [catalog.WatchEvent(operation=catalog.WATCH_OPERATION_CREATE, current=each) for each in RESOURCES],
        [catalog.WatchEvent(operation=catalog.WATCH_OPERATION_DROP, previous=each) for each in RESOURCES[1::2]],
    ]
    return [
        catalog.WatchResponse(snapshot=catalog.WatchSnapshot(revision=1, resources=RESOURCES, complete=True)),
        *(catalog.WatchResponse(events=catalog.WatchEvents(revision=2, events=each)) for each in changes),
        HeadgateError(INVALID_ARGUMENT, "the end"),
    ]


async def shown(
    capsys: pytest.CaptureFixture[str], request: catalog.WatchRequest, output: Output, *, internal: bool = False
) -> str:
    with pytest.raises(HeadgateError, match="the end"):
        await follow(Connection(Script(messages()), "c:1", 1), request, output, internal=internal)
    return capsys.readouterr().out


@pytest.mark.parametrize("output", [Output.TABLE, Output.JSONL])
async def test_they_are_hidden_from_who_does_not_ask(capsys: pytest.CaptureFixture[str], output: Output) -> None:
    for request in (catalog.WatchRequest(), catalog.WatchRequest(statement="WATCH SELECT name FROM topics")):
        text = await shown(capsys, request, output)
        assert "__headgate" not in text and "mine" in text
        if output is Output.JSONL:
            told = [json.loads(line) for line in text.splitlines()]
            assert [len(each.get("snapshot", each.get("events")).get("resources", ())) for each in told] == [2, 0]


@pytest.mark.parametrize(
    ("request_", "internal"),
    [
        (catalog.WatchRequest(kinds=TOPICS), True),
        (catalog.WatchRequest(kinds=TOPICS, name=EDGE), False),
        (catalog.WatchRequest(kinds=TOPICS, where="internal"), False),
        (catalog.WatchRequest(statement="WATCH SELECT name FROM topics WHERE internal"), False),
    ],
)
async def test_they_are_shown_to_who_asks(
    capsys: pytest.CaptureFixture[str], request_: catalog.WatchRequest, internal: bool
) -> None:
    text = await shown(capsys, request_, Output.TABLE, internal=internal)
    assert text.count(f"topic {EDGE}") == 3 and text.count(f"partition {EDGE}/0") == 3
