"""Topics: created with all their partitions, fixed in what is fixed, dropped when nothing uses them."""

from __future__ import annotations

import asyncio

import pytest
from google.protobuf.duration_pb2 import Duration
from sqlalchemy import func, select

from headgate.catalog import v1 as catalog
from headgate.log import v1 as log
from headgate_common.errors import INVALID_ARGUMENT
from headgate_coordinator.catalog import operations
from headgate_coordinator.catalog.log import groups, segments, topics
from headgate_coordinator.catalog.log import schema as log_schema
from headgate_coordinator.catalog.log.settings import TopicRules
from headgate_coordinator.catalog.operations import OPERATIONS, Rules
from headgate_coordinator.catalog.schema import grants
from headgate_coordinator.catalog.snapshot import read_kinds
from headgate_coordinator.catalog.store import Store
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.errors import (
    ALREADY_EXISTS,
    INVALID_CONFIG,
    INVALID_NAME,
    INVALID_PAGE_TOKEN,
    TOPIC_IN_USE,
    TOPIC_LIMIT_EXCEEDED,
    TOPIC_NOT_FOUND,
    UID_MISMATCH,
)
from headgate_coordinator.sql.types.schema import SchemaLimits
from tests.integration.catalog.log_kit import (
    WAL,
    acquire,
    acquire_group,
    changes_since,
    commit,
    commits,
    fails,
    gone,
    joined,
    lead,
    partitions,
    reserve,
    revision_of,
    start,
    topic,
)

RULES = Rules(schema=SchemaLimits(), deployment_deadline_us=1, drain_deadline_us=1, refuse_cycles=False)


async def apply(store: Store, request: object) -> object:
    def operation(tx: Tx) -> object:
        resource = OPERATIONS[type(request)].apply(tx, request, RULES)  # type: ignore[index]
        operations.settle(tx, RULES)
        return resource

    return await store.write(operation)


async def dropped(store: Store, name: str = "orders", **fields: object) -> object:
    return await apply(store, log.DropTopicRequest(name=name, **fields))  # type: ignore[arg-type]


async def get(store: Store, name: str) -> log.Topic:
    return await store.read(lambda tx: topics.get_topic(tx, log.GetTopicRequest(name=name)))


async def test_a_topic_comes_with_all_its_partitions_in_one_revision(store: Store) -> None:
    made = await topic(store, partitions=3)
    (changes,) = await changes_since(store, 0)
    assert [change.kind for change in changes] == ["TOPIC", "PARTITION", "PARTITION", "PARTITION"]
    assert all(change.before is None for change in changes)
    found = await partitions(store, made)
    assert [(each.topic, each.topic_uid, each.index, each.leader, each.epoch) for each in found] == [
        ("orders", made.uid, index, "", 0) for index in range(3)
    ]
    assert {each.waiting for each in found} == {"no agent has taken the lead yet"}
    assert await get(store, "orders") == made


async def test_what_is_not_said_takes_the_default_and_zero_is_said(store: Store) -> None:
    plain = await topic(store, "plain")
    assert plain.settings.durability == log.DURABILITY_OBJECT
    assert plain.settings.format == log.TOPIC_FORMAT_ROWS
    assert plain.settings.retention.ToSeconds() == 7 * 86_400
    assert plain.settings.segment_age.ToSeconds() == 60
    assert plain.settings.linger.ToMilliseconds() == 100
    assert plain.settings.max_message_bytes == 1 << 20
    assert plain.group == "default"
    rules = TopicRules(retention_bytes=5000, durability="WAL", partitions=4)
    kept = await topic(store, "kept", rules=rules, retention=Duration(), retention_bytes=0)
    assert (kept.settings.retention.ToSeconds(), kept.settings.retention_bytes) == (0, 0)
    defaulted = await topic(store, "defaulted", partitions=0, rules=rules)
    assert (defaulted.settings.retention_bytes, defaulted.partitions) == (5000, 4)
    assert defaulted.settings.durability == log.DURABILITY_WAL


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ü", "a" * 250, "a\n", "a:b"])
async def test_a_name_that_breaks_kafkas_rule_is_refused(store: Store, name: str) -> None:
    await fails(topic(store, name), INVALID_NAME)
    await fails(get(store, name), TOPIC_NOT_FOUND)


async def test_case_and_every_character_of_a_name_count(store: Store) -> None:
    names = ["orders", "Orders", "a.b", "a_b", "a-b", "0", "-", "_", "a" * 249, "..."]
    made = [await topic(store, name) for name in names]
    assert len({each.uid for each in made}) == len(names)
    assert [(await get(store, name)).name for name in names] == names
    await fails(topic(store, "Orders"), ALREADY_EXISTS)
    await fails(get(store, "ORDERS"), TOPIC_NOT_FOUND)


