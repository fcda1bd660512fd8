"""`headgate topics` and `headgate groups` against a real coordinator."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.cluster import v1 as cluster
from headgate.log import v1 as log
from tests.e2e.api.kit import Client, Server, running_coordinator
from tests.e2e.cli.command import Headgate

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_coordinator(tmp_path_factory.mktemp("topics")) as server:
        yield server


@pytest.fixture
def headgate(coordinator: Server) -> Headgate:
    return Headgate(coordinator.address)


@pytest.fixture
def client(coordinator: Server) -> Iterator[Client]:
    made = Client(coordinator.address)
    yield made
    made.close()


def test_a_topic_is_created_listed_described_and_deleted(headgate: Headgate) -> None:
    arguments = ("create", "Orders.v1", "-p", "3", "--set", "durability=wal", "--set", "retention.ms=60000")
    assert "would be created" in headgate.ok("topics", *arguments, "--dry-run")
    assert headgate.json("topics", "list") == []
    assert "topic Orders.v1: created" in headgate.ok("topics", *arguments)
    assert headgate("topics", *arguments).returncode == 1
    assert headgate("topics", *arguments, "--if-not-exists").returncode == 0
    (listed,) = headgate.json("topics", "list", "--prefix", "Orders")
    assert (listed["partitions"], listed["settings"]["retention"]) == (3, "60s")
    assert headgate.json("topics", "list", "--prefix", "orders") == []
    told = headgate.ok("topics", "describe", "Orders.v1")
    assert "WAL" in told
    assert told.count("no agent has taken the lead yet") == 3
    assert len(headgate.json("topics", "describe", "Orders.v1")["partitions"]) == 3
    assert "Orders.v1" in headgate.ok("get", "topics")
    assert len(headgate.json("get", "partitions", "-l", "topic=Orders.v1")) == 3
    alter = ("topics", "alter", "Orders.v1", "--set", "retention=2h", "--reset", "linger")
    assert "would be altered" in headgate.ok(*alter, "--dry-run")
    assert "topic Orders.v1: altered" in headgate.ok(*alter)
    assert headgate.json("topics", "describe", "Orders.v1")["topic"]["settings"]["retention"] == "7200s"
    refused = headgate("topics", "alter", "Orders.v1", "--set", "durability=OBJECT")
    assert refused.returncode == 1 and "INVALID_CONFIG" in refused.stderr
    assert headgate("topics", "alter", "Orders.v1").returncode == 2
    assert "topic Orders.v1: deleted" in headgate.ok("topics", "delete", "Orders.v1")
    assert headgate("topics", "delete", "Orders.v1").returncode == 1
    assert headgate("topics", "delete", "Orders.v1", "--if-exists").returncode == 0


def test_a_bad_setting_is_wrong_usage_and_a_bad_name_is_refused(headgate: Headgate) -> None:
    for setting in ("colour=red", "retention", "retention=soon", "segment-bytes=1.5MB", "durability=disk"):
        assert headgate("topics", "create", "t", "--set", setting).returncode == 2, setting
    assert headgate("topics", "create", "t", "--partitions", "0").returncode == 2, "none is not a number of them"
    done = headgate("topics", "create", "two words")
    assert done.returncode == 1
    assert "INVALID_NAME" in done.stderr


def test_lost_partitions_are_recovered_only_by_who_accepts_the_loss(headgate: Headgate, client: Client) -> None:
    headgate.ok("topics", "create", "lost", "--set", "durability=WAL")
    (topic,) = client(log.ListTopicsRequest(name_prefix="lost")).topics
    me = cluster.RegisterAgentRequest(
        name="gone", address="127.0.0.1:17999", incarnation="i", protocol_version=1, volume_id="disk-7"
    )
    session = client(me).session_id
    ref = log.PartitionRef(topic_uid=topic.uid)
    got = client(log.AcquirePartitionsRequest(session_id=session, partitions=[ref])).partitions[0]
    led = log.LeaderRef(partition=ref, epoch=got.epoch)
    client(log.ReserveOffsetsRequest(session_id=session, reservations=[{"leader": led, "until_offset": 500}]))
    client(cluster.LeaveClusterRequest(name="gone", incarnation="i"))
    refused = headgate("topics", "recover", "lost")
    assert refused.returncode == 1
    assert "LOSS_NOT_ACCEPTED" in refused.stderr
    assert "disk-7" in headgate.ok("topics", "describe", "lost")
    (partition,) = headgate.json("topics", "recover", "lost", "--accept-loss")
    assert partition["offsets"]["holes"][0]["to_offset"] == "500"
    assert "0-499" in headgate.ok("topics", "describe", "lost")
    story = headgate.json("topics", "describe", "lost")["story"]
    assert [entry["event"].removeprefix("PARTITION_EVENT_") for entry in story] == [
        "LED",
        "LEFT",
        "WAITING",
        "HOLE",
        "WAITING",
    ]
    told = headgate.ok("topics", "describe", "lost", "--events", "2", "--partition", "0")
    assert "0 to 500: leader lost with its disk" in told and "LEFT" not in told
    assert "no partition of topic lost waits" in headgate("topics", "recover", "lost", "--accept-loss").stderr


def test_a_group_is_listed_and_described_with_its_lag(headgate: Headgate, client: Client) -> None:
    headgate.ok("topics", "create", "read")
    (topic,) = client(log.ListTopicsRequest(name_prefix="read")).topics
    me = cluster.RegisterAgentRequest(name="leads", address="127.0.0.1:17998", incarnation="j", protocol_version=1)
    session = client(me).session_id
    ref = log.PartitionRef(topic_uid=topic.uid)
    led = log.LeaderRef(partition=ref, epoch=1)
    client(log.AcquirePartitionsRequest(session_id=session, partitions=[ref]))
    segment = log.Segment(uid="lag-1", key="k", next_offset=10, bytes=5, epoch=1)
    client(log.CommitSegmentsRequest(session_id=session, commits=[{"leader": led, "segment": segment}]))
    epoch = client(log.AcquireGroupRequest(session_id=session, group="billing")).epoch
    offset = log.GroupOffset(topic="read", offset=4)
    client(log.CommitGroupOffsetsRequest(session_id=session, group="billing", epoch=epoch, offsets=[offset]))
    assert "billing" in headgate.ok("groups", "list")
    (found,) = headgate.json("groups", "describe", "billing")["offsets"]
    assert (found["offset"], found["end"], found["lag"]) == ("4", "10", "6")
    assert "LAG" in headgate.ok("groups", "describe", "billing")
    assert headgate("groups", "describe", "none").returncode == 1


def test_an_export_makes_the_same_topics_again(headgate: Headgate, tmp_path: Path) -> None:
    headgate.ok("topics", "create", "Kept.1", "-p", "2", "--set", "linger=5ms", "--set", "retention-bytes=1GiB")
    before = headgate.json("topics", "list", "--prefix", "Kept")[0]
    for form in ("sql", "json"):
        file = tmp_path / f"all.{form}"
        headgate.ok("export", "--no-agents", "--format", form, "--to", str(file))
        for name in [each["name"] for each in headgate.json("topics", "list")]:
            headgate.ok("topics", "delete", name)
        headgate.ok("apply", str(file))
        after = headgate.json("topics", "list", "--prefix", "Kept")[0]
        assert after["uid"] != before["uid"]
        same = ("name", "partitions", "settings", "group")
        assert {key: after[key] for key in same} == {key: before[key] for key in same}
