"""Topics that belong to a query: hidden, closed, and gone with it."""

from __future__ import annotations

import pytest

from headgate.catalog import v1 as catalog
from headgate.log import v1 as log
from headgate_coordinator.catalog.log import topics
from headgate_coordinator.catalog.log.settings import TopicRules
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.errors import TOPIC_IN_USE
from tests.unit.entities.kit import Catalog
from tests.unit.entities.refusals import refused


@pytest.fixture
async def edge(made: Catalog) -> log.Topic:
    """An edge of the query q, led by the agent a."""
    await made.agent("a")
    query = await made.query("q", ["a"])

    def create(tx: Tx) -> log.Topic:
        return topics.create(
            tx,
            name="edge-1",
            partition_count=2,
            wanted=log.TopicSettings(durability=log.DURABILITY_WAL, format=log.TOPIC_FORMAT_ARROW),
            rules=TopicRules(max_topics=0),
            internal=True,
            query_uid=query.uid,
            pinned_agent="a",
        )

    return await made.write(create)


async def names(made: Catalog, *, internal: bool) -> list[str]:
    request = log.ListTopicsRequest(include_internal=internal)
    return [each.name for each in (await made.read(lambda tx: topics.list_topics(tx, request))).topics]


async def test_an_edge_is_listed_for_who_asks_and_counts_against_no_limit(made: Catalog, edge: log.Topic) -> None:
    assert (edge.internal, edge.pinned_agent) == (True, "a")
    assert await names(made, internal=False) == []
    assert await names(made, internal=True) == ["edge-1"]


async def test_an_edge_is_its_querys_alone_to_change_and_drop(made: Catalog, edge: log.Topic) -> None:
    error = await refused(made, log.DropTopicRequest(name=edge.name), TOPIC_IN_USE)
    assert "1 query: q (PENDING)" in error.message
    await refused(made, log.AlterTopicRequest(name=edge.name, fields=["retention"]), TOPIC_IN_USE)


async def test_an_edge_goes_with_its_query(made: Catalog, edge: log.Topic) -> None:
    await made.end_query("q")
    assert await names(made, internal=True) == [edge.name], "an ended query keeps it until it is dropped"
    await made.apply(catalog.DropQueryRequest(name="q"))
    assert await names(made, internal=True) == []
    last = (await made.history())[-1]
    assert sorted(change.kind for change in last.changes if change.after is None) == [
        "FRAGMENT",
        "PARTITION",
        "PARTITION",
        "QUERY",
        "TOPIC",
    ]
