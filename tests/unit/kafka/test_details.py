"""What clients are told in the corners: as Kafka does, where it says something."""

from __future__ import annotations

import asyncio
import struct
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from headgate.log import v1 as log
from headgate_agent.kafka.config import CatalogLimits, KafkaLimits
from headgate_agent.kafka.walk import uvarint
from tests.unit.kafka.kit import COORDINATOR, Cluster, running_cluster
from tests.unit.kafka.test_every_version import create
from tests.unit.kafka.wire import Wire, parse

NONE = ErrorCode.none
TOPIC, BROKER = 2, 4
SET = 0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(Path(tmp_path_factory.mktemp("cluster"))) as running:
        yield running


@pytest.mark.parametrize("version", [10, 11])
def test_metadata_of_these_versions_asks_by_name(wire: Wire, version: int) -> None:
    for topic in (
        {"name": None, "topic_id": uuid.UUID(int=7)},
        {"name": None},
        {"name": "t", "topic_id": uuid.UUID(int=7)},
    ):
        answer = wire.ask(3, version, {"topics": [topic]})
        assert [one.error_code for one in answer.topics] == [ErrorCode.invalid_request]
        assert answer.brokers == (), "nothing in a refusal is taken for a broker"


def test_an_answer_that_cannot_be_written_is_answered_too(
    cluster: Cluster, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unwritable(request: Any) -> Any:
        return {"topics": [{"name": None}]}

    monkeypatch.setattr(cluster.service, "_families", {3: unwritable})
    (topic,) = wire.ask(3, 9, {"topics": [{"name": "t"}]}).topics
    assert (topic.name, topic.error_code) == ("t", ErrorCode.unknown_server_error)


def test_tagged_fields_that_nobody_knows_are_ignored(wire: Wire) -> None:
    """Newer clients may send some, by the protocol's own rule."""
    tags = uvarint(1) + uvarint(77) + uvarint(3) + b"abc"
    body = struct.pack(">hhih", 18, 3, 5, -1) + tags + b"\2a\2b" + tags
    wire.socket.sendall(struct.pack(">i", len(body)) + body)
    assert parse(18, 3, wire.receive())[1].error_code is NONE


@pytest.mark.parametrize("version", [0, 4])
def test_a_producer_that_cannot_be_given_an_id_now_is_told_to_ask_again(tmp_path: Path, version: int) -> None:
    """REQUEST_TIMED_OUT ends older Java producers (KAFKA-14417)."""
    limits = KafkaLimits(drain=0.5, admin_timeout=0.2)
    with running_cluster(tmp_path, limits=limits) as cluster, Wire(cluster.bootstrap) as wire:
        cluster.transport.cut.add(COORDINATOR)
        answer = wire.ask(22, version, {"transactional_id": None, "transaction_timeout": 1000})
        assert answer.error_code is ErrorCode.coordinator_load_in_progress


def described(wire: Wire, kind: int, name: str) -> dict[str, Any]:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": None}
    (result,) = wire.ask(32, 4, {"resources": [resource]}).results
    assert result.error_code is NONE, result
    return {one.name: one for one in result.configs}


def overrides(found: dict[str, Any]) -> set[str]:
    return {name for name, one in found.items() if one.config_source == 1}


def test_only_what_was_set_on_a_topic_is_told_as_its_own(wire: Wire) -> None:
    topic = {"name": "plain", "num_partitions": 1, "replication_factor": 1}
    (made,) = wire.ask(19, 7, {"topics": [topic], "timeout": 5000}).topics
    assert {one.config_source for one in made.configs} == {5}
    assert overrides(described(wire, TOPIC, "plain")) == set()
    configs = [{"name": "retention.ms", "value": "5000"}, {"name": "headgate.durability", "value": "WAL"}]
    (made,) = wire.ask(19, 7, {"topics": [topic | {"name": "own", "configs": configs}], "timeout": 5000}).topics
    assert {one.name for one in made.configs if one.config_source == 1} == {"retention.ms", "headgate.durability"}
    assert overrides(described(wire, TOPIC, "own")) == {"retention.ms", "headgate.durability"}
    change = {"name": "segment.bytes", "config_operation": SET, "value": "2000000"}
    resource = {"resource_type": TOPIC, "resource_name": "plain", "configs": [change]}
    (altered,) = wire.ask(44, 1, {"resources": [resource]}).responses
    assert altered.error_code is NONE
    assert overrides(described(wire, TOPIC, "plain")) == {"segment.bytes"}


def test_where_nobody_knows_the_defaults_all_are_told_as_the_topics_own(tmp_path: Path) -> None:
    catalog = CatalogLimits(asked_within=0.1, absent_for=0.0)
    with running_cluster(tmp_path, catalog=catalog) as cluster, Wire(cluster.bootstrap) as wire:
        create(wire, "t")
        cluster.transport.cut.add(COORDINATOR)
        assert "retention.ms" in overrides(described(wire, TOPIC, "t"))
        cluster.transport.cut.clear()
        assert "retention.ms" not in overrides(described(wire, TOPIC, "t"))


def test_what_is_set_for_all_brokers_is_nothing(wire: Wire) -> None:
    assert described(wire, BROKER, "") == {}


def test_the_address_that_clients_are_told_is_described(cluster: Cluster, wire: Wire) -> None:
    (broker,) = wire.ask(3, 12, {"topics": []}).brokers
    found = described(wire, BROKER, str(broker.node_id))
    assert found["advertised.listeners"].value == f"PLAINTEXT://{cluster.bootstrap}"


@pytest.mark.parametrize("api", [33, 44])
def test_a_setting_without_a_value_is_refused(wire: Wire, api: int) -> None:
    name = f"unset-{api}"
    configs = [{"name": "retention.ms", "value": "5000"}]
    topic = {"name": name, "num_partitions": 1, "replication_factor": 1, "configs": configs}
    assert wire.ask(19, 7, {"topics": [topic], "timeout": 5000}).topics[0].error_code is NONE
    config = {"name": "retention.ms", "value": None} | ({"config_operation": SET} if api == 44 else {})
    resource = {"resource_type": TOPIC, "resource_name": name, "configs": [config]}
    (answer,) = wire.ask(api, 1, {"resources": [resource]}).responses
    assert (answer.error_code, "retention.ms" in answer.error_message) == (ErrorCode.invalid_request, True)
    assert described(wire, TOPIC, name)["retention.ms"].value == "5000"


def test_a_topic_is_not_created_with_a_setting_that_has_no_value(wire: Wire) -> None:
    configs = [{"name": "retention.ms", "value": None}]
    topic = {"name": "void", "num_partitions": 1, "replication_factor": 1, "configs": configs}
    (answer,) = wire.ask(19, 7, {"topics": [topic], "timeout": 5000}).topics
    assert answer.error_code is ErrorCode.invalid_config


def resources(name: str, **values: Any) -> dict[str, Any]:
    return {"resources": [{"resource_type": TOPIC, "resource_name": name, **values}]}


# By name: the request, and what of its answer says how the topic fared.
ASKING: dict[str, tuple[int, int, Any, Any]] = {
    "Metadata": (3, 12, lambda name: {"topics": [{"name": name}]}, lambda answer: answer.topics),
    "DescribeConfigs": (
        32,
        4,
        lambda name: resources(name, configuration_keys=None),
        lambda answer: answer.results,
    ),
    "AlterConfigs": (33, 2, lambda name: resources(name, configs=[]), lambda answer: answer.responses),
    "IncrementalAlterConfigs": (44, 1, lambda name: resources(name, configs=[]), lambda answer: answer.responses),
    "CreatePartitions": (
        37,
        3,
        lambda name: {"topics": [{"name": name, "count": 9, "assignments": None}], "timeout": 1000},
        lambda answer: answer.results,
    ),
    "OffsetCommit": (
        8,
        8,
        lambda name: {
            "group_id": f"of-{name}",
            "generation_id_or_member_epoch": -1,
            "topics": [{"name": name, "partitions": [{"partition_index": 0, "committed_metadata": None}]}],
        },
        lambda answer: answer.topics[0].partitions,
    ),
    "DeleteTopics": (
        20,
        6,
        lambda name: {"topics": [{"name": name}], "timeout": 5000},
        lambda answer: answer.responses,
    ),
}
KNOWN = {"CreatePartitions": ErrorCode.invalid_partitions}
# What is said of a topic when nobody can say whether it is there.
DOUBTFUL = {
    "Metadata": ErrorCode.leader_not_available,
    "OffsetCommit": ErrorCode.coordinator_load_in_progress,
}


@pytest.mark.parametrize("name", ASKING)
def test_a_topic_that_this_agent_has_not_heard_of_is_asked_for(
    cluster: Cluster, wire: Wire, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    api, version, request, outcome = ASKING[name]
    topic = f"late-{name}"
    create(wire, topic)
    (agent,) = cluster.agents.values()
    view, catalog = agent.broker.view, cluster.service._lookup._catalog
    late, known, catch_up = True, view.topic, catalog.catch_up

    def find(asked: str) -> log.Topic | None:
        return None if late and asked == topic else known(asked)

    async def caught_up(asked: str, within: float) -> bool | None:
        nonlocal late
        late = False
        return await catch_up(asked, within)

    monkeypatch.setattr(view, "topic", find)
    monkeypatch.setattr(catalog, "catch_up", caught_up)
    (answer,) = outcome(wire.ask(api, version, request(topic)))
    assert answer.error_code is KNOWN.get(name, NONE)
    assert not late


@pytest.mark.parametrize("name", ASKING)
def test_where_nobody_can_say_whether_there_is_a_topic_it_is_not_said_to_be_absent(
    cluster: Cluster, wire: Wire, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    async def nobody(asked: str, within: float) -> bool | None:
        return None

    api, version, request, outcome = ASKING[name]
    monkeypatch.setattr(cluster.service._lookup._catalog, "catch_up", nobody)
    (answer,) = outcome(wire.ask(api, version, request(f"doubtful-{name}")))
    assert answer.error_code is DOUBTFUL.get(name, ErrorCode.request_timed_out)


def test_however_many_topics_are_named_few_are_asked_for(
    cluster: Cluster, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def catch_up(name: str, within: float) -> bool | None:
        asked.append(name)
        return False

    monkeypatch.setattr(cluster.service._lookup._catalog, "catch_up", catch_up)
    most = CatalogLimits().asked_topics
    named = [{"name": f"many-{number}"} for number in range(most + 50)] * 2
    answer = wire.ask(3, 12, {"topics": named})
    codes = [topic.error_code for topic in answer.topics]
    assert codes == [ErrorCode.unknown_topic_or_partition] * most + [ErrorCode.leader_not_available] * 50
    assert asked == [f"many-{number}" for number in range(most)]


@pytest.mark.parametrize(("api", "version", "call"), [(19, 7, "create"), (20, 6, "drop")])
def test_all_topics_of_a_request_share_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, api: int, version: int, call: str
) -> None:
    limits = KafkaLimits(drain=0.5, timeout_min=0.01)
    with running_cluster(tmp_path, limits=limits) as cluster, Wire(cluster.bootstrap) as wire:
        for number in range(3):
            create(wire, f"there-{number}")
        begun = 0

        async def slow(*asked: Any) -> None:
            nonlocal begun
            begun += 1
            within: float = asked[-1]
            assert within <= 0.3
            await asyncio.sleep(within + 0.05)
            raise TimeoutError

        monkeypatch.setattr(cluster.service._lookup._catalog, call, slow)
        prefix = "new" if call == "create" else "there"
        topics = [{"name": f"{prefix}-{number}"} for number in range(3)]
        if call == "create":
            topics = [topic | {"num_partitions": 1, "replication_factor": 1} for topic in topics]  # type: ignore[dict-item]
        answer = wire.ask(api, version, {"topics": topics, "timeout": 300})
        results = answer.topics if call == "create" else answer.responses
        assert [one.error_code for one in results] == [ErrorCode.request_timed_out] * 3
        assert begun == 1
