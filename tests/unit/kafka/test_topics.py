"""Topics that clients do not own, topics that are made by asking, and what the coordinator's absence means."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from headgate.catalog import v1 as catalog
from headgate.log import v1 as log
from headgate_agent.log.contract import PartitionKey
from headgate_common.dispatch import Call
from headgate_coordinator.catalog.log import topics
from headgate_coordinator.catalog.log.settings import TopicRules
from tests.unit.kafka.kit import COORDINATOR, Cluster, running_cluster
from tests.unit.kafka.test_every_version import configured, create, produce
from tests.unit.kafka.wire import Wire, batch

NONE = ErrorCode.none


@pytest.fixture
def internal(cluster: Cluster) -> str:
    """A topic of a query, as the planner makes them."""

    def make(tx: Any) -> log.Topic:
        return topics.create(
            tx, name="edge", partition_count=1, wanted=log.TopicSettings(), rules=TopicRules(), internal=True
        )

    async def created() -> None:
        await cluster.store.write(make)
        (agent,) = cluster.agents.values()
        await cluster.until(lambda: bool(agent.broker.led))

    cluster.run(created())
    return "edge"


def test_internal_topics_are_not_listed_and_answered_by_name(wire: Wire, internal: str) -> None:
    assert wire.ask(3, 12, {"topics": None}).topics == ()
    (found,) = wire.ask(3, 12, {"topics": [{"name": internal}]}).topics
    assert (found.error_code, found.is_internal) == (NONE, True)


def test_names_of_topics_of_queries_are_reserved(wire: Wire) -> None:
    new = {"name": "__headgate.foo", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    (refused,) = wire.ask(19, 7, {"topics": [new], "timeout": 5000, "validate_only": False}).topics
    assert refused.error_code is ErrorCode.invalid_topic_exception
    assert "__headgate." in refused.error_message
    assert wire.ask(3, 12, {"topics": None}).topics == ()


def test_internal_topics_are_closed_to_clients(wire: Wire, internal: str) -> None:
    denied = ErrorCode.topic_authorization_failed
    data = [{"name": internal, "partition_data": [{"index": 0, "records": batch(1)}]}]
    answer = wire.ask(0, 9, {"acks": -1, "timeout": 5000, "topic_data": data})
    assert answer.responses[0].partition_responses[0].error_code is denied
    (dropped,) = wire.ask(20, 6, {"topics": [{"name": internal}], "timeout": 5000}).responses
    assert dropped.error_code is denied
    records = [{"name": internal, "partitions": [{"partition_index": 0, "offset": 0}]}]
    answer = wire.ask(21, 2, {"topics": records, "timeout": 5000})
    assert answer.topics[0].partitions[0].error_code is denied
    configs = [{"name": "retention.ms", "config_operation": 0, "value": "1000"}]
    resource = {"resource_type": 2, "resource_name": internal, "configs": configs}
    assert wire.ask(44, 1, {"resources": [resource]}).responses[0].error_code is denied


def execute(cluster: Cluster, statement: str) -> None:
    async def executed() -> None:
        request = catalog.ExecuteStatementRequest(statement=statement)
        path = "/headgate.catalog.v1.StatementService/ExecuteStatement"
        await cluster.transport.dispatchers[COORDINATOR].unary(path, request, Call())

    cluster.run(executed())


SOURCE = """
    CREATE LOGICAL SOURCE s (a INT32);
    CREATE PHYSICAL SOURCE reader FOR s TYPE TOPIC SET ('used' AS "SOURCE".TOPIC);
