"""Every version that is announced is sent and answered, and the answer says what it should."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from headgate_agent.kafka.apis import APIS, Api
from headgate_agent.kafka.codec import parts
from tests.unit.kafka.kit import Cluster, running_cluster
from tests.unit.kafka.wire import Wire, batch

NONE = ErrorCode.none
WAL = {"name": "headgate.durability", "value": "WAL"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(Path(tmp_path_factory.mktemp("cluster"))) as running:
        yield running


@pytest.fixture(scope="module")
def names() -> Iterator[str]:
    return (f"t{number}" for number in range(10_000))


def create(wire: Wire, name: str) -> None:
    topic = {"name": name, "num_partitions": 2, "replication_factor": 1, "configs": [WAL]}
    (result,) = wire.ask(19, 7, {"topics": [topic], "timeout": 10_000}).topics
    assert result.error_code is NONE, result
    for _ in range(500):
        (found,) = wire.ask(3, 12, {"topics": [{"name": name}]}).topics
        if all(partition.error_code is NONE for partition in found.partitions):
            return
    raise AssertionError("no leader")


def topic_id(wire: Wire, name: str) -> uuid.UUID:
    (found,) = wire.ask(3, 12, {"topics": [{"name": name}]}).topics
    assert isinstance(found.topic_id, uuid.UUID)
    return found.topic_id


def produce(wire: Wire, name: str, count: int = 3, **values: Any) -> int:
    data = [{"name": name, "partition_data": [{"index": 0, "records": batch(count, **values)}]}]
    ((answer,),) = [
        topic.partition_responses
        for topic in wire.ask(0, 9, {"acks": -1, "timeout": 10_000, "topic_data": data}).responses
    ]
    assert answer.error_code is NONE, answer
    return int(answer.base_offset)


def join(wire: Wire, group: str, session_timeout: int = 30_000) -> tuple[str, int]:
    """A group with one stable member."""
    values: dict[str, Any] = {
        "group_id": group,
        "session_timeout": session_timeout,
        "rebalance_timeout": 30_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"m"}],
    }
    first = wire.ask(11, 9, values)
    assert first.error_code is ErrorCode.member_id_required
    joined = wire.ask(11, 9, values | {"member_id": first.member_id})
    assert (joined.error_code, joined.leader) == (NONE, joined.member_id)
    synced = wire.ask(
        14,
        5,
        {
            "group_id": group,
            "generation_id": joined.generation_id,
            "member_id": joined.member_id,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [{"member_id": joined.member_id, "assignment": b"mine"}],
        },
    )
    assert (synced.error_code, synced.assignment) == (NONE, b"mine")
    return joined.member_id, joined.generation_id


Check = Callable[[Wire, int, str], None]
CHECKS: dict[str, Check] = {}


def check(name: str) -> Callable[[Check], Check]:
    def register(function: Check) -> Check:
        CHECKS[name] = function
        return function

    return register


@check("ApiVersions")
def _(wire: Wire, version: int, name: str) -> None:
    answer = wire.ask(18, version, {"client_software_name": "wire", "client_software_version": "1"})
    assert answer.error_code is NONE
    assert {one.api_key: one.max_version for one in answer.api_keys} == {key: api.last for key, api in APIS.items()}


@check("Metadata")
def _(wire: Wire, version: int, name: str) -> None:
    create(wire, name)
    answer = wire.ask(3, version, {"topics": [{"name": name}, {"name": "absent"}]})
    assert [broker.port for broker in answer.brokers] == [wire.socket.getpeername()[1]]
    found, absent = answer.topics
    assert (found.error_code, len(found.partitions)) == (NONE, 2)
    assert {partition.leader_id for partition in found.partitions} == {answer.brokers[0].node_id}
    assert absent.error_code is ErrorCode.unknown_topic_or_partition
    everything = wire.ask(3, version, {"topics": [] if version == 0 else None})
    assert name in [topic.name for topic in everything.topics]
    if version > 0:
        assert wire.ask(3, version, {"topics": []}).topics == ()


@check("Produce")
def _(wire: Wire, version: int, name: str) -> None:
    create(wire, name)
    partitions = [{"index": 0, "records": batch(3)}, {"index": 7, "records": batch(1)}]
    values = {"acks": -1, "timeout": 10_000, "topic_data": [{"name": name, "partition_data": partitions}]}
    ((stored, absent),) = [topic.partition_responses for topic in wire.ask(0, version, values).responses]
    assert (stored.error_code, stored.base_offset) == (NONE, 0)
    assert absent.error_code is ErrorCode.unknown_topic_or_partition


@check("Fetch")
def _(wire: Wire, version: int, name: str) -> None:
    create(wire, name)
    produce(wire, name)
    key: dict[str, Any] = {"topic_id": topic_id(wire, name)} if version >= 13 else {"topic": name}
    partitions = [
        {"partition": 0, "fetch_offset": 1, "partition_max_bytes": 10_000},
        {"partition": 1, "fetch_offset": 5, "partition_max_bytes": 10_000},
    ]
    values = {
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": 1,
        "max_bytes": 10_000,
        "topics": [{**key, "partitions": partitions}],
    }
    answer = wire.ask(1, version, values)
    ((found, beyond),) = [topic.partitions for topic in answer.responses]
    assert (found.error_code, found.high_watermark) == (NONE, 3)
    assert bytes(found.records)[61:] == batch(3)[61:]
    assert beyond.error_code is ErrorCode.offset_out_of_range


@check("ListOffsets")
def _(wire: Wire, version: int, name: str) -> None:
    create(wire, name)
    produce(wire, name, timestamp=5000)

    def at(timestamp: int) -> Any:
        topics = [{"name": name, "partitions": [{"partition_index": 0, "timestamp": timestamp}]}]
        ((found,),) = [one.partitions for one in wire.ask(2, version, {"replica_id": -1, "topics": topics}).topics]
        return found

    assert (at(-1).offset, at(-2).offset) == (3, 0)
    assert (at(4000).offset, at(4000).timestamp) == (0, 5000)
    assert (at(6000).offset, at(6000).timestamp) == (-1, -1)
    assert {at(timestamp).error_code for timestamp in (-1, -2, 4000, 6000)} == {NONE}
    for timestamp, since, offset, found_at in ((-3, 7, 0, 5000), (-4, 8, 0, -1), (-5, 9, -1, -1)):
        found = at(timestamp)
        known = version >= since
        assert found.error_code is (NONE if known else ErrorCode.unsupported_version)
        assert (found.offset, found.timestamp) == ((offset, found_at) if known else (-1, -1))
    assert at(-6).error_code is ErrorCode.unsupported_version


@check("OffsetForLeaderEpoch")
def _(wire: Wire, version: int, name: str) -> None:
    create(wire, name)
    produce(wire, name)
    topics = [{"topic": name, "partitions": [{"partition": 0, "leader_epoch": 1}, {"partition": 9, "leader_epoch": 1}]}]
    ((found, absent),) = [one.partitions for one in wire.ask(23, version, {"topics": topics}).topics]
    assert (found.error_code, found.leader_epoch, found.end_offset) == (NONE, 1, 3)
    assert absent.error_code is ErrorCode.unknown_topic_or_partition


@check("DeleteRecords")
def _(wire: Wire, version: int, name: str) -> None:
    create(wire, name)
    produce(wire, name)

    def delete(offset: int) -> Any:
        topics = [{"name": name, "partitions": [{"partition_index": 0, "offset": offset}]}]
        ((found,),) = [one.partitions for one in wire.ask(21, version, {"topics": topics, "timeout": 5000}).topics]
        return found

    assert (delete(2).error_code, delete(2).low_watermark) == (NONE, 2)
    assert delete(9).error_code is ErrorCode.offset_out_of_range
    assert delete(-1).low_watermark == 3


@check("FindCoordinator")
def _(wire: Wire, version: int, name: str) -> None:
    def find(key_type: int) -> Any:
        values: dict[str, Any] = {"key_type": key_type}
        answer = wire.ask(10, version, values | ({"coordinator_keys": [name]} if version >= 4 else {"key": name}))
        return answer.coordinators[0] if version >= 4 else answer

    assert (find(0).error_code, find(0).port) == (NONE, wire.socket.getpeername()[1])
    if version > 0:
        assert find(1).error_code is ErrorCode.transactional_id_authorization_failed


@check("JoinGroup")
def _(wire: Wire, version: int, name: str) -> None:
    values: dict[str, Any] = {
        "group_id": name,
        "session_timeout": 30_000,
        "rebalance_timeout": 30_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"m"}],
    }
    answer = wire.ask(11, version, values)
    if version >= 4:
        assert answer.error_code is ErrorCode.member_id_required
        answer = wire.ask(11, version, values | {"member_id": answer.member_id})
    assert (answer.error_code, answer.generation_id, answer.protocol_name) == (NONE, 1, "range")
    assert [(one.member_id, one.metadata) for one in answer.members] == [(answer.member_id, b"m")]
    unknown = wire.ask(11, version, values | {"member_id": "nobody"})
    assert unknown.error_code is ErrorCode.unknown_member_id


@check("SyncGroup")
def _(wire: Wire, version: int, name: str) -> None:
    member, generation = join(wire, name)
    values = {"group_id": name, "generation_id": generation, "member_id": member}
    answer = wire.ask(14, version, values)
    if version >= 5:
        assert answer.protocol_name == "range"
    assert (answer.error_code, answer.assignment) == (NONE, b"mine")
    assert wire.ask(14, version, values | {"generation_id": 99}).error_code is ErrorCode.illegal_generation


@check("Heartbeat")
def _(wire: Wire, version: int, name: str) -> None:
    member, generation = join(wire, name)
    values = {"group_id": name, "generation_id": generation, "member_id": member}
    assert wire.ask(12, version, values).error_code is NONE
    assert wire.ask(12, version, values | {"member_id": "nobody"}).error_code is ErrorCode.unknown_member_id


@check("LeaveGroup")
def _(wire: Wire, version: int, name: str) -> None:
    member, _ = join(wire, name)
    values: dict[str, Any] = {"group_id": name}
    values |= {"members": [{"member_id": member}]} if version >= 3 else {"member_id": member}

    def left() -> ErrorCode:
        answer = wire.ask(13, version, values)
        code = answer.members[0].error_code if version >= 3 else answer.error_code
        assert isinstance(code, ErrorCode)
        return code

    assert left() is NONE
    assert left() is ErrorCode.unknown_member_id


@check("OffsetCommit")
def _(wire: Wire, version: int, name: str) -> None:
    create(wire, name)
    member, generation = join(wire, name)

    def commit(**values: Any) -> list[ErrorCode]:
        partitions = [
            {"partition_index": 0, "committed_offset": 5, "committed_metadata": "x"},
            {"partition_index": 9, "committed_offset": 5, "committed_metadata": None},
        ]
        request = {
            "group_id": name,
            "member_id": member,
            "generation_id_or_member_epoch": generation,
            "topics": [{"name": name, "partitions": partitions}],
        }
        ((*found,),) = [one.partitions for one in wire.ask(8, version, request | values).topics]
        return [one.error_code for one in found]

    assert commit() == [NONE, ErrorCode.unknown_topic_or_partition]
    assert commit(generation_id_or_member_epoch=0)[0] is ErrorCode.illegal_generation
    assert commit(member_id="nobody")[0] is ErrorCode.unknown_member_id


@check("OffsetFetch")
def _(wire: Wire, version: int, name: str) -> None:
    create(wire, name)
    member, generation = join(wire, name)
    partitions = [{"partition_index": 1, "committed_offset": 5, "committed_metadata": "x", "committed_leader_epoch": 1}]
    values = {
        "group_id": name,
        "member_id": member,
        "generation_id_or_member_epoch": generation,
        "topics": [{"name": name, "partitions": partitions}],
    }
    wire.ask(8, 9, values)

    def fetch(topics: Any) -> dict[int, tuple[int, str]]:
        asked: dict[str, Any] = {"group_id": name, "topics": topics}
        answer = wire.ask(9, version, {"groups": [asked]} if version >= 8 else asked)
        found = answer.groups[0] if version >= 8 else answer
        return {one.partition_index: (one.committed_offset, one.metadata) for t in found.topics for one in t.partitions}

    assert fetch([{"name": name, "partition_indexes": [0, 1]}]) == {0: (-1, ""), 1: (5, "x")}
    if version >= 2:
        assert fetch(None) == {1: (5, "x")}


@check("DescribeGroups")
def _(wire: Wire, version: int, name: str) -> None:
    member, _ = join(wire, name)
    found, absent = wire.ask(15, version, {"groups": [name, "absent"]}).groups
    assert (found.error_code, found.group_state, found.protocol_data) == (NONE, "Stable", "range")
    assert [(one.member_id, one.client_id, one.member_assignment) for one in found.members] == [
        (member, "wire", b"mine")
    ]
    assert absent.group_state == "Dead"
    assert absent.error_code is (ErrorCode.group_id_not_found if version >= 6 else NONE)


@check("ListGroups")
def _(wire: Wire, version: int, name: str) -> None:
    join(wire, name)
    answer = wire.ask(16, version)
    assert (answer.error_code, name in [group.group_id for group in answer.groups]) == (NONE, True)
    if version >= 4:
        assert name not in [one.group_id for one in wire.ask(16, version, {"states_filter": ["Empty"]}).groups]
    if version >= 5:
        assert wire.ask(16, version, {"types_filter": ["consumer"]}).groups == ()


@check("DeleteGroups")
def _(wire: Wire, version: int, name: str) -> None:
    member, _ = join(wire, name)

    def delete() -> list[ErrorCode]:
        return [one.error_code for one in wire.ask(42, version, {"groups_names": [name, "absent"]}).results]

    assert delete() == [ErrorCode.non_empty_group, ErrorCode.group_id_not_found]
    wire.ask(13, 5, {"group_id": name, "members": [{"member_id": member}]})
    assert delete()[0] is NONE
    assert delete()[0] is ErrorCode.group_id_not_found


@check("CreateTopics")
def _(wire: Wire, version: int, name: str) -> None:
    def new(**values: Any) -> Any:
        topic = {"name": name, "num_partitions": 1, "replication_factor": 1, **values}
        (result,) = wire.ask(19, version, {"topics": [topic], "timeout": 5000}).topics
        return result

    assert new(replication_factor=3).error_code is ErrorCode.invalid_replication_factor
    assert new(num_partitions=0).error_code is ErrorCode.invalid_partitions
    compacted = new(configs=[{"name": "cleanup.policy", "value": "compact"}])
    assert (compacted.error_code, "cleanup.policy" in compacted.error_message) == (ErrorCode.invalid_config, True)
    made = new(configs=[WAL])
    assert made.error_code is NONE
    if version >= 5:
        assert ("headgate.durability", "WAL") in [(one.name, one.value) for one in made.configs]
    assert new().error_code is ErrorCode.topic_already_exists
    assert new(name="not/a/name").error_code is ErrorCode.invalid_topic_exception


@check("DeleteTopics")
def _(wire: Wire, version: int, name: str) -> None:
    create(wire, name)

    def delete() -> ErrorCode:
        values = {"topics": [{"name": name}]} if version >= 6 else {"topic_names": [name]}
        (result,) = wire.ask(20, version, {**values, "timeout": 5000}).responses
        assert isinstance(result.error_code, ErrorCode)
        return result.error_code

    assert delete() is NONE
    assert delete() is ErrorCode.unknown_topic_or_partition


@check("CreatePartitions")
def _(wire: Wire, version: int, name: str) -> None:
    create(wire, name)
    topics = [{"name": name, "count": 9, "assignments": None}]
    (result,) = wire.ask(37, version, {"topics": topics, "timeout": 5000}).results
    assert (result.error_code, "immutable" in result.error_message) == (ErrorCode.invalid_partitions, True)


@check("DescribeConfigs")
def _(wire: Wire, version: int, name: str) -> None:
    create(wire, name)
    resource = {"resource_type": 2, "resource_name": name, "configuration_keys": None}
    (result,) = wire.ask(32, version, {"resources": [resource], "include_synonyms": True}).results
    values = {one.name: one.value for one in result.configs}
    assert (values["cleanup.policy"], values["headgate.durability"]) == ("delete", "WAL")
    (one,) = wire.ask(32, version, {"resources": [resource | {"configuration_keys": ["retention.ms"]}]}).results
    assert [config.name for config in one.configs] == ["retention.ms"]
    (absent,) = wire.ask(32, version, {"resources": [resource | {"resource_name": "absent"}]}).results
    assert absent.error_code is ErrorCode.unknown_topic_or_partition


def configured(wire: Wire, name: str) -> dict[str, str]:
    resource = {"resource_type": 2, "resource_name": name, "configuration_keys": None}
    (result,) = wire.ask(32, 4, {"resources": [resource]}).results
    return {one.name: one.value for one in result.configs}


@check("IncrementalAlterConfigs")
def _(wire: Wire, version: int, name: str) -> None:
    create(wire, name)
    before = configured(wire, name)

    def alter(config: str, operation: int, value: str | None) -> ErrorCode:
        configs = [{"name": config, "config_operation": operation, "value": value}]
        resources = [{"resource_type": 2, "resource_name": name, "configs": configs}]
        (result,) = wire.ask(44, version, {"resources": resources}).responses
        assert isinstance(result.error_code, ErrorCode)
        return result.error_code

    assert alter("retention.ms", 0, "60000") is NONE
    assert configured(wire, name) == before | {"retention.ms": "60000"}
    assert alter("retention.ms", 1, None) is NONE
    assert configured(wire, name) == before
    assert alter("cleanup.policy", 0, "compact") is ErrorCode.invalid_config
    assert alter("headgate.durability", 0, "OBJECT") is ErrorCode.invalid_config
    assert alter("retention.ms", 2, "1") is ErrorCode.invalid_config
    assert alter("no.such", 0, "1") is ErrorCode.invalid_config


@check("AlterConfigs")
def _(wire: Wire, version: int, name: str) -> None:
    create(wire, name)
    before = configured(wire, name)
    for configs in ([("retention.ms", "60000")], [("segment.bytes", "2048")]):
        resource = {
            "resource_type": 2,
            "resource_name": name,
            "configs": [{"name": key, "value": value} for key, value in configs],
        }
        (result,) = wire.ask(33, version, {"resources": [resource]}).responses
        assert result.error_code is NONE
        assert configured(wire, name) == before | dict(configs)


@check("DescribeCluster")
def _(wire: Wire, version: int, name: str) -> None:
    answer = wire.ask(60, version)
    assert (answer.error_code, answer.cluster_id) == (NONE, "headgate")
    assert [broker.broker_id for broker in answer.brokers] == [answer.controller_id]


@check("InitProducerId")
def _(wire: Wire, version: int, name: str) -> None:
    def init(transactional_id: str | None) -> Any:
        return wire.ask(22, version, {"transactional_id": transactional_id, "transaction_timeout": 1000})

    first, second = init(None), init(None)
    assert (first.error_code, first.producer_epoch) == (NONE, 0)
    assert first.producer_id != second.producer_id
    assert init("t").error_code is ErrorCode.transactional_id_authorization_failed


@pytest.mark.parametrize(
    ("api", "version"),
    [(api, version) for api in APIS.values() for version in range(api.first, api.last + 1)],
    ids=lambda one: one.name if isinstance(one, Api) else f"v{one}",
)
@pytest.mark.slow
def test_is_answered(cluster: Cluster, names: Iterator[str], api: Api, version: int) -> None:
    with Wire(cluster.bootstrap) as wire:
        CHECKS[api.name](wire, version, next(names))


def test_a_newer_version_of_api_versions_is_answered_in_version_0(cluster: Cluster) -> None:
    import struct

    with Wire(cluster.bootstrap) as wire:
        body = struct.pack(">hhih", 18, 99, 5, -1) + b"anything"
        wire.socket.sendall(struct.pack(">i", len(body)) + body)
        from tests.unit.kafka.wire import parse

        correlation, answer = parse(18, 0, wire.receive())
        assert (correlation, answer.error_code) == (5, ErrorCode.unsupported_version)
        assert {one.api_key for one in answer.api_keys} == set(APIS)
        assert wire.ask(18, 3).error_code is NONE


def test_versions_that_are_not_announced_get_the_error_and_the_connection_stays(cluster: Cluster) -> None:
    with Wire(cluster.bootstrap) as wire:
        data = [{"topic_id": uuid.UUID(int=5), "partition_data": [{"index": 3, "records": batch(1)}]}]
        answer = wire.ask(0, 13, {"acks": -1, "timeout": 1000, "topic_data": data})
        ((found,),) = [topic.partition_responses for topic in answer.responses]
        assert (found.index, found.error_code) == (3, ErrorCode.unsupported_version)
        assert wire.ask(2, 11, {"replica_id": -1, "topics": []}).topics == ()
        assert wire.ask(1, 18, {"max_wait": 0, "min_bytes": 0}).error_code is ErrorCode.unsupported_version
        assert wire.ask(18, 3).error_code is NONE


def test_requests_that_are_not_supported_get_the_error_and_the_connection_stays(cluster: Cluster) -> None:
    import struct

    with Wire(cluster.bootstrap) as wire:
        answer = wire.ask(29, 3, {"resource_type_filter": 1})
        assert answer.error_code is ErrorCode.unsupported_version
        body = struct.pack(">hhih", 999, 0, 12, -1)
        wire.socket.sendall(struct.pack(">i", len(body)) + body)
        assert wire.receive() == struct.pack(">ih", 12, ErrorCode.unsupported_version)
        assert wire.ask(18, 3).error_code is NONE


@pytest.mark.slow
def test_every_request_that_kio_knows_can_be_refused() -> None:
    from kio.schema.index import api_key_map, schema_name_map

    from headgate_agent.kafka.codec import build, nearest_version, schema
    from headgate_agent.kafka.refusal import refuse

    for key, name in api_key_map.items():
        if nearest_version(key, 0) is None:
            continue
        for version in schema_name_map[name]:
            layout = schema(key, version)
            request = build(layout.request_type, {})
            layout.encode_entity(1, refuse(layout.response_type, request, ErrorCode.unsupported_version, "no"))
            assert parts(layout.response_type) is not None
