"""The topics that a query makes for itself, on every store: made with it, led, and gone with all that is in them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import func, select

from headgate.log import v1 as log
from headgate_coordinator.catalog import fragments, query_states, schema
from headgate_coordinator.catalog.fragments import Changes
from headgate_coordinator.catalog.log import edge_topics, topics
from headgate_coordinator.catalog.log import schema as log_schema
from headgate_coordinator.catalog.store import Store
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.errors import AGENT_NOT_ELIGIBLE
from tests.integration.catalog.log_kit import WAL, acquire, commit, commits, joined, lead, reserve
from tests.integration.cluster.kit import create_query, plan_of


async def accepted(store: Store) -> str:
    """A query from a source on a over a compute fragment on b to a sink on c that can move."""
    return await store.write(lambda tx: create_query(tx, plan_of("a", "b", "c", sink_moves=True), "q"))


def end(tx: Tx, uid: str) -> None:
    query = query_states.open_query(tx, uid)
    assert query is not None
    query.set_state("STOPPING", "test")
    changes = Changes(tx)
    for fragment in fragments.fragments_of(tx, uid):
        changes.gone(fragment, "test")
    changes.flush()
    query.set_state("STOPPED", "test")


async def listed(store: Store) -> list[log.Topic]:
    request = log.ListTopicsRequest(include_internal=True)
    return list((await store.read(lambda tx: topics.list_topics(tx, request))).topics)


async def count(store: Store, table: Any) -> int:
    return await store.read(lambda tx: tx.connection.execute(select(func.count()).select_from(table)).scalar_one())


async def test_edges_go_with_their_records_and_grants_and_error_rows_stay_for_their_time(store: Store) -> None:
    members = {name: await joined(store, name) for name in "abc"}
    uid = await accepted(store)
    made = {topic.name: topic for topic in await listed(store)}
    assert len(made) == 4
    for topic in made.values():
        leader = await lead(store, members[topic.pinned_agent], topic)
        if topic.settings.durability == WAL:
            await reserve(store, members[topic.pinned_agent], leader, 100)
        await commits(store, members[topic.pinned_agent], commit(leader, 0, 10))
    assert (await count(store, log_schema.segments), await count(store, log_schema.partition_epochs)) == (4, 4)
    await store.write(lambda tx: end(tx, uid))
    kept = [edge_topics.error_topic(uid, ordinal) for ordinal in (1, 2)]
    assert [topic.name for topic in await listed(store)] == kept
    assert (await count(store, log_schema.segments), await count(store, log_schema.partition_epochs)) == (2, 2)
    held = select(func.count()).select_from(schema.grants).where(schema.grants.c.kind == "partition")
    assert await store.read(lambda tx: tx.connection.execute(held).scalar_one()) == 2
    await store.write(lambda tx: fragments.delete_query(tx, uid))
    assert [topic.name for topic in await listed(store)] == kept, "they need nothing of the query"
    assert await store.write(lambda tx: edge_topics.forget(tx, 3600.0, 10)) == 0
    assert await store.write(lambda tx: edge_topics.forget(tx, -3600.0, 10)) == 2
    for table in (log_schema.topics, log_schema.partitions, log_schema.segments, log_schema.partition_epochs):
        assert await count(store, table) == 0


async def test_an_edge_whose_leader_moves_is_led_by_the_next_one_alone(store: Store) -> None:
    members = {name: await joined(store, name) for name in "abc"}
    uid = await accepted(store)
    name = edge_topics.edge_topic(uid, 2)
    edge = next(topic for topic in await listed(store) if topic.name == name)
    plan = plan_of("a", "b", "c", sink_moves=True)
    ends = await store.write(lambda tx: edge_topics.move_leader(tx, uid, plan, 3, "b"))
    assert list(ends) == [2]
    moved = next(topic for topic in await listed(store) if topic.name == name)
    assert (moved.pinned_agent, moved.uid) == ("b", edge.uid)
    (refused,) = await acquire(store, members["c"], moved)
    assert refused.refusal == AGENT_NOT_ELIGIBLE.name
    (granted,) = await acquire(store, members["b"], moved)
    assert granted.epoch == 1
