"""A request that asks for very much at once is refused, and one that asks for much leaves the others their turn."""

from __future__ import annotations

import asyncio
import struct
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest
from kio.schema.errors import ErrorCode

from headgate.log import v1 as log
from headgate_agent.kafka.codec import read_header
from headgate_agent.kafka.config import KafkaLimits
from headgate_agent.kafka.connection import Client
from headgate_agent.kafka.service import KafkaService
from headgate_agent.kafka.topics import TopicNames, topic_id
from headgate_agent.kafka.turns import is_long
from headgate_agent.log.access import ClusterView
from headgate_agent.work import Inline
from tests.unit.kafka.kit import Cluster, running_cluster
from tests.unit.kafka.test_every_version import create
from tests.unit.kafka.wire import Wire, batch, frame

T = TypeVar("T")
ITEMS, TURN = 200, 20


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    limits = KafkaLimits(drain=0.5, request_items=ITEMS, turn_items=TURN)
    with running_cluster(Path(tmp_path_factory.mktemp("cluster")), limits=limits) as running:
        with Wire(running.bootstrap) as wire:
            create(wire, "there")
        yield running


def fetching(count: int) -> dict[str, Any]:
    partitions = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000} for _ in range(count)]
    topics = [{"topic": "there", "partitions": partitions}]
    return {"replica_id": -1, "max_wait": 0, "min_bytes": 0, "max_bytes": 1000, "topics": topics}


def producing(count: int, records: bytes | None = None) -> dict[str, Any]:
    parts = [{"index": 0, "records": records} for _ in range(count)]
    return {"acks": -1, "timeout": 5000, "topic_data": [{"name": "there", "partition_data": parts}]}


def test_a_request_with_too_many_items_is_refused_where_the_protocol_has_an_error_for_it(wire: Wire) -> None:
    members = [{"member_id": str(number)} for number in range(ITEMS + 1)]
    answer = wire.ask(13, 5, {"group_id": "g", "members": members})
    assert (answer.error_code, answer.members) == (ErrorCode.invalid_request, ())
    answer = wire.ask(1, 11, fetching(ITEMS))
    assert (answer.error_code, answer.responses) == (ErrorCode.invalid_request, ())
    assert wire.ask(1, 11, fetching(ITEMS - 1)).error_code is ErrorCode.none


@pytest.mark.parametrize(
    ("api", "version", "values"),
    [
        (3, 12, {"topics": [{"name": f"t{number}"} for number in range(ITEMS + 1)]}),
        (1, 4, fetching(ITEMS)),
        (0, 9, producing(ITEMS)),
    ],
)
def test_it_closes_its_connection_where_there_is_none(
    cluster: Cluster, api: int, version: int, values: dict[str, Any]
) -> None:
    with Wire(cluster.bootstrap) as wire:
        wire.send(api, version, values)
        assert wire.closed()
    with Wire(cluster.bootstrap) as wire:
        assert wire.ask(18, 3).error_code is ErrorCode.none


def test_a_request_that_is_not_supported_is_told_so_however_many_items_it_has(wire: Wire) -> None:
    topics = [{"topic": f"t{number}", "partitions": [0]} for number in range(ITEMS)]
    assert wire.ask(35, 1, {"topics": topics}).results == ()
    assert wire.ask(18, 3).error_code is ErrorCode.none


def commits(count: int) -> list[dict[str, Any]]:
    return [{"partition_index": number, "committed_offset": 1, "committed_metadata": None} for number in range(count)]


N = ITEMS - 10
LARGE: dict[str, tuple[int, int, dict[str, Any]]] = {
    "produce": (0, 9, producing(N)),
    "fetch": (1, 11, fetching(N)),
    "list offsets": (
        2,
        1,
        {"replica_id": -1, "topics": [{"name": "x", "partitions": [{"partition_index": n} for n in range(N)]}]},
    ),
    "metadata by name": (3, 12, {"topics": [{"name": f"not/{number}"} for number in range(N)]}),
    "metadata by id": (3, 12, {"topics": [{"name": None, "topic_id": uuid.UUID(int=n + 1)} for n in range(N)]}),
    "commit": (8, 8, {"group_id": "g", "topics": [{"name": "there", "partitions": commits(N)}]}),
    "offset fetch": (9, 7, {"group_id": "g", "topics": [{"name": "there", "partition_indexes": list(range(N))}]}),
    "find coordinator": (10, 4, {"coordinator_keys": [f"g{number}" for number in range(N)]}),
    "describe groups": (15, 5, {"groups": [f"g{number}" for number in range(N)]}),
    "delete groups": (42, 2, {"groups_names": [f"g{number}" for number in range(N)]}),
    "create topics": (
        19,
        7,
        {"topics": [{"name": f"not/{number}", "num_partitions": 1} for number in range(N)], "timeout": 1000},
    ),
    "delete topics": (20, 5, {"topic_names": [f"not/{number}" for number in range(N)], "timeout": 1000}),
    "delete records": (
        21,
        2,
        {
            "topics": [{"name": "x", "partitions": [{"partition_index": n, "offset": 0} for n in range(N)]}],
            "timeout": 1000,
        },
    ),
    "create partitions": (
        37,
        3,
        {"topics": [{"name": f"not/{n}", "count": 9, "assignments": None} for n in range(N)], "timeout": 1000},
    ),
    "describe configs": (
        32,
        4,
        {
            "resources": [
                {"resource_type": 2, "resource_name": f"not/{n}", "configuration_keys": None} for n in range(N)
            ]
        },
    ),
    "alter configs": (
        33,
        2,
        {"resources": [{"resource_type": 2, "resource_name": f"not/{n}", "configs": []} for n in range(N)]},
    ),
}


