"""Topics that belong to a query: there from the moment it is accepted, hidden, closed, and gone with it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import select, update

from headgate.catalog import v1 as catalog
from headgate.log import v1 as log
from headgate_coordinator.catalog import schema
from headgate_coordinator.catalog.log import edge_topics, topics
from headgate_coordinator.catalog.log import schema as tables
from headgate_coordinator.catalog.log.settings import TopicRules
from headgate_coordinator.errors import TOPIC_IN_USE
from tests.unit.entities.kit import Catalog
from tests.unit.entities.refusals import refused

# A source on a, a compute fragment on b, a sink on c that needs nothing of its node.
EDGES = (
    catalog.EdgePlan(ordinal=1, from_fragment=1, to_fragment=2, leader_fragment=1, durability="WAL"),
    catalog.EdgePlan(ordinal=2, from_fragment=2, to_fragment=3, leader_fragment=3, durability="OBJECT"),
)
WEEK = 7 * 86_400.0


@pytest.fixture
async def query(made: Catalog) -> catalog.Query:
    for name in "abc":
        await made.agent(name)
    accepted: catalog.Query = await made.query("q", "abc", edges=EDGES)
    return accepted


async def listed(made: Catalog, *, internal: bool = True) -> list[log.Topic]:
    request = log.ListTopicsRequest(include_internal=internal)
    return list((await made.read(lambda tx: topics.list_topics(tx, request))).topics)


async def names(made: Catalog) -> list[str]:
    return [each.name for each in await listed(made)]


def errors_of(query: catalog.Query) -> list[str]:
    return [edge_topics.error_topic(query.uid, ordinal) for ordinal in (1, 2)]


async def write_errors(made: Catalog, query: catalog.Query) -> None:
    """As if every fragment had found a row that it could not read."""
    written = select(tables.topics.c.uid).where(tables.topics.c.name.in_(errors_of(query)))
    await made.write(
        lambda tx: tx.connection.execute(
            update(tables.partitions).where(tables.partitions.c.topic_uid.in_(written)).values(committed=1)
        )
    )


async def forget(made: Catalog) -> int:
    return await made.write(lambda tx: edge_topics.forget(tx, WEEK, 100))


async def test_an_accepted_query_has_its_edges_and_error_rows_at_their_leaders(
    made: Catalog, query: catalog.Query
) -> None:
    found = [
        (each.name, each.pinned_agent, log.Durability.Name(each.settings.durability)) for each in await listed(made)
    ]
    assert found == [
        (f"__headgate.edge.{query.uid}.1", "a", "DURABILITY_WAL"),
        (f"__headgate.edge.{query.uid}.2", "c", "DURABILITY_OBJECT"),
        (f"__headgate.errors.{query.uid}.1", "a", "DURABILITY_WAL"),
        # Committed in one append with the edge, so led where it is, and able to move with it.
        (f"__headgate.errors.{query.uid}.2", "c", "DURABILITY_OBJECT"),
    ]
    for each in await listed(made):
        assert (each.internal, each.query_uid, each.partitions) == (True, query.uid, 1)
        assert each.settings.format == log.TOPIC_FORMAT_ARROW
        edge = each.name.startswith(edge_topics.EDGE_PREFIX)
        assert (each.settings.retention.ToSeconds() == 0) is edge, "an edge is trimmed by its reader alone"


async def test_an_edge_on_kafka_has_only_its_error_rows_in_the_log(made: Catalog) -> None:
    for name in "abc":
        await made.agent(name)
    edges = []
    for edge in EDGES:
        edges.append(catalog.EdgePlan(kafka={"bootstrap_servers": "k:9092"}))
        edges[-1].MergeFrom(edge)
    query = await made.query("q", "abc", edges=edges)
    assert await names(made) == errors_of(query)
    await made.end_query("q")
    assert await names(made) == []


async def test_the_topics_are_made_in_the_transaction_that_accepts_the_query(
    made: Catalog, query: catalog.Query
) -> None:
    accepted = (await made.history())[-1]
    made_there = sorted(change.kind for change in accepted.changes if change.before is None)
    assert made_there == [*["FRAGMENT"] * 3, *["PARTITION"] * 4, "QUERY", *["TOPIC"] * 4]
    stored = {each.uid: each for each in await listed(made)}
    told = {change.uid: change.after for change in accepted.changes if change.kind == "TOPIC"}
    assert told == stored, "watchers are told what is there"
    partitions = await made.read(
        lambda tx: topics.list_partitions(tx, log.ListPartitionsRequest(include_internal=True))
    )
    shown = {f"{each.topic_uid}/{each.index}": each for each in partitions.partitions}
    for change in accepted.changes:
        if change.kind == "PARTITION":
            assert isinstance(change.after, log.Partition)
            change.after.offsets.CopyFrom(shown[change.uid].offsets)
            assert change.after == shown[change.uid]


async def test_they_are_listed_for_who_asks_and_count_against_no_limit(made: Catalog, query: catalog.Query) -> None:
    assert await listed(made, internal=False) == []
    made.rules = replace(made.rules, topics=TopicRules(max_topics=1))
    await made.apply(log.CreateTopicRequest(name="mine"))
    assert [each.name for each in await listed(made, internal=False)] == ["mine"]


@pytest.mark.parametrize("which", [0, 2])
async def test_they_are_their_querys_alone_to_change_and_drop(made: Catalog, query: catalog.Query, which: int) -> None:
    name = (await names(made))[which]
    error = await refused(made, log.DropTopicRequest(name=name), TOPIC_IN_USE)
    assert "1 query: q (PENDING)" in error.message
    await refused(made, log.AlterTopicRequest(name=name, fields=["retention"]), TOPIC_IN_USE)


@pytest.mark.parametrize("state", ["STOPPED", "TERMINATED", "FAILED"])
async def test_edges_go_in_the_transaction_in_which_the_query_ends(
    made: Catalog, query: catalog.Query, state: str
) -> None:
    await write_errors(made, query)
    await made.end_query("q", state)
    assert await names(made) == errors_of(query)
    last = (await made.history())[-1]
    gone = sorted((change.kind, change.name) for change in last.changes if change.after is None)
    edges = [edge_topics.edge_topic(query.uid, ordinal) for ordinal in (1, 2)]
    assert gone == [("PARTITION", f"{name}/0") for name in edges] + [("TOPIC", name) for name in edges]
    ended = next(change.after for change in last.changes if change.kind == "QUERY")
    assert isinstance(ended, catalog.Query)
    assert catalog.QueryState.Name(ended.state) == f"QUERY_STATE_{state}"


async def test_error_rows_are_kept_a_stated_time_after_the_query_has_ended(made: Catalog, query: catalog.Query) -> None:
    made.clock.seconds += 2 * WEEK
    await write_errors(made, query)
    assert await forget(made) == 0, "those of a query that lives are kept for as long as it does"
    await made.end_query("q")
    made.clock.seconds += WEEK
    assert (await forget(made), await names(made)) == (0, errors_of(query))
    made.clock.seconds += 1.0
    assert (await forget(made), await names(made)) == (2, [])
    await made.apply(catalog.DropQueryRequest(name="q"))


@pytest.mark.parametrize(("column", "kept"), [("", 0), ("committed", 1), ("reserved", 1)])
async def test_a_topic_into_which_no_error_row_was_ever_written_goes_with_the_edges(
    made: Catalog, query: catalog.Query, column: str, kept: int
) -> None:
    """A row that was acknowledged may be on the disk of an agent alone: then its offset is reserved."""
    if column:
        of_first = tables.partitions.c.topic_uid == next(
            each.uid for each in await listed(made) if each.name == errors_of(query)[0]
        )
        values = {column: 1, "volume_id": "disk"}
        await made.write(lambda tx: tx.connection.execute(update(tables.partitions).where(of_first).values(**values)))
    await made.end_query("q")
    assert await names(made) == errors_of(query)[:kept]


async def test_error_rows_outlive_their_query_for_that_time(made: Catalog, query: catalog.Query) -> None:
    await write_errors(made, query)
    await made.end_query("q")
    made.clock.seconds += WEEK - 1.0
    await made.apply(catalog.DropQueryRequest(name="q"))
    made.clock.seconds += WEEK
    assert (await forget(made), await names(made)) == (0, errors_of(query)), "the time runs anew from the drop"
    assert {each.query_uid for each in await listed(made)} == {query.uid}
    made.clock.seconds += 1.0
    assert (await forget(made), await names(made)) == (2, [])


async def test_error_rows_of_a_query_that_is_gone_are_the_users_to_drop(made: Catalog, query: catalog.Query) -> None:
    await write_errors(made, query)
    await made.end_query("q")
    await refused(made, log.DropTopicRequest(name=errors_of(query)[0]), TOPIC_IN_USE)
    await made.apply(catalog.DropQueryRequest(name="q"))
    await made.apply(log.DropTopicRequest(name=errors_of(query)[0]))
    assert await names(made) == errors_of(query)[1:]


async def test_forgetting_takes_no_more_than_it_is_told_to(made: Catalog, query: catalog.Query) -> None:
    await write_errors(made, query)
    await made.end_query("q")
    made.clock.seconds += WEEK + 1.0
    assert await made.write(lambda tx: edge_topics.forget(tx, WEEK, 1)) == 1
    assert await names(made) == errors_of(query)[1:]


async def test_a_query_of_the_same_name_finds_nothing_of_the_one_before(made: Catalog, query: catalog.Query) -> None:
    before = {each.uid for each in await listed(made)}
    await write_errors(made, query)
    await made.end_query("q")
    await made.apply(catalog.DropQueryRequest(name="q"))
    again: catalog.Query = await made.query("q", "abc", edges=EDGES)
    assert again.uid != query.uid
    told = await made.read(lambda tx: edge_topics.told(tx, again.uid))
    assert len(told) == 4
    assert before.isdisjoint(each.topic_uid for each in told.values())
    assert all(query.uid not in name for name in told)


async def test_what_a_moved_fragment_leads_is_pinned_to_its_new_agent(made: Catalog, query: catalog.Query) -> None:
    plan = catalog.QueryPlan(edges=EDGES)
    ends = await made.write(lambda tx: edge_topics.move_leader(tx, query.uid, plan, 3, "b"))
    assert list(ends) == [2]
    led = {each.name: each.pinned_agent for each in await listed(made)}
    assert led == {
        edge_topics.edge_topic(query.uid, 1): "a",
        edge_topics.error_topic(query.uid, 1): "a",
        edge_topics.edge_topic(query.uid, 2): "b",
        edge_topics.error_topic(query.uid, 2): "b",
    }
    last = (await made.history())[-1]
    stored = {each.uid: each for each in await listed(made)}
    assert {change.name for change in last.changes} == {name for name, agent in led.items() if agent == "b"}
    assert all(change.after == stored[change.uid] for change in last.changes), "watchers are told what is there"


async def test_leaders_are_told_with_the_addresses_they_have_now(made: Catalog, query: catalog.Query) -> None:
    told = await made.read(lambda tx: edge_topics.told(tx, query.uid))
    addresses = {each.name: each.address for each in await made.rows(schema.agents)}
    stored = {each.name: each for each in await listed(made)}
    assert told.keys() == stored.keys()
    for name, each in told.items():
        assert (each.topic, each.topic_uid, each.partitions) == (name, stored[name].uid, 1)
        assert (each.agent, each.address) == (stored[name].pinned_agent, addresses[stored[name].pinned_agent])