@pytest.mark.parametrize(
    "settings",
    [
        {"segment_bytes": 1},
        {"segment_bytes": -5},
        {"segment_bytes": 1 << 40},
        {"retention_bytes": -1},
        {"retention": Duration(seconds=-1)},
        {"retention": Duration(seconds=1 << 40)},
        {"linger": Duration(seconds=61)},
        {"segment_age": Duration()},
        {"max_message_bytes": 1 << 30},
        {"durability": 17},
        {"format": 17},
    ],
)
async def test_a_setting_out_of_range_is_refused_by_name(store: Store, settings: dict[str, object]) -> None:
    error = await fails(topic(store, **settings), INVALID_CONFIG)  # type: ignore[arg-type]
    assert error.metadata["field"] == f"settings.{next(iter(settings))}"


async def test_there_are_limits_to_topics_and_partitions(store: Store) -> None:
    rules = TopicRules(max_topics=2, max_partitions=10, max_topic_partitions=8)
    await fails(topic(store, "a", 9, rules), TOPIC_LIMIT_EXCEEDED)
    await topic(store, "a", 8, rules)
    await fails(topic(store, "b", 3, rules), TOPIC_LIMIT_EXCEEDED)
    await topic(store, "b", 2, rules)
    await dropped(store, "a")
    await topic(store, "c", 8, rules)
    await fails(topic(store, "d", 1, rules), TOPIC_LIMIT_EXCEEDED)


async def test_of_two_that_create_one_topic_at_once_one_is_told(store: Store) -> None:
    outcomes = await asyncio.gather(*(topic(store) for _ in range(4)), return_exceptions=True)
    assert sum(isinstance(outcome, log.Topic) for outcome in outcomes) == 1


async def alter(store: Store, fields: list[str], **settings: object) -> log.Topic:
    request = log.AlterTopicRequest(name="orders", fields=fields, settings=log.TopicSettings(**settings))  # type: ignore[arg-type]
    made = await apply(store, request)
    assert isinstance(made, log.Topic)
    return made


async def test_an_alteration_changes_what_it_names_and_nothing_else(store: Store) -> None:
    before = await topic(store, segment_bytes=2048)
    after = await alter(store, ["retention"], retention=Duration(seconds=60), segment_bytes=4096)
    assert (after.settings.retention.ToSeconds(), after.settings.segment_bytes) == (60, 2048)
    assert after.revision > before.revision
    assert (after.uid, after.partitions) == (before.uid, before.partitions)
    default = await alter(store, ["segment_bytes", "retention"])
    assert default.settings.segment_bytes == TopicRules().segment_bytes, "named and not set: the default"
    revision = await revision_of(store)
    await alter(store, ["segment_bytes"])
    assert await revision_of(store) == revision, "nothing is different"


async def test_what_is_fixed_at_creation_stays(store: Store) -> None:
    await topic(store)
    await fails(alter(store, ["durability"], durability=WAL), INVALID_CONFIG)
    await fails(alter(store, ["format"]), INVALID_CONFIG)
    await fails(alter(store, ["partitions"]), INVALID_ARGUMENT)
    await fails(alter(store, ["cleanup_policy"]), INVALID_ARGUMENT)
    missing = log.AlterTopicRequest(name="none", fields=["linger"])
    await fails(apply(store, missing), TOPIC_NOT_FOUND)


async def test_topics_are_listed_by_pages_in_the_order_of_their_bytes(store: Store) -> None:
    for name in ("b", "A", "a.1", "a", "B", "a_1"):
        await topic(store, name)

    async def page(token: str = "", prefix: str = "", size: int = 4) -> log.ListTopicsResponse:
        request = log.ListTopicsRequest(page_size=size, page_token=token, name_prefix=prefix)
        return await store.read(lambda tx: topics.list_topics(tx, request))

    first = await page()
    second = await page(first.next_page_token)
    assert [each.name for each in (*first.topics, *second.topics)] == ["A", "B", "a", "a.1", "a_1", "b"]
    assert second.next_page_token == ""
    assert [each.name for each in (await page(prefix="a")).topics] == ["a", "a.1", "a_1"]
    assert [each.name for each in (await page(prefix="a_")).topics] == ["a_1"]
    await fails(page(first.next_page_token, prefix="a"), INVALID_PAGE_TOKEN)


