"""Topics and groups through the API, SQL, bundles and the watch; what their leaders ask is tested with the stores."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from headgate.catalog import v1 as catalog
from headgate.cluster import v1 as cluster
from headgate.log import v1 as log
from headgate_common.errors import INVALID_ARGUMENT
from headgate_coordinator import errors
from headgate_coordinator.catalog.inline import InlineDatabase
from headgate_coordinator.census import Census
from tests.unit.api.kit import QUERY, Client
from tests.unit.api.test_statements import bundle, execute
from tests.unit.api.test_watch_and_snapshot import Watcher


async def joined(client: Client, name: str = "a", **fields: Any) -> str:
    """Registers an agent; its session is the answer."""
    request = cluster.RegisterAgentRequest(
        name=name, address=f"{name}:7410", incarnation=name, protocol_version=1, volume_id=f"v-{name}", **fields
    )
    session: str = (await client(request)).session_id
    return session


async def acquired(client: Client, session: str, topic: log.Topic, index: int = 0) -> log.LeaderRef:
    ref = log.PartitionRef(topic_uid=topic.uid, index=index)
    answer = await client(log.AcquirePartitionsRequest(session_id=session, partitions=[ref]))
    return log.LeaderRef(partition=ref, epoch=answer.partitions[0].epoch)


async def test_a_topic_lives_from_creation_to_drop(client: Client) -> None:
    made = (await client(log.CreateTopicRequest(name="Orders", partitions=2))).topic
    assert (await client(log.GetTopicRequest(name="Orders"))).topic == made
    assert [each.name for each in (await client(log.ListTopicsRequest())).topics] == ["Orders"]
    altered = (await client(log.AlterTopicRequest(name="Orders", settings={}, fields=["linger"]))).topic
    assert altered == made, "it was at its default"
    assert len((await client(log.ListPartitionsRequest(topic="Orders"))).partitions) == 2
    assert (await client(log.DropTopicRequest(name="Orders"))).topic.uid == made.uid
    await client.refused(log.GetTopicRequest(name="Orders"), errors.TOPIC_NOT_FOUND)


@pytest.mark.parametrize("name", ["__headgate.foo", "__headgate.edge.q.1", "__Headgate.foo"])
async def test_names_of_topics_of_queries_are_reserved(client: Client, name: str) -> None:
    statement = f'CREATE TOPIC "{name}"'
    for request in (
        log.CreateTopicRequest(name=name),
        catalog.ExecuteStatementRequest(statement=statement),
        catalog.ApplyBundleRequest(items=[catalog.BundleItem(statement=statement)]),
    ):
        error = await client.refused(request, errors.INVALID_NAME)
        assert "__headgate." in error.message
    sink = f"CREATE SINK s (x INT32) TYPE TOPIC SET ('{name}' AS \"SINK\".TOPIC)"
    await client.refused(catalog.ExecuteStatementRequest(statement=sink), errors.INVALID_CONFIG)
    assert (await client(log.CreateTopicRequest(name="__headgate"))).topic.name == "__headgate"


async def test_topics_of_queries_and_their_partitions_are_shown_to_who_asks(client: Client) -> None:
    await client.cluster()
    await client(log.CreateTopicRequest(name="mine"))
    query = (await client(catalog.CreateQueryRequest(statement=QUERY))).query
    edge = f"__headgate.edge.{query.uid}.1"

    async def shown(statement: str) -> set[str]:
        answer = await client(catalog.ExecuteStatementRequest(statement=statement))
        return {row.values[0] for row in answer.results[0].table.rows}

    async def listed(**fields: Any) -> set[str]:
        return {each.topic for each in (await client(log.ListPartitionsRequest(**fields))).partitions}

    assert await shown("SHOW TOPICS") == await shown("SHOW PARTITIONS") == await listed() == {"mine"}
    everything = await listed(include_internal=True)
    assert {"mine", edge} < everything
    assert await shown("SHOW TOPICS WHERE internal") == everything - {"mine"}
    assert await shown("SHOW PARTITIONS WHERE internal") == everything - {"mine"}
    assert await shown(f'SHOW PARTITIONS FOR "{edge}"') == await listed(topic=edge) == {edge}


async def test_a_request_id_makes_a_retry_safe_and_validate_only_changes_nothing(client: Client) -> None:
    create = log.CreateTopicRequest(name="t", partitions=3, request_id="r1")
    first = await client(create)
    assert await client(create) == first
    await client.refused(log.CreateTopicRequest(name="u", request_id="r1"), errors.REQUEST_ID_CONFLICT)
    before = await client.contents()
    would = await client(log.CreateTopicRequest(name="u", partitions=2, validate_only=True))
    assert (would.topic.name, would.topic.partitions) == ("u", 2)
    await client(log.DropTopicRequest(name="t", validate_only=True))
    await client(log.RecoverPartitionsRequest(topic="t", accept_loss=True, validate_only=True))
    assert await client.contents() == before
    await client.refused(log.CreateTopicRequest(name="t", validate_only=True), errors.ALREADY_EXISTS)


@pytest.mark.parametrize(
    "request_",
    [
        log.CreateTopicRequest(),
        log.CreateTopicRequest(name="t", partitions=-1),
        log.CreateTopicRequest(name="t", partitions=10_001),
        log.CreateTopicRequest(name="t\0u"),
        log.AlterTopicRequest(name="t", settings={}),
        log.ListTopicsRequest(page_size=-1),
        log.RecoverPartitionsRequest(topic="t", partitions=[-1], accept_loss=True),
        log.AcquirePartitionsRequest(session_id="s"),
        log.AcquirePartitionsRequest(session_id="s", partitions=[{"topic_uid": "t", "index": -1}]),
        log.AcquirePartitionsRequest(session_id="s" * 1000, partitions=[{"topic_uid": "t"}]),
        log.ReserveOffsetsRequest(
            session_id="s", reservations=[{"leader": {"partition": {"topic_uid": "t"}}, "until_offset": -1}]
        ),
        log.CommitSegmentsRequest(session_id="s", commits=[{"leader": {"partition": {"topic_uid": "t"}}}]),
        log.CommitSegmentsRequest(
            session_id="s",
            commits=[
                {
                    "leader": {"partition": {"topic_uid": "t"}, "epoch": 1},
                    "segment": {"uid": "u", "key": "k", "base_offset": -1, "next_offset": 4, "bytes": 1, "epoch": 1},
                }
            ],
        ),
        log.TrimPartitionsRequest(
            session_id="s", trims=[{"leader": {"partition": {"topic_uid": "t"}}, "log_start": -1}]
        ),
        log.ListSegmentsRequest(partition={"topic_uid": "t"}, from_offset=-1),
        log.ListSegmentsRequest(partition={"topic_uid": "t"}, limit=-1),
        log.CreateProducerIdRequest(count=-1),
        log.AcquireGroupRequest(session_id="s", group="g" * 256),
        log.CommitGroupOffsetsRequest(session_id="s", group="g", generation=-2),
        log.CommitGroupOffsetsRequest(session_id="s", group="g", offsets=[{"topic": "t", "offset": -1}]),
        log.StartTransfersRequest(session_id="s", offers=[{"leader": {"partition": {"topic_uid": "t"}}}]),
    ],
    ids=lambda request: type(request).__name__,
)
async def test_what_breaks_the_rules_of_the_api_is_refused_by_field(client: Client, request_: Any) -> None:
    error = await client.refused(request_, INVALID_ARGUMENT)
    assert error.metadata["field"]


async def test_a_forged_session_changes_nothing(client: Client) -> None:
    made = (await client(log.CreateTopicRequest(name="t"))).topic
    led = await acquired(client, await joined(client), made)
    ref = led.partition
    segment = log.Segment(uid="u", key="k", next_offset=4, bytes=1, epoch=led.epoch)
    forged = "session-forged"
    for request, reason in (
        (log.AcquirePartitionsRequest(session_id=forged, partitions=[ref]), errors.SESSION_EXPIRED),
        (log.ReleasePartitionsRequest(session_id=forged, partitions=[{"leader": led}]), errors.SESSION_EXPIRED),
        (
            log.CommitSegmentsRequest(session_id=forged, commits=[{"leader": led, "segment": segment}]),
            errors.STALE_EPOCH,
        ),
        (log.TrimPartitionsRequest(session_id=forged, trims=[{"leader": led}]), errors.STALE_EPOCH),
        (log.ReserveOffsetsRequest(session_id=forged, reservations=[{"leader": led}]), errors.STALE_EPOCH),
        (log.AcquireGroupRequest(session_id=forged, group="g"), errors.SESSION_EXPIRED),
        (
            log.StartTransfersRequest(session_id=forged, offers=[{"leader": led, "to_agent": "b"}]),
            errors.SESSION_EXPIRED,
        ),
        (log.DropGroupRequest(name="g", session_id=forged, epoch=1), errors.GROUP_NOT_FOUND),
    ):
        await client.refused(request, reason)


async def test_topics_are_made_shown_described_and_dropped_in_sql(client: Client) -> None:
    made = await execute(
        client,
        "CREATE TOPIC Shop.Orders PARTITIONS 2 WITH (durability = 'WAL', retention = '24 h'); "
        "CREATE TOPIC IF NOT EXISTS Shop.Orders; CREATE TOPIC other",
    )
    assert [result.skipped for result in made.results] == [False, True, False]
    assert made.results[0].resources[0].topic.settings.retention.ToSeconds() == 86_400
    shown = await execute(client, "SHOW TOPICS; SHOW TOPICS LIKE 'shop%'; SHOW TOPICS WHERE partitions = 1")
    assert [[row.values[0] for row in result.table.rows] for result in shown.results] == [
        ["Shop.Orders", "other"],
        ["Shop.Orders"],
        ["other"],
    ]
    (described,) = (await execute(client, "DESCRIBE TOPIC Shop.Orders")).results
    properties = {row.values[0]: row.values[1] for row in described.table.rows}
    assert (properties["durability"], properties["retention"], properties["segment_bytes"]) == ("WAL", "1 d", "8 MiB")
    await acquired(client, await joined(client), (await client(log.GetTopicRequest(name="other"))).topic)
    (parts,) = (await execute(client, "SHOW PARTITIONS WHERE leader = 'a'")).results
    assert [list(row.values[:4]) for row in parts.table.rows] == [["other", "0", "a", "1"]]
    (of_one,) = (await execute(client, "SHOW PARTITIONS FOR Shop.Orders")).results
    assert [row.values[1] for row in of_one.table.rows] == ["0", "1"]
    await client.refused(catalog.ExecuteStatementRequest(statement="SHOW PARTITIONS FOR none"), errors.TOPIC_NOT_FOUND)
    await client.refused(catalog.ExecuteStatementRequest(statement="DROP TOPIC shop.orders"), errors.TOPIC_NOT_FOUND)
    done = await execute(client, "DROP TOPIC Shop.Orders; DROP TOPIC IF EXISTS Shop.Orders")
    assert [result.skipped for result in done.results] == [False, True]


async def test_sql_alters_what_may_change_and_says_what_may_not(client: Client) -> None:
    await execute(client, "CREATE TOPIC Orders WITH (durability = 'WAL', linger = '5 ms')")
    (done,) = (await execute(client, "ALTER TOPIC Orders SET ('retention.ms' = 60000) RESET (linger)")).results
    assert (done.verb, done.skipped) == ("ALTER TOPIC", False)
    settings = done.resources[0].topic.settings
    assert (settings.retention.seconds, settings.linger.nanos) == (60, 100_000_000)
    assert settings.durability == log.DURABILITY_WAL
    for statement, named in (
        ("ALTER TOPIC Orders SET (durability = 'OBJECT')", "durability"),
        ("ALTER TOPIC Orders SET (retention = '1 h', partitions = 3)", "partitions"),
        ("ALTER TOPIC Orders SET ('cleanup.policy' = 'compact')", "compacted"),
        ("ALTER TOPIC Orders SET (linger = '1 h')", "linger is from 0 s to 1 m"),
    ):
        error = await client.refused(catalog.ExecuteStatementRequest(statement=statement), errors.INVALID_CONFIG)
        assert named in error.message
    missing = catalog.ExecuteStatementRequest(statement="ALTER TOPIC orders SET (retention = '1 h')")
    await client.refused(missing, errors.TOPIC_NOT_FOUND)
    after = (await client(log.GetTopicRequest(name="Orders"))).topic
    assert after == done.resources[0].topic


async def test_a_bundle_alters_topics_all_or_none(client: Client) -> None:
    await execute(client, "CREATE TOPIC t")
    before = (await client(log.GetTopicRequest(name="t"))).topic
    failing = bundle("ALTER TOPIC t SET (retention = '1 h'); CREATE TOPIC u; ALTER TOPIC none RESET (linger)")
    assert "item 0" in (await client.refused(failing, errors.TOPIC_NOT_FOUND)).message
    assert (await client(log.GetTopicRequest(name="t"))).topic == before
    done = await client(bundle("CREATE TOPIC u; ALTER TOPIC u SET (retention = '1 h'); ALTER TOPIC t RESET (linger)"))
    assert [result.verb for result in done.results] == ["CREATE TOPIC", "ALTER TOPIC", "ALTER TOPIC"]
    assert (await client(log.GetTopicRequest(name="u"))).topic.settings.retention.seconds == 3600


async def test_a_bundle_makes_topics_beside_what_uses_them_all_or_none(client: Client) -> None:
    done = await client(
        bundle(
            "CREATE TOPIC t; CREATE LOGICAL SOURCE s (x INT32)",
            log.CreateTopicRequest(name="u", partitions=2),
            "CREATE PHYSICAL SOURCE p FOR s TYPE TOPIC SET('t' AS SOURCE.TOPIC)",
            log.AlterTopicRequest(name="u", settings={"segment_bytes": 4096}, fields=["segment_bytes"]),
        )
    )
    assert [result.verb for result in done.results] == [
        "CREATE TOPIC",
        "CREATE LOGICAL SOURCE",
        "CREATE TOPIC",
        "CREATE PHYSICAL SOURCE",
        "ALTER TOPIC",
    ]
    error = await client.refused(bundle(log.DropTopicRequest(name="u"), "DROP TOPIC t"), errors.TOPIC_IN_USE)
    assert "item 1" in error.message
    assert "p (TOPIC)" in error.message
    await client(bundle("DROP PHYSICAL SOURCE p; DROP TOPIC t; DROP TOPIC u"))


async def test_a_topic_that_a_query_uses_is_named_with_the_state_of_the_query_until_it_is_dropped(
    client: Client,
) -> None:
    await client(catalog.CreateAgentRequest(name="a", address="127.0.0.1:7410", slots=9))
    await client.activate("a")
    await execute(
        client,
        "CREATE TOPIC t; CREATE TOPIC u; CREATE LOGICAL SOURCE s (x INT32); "
        "CREATE PHYSICAL SOURCE p FOR s TYPE TOPIC SET('t' AS SOURCE.TOPIC); "
        "CREATE SINK k (x INT32) TYPE TOPIC SET('u' AS SINK.TOPIC); CREATE QUERY q AS SELECT x FROM s INTO k",
    )
    for name, kind in (("t", "physical source: p"), ("u", "sink: k")):
        error = await client.refused(log.DropTopicRequest(name=name), errors.TOPIC_IN_USE)
        assert f"1 {kind} (TOPIC)" in error.message
        assert "1 query: q (" in error.message


async def test_watchers_see_topics_and_leaders_and_no_offsets(client: Client) -> None:
    kinds = [catalog.RESOURCE_KIND_TOPIC, catalog.RESOURCE_KIND_PARTITION]
    watcher, other = Watcher(client, kinds=kinds), Watcher(client, kinds=kinds, name="A.b")
    assert not (await watcher.next()).snapshot.resources
    await other.next()
    made = (await client(log.CreateTopicRequest(name="T"))).topic
    await client(log.CreateTopicRequest(name="A.b"))
    first = (await watcher.next()).events.events
    assert [event.current.WhichOneof("resource") for event in first] == ["topic", "partition"]
    assert {
        event.current.topic.name or event.current.partition.topic for event in (await other.next()).events.events
    } == {"A.b"}
    await watcher.next()
    session = await joined(client)
    led = await acquired(client, session, made)
    (event,) = (await watcher.next()).events.events
    assert (event.current.partition.leader, event.current.partition.epoch) == ("a", 1)
    segment = log.Segment(uid="u", key="k", next_offset=4, bytes=1, epoch=1)
    await client(log.CommitSegmentsRequest(session_id=session, commits=[{"leader": led, "segment": segment}]))
    await client(cluster.LeaveClusterRequest(name="a", incarnation="a"))
    (event,) = (await watcher.next()).events.events
    assert (event.previous.partition.leader, event.current.partition.leader) == ("a", "")
    statement = Watcher(client, statement="WATCH SELECT leader FROM partitions WHERE topic = 'T'")
    (seen,) = (await statement.next()).snapshot.resources
    assert (seen.partition.topic, seen.partition.waiting) == ("T", "")
    for each in (watcher, other, statement):
        await each.close()


async def test_a_standby_answers_reads_and_names_the_leader_for_the_rest() -> None:
    database = InlineDatabase()
    leading = await Client(database).lead()
    standby = await Client(database, seed=8).stand_by()
    made = (await leading(log.CreateTopicRequest(name="t"))).topic
    session = await joined(leading)
    assert (await standby(log.GetTopicRequest(name="t"))).topic == made
    ref = log.PartitionRef(topic_uid=made.uid)
    assert (await standby(log.ListSegmentsRequest(partition=ref))).committed_offset == 0
    for request in (
        log.CreateTopicRequest(name="u"),
        log.AcquirePartitionsRequest(session_id=session, partitions=[ref]),
        log.CreateProducerIdRequest(),
    ):
        error = await standby.refused(request, errors.NOT_LEADER)
        assert error.metadata["leader"] == "coordinator-7:7400"
        assert standby.last_call.trailers["headgate-leader"] == "coordinator-7:7400"
    await standby.close()
    await leading.close()
    database.close()


async def test_a_group_is_seen_with_its_offsets(client: Client) -> None:
    await client(log.CreateTopicRequest(name="t"))
    session = await joined(client)
    epoch = (await client(log.AcquireGroupRequest(session_id=session, group="G 1"))).epoch
    offset = log.GroupOffset(topic="t", offset=5, leader_epoch=-1)
    await client(log.CommitGroupOffsetsRequest(session_id=session, group="G 1", epoch=epoch, offsets=[offset]))
    (found,) = (await client(log.ListGroupsRequest())).groups
    assert (found.name, found.leader, list(found.offsets)) == ("G 1", "a", [offset])
    assert (await client(log.GetGroupRequest(name="G 1"))).group == found
    await client.refused(log.DropGroupRequest(name="G 1"), errors.GROUP_IN_USE)
    drop = log.DropGroupRequest(name="G 1", session_id=session, epoch=epoch, request_id="r")
    assert await client(drop) == await client(drop)
    assert not (await client(log.ListGroupsRequest())).groups


async def test_the_census_follows_topics_and_who_leads(client: Client) -> None:
    census = client.coordinator.census

    async def counted(topics: int, led: int, waiting: int, census: Census = census) -> None:
        for _ in range(3000):
            seen = (census.topics(), census.partitions())
            if seen == (topics, {("LED",): led, ("WAITING",): waiting}):
                return
            await asyncio.sleep(0.01)
        raise AssertionError(seen)

    made = (await client(log.CreateTopicRequest(name="t", partitions=3))).topic
    await counted(1, 0, 3)
    session = await joined(client)
    await acquired(client, session, made, 1)
    await counted(1, 1, 2)
    again = Census(client.store, random.Random(1))
    task = asyncio.create_task(again.run())
    await counted(1, 1, 2, again)
    task.cancel()
    await client(cluster.LeaveClusterRequest(name="a", incarnation="a"))
    await counted(1, 0, 3)
    await client(log.DropTopicRequest(name="t"))
    await counted(0, 0, 0)