@pytest.mark.parametrize("name", LARGE)
def test_others_have_their_turn_while_a_large_request_is_worked_on(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    # What is written in a thread gives them turns too; here only those count that the request itself gives.
    monkeypatch.setattr(cluster.service, "_writer", Inline())
    assert cluster.run(turns_while(cluster.service, *LARGE[name])) >= N // TURN - 1


async def turns_while(asked: KafkaService, api: int, version: int, values: dict[str, Any]) -> int:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    waiting = asyncio.ensure_future(other())
    raw = memoryview(frame(api, version, values))[4:]
    # Nothing that it waits for counts: what is not there now is not looked up, and nobody is asked.
    assert await asked(raw, read_header(raw), Client("host")) is not None
    waiting.cancel()
    await asyncio.wait((waiting,))
    return turns


class Recorded(Inline):
    def __init__(self) -> None:
        self.jobs = 0

    async def run(self, job: Callable[[], T]) -> T:
        self.jobs += 1
        return job()


def test_a_long_answer_is_written_beside_the_event_loop(
    cluster: Cluster, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = Recorded()
    monkeypatch.setattr(cluster.service, "_writer", writer)
    assert len(wire.ask(3, 12, {"topics": [{"name": f"not/{number}"} for number in range(N)]}).topics) == N
    assert writer.jobs == 1
    monkeypatch.setattr(cluster.service, "_families", {3: broken})
    assert len(wire.ask(3, 12, {"topics": [{"name": f"not/{number}"} for number in range(N)]}).topics) == N
    assert writer.jobs == 2, "a refusal is one too"
    assert len(wire.ask(3, 12, {"topics": [{"name": "there"}]}).topics) == 1
    assert writer.jobs == 2


async def broken(request: Any) -> Any:
    raise ValueError("a defect")


@pytest.mark.parametrize(
    ("values", "items"),
    [
        ({"a": [{"b": 1}] * 3, "c": "text"}, 3),
        ({"a": [{"b": [1, 2]}, {"b": [3]}]}, 5),
        ({}, 0),
        ({"a": b"bytes", "c": None}, 0),
    ],
)
def test_the_items_of_an_answer_are_counted(values: dict[str, Any], items: int) -> None:
    assert not is_long(values, items)
    assert items == 0 or is_long(values, items - 1)


def test_a_topic_that_is_named_often_is_answered_once(wire: Wire) -> None:
    """As Kafka does: the answer is many times as long as the name."""
    named = [{"name": "there"}, {"name": "absent"}] * (ITEMS // 2 - 1)
    assert [topic.name for topic in wire.ask(3, 12, {"topics": named}).topics] == ["there", "absent"]
    resources = [{"resource_type": 2, "resource_name": "there", "configuration_keys": None}] * 50
    assert len(wire.ask(32, 4, {"resources": resources}).results) == 1


def test_produces_that_take_turns_are_stored_in_their_order(wire: Wire) -> None:
    for number in range(10):
        parts = [{"index": 1, "records": batch(1, producer=(99, 0, 5 * number + part))} for part in range(5)]
        data = [{"name": "there", "partition_data": parts}]
        wire.send(0, 9, {"acks": -1, "timeout": 20_000, "topic_data": data})
    from tests.unit.kafka.wire import parse

    answers = [parse(0, 9, wire.receive())[1].responses[0].partition_responses for _ in range(10)]
    assert {one.error_code for answer in answers for one in answer} == {ErrorCode.none}
    assert [one.base_offset for answer in answers for one in answer] == list(range(50))


class Topics:
    """A view whose topics are counted each time they are gone through."""

    def __init__(self) -> None:
        self.revision, self.looks = 1, 0
        self.known = {f"uid-{number}": log.Topic(uid=f"uid-{number}") for number in range(10)}

    def topics(self) -> Iterable[log.Topic]:
        self.looks += 1
        return self.known.values()

    def topic_by_uid(self, uid: str) -> log.Topic | None:
        return self.known.get(uid)


def test_ids_of_topics_are_worked_out_once_for_a_revision() -> None:
    view = Topics()
    names = TopicNames(cast(ClusterView, view))
    for number in range(100):
        assert names.find(uuid.UUID(int=number)) is None
    assert names.find(topic_id("uid-3")) == view.known["uid-3"]
    assert view.looks == 1
    view.known["uid-new"] = log.Topic(uid="uid-new")
    view.revision = 2
    assert names.find(topic_id("uid-new")) is view.known["uid-new"]
    del view.known["uid-3"]
    assert names.find(topic_id("uid-3")) is None
    assert view.looks == 2


def test_a_small_frame_that_claims_to_be_huge_hurts_nobody(cluster: Cluster) -> None:
    """Twenty bytes, and as many as an array can have: kio would ask for 32 GiB, and end the process."""
    for head, body in (
        (struct.pack(">hhih", 3, 9, 1, -1), b"\0\xff\xff\xff\xff\x0f"),
        (struct.pack(">hhih", 3, 1, 1, -1), b"\x7f\xff\xff\xff"),
    ):
        with Wire(cluster.bootstrap) as wire:
            wire.socket.sendall(struct.pack(">i", len(head + body)) + head + body)
            assert wire.closed()
    with Wire(cluster.bootstrap) as wire:
        assert wire.ask(18, 3).error_code is ErrorCode.none