"""
SINK = "CREATE SINK writer (a INT32) TYPE TOPIC SET ('used' AS SINK.TOPIC)"


@pytest.mark.parametrize(
    ("statement", "user", "drop"),
    [(SOURCE, "reader", "DROP PHYSICAL SOURCE reader"), (SINK, "writer", "DROP SINK writer")],
    ids=["source", "sink"],
)
def test_a_topic_that_something_uses_cannot_be_deleted(
    cluster: Cluster, wire: Wire, statement: str, user: str, drop: str
) -> None:
    create(wire, "used")
    execute(cluster, statement)
    topics = {"topics": [{"name": "used"}], "timeout": 5000}
    (refused,) = wire.ask(20, 6, topics).responses
    assert refused.error_code is ErrorCode.topic_deletion_disabled
    assert user in refused.error_message
    assert produce(wire, "used") == 0
    execute(cluster, drop)
    (deleted,) = wire.ask(20, 6, topics).responses
    assert deleted.error_code is NONE


@pytest.fixture
def making(tmp_path: Path) -> Iterator[Cluster]:
    with running_cluster(tmp_path, auto_create=True, auto_create_partitions=3) as cluster:
        yield cluster


def test_asking_makes_a_topic_only_where_that_is_set_and_wanted(making: Cluster) -> None:
    with Wire(making.bootstrap) as wire:
        (absent,) = wire.ask(3, 12, {"topics": [{"name": "new"}], "allow_auto_topic_creation": False}).topics
        assert absent.error_code is ErrorCode.unknown_topic_or_partition
        (made,) = wire.ask(3, 12, {"topics": [{"name": "new"}], "allow_auto_topic_creation": True}).topics
        assert len(made.partitions) == 3
        (bad,) = wire.ask(3, 12, {"topics": [{"name": "no/name"}], "allow_auto_topic_creation": True}).topics
        assert bad.error_code is ErrorCode.invalid_topic_exception


@pytest.mark.slow
def test_without_a_coordinator_records_flow_and_administration_fails_in_its_time(cluster: Cluster, wire: Wire) -> None:
    create(wire, "flows")
    assert produce(wire, "flows") == 0
    cluster.transport.cut.add(COORDINATOR)
    assert produce(wire, "flows") == 3
    topic = {"name": "later", "num_partitions": 1, "replication_factor": 1}
    (refused,) = wire.ask(19, 7, {"topics": [topic], "timeout": 1000}).topics
    assert refused.error_code is ErrorCode.request_timed_out
    cluster.transport.cut.clear()
    create(wire, "later")


def test_validating_makes_no_topic(wire: Wire) -> None:
    topic = {"name": "t", "num_partitions": 1, "replication_factor": -1}
    (fine,) = wire.ask(19, 7, {"topics": [topic], "timeout": 5000, "validate_only": True}).topics
    assert (fine.error_code, wire.ask(3, 12, {"topics": None}).topics) == (NONE, ())


def test_a_topic_named_twice_in_one_request_is_not_made(wire: Wire) -> None:
    topic = {"name": "t", "num_partitions": 1, "replication_factor": 1}
    results = wire.ask(19, 7, {"topics": [topic, topic], "timeout": 5000}).topics
    assert {one.error_code for one in results} == {ErrorCode.invalid_request}


def test_settings_for_good_are_minus_one(wire: Wire) -> None:
    configs = [{"name": "retention.ms", "value": "-1"}, {"name": "retention.bytes", "value": "-1"}]
    topic = {"name": "t", "num_partitions": 1, "replication_factor": 1, "configs": configs}
    assert wire.ask(19, 7, {"topics": [topic], "timeout": 5000}).topics[0].error_code is NONE
    found = configured(wire, "t")
    assert (found["retention.ms"], found["retention.bytes"]) == ("-1", "-1")
    for name in ("retention.ms", "retention.bytes"):
        nothing = topic | {"name": "u", "configs": [{"name": name, "value": "0"}]}
        (refused,) = wire.ask(19, 7, {"topics": [nothing], "timeout": 5000}).topics
        assert refused.error_code is ErrorCode.invalid_config


@pytest.fixture
def grouped(tmp_path: Path) -> Iterator[Cluster]:
    """One agent of the group plant and one of shop; none of the default group."""
    with running_cluster(tmp_path, agents=0, auto_create=True) as cluster:
        for group in ("plant", "shop"):
            cluster.run(cluster.add(f"in-{group}", group=group))
        plant = cluster.agents["in-plant"].broker.view
        cluster.run(cluster.until(lambda: plant.peer("in-shop") is not None))
        yield cluster


def made(wire: Wire, name: str, *configs: dict[str, str], **values: Any) -> Any:
    topic = {"name": name, "num_partitions": 2, "replication_factor": 1, "configs": configs}
    (result,) = wire.ask(19, 7, {"topics": [topic], "timeout": 10_000, **values}).topics
    return result


def led_by(cluster: Cluster, name: str) -> set[str]:
    """The agents that lead a topic, when all of its partitions are led."""
    view = cluster.agents["in-plant"].broker.view

    def leaders() -> list[str]:
        topic = view.topic(name)
        count = topic.partitions if topic is not None else 0
        uid = topic.uid if topic is not None else ""
        return [view.leadership(PartitionKey(uid, index)).leader for index in range(count)]

    cluster.run(cluster.until(lambda: bool(leaders()) and all(leaders())))
    return set(leaders())


@pytest.mark.parametrize("group", ["plant", "shop"])
def test_a_topic_is_of_the_group_of_the_agent_that_is_asked_for_it_and_is_led_there(
    grouped: Cluster, group: str
) -> None:
    with Wire(grouped.agents[f"in-{group}"].address) as wire:
        assert made(wire, "created").error_code is NONE
        wire.ask(3, 12, {"topics": [{"name": "by-asking"}], "allow_auto_topic_creation": True})
        for name in ("created", "by-asking"):
            assert led_by(grouped, name) == {f"in-{group}"}
            assert configured(wire, name)["headgate.group"] == group


def test_a_topic_is_of_the_group_that_its_setting_names(grouped: Cluster) -> None:
    with Wire(grouped.agents["in-plant"].address) as wire:
        answer = made(wire, "sold", {"name": "headgate.group", "value": "shop"})
        assert answer.error_code is NONE
        assert [(one.value, one.read_only) for one in answer.configs if one.name == "headgate.group"] == [
            ("shop", True)
        ]
        assert led_by(grouped, "sold") == {"in-shop"}
        assert configured(wire, "sold")["headgate.group"] == "shop"


@pytest.mark.parametrize("group", ["default", "moon", "", "x" * 64])
def test_a_group_that_could_not_lead_a_topic_is_refused_and_those_that_could_are_named(
    grouped: Cluster, group: str
) -> None:
    with Wire(grouped.agents["in-plant"].address) as wire:
        for validate_only in (True, False):
            setting = {"name": "headgate.group", "value": group}
            refused = made(wire, "nobodys", setting, validate_only=validate_only)
            assert refused.error_code is ErrorCode.invalid_config
            assert f"headgate.group = {group!r}: " in refused.error_message
            if 0 < len(group) < 64:
                assert "there are plant, shop" in refused.error_message
        assert wire.ask(3, 12, {"topics": None}).topics == ()


def test_the_group_of_a_topic_cannot_be_altered(cluster: Cluster, wire: Wire) -> None:
    create(wire, "t")

    def altered(api: int, value: str, **operation: int) -> tuple[ErrorCode, str]:
        configs = [{"name": "headgate.group", "value": value, **operation}]
        resource = {"resource_type": 2, "resource_name": "t", "configs": configs}
        (answer,) = wire.ask(api, 1, {"resources": [resource]}).responses
        return answer.error_code, answer.error_message or ""

    fixed = (ErrorCode.invalid_config, "headgate.group is fixed at creation; create another topic")
    assert altered(44, "plant", config_operation=0) == fixed
    assert altered(44, "default", config_operation=1) == fixed
    assert altered(33, "plant") == fixed
    # Tools send back everything that they were told.
    assert altered(33, "default") == (NONE, "")
    assert configured(wire, "t")["headgate.group"] == "default"


def test_the_durability_of_a_topic_is_not_silently_kept_where_another_is_asked_for(wire: Wire) -> None:
    create(wire, "t")
    for value, code in (("OBJECT", ErrorCode.invalid_config), ("wal", NONE)):
        configs = [{"name": "headgate.durability", "value": value}]
        resource = {"resource_type": 2, "resource_name": "t", "configs": configs}
        assert wire.ask(33, 2, {"resources": [resource]}).responses[0].error_code is code


def test_a_topic_that_sql_makes_is_of_the_group_that_it_names(grouped: Cluster) -> None:
    execute(grouped, "CREATE TOPIC sold PARTITIONS 2 GROUP 'shop'")
    assert led_by(grouped, "sold") == {"in-shop"}
    with Wire(grouped.agents["in-plant"].address) as wire:
        assert configured(wire, "sold")["headgate.group"] == "shop"


@pytest.mark.slow
def test_an_agent_that_does_not_know_its_group_yet_makes_no_topic(
    cluster: Cluster, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    (agent,) = cluster.agents.values()
    monkeypatch.setattr(agent.broker.view, "peer", lambda name: None)
    refused = made(wire, "t")
    assert refused.error_code is ErrorCode.request_timed_out
    assert "group" in refused.error_message
    monkeypatch.undo()
    assert made(wire, "t").error_code is NONE


def test_a_fetch_with_an_old_leader_epoch_is_fenced(wire: Wire) -> None:
    create(wire, "t")

    def fetch(epoch: int) -> ErrorCode:
        partition = {
            "partition": 0,
            "current_leader_epoch": epoch,
            "fetch_offset": 0,
            "partition_max_bytes": 1000,
        }
        answer = wire.ask(1, 11, {"max_wait": 0, "min_bytes": 0, "topics": [{"topic": "t", "partitions": [partition]}]})
        code = answer.responses[0].partitions[0].error_code
        assert isinstance(code, ErrorCode)
        return code

    assert fetch(1) is NONE
    assert fetch(0) is ErrorCode.fenced_leader_epoch
    assert fetch(2) is ErrorCode.unknown_leader_epoch


def test_a_fetch_session_is_never_given(wire: Wire) -> None:
    assert wire.ask(1, 11, {"max_wait": 0, "session_id": 0, "session_epoch": 0}).session_id == 0
    lost = wire.ask(1, 11, {"max_wait": 0, "session_id": 9, "session_epoch": 4})
    assert lost.error_code is ErrorCode.fetch_session_id_not_found
