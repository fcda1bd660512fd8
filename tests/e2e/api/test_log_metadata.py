"""The log's metadata over a real socket, by a client that knows nothing but the server's reflection."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.api.kit import Server, running_coordinator
from tests.servers.grpcurl import Grpcurl

pytestmark = pytest.mark.slow

LOG = "headgate.log.v1"


@pytest.fixture(params=["sqlite", "postgres"])
def coordinator(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else ""
    with running_coordinator(tmp_path, url) as server:
        yield server


class Caller:
    def __init__(self, grpcurl: Grpcurl, server: Server) -> None:
        self._grpcurl = grpcurl
        self._server = server

    def __call__(self, method: str, **request: object) -> Any:
        done = self._grpcurl.call(self._server.address, method, request)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def refused(self, method: str, **request: object) -> str:
        """What grpcurl prints of the error."""
        done = self._grpcurl.call(self._server.address, method, request)
        assert done.returncode != 0, done.stdout
        return done.stderr

    def joined(self, name: str, port: int) -> str:
        answer = self(
            "headgate.cluster.v1.MembershipService/RegisterAgent",
            name=name,
            address=f"127.0.0.1:{port}",
            incarnation=f"process-{name}",
            protocol_version=1,
            volume_id=f"volume-{name}",
            kafka_address=f"127.0.0.1:{port + 1}",
        )
        assert answer["agent"]["present"]
        session: str = answer["session_id"]
        return session


def test_a_partition_is_led_written_read_and_handed_over(coordinator: Server, grpcurl: Grpcurl) -> None:
    call = Caller(grpcurl, coordinator)
    a, b = call.joined("a", 17410), call.joined("b", 17420)
    settings = {"durability": "DURABILITY_WAL", "retention": "86400s"}
    topic = call(f"{LOG}.TopicService/CreateTopic", name="Orders", partitions=2, settings=settings)["topic"]
    ref = {"topic_uid": topic["uid"], "index": 1}
    metadata = f"{LOG}.LogMetadataService"
    (got,) = call(f"{metadata}/AcquirePartitions", session_id=a, partitions=[ref])["partitions"]
    assert (got["epoch"], got["state"]["leader"]) == ("1", "a")
    (other,) = call(f"{metadata}/AcquirePartitions", session_id=b, partitions=[ref])["partitions"]
    assert other["refusal"] == "GRANT_CONFLICT"
    led = {"partition": ref, "epoch": 1}
    call(f"{metadata}/ReserveOffsets", session_id=a, reservations=[{"leader": led, "until_offset": 1000}])
    segment = {"uid": "s1", "key": "objects/s1", "base_offset": 0, "next_offset": 7, "bytes": 70, "epoch": 1}
    commit = [{"leader": led, "segment": segment}]
    for _ in range(2):
        call(f"{metadata}/CommitSegments", session_id=a, commits=commit)
    stale = call.refused(
        f"{metadata}/CommitSegments",
        session_id=b,
        commits=[{"leader": led, "segment": segment | {"uid": "s2", "base_offset": 7, "next_offset": 9}}],
    )
    assert "STALE_EPOCH" in stale
    (found,) = call(f"{metadata}/ListSegments", partition=ref, from_offset=3)["segments"]
    assert found["uid"] == "s1"
    (offered,) = call(f"{metadata}/StartTransfers", session_id=a, offers=[{"leader": led, "to_agent": "b"}])[
        "transfers"
    ]
    call(f"{metadata}/AnswerTransfers", session_id=b, accepted=[offered["uid"]])
    (done,) = call(f"{metadata}/CompleteTransfers", session_id=a, completed=[offered["uid"]])["transfers"]
    assert done["state"] == "TRANSFER_STATE_COMPLETED"
    listed = call(f"{LOG}.TopicService/ListPartitions", topic="Orders")["partitions"]
    assert [(each.get("leader", ""), each.get("epoch", "0")) for each in listed] == [("", "0"), ("b", "2")]
    (transfer,) = call(f"{LOG}.TopicService/ListTransfers", topic="Orders", agent="B")["transfers"]
    assert transfer["uid"] == offered["uid"]
    first = int(call(f"{metadata}/CreateProducerId", count=10)["producer_id"])
    assert int(call(f"{metadata}/CreateProducerId")["producer_id"]) == first + 10
    group = call(f"{metadata}/AcquireGroup", session_id=b, group="g")
    call(
        f"{metadata}/CommitGroupOffsets",
        session_id=b,
        group="g",
        epoch=group["epoch"],
        offsets=[{"topic": "Orders", "partition": 1, "offset": 5}],
    )
    assert call(f"{LOG}.GroupService/GetGroup", name="g")["group"]["offsets"][0]["offset"] == "5"
    call(f"{LOG}.TopicService/DropTopic", name="Orders")
    gone = call.refused(f"{LOG}.TopicService/GetTopic", name="Orders")
    assert "TOPIC_NOT_FOUND" in gone


def test_errors_of_the_log_are_readable(coordinator: Server, grpcurl: Grpcurl) -> None:
    call = Caller(grpcurl, coordinator)
    assert "INVALID_NAME" in call.refused(f"{LOG}.TopicService/CreateTopic", name="two words")
    bad = call.refused(f"{LOG}.TopicService/CreateTopic", name="t", settings={"segment_bytes": "1"})
    assert "INVALID_CONFIG" in bad
    assert "segment_bytes is from 1 KiB to 1 GiB" in bad
    call(f"{LOG}.TopicService/CreateTopic", name="t")
    statement = "CREATE LOGICAL SOURCE s (x INT32); CREATE PHYSICAL SOURCE p FOR s TYPE TOPIC SET('t' AS SOURCE.TOPIC)"
    call("headgate.catalog.v1.StatementService/ExecuteStatement", statement=statement)
    used = call.refused(f"{LOG}.TopicService/DropTopic", name="t")
    assert "TOPIC_IN_USE" in used
    assert "1 physical source: p (TOPIC)" in used
    assert "SESSION_EXPIRED" in call.refused(
        f"{LOG}.LogMetadataService/AcquirePartitions", session_id="forged", partitions=[{"topic_uid": "x"}]
    )
