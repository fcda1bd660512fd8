"""The database itself refuses what must never happen, whoever asks for it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import Table, delete, insert, select, text, update
from sqlalchemy.exc import IntegrityError

from headgate.log import v1 as log
from headgate_coordinator.catalog import schema
from headgate_coordinator.catalog.log import schema as log_schema
from headgate_coordinator.catalog.log import topics
from headgate_coordinator.catalog.log.settings import TopicRules
from headgate_coordinator.catalog.store import Store
from headgate_coordinator.catalog.triggers import RULES
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.query.transitions import (
    FRAGMENT_STATES,
    FRAGMENT_TRANSITIONS,
    QUERY_ENDED,
    QUERY_STATES,
    QUERY_TRANSITIONS,
)
from tests.integration.catalog.kit import create

queries = schema.queries
fragments = schema.fragments
grants = schema.grants


class RollBack(Exception):
    """Undoes what a test tried."""


async def refused(store: Store, operation: Callable[[Tx], object], message: str) -> None:
    """Asserts that the database refuses the operation with an integrity error that says why."""

    def attempt(tx: Tx) -> None:
        with pytest.raises(IntegrityError, match=message):
            operation(tx)
        raise RollBack

    with pytest.raises(RollBack):
        await store.write(attempt)


async def allowed(store: Store, operation: Callable[[Tx], object]) -> None:
    """Asserts that the database allows the operation, and undoes it."""

    def attempt(tx: Tx) -> None:
        operation(tx)
        raise RollBack

    with pytest.raises(RollBack):
        await store.write(attempt)


def add_query(state: str = "PENDING", uid: str = "q") -> Callable[[Tx], None]:
    def operation(tx: Tx) -> None:
        row = {
            "uid": uid,
            "name": uid,
            "statement": "SELECT 1",
            "mode": "EXACTLY_ONCE",
            "state": state,
            "desired_state": "RUNNING",
            "stop_mode": "",
            "plan": b"",
            "deployment_deadline_us": 1,
            "drain_deadline_us": 1,
            "time": 0,
            "state_time": 0,
            "revision": 1,
        }
        tx.connection.execute(insert(queries), row)

    return operation


def add_fragment(state: str = "PENDING") -> Callable[[Tx], None]:
    def operation(tx: Tx) -> None:
        tx.connection.execute(
            insert(schema.agents),
            {
                "uid": "a",
                "name": "a",
                "address": "a:1",
                "slots": 1,
                "slots_used": 1,
                "zone": "",
                "group_name": "",
                "labels": "{}",
                "roles": "[]",
                "has_engine": True,
                "state": "ACTIVE",
                "state_reason": "",
                "state_time": 0,
                "incarnation": "",
                "protocol_version": 1,
                "volume_id": "",
                "kafka_address": "",
                "node_id": 1,
                "time": 0,
                "revision": 1,
            },
        )
        add_query()(tx)
        tx.connection.execute(
            insert(fragments),
            {
                "uid": "f",
                "query_uid": "q",
                "ordinal": 1,
                "kind": "COMPUTE",
                "node_local": False,
                "agent_uid": "a",
                "agent_name": "a",
                "incarnation": "",
                "state": state,
                "epoch": 1,
                "slots": 1,
                "slots_held": True,
                "attempts": 0,
                "last_error": "",
                "waiting": "",
                "revision": 1,
            },
        )

    return operation


def change_query(state: str) -> Callable[[Tx], object]:
    values: dict[str, object] = {"state": state}
    if state == "FAILED":
        values["failure"] = b"why"
    return lambda tx: tx.connection.execute(update(queries).values(values))


def change_fragment(**values: object) -> Callable[[Tx], object]:
    return lambda tx: tx.connection.execute(update(fragments).values(values))


def path_to(state: str, transitions: dict[tuple[str, str], str]) -> list[str]:
    """A shortest way of legal transitions from PENDING."""
    ways = {"PENDING": ["PENDING"]}
    frontier = ["PENDING"]
    while frontier:
        here = frontier.pop(0)
        for before, after in transitions:
            if before == here and after not in ways:
                ways[after] = [*ways[here], after]
                frontier.append(after)
    return ways[state][1:]


async def bring_query_to(store: Store, state: str) -> None:
    await store.write(add_query())
    for step in path_to(state, QUERY_TRANSITIONS):
        await store.write(change_query(step))


async def bring_fragment_to(store: Store, state: str) -> None:
    await store.write(add_fragment())
    for step in path_to(state, FRAGMENT_TRANSITIONS):
        await store.write(change_fragment(state=step))


@pytest.mark.parametrize("before", QUERY_STATES)
async def test_the_database_allows_only_the_legal_transitions_of_a_query(store: Store, before: str) -> None:
    await bring_query_to(store, before)
    for after in QUERY_STATES:
        if after == before or (before, after) in QUERY_TRANSITIONS:
            await allowed(store, change_query(after))
        else:
            await refused(store, change_query(after), "no such transition of a query")


@pytest.mark.parametrize("before", FRAGMENT_STATES)
async def test_the_database_allows_only_the_legal_transitions_of_a_fragment(store: Store, before: str) -> None:
    await bring_fragment_to(store, before)
    for after in FRAGMENT_STATES:
        if after == before or (before, after) in FRAGMENT_TRANSITIONS:
            await allowed(store, change_fragment(state=after, epoch=2))
        else:
            await refused(store, change_fragment(state=after, epoch=2), "no such transition of a fragment")


async def test_where_a_fragment_begins_to_read_is_kept_once_and_never_moved(store: Store) -> None:
    await store.write(add_fragment())
    await allowed(store, change_fragment(starts=b"here"))
    await store.write(change_fragment(starts=b"here"))
    await allowed(store, change_fragment(starts=b"here", waiting="for somebody"))
    for elsewhere in (b"there", None):
        await refused(store, change_fragment(starts=elsewhere), "kept once, and never moved")


@pytest.mark.parametrize("state", QUERY_STATES)
async def test_a_query_is_deleted_only_after_it_has_ended(store: Store, state: str) -> None:
    await bring_query_to(store, state)
    removal: Callable[[Tx], object] = lambda tx: tx.connection.execute(delete(queries))  # noqa: E731
    if state in QUERY_ENDED:
        await store.write(removal)
    else:
        await refused(store, removal, "only after it has ended")


async def test_queries_and_fragments_begin_pending(store: Store) -> None:
    for state in QUERY_STATES[1:-1]:
        await refused(store, add_query(state), "a query begins PENDING")
    for state in FRAGMENT_STATES[1:]:
        await refused(store, add_fragment(state), "a fragment begins PENDING")


async def test_a_fragment_begins_again_with_a_higher_epoch_only(store: Store) -> None:
    await bring_fragment_to(store, "RUNNING")
    await refused(store, change_fragment(state="PENDING"), "begins again with a higher epoch")
    await store.write(change_fragment(state="PENDING", epoch=2))
    await refused(store, change_fragment(epoch=1), "epoch of a fragment only grows")


async def test_slots_are_returned_once_and_before_a_fragment_goes(store: Store) -> None:
    await bring_fragment_to(store, "FAILED")
    removal: Callable[[Tx], object] = lambda tx: tx.connection.execute(delete(fragments))  # noqa: E731
    await refused(store, removal, "only after its slots are returned")
    await store.write(change_fragment(slots_held=False))
    await refused(store, change_fragment(slots_held=True), "takes slots again with a higher epoch")
    await store.write(change_fragment(slots_held=True, state="PENDING", epoch=2))
    await store.write(change_fragment(state="STOPPED"))
    await store.write(change_fragment(slots_held=False))
    await store.write(removal)


async def test_the_revision_only_grows_and_stays(store: Store) -> None:
    await store.write(create("a"))
    await store.write(create("b"))
    revision = schema.revision
    await store.write(lambda tx: tx.connection.execute(update(revision).values(compacted=1)))
    await refused(store, lambda tx: tx.connection.execute(update(revision).values(value=1)), "only grows")
    await refused(store, lambda tx: tx.connection.execute(update(revision).values(compacted=0)), "only grows")
    await refused(store, lambda tx: tx.connection.execute(update(revision).values(compacted=3)), "compacted")
    await refused(store, lambda tx: tx.connection.execute(delete(revision)), "never deleted")
    second = {"id": 2, "value": 0, "compacted": 0}
    await refused(store, lambda tx: tx.connection.execute(insert(revision), second), "single_row")


async def test_the_history_is_never_rewritten(store: Store) -> None:
    await store.write(create("a"))
    await refused(store, lambda tx: tx.connection.execute(update(schema.changes).values(name="b")), "never rewritten")


async def test_epochs_of_grants_only_grow_and_grants_stay(store: Store) -> None:
    def given(tx: Tx) -> None:
        session = {"holder": "h", "address": "h:1", "ttl_us": 1, "renewals": 5, "time": 0}
        tx.connection.execute(insert(schema.sessions), [{"uid": "s1", **session}, {"uid": "s2", **session}])
        row = {"kind": "k", "key": "x", "epoch": 7, "session_uid": "s1", "time": 0}
        tx.connection.execute(insert(grants), row)

    def change(**values: object) -> Callable[[Tx], object]:
        return lambda tx: tx.connection.execute(update(grants).values(values))

    await store.write(given)
    await refused(store, change(epoch=6), "epoch of a grant only grows")
    await refused(store, change(session_uid="s2"), "another session with a higher epoch")
    await refused(store, lambda tx: tx.connection.execute(delete(grants)), "keeps its row")
    await store.write(change(session_uid=None))
    await refused(store, change(session_uid="s1"), "another session with a higher epoch")
    await store.write(change(session_uid="s2", epoch=8))
    await refused(
        store,
        lambda tx: tx.connection.execute(update(schema.sessions).values(renewals=4)),
        "renewals of a session only grow",
    )


async def test_every_rule_is_installed(store: Store) -> None:
    def installed(tx: Tx) -> set[str]:
        if tx.connection.dialect.name == "sqlite":
            found = tx.connection.execute(text("SELECT name FROM sqlite_master WHERE type = 'trigger'"))
        else:
            found = tx.connection.execute(text("SELECT tgname FROM pg_trigger WHERE NOT tgisinternal"))
        return set(found.scalars())

    assert await store.read(installed) == {rule.name for rule in RULES}


async def test_the_one_row_of_revision_is_there_from_the_start(store: Store) -> None:
    rows = await store.read(lambda tx: tx.connection.execute(select(schema.revision)).all())
    assert [tuple(row) for row in rows] == [(1, 0, 0)]


def add_topic(tx: Tx) -> None:
    request = log.CreateTopicRequest(name="t", partitions=1, settings=log.TopicSettings(durability=log.DURABILITY_WAL))
    topics.create_topic(tx, request, TopicRules())


def add_segment(tx: Tx) -> None:
    add_topic(tx)
    row = {
        "partition_key": tx.connection.execute(select(log_schema.partitions.c.key)).scalar_one(),
        "uid": "s",
        "object_key": "k",
        "base_offset": 0,
        "next_offset": 5,
        "bytes": 1,
        "position": 0,
        "min_timestamp": 0,
        "max_timestamp": 0,
        "epoch": 1,
        "time": 0,
    }
    tx.connection.execute(insert(log_schema.segments), row)
    tx.connection.execute(update(log_schema.partitions).values(committed=5, reserved=9, volume_id="v", log_start=2))


def change(table: Table, **values: object) -> Callable[[Tx], object]:
    return lambda tx: tx.connection.execute(update(table).values(values))


def after(prepare: Callable[[Tx], object], then: Callable[[Tx], object]) -> Callable[[Tx], object]:
    """`prepare` must succeed; what is judged is `then`."""

    def operation(tx: Tx) -> None:
        prepare(tx)
        then(tx)

    return operation


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"log_start": 1}, "only grow"),
        ({"committed": 4}, "only grow"),
        ({"log_start": 6}, "log_start|CHECK"),
        ({"committed": 10}, "reserved|CHECK"),
        ({"reserved": 4}, "reserved|CHECK"),
        ({"volume_id": ""}, "volume|CHECK"),
        ({"bytes": -1}, "bytes|CHECK"),
    ],
)
async def test_offsets_of_a_partition_are_ordered_and_only_grow(
    store: Store, values: dict[str, object], message: str
) -> None:
    await allowed(store, add_segment)
    await refused(store, after(add_segment, change(log_schema.partitions, **values)), message)


async def test_reservations_may_be_given_up_once_segments_have_everything(store: Store) -> None:
    await allowed(store, after(add_segment, change(log_schema.partitions, reserved=5, volume_id="")))


async def test_what_is_fixed_of_a_topic_stays(store: Store) -> None:
    for values in ({"partitions": 2}, {"durability": "OBJECT"}, {"format": "ARROW"}, {"name": "u"}):
        await refused(store, after(add_topic, change(log_schema.topics, **values)), "fixed at creation")
    await allowed(store, after(add_topic, change(log_schema.topics, retention_us=1)))


async def test_segments_are_final_and_go_before_their_partition(store: Store) -> None:
    await refused(store, after(add_segment, change(log_schema.segments, next_offset=6)), "never changed")
    await refused(
        store, after(add_segment, lambda tx: tx.connection.execute(delete(log_schema.partitions))), "(?i)foreign key"
    )
    await refused(
        store, after(add_segment, lambda tx: tx.connection.execute(delete(log_schema.topics))), "(?i)foreign key"
    )


async def test_counters_and_numbers_of_agents_are_never_given_out_again(store: Store) -> None:
    await allowed(store, change(log_schema.counters, value=7))
    await refused(store, after(change(log_schema.counters, value=7), change(log_schema.counters, value=6)), "grows")
    await refused(store, lambda tx: tx.connection.execute(delete(log_schema.counters)), "never deleted")
    await refused(store, after(add_fragment(), change(schema.agents, node_id=2)), "keeps its node_id")


async def test_grants_of_what_is_gone_may_go_and_others_stay(store: Store) -> None:
    def grant(kind: str) -> Callable[[Tx], object]:
        row = {"kind": kind, "key": "k", "epoch": 1, "session_uid": None, "time": 0}
        return lambda tx: tx.connection.execute(insert(grants), row)

    def forget(tx: Tx) -> object:
        return tx.connection.execute(delete(grants))

    await refused(store, after(grant("coordinator"), forget), "a grant keeps its row")
    await allowed(store, after(grant("partition"), forget))
    await allowed(store, after(grant("group"), forget))