async def test_a_drop_takes_everything_of_the_topic_and_nothing_else(store: Store) -> None:
    made, other = await topic(store, partitions=2, durability=WAL), await topic(store, "other", durability=WAL)
    a, b = await joined(store, "a"), await joined(store, "b")
    for each in (made, other):
        led = await lead(store, a, each)
        await reserve(store, a, led, 100)
        await commits(store, a, commit(led, 0, 5, producers=[log.ProducerState(producer_id=1)]))
        await start(store, a, led, b.name)
    epoch = (await acquire_group(store, a)).epoch
    offsets = [log.GroupOffset(topic=name, offset=3) for name in ("orders", "other")]
    request = log.CommitGroupOffsetsRequest(session_id=a.session, group="g", epoch=epoch, offsets=offsets)
    await store.write(lambda tx: groups.commit_group_offsets(tx, request))
    before = await revision_of(store)
    await dropped(store)
    (changes,) = await changes_since(store, before)
    assert sorted(change.kind for change in changes) == ["PARTITION", "PARTITION", "TOPIC", "TRANSFER"]
    assert all(change.after is None for change in changes)
    for table in ("segments", "producers", "partition_epochs", "group_offsets", "transfers", "topics", "partitions"):
        assert await count(store, table) == 1, table
    kept = await store.read(
        lambda tx: list(tx.connection.execute(select(grants.c.key).where(grants.c.kind == "partition")).scalars())
    )
    assert kept == [f"{other.uid}/0"]
    group = await store.read(lambda tx: groups.get_group(tx, log.GetGroupRequest(name="g")))
    assert [each.topic for each in group.offsets] == ["other"]
    find = log.FindObjectsRequest(keys=[f"objects/{made.uid}-0-0-5-1", f"objects/{other.uid}-0-0-5-1"])
    found = await store.read(lambda tx: segments.find_objects(tx, find))
    assert list(found.known) == [f"objects/{other.uid}-0-0-5-1"]


async def count(store: Store, table: str) -> int:
    return await store.read(
        lambda tx: tx.connection.execute(select(func.count()).select_from(getattr(log_schema, table))).scalar_one()
    )


async def test_a_drop_of_another_than_was_meant_is_refused(store: Store) -> None:
    made = await topic(store)
    await fails(dropped(store, uid="topic-other"), UID_MISMATCH)
    await dropped(store, uid=made.uid)
    await fails(dropped(store), TOPIC_NOT_FOUND)
    assert await dropped(store, allow_missing=True) is None


async def test_a_topic_is_not_dropped_while_a_source_or_sink_names_it(store: Store) -> None:
    fields = catalog.Schema(fields=[catalog.Field(name="id", type="INT64")])
    await apply(store, catalog.CreateLogicalSourceRequest(name="lrb", schema=fields))
    await apply(
        store,
        catalog.CreatePhysicalSourceRequest(
            name="reads", logical_source="lrb", type=catalog.SOURCE_TYPE_TOPIC, options={"topic": "orders"}
        ),
    )
    await apply(
        store,
        catalog.CreateSinkRequest(
            name="writes", schema=fields, type=catalog.SINK_TYPE_TOPIC, options={"topic": "orders"}
        ),
    )
    await topic(store)
    await topic(store, "Orders")
    await dropped(store, "Orders")
    error = await fails(dropped(store), TOPIC_IN_USE)
    assert "1 physical source: reads (TOPIC)" in error.message
    assert "1 sink: writes (TOPIC)" in error.message
    await apply(store, catalog.DropPhysicalSourceRequest(name="reads"))
    await fails(dropped(store), TOPIC_IN_USE)
    await apply(store, catalog.DropSinkRequest(name="writes"))
    await dropped(store)


async def test_a_snapshot_has_topics_partitions_and_transfers_as_watchers_see_them(store: Store) -> None:
    made, a, b = await topic(store, partitions=2), await joined(store, "a"), await joined(store, "b")
    await acquire(store, a, made, [0, 1])
    await start(store, a, log.LeaderRef(partition=log.PartitionRef(topic_uid=made.uid, index=1), epoch=1), b.name)
    seen = await store.read(lambda tx: list(read_kinds(tx, ("TOPIC", "PARTITION", "TRANSFER"))))
    assert [kind for kind, _ in seen] == ["TOPIC", "PARTITION", "PARTITION", "TRANSFER"]
    latest = {}
    for changes in await changes_since(store, 0):
        latest.update({(change.kind, change.uid): change.after for change in changes if change.kind != "AGENT"})
    assert {message.SerializeToString() for _, message in seen} == {
        message.SerializeToString() for message in latest.values() if message is not None
    }


async def test_partitions_are_listed_by_pages_with_their_leaders(store: Store) -> None:
    made, a = await topic(store, partitions=5), await joined(store, "a")
    await topic(store, "another")
    await acquire(store, a, made, [1, 3])

    async def page(**fields: object) -> log.ListPartitionsResponse:
        request = log.ListPartitionsRequest(**fields)  # type: ignore[arg-type]
        return await store.read(lambda tx: topics.list_partitions(tx, request))

    first = await page(page_size=4)
    rest = await page(page_size=4, page_token=first.next_page_token)
    listed = [(each.topic, each.index) for each in (*first.partitions, *rest.partitions)]
    assert listed == [("another", 0), *(("orders", index) for index in range(5))]
    assert [each.index for each in (await page(leader="A")).partitions] == [1, 3]
    await fails(page(topic="none"), TOPIC_NOT_FOUND)


async def test_a_thousand_partitions_are_created_led_and_lost_at_once(store: Store) -> None:
    made, a = await topic(store, partitions=1000), await joined(store, "a")
    granted = await acquire(store, a, made, range(1000))
    assert {each.epoch for each in granted} == {1}
    before = await revision_of(store)
    await gone(store, a)
    (changes,) = await changes_since(store, before)
    assert len(changes) == 1001
