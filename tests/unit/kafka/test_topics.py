"""Topics that clients do not own, topics that are made by asking, and what the coordinator's absence means."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from headgate.log import v1 as log
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


def test_a_topic_that_something_uses_cannot_be_deleted(cluster: Cluster, wire: Wire) -> None:
    from headgate.catalog import v1 as catalog
    from headgate_common.dispatch import Call

    create(wire, "used")
    statement = """
        CREATE LOGICAL SOURCE s (a INT32);
        CREATE PHYSICAL SOURCE p FOR s TYPE TOPIC SET ('used' AS "SOURCE".TOPIC);
    """

    async def declare() -> None:
        request = catalog.ExecuteStatementRequest(statement=statement)
        path = "/headgate.catalog.v1.StatementService/ExecuteStatement"
        await cluster.transport.dispatchers[COORDINATOR].unary(path, request, Call())

    cluster.run(declare())
    (refused,) = wire.ask(20, 6, {"topics": [{"name": "used"}], "timeout": 5000}).responses
    assert refused.error_code is ErrorCode.topic_deletion_disabled
    assert "p" in refused.error_message


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
