"""Queries: acceptance, names, slots, stop and drop."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration

from headgate.catalog import v1 as catalog
from headgate_common.errors import HeadgateError
from headgate_coordinator import errors
from headgate_coordinator.catalog import agent_rows, lists, queries, schema
from headgate_coordinator.catalog.plan_uses import PlanChanged
from headgate_coordinator.catalog.queries import PlannedQuery
from tests.unit.entities.kit import RULES, Catalog, planned_query
from tests.unit.entities.refusals import refused

STATEMENT = "SELECT * FROM lrb INTO out"


async def accept(made: Catalog, planned: PlannedQuery, **fields: Any) -> catalog.Query:
    request = catalog.CreateQueryRequest(statement=STATEMENT, **fields)
    return await made.write(
        lambda tx: queries.create_query(tx, request, planned, RULES.deployment_deadline_us, RULES.topics)
    )


async def plan(made: Catalog, agents: list[str], sources: list[str] = [], sinks: list[str] = []) -> PlannedQuery:  # noqa: B006
    return await made.read(lambda tx: planned_query(tx, agents, sources, sinks))


async def get(made: Catalog, name: str) -> catalog.Query:
    return await made.read(lambda tx: queries.get_query(tx, catalog.GetQueryRequest(name=name)))


async def slots_used(made: Catalog) -> dict[str, int]:
    return {row.name: row.slots_used for row in await made.rows(schema.agents)}


async def test_an_accepted_query_is_pending_with_its_slots_reserved(made: Catalog) -> None:
    await made.agent("a")
    await made.agent("b")
    await made.logical()
    await made.physical(agent="a", name="p")
    await made.sink("s", agent="b")
    query = await made.query("Q", ["a", "b", "b"], sources=["p"], sinks=["s"])
    assert query.name == "q"
    assert query.state == catalog.QUERY_STATE_PENDING
    assert query.desired_state == catalog.DESIRED_STATE_RUNNING
    assert query.waiting.reason == catalog.WAITING_REASON_ACCEPTED
    assert (list(query.sinks), list(query.physical_sources), query.fragment_count) == (["s"], ["p"], 3)
    assert query == await get(made, "q")
    assert await slots_used(made) == {"a": 1, "b": 2}
    revision = (await made.history())[-1]
    assert [(change.kind, change.name) for change in revision.changes] == [
        ("QUERY", "q"),
        ("FRAGMENT", "q/1"),
        ("FRAGMENT", "q/2"),
        ("FRAGMENT", "q/3"),
        ("AGENT", "a"),
        ("AGENT", "b"),
    ]
    story = await made.read(lambda tx: lists.get_story(tx, catalog.GetStoryRequest(query="q")))
    assert [(entry.fragment, entry.to_state) for entry in story.entries] == [(n, "PENDING") for n in range(4)]


async def test_a_query_without_a_name_gets_one(made: Catalog) -> None:
    await made.agent("a")
    query = await accept(made, await plan(made, ["a"]))
    assert query.name == query.uid
    named = PlannedQuery(name="Written", plan=(await plan(made, ["a"])).plan, deadline_us=5, links_declared=False)
    query = await accept(made, named)
    assert (query.name, query.deployment_deadline.nanos) == ("written", 5000)
    with pytest.raises(HeadgateError, match="names it written"):
        await accept(made, named, name="asked")
    asked = await accept(made, await plan(made, ["a"]), name="x", deployment_deadline=Duration(seconds=9))
    assert asked.deployment_deadline.seconds == 9


async def test_a_name_is_taken_until_the_query_is_gone(made: Catalog) -> None:
    await made.agent("a")
    await made.query("q", ["a"])
    planned = await plan(made, ["a"])
    with pytest.raises(HeadgateError) as caught:
        await accept(made, planned, name="Q")
    assert caught.value.reason is errors.ALREADY_EXISTS
    await made.apply(catalog.DropQueryRequest(name="q"))
    with pytest.raises(HeadgateError) as caught:
        await accept(made, planned, name="q")
    assert caught.value.reason is errors.QUERY_NAME_LOCKED
    assert "accepted" in caught.value.message
    await made.end_query("q")
    await made.apply(catalog.DropQueryRequest(name="q"))
    again = await accept(made, planned, name="q")
    assert again.state == catalog.QUERY_STATE_PENDING


async def drop_sink(made: Catalog) -> None:
    await made.apply(catalog.DropSinkRequest(name="s"))


async def replace_sink(made: Catalog) -> None:
    await drop_sink(made)
    await made.sink("s", "a")


async def add_source(made: Catalog) -> None:
    await made.physical(agent="b", name="p2")


async def drop_source(made: Catalog) -> None:
    await made.apply(catalog.DropPhysicalSourceRequest(name="p"))


async def lose_agent(made: Catalog) -> None:
    (row,) = [row for row in await made.rows(schema.agents) if row.name == "b"]
    await made.write(lambda tx: agent_rows.update_agent(tx, row.uid, state="UNREACHABLE"))


async def drop_agent(made: Catalog) -> None:
    await made.apply(catalog.DropAgentRequest(name="b"))


async def fill_agent(made: Catalog) -> None:
    await made.query("other", ["b", "b"])


async def declare_links(made: Catalog) -> None:
    await made.apply(catalog.CreateNetworkLinkRequest(from_agent="a", to_agent="b"))


@pytest.mark.parametrize(
    "change",
    [drop_sink, replace_sink, add_source, drop_source, lose_agent, drop_agent, fill_agent, declare_links],
)
async def test_a_plan_is_accepted_only_if_what_it_used_is_unchanged(made: Catalog, change: Any) -> None:
    await made.agent("a", slots=2)
    await made.agent("b", slots=2)
    await made.logical()
    await made.physical(agent="a", name="p")
    await made.sink("s", "a")
    planned = await plan(made, ["a", "b"], ["p"], ["s"])
    await change(made)
    before = made.store.database.image()
    with pytest.raises(PlanChanged):
        await accept(made, planned, name="q")
    assert made.store.database.image() == before


async def test_unrelated_changes_do_not_outdate_a_plan(made: Catalog) -> None:
    await made.agent("a")
    await made.sink("s", "a")
    planned = await plan(made, ["a"], [], ["s"])
    await made.agent("c")
    await made.logical("other")
    await made.sink("t", "c")
    await made.query("other", ["a"])
    await accept(made, planned, name="q")


async def test_stop_is_soft_and_a_hard_one_overrides_it(made: Catalog) -> None:
    await made.agent("a")
    await made.query("q", ["a"])
    stopped = await made.apply(catalog.StopQueryRequest(name="q", drain_deadline=Duration(seconds=7)))
    assert stopped.desired_state == catalog.DESIRED_STATE_STOPPED
    assert stopped.stop_mode == catalog.STOP_MODE_SOFT
    (row,) = await made.rows(schema.queries)
    assert row.drain_deadline_us == 7_000_000
    position = made.store.changes.position
    again = await made.apply(catalog.StopQueryRequest(name="q", drain_deadline=Duration(seconds=1)))
    assert (again, made.store.changes.position) == (stopped, position)
    hard = await made.apply(catalog.StopQueryRequest(name="q", mode=catalog.STOP_MODE_HARD))
    assert hard.stop_mode == catalog.STOP_MODE_HARD
    softer = await made.apply(catalog.StopQueryRequest(name="q", mode=catalog.STOP_MODE_SOFT))
    assert softer == hard


async def test_a_hard_drop_overrides_a_soft_stop_and_never_the_other_way(made: Catalog) -> None:
    await made.agent("a")
    await made.query("q", ["a"])
    await made.apply(catalog.StopQueryRequest(name="q"))
    soft = await made.apply(catalog.DropQueryRequest(name="q", mode=catalog.STOP_MODE_SOFT))
    assert (soft.desired_state, soft.stop_mode) == (catalog.DESIRED_STATE_DROPPED, catalog.STOP_MODE_SOFT)
    hard = await made.apply(catalog.DropQueryRequest(name="q"))
    assert hard.stop_mode == catalog.STOP_MODE_HARD
    assert await made.apply(catalog.DropQueryRequest(name="q", mode=catalog.STOP_MODE_SOFT)) == hard
    assert await made.apply(catalog.StopQueryRequest(name="q")) == hard
    assert (await get(made, "q")).desired_state == catalog.DESIRED_STATE_DROPPED


@pytest.mark.parametrize("state", ["STOPPED", "TERMINATED", "FAILED"])
async def test_an_ended_query_is_not_stopped_and_is_dropped_at_once(made: Catalog, state: str) -> None:
    await made.agent("a")
    created = await made.query("q", ["a"])
    await made.end_query("q", state)
    before = await get(made, "q")
    assert await made.apply(catalog.StopQueryRequest(name="q", mode=catalog.STOP_MODE_HARD)) == before
    assert await get(made, "q") == before
    dropped = await made.apply(catalog.DropQueryRequest(name="q", uid=created.uid))
    assert dropped.uid == created.uid
    assert await made.rows(schema.queries) == await made.rows(schema.fragments) == []
    assert {(c.kind, c.after is None) for c in (await made.history())[-1].changes} == {
        ("QUERY", True),
        ("FRAGMENT", True),
    }
    story = await made.read(lambda tx: lists.get_story(tx, catalog.GetStoryRequest(uid=created.uid)))
    assert story.entries[-1].to_state == ""
    with pytest.raises(HeadgateError) as caught:
        await made.read(lambda tx: lists.get_story(tx, catalog.GetStoryRequest(query="q")))
    assert caught.value.reason is errors.QUERY_NOT_FOUND


async def test_stop_and_drop_check_name_and_uid(made: Catalog) -> None:
    await made.agent("a")
    await made.query("q", ["a"])
    for request in (catalog.StopQueryRequest, catalog.DropQueryRequest):
        await refused(made, request(name="ghost"), errors.QUERY_NOT_FOUND)
        await refused(made, request(name="q", uid="query-x"), errors.UID_MISMATCH)
    assert await made.apply(catalog.DropQueryRequest(name="ghost", allow_missing=True)) is None


async def test_queries_are_listed_by_state_agent_sink_prefix_and_uid(made: Catalog) -> None:
    for name in ("a", "b"):
        await made.agent(name)
    await made.sink("s", "a")
    await made.query("q1", ["a"], sinks=["s"])
    await made.query("q2", ["b"])
    await made.query("r1", ["a", "b"])
    await made.end_query("r1")

    async def names(**filters: Any) -> list[str]:
        request = catalog.ListQueriesRequest(**filters)
        return [query.name for query in (await made.read(lambda tx: queries.list_queries(tx, request))).queries]

    assert await names() == ["q1", "q2", "r1"]
    assert await names(state=catalog.QUERY_STATE_STOPPED) == ["r1"]
    assert await names(agent="A") == ["q1", "r1"]
    assert await names(sink="S") == ["q1"]
    assert await names(name_prefix="q") == ["q1", "q2"]
    (q2,) = (await made.read(lambda tx: queries.list_queries(tx, catalog.ListQueriesRequest(name_prefix="q2")))).queries
    assert await names(uid=q2.uid) == ["q2"]
    assert await names(uid="query-unknown") == []


async def test_fragments_and_stories_come_in_pages(made: Catalog) -> None:
    await made.agent("a", slots=10)
    await made.query("q2", ["a"] * 3)
    await made.query("q1", ["a"] * 2)
    seen = []
    request = catalog.ListFragmentsRequest(page_size=2, agent="a", state=catalog.FRAGMENT_STATE_PENDING)
    while True:
        found = await made.read(lambda tx: lists.list_fragments(tx, request))
        seen += [(fragment.query, fragment.ordinal) for fragment in found.fragments]
        if not found.next_page_token:
            break
        request.page_token = found.next_page_token
    assert seen == [("q1", 1), ("q1", 2), ("q2", 1), ("q2", 2), ("q2", 3)]
    only = catalog.ListFragmentsRequest(query="q1")
    assert len((await made.read(lambda tx: lists.list_fragments(tx, only))).fragments) == 2
    story = catalog.GetStoryRequest(query="q2", page_size=3)
    first = await made.read(lambda tx: lists.get_story(tx, story))
    story.page_token = first.next_page_token
    second = await made.read(lambda tx: lists.get_story(tx, story))
    assert [entry.fragment for entry in (*first.entries, *second.entries)] == [0, 1, 2, 3]
    assert second.next_page_token == ""


async def test_names_and_uids_come_from_the_ids_that_are_passed_in() -> None:
    made, again = Catalog(), Catalog()
    names = []
    for one in (made, again):
        await one.agent("a")
        query = await accept(one, await plan(one, ["a"]))
        names.append((query.name, query.uid))
        await one.close()
    assert names[0] == names[1]
