"""Log agents as processes: stopped, killed, paused, started again; what was acknowledged is there."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from headgate.log import v1 as api
from headgate_common.errors import HeadgateError
from tests.e2e.log.kit import Log, call, log_of, until
from tests.servers.tcp_proxy import TcpProxy

pytestmark = pytest.mark.slow
PARTITIONS = 4
FAST = ("--set", "timings.session_ttl=3s")


def test_a_killed_agent_loses_no_acknowledged_record_of_an_object_topic(tmp_path: Path) -> None:
    with log_of(tmp_path, "a", "b", options=FAST) as log:
        log.create("orders", PARTITIONS)
        agents = log.cluster.agents
        written: dict[int, list[bytes]] = {index: [] for index in range(PARTITIONS)}
        for index, values in written.items():
            values.append(b"before-%d" % index)
            log.produce("orders", index, values[0])
        assert set(log.leaders("orders").values()) == {"a", "b"}
        agents["a"].kill()
        for index, values in written.items():
            values.append(b"after-%d" % index)
            log.produce("orders", index, values[1])
        for index, values in written.items():
            assert log.values("orders", index, agents["b"]) == values


def test_a_wal_partition_waits_for_its_agent_and_goes_on_from_its_disk(tmp_path: Path) -> None:
    with log_of(tmp_path, "a", "b", options=FAST) as log:
        log.create("orders", PARTITIONS, wal=True)
        agents = log.cluster.agents
        for index in range(PARTITIONS):
            log.produce("orders", index, b"before")
        mine = [index for index, leader in log.leaders("orders").items() if leader == "a"]
        assert mine
        agents["a"].kill()
        until(lambda: all(log.partitions("orders")[index].waiting for index in mine), "a's partitions to wait")
        assert all("volume" in log.partitions("orders")[index].waiting for index in mine)
        agents["a"].start()
        for index in mine:
            assert log.produce("orders", index, b"after") == 1
            assert log.values("orders", index, agents["b"]) == [b"before", b"after"]


def test_polls_that_are_missed_move_no_partition_while_the_session_lives(tmp_path: Path) -> None:
    """The coordinator does not reach an agent, which reaches the coordinator: it renews, and leads on."""
    proxy = TcpProxy()
    try:
        with log_of(tmp_path, "a", options=FAST) as log:
            agent = log.cluster.add_agent("b", "--advertise", proxy.address)
            proxy.target = agent.address
            until(lambda: log.cluster.is_active("b") and log.cluster.agent("b").present, "b to be polled")
            log.create("orders", PARTITIONS)
            for index in range(PARTITIONS):
                log.produce("orders", index, b"before")
            before = [(one.leader, one.epoch) for one in log.partitions("orders")]
            (mine, *_) = [index for index, (leader, _) in enumerate(before) if leader == "b"]
            proxy.cut()
            until(lambda: not log.cluster.is_active("b"), "polls of b to be missed")
            time.sleep(4.5)
            assert log.cluster.agent("b").present, "longer than a session lives without a renewal"
            log.produce("orders", mine, b"meanwhile", through=agent)
            proxy.heal()
            until(lambda: log.cluster.is_active("b"), "b to be polled again")
            assert [(one.leader, one.epoch) for one in log.partitions("orders")] == before
    finally:
        proxy.close()


def test_a_stopped_agent_hands_over_and_producers_notice_no_gap(tmp_path: Path) -> None:
    with log_of(tmp_path, "a", "b") as log:
        log.create("orders", PARTITIONS, wal=True)
        agents = log.cluster.agents
        for index in range(PARTITIONS):
            log.produce("orders", index, b"before")
        stopped = agents["a"]
        stopped.signal(signal.SIGTERM)
        # Through the other agent, while the first one hands over.
        for index in range(PARTITIONS):
            assert log.produce("orders", index, b"during", through=agents["b"]) == 1
        stopped.wait_for_death()
        assert set(log.leaders("orders").values()) == {"b"}
        for index in range(PARTITIONS):
            assert log.values("orders", index, agents["b"]) == [b"before", b"during"]


_LEADING = (api.PARTITION_EVENT_LED, api.PARTITION_EVENT_LEFT, api.PARTITION_EVENT_WAITING)


def story(log: Log, topic: str) -> dict[int, list[api.PartitionStoryEntry]]:
    """What happened to who leads each partition, oldest first."""
    answer = call(log.cluster.coordinator.address, api.GetPartitionStoryRequest(topic=topic))
    assert not answer.next_page_token
    found: dict[int, list[api.PartitionStoryEntry]] = {}
    for entry in answer.entries:
        if entry.event in _LEADING:
            found.setdefault(entry.partition, []).append(entry)
    return found


def leaders_without_a_gap(entries: Sequence[api.PartitionStoryEntry]) -> list[str]:
    """Who led a partition, one after the other; each must have begun in the very change in which the one before ended,
    under the next epoch."""
    first, *others = entries
    assert first.event == api.PARTITION_EVENT_LED, entries
    leaders, epoch = [first.agent], first.epoch
    for left, led in zip(others[::2], others[1::2], strict=True):
        assert (left.event, left.agent, left.epoch) == (api.PARTITION_EVENT_LEFT, leaders[-1], epoch), entries
        assert (led.event, led.epoch) == (api.PARTITION_EVENT_LED, epoch + 1), entries
        assert (led.revision, led.time) == (left.revision, left.time), f"nobody led it in between: {entries}"
        leaders.append(led.agent)
        epoch = led.epoch
    return leaders


@pytest.mark.parametrize("wal", [False, True], ids=["OBJECT", "WAL"])
def test_hand_overs_of_an_agent_that_stops_and_of_one_that_joins_leave_no_moment_without_a_leader(
    tmp_path: Path, wal: bool
) -> None:
    with log_of(tmp_path, "a", "b") as log:
        log.create("orders", PARTITIONS, wal=wal)
        before = log.leaders("orders")
        assert set(before.values()) == {"a", "b"}
        moves = [index for index, leader in before.items() if leader == "a"]
        for index in range(PARTITIONS):
            log.produce("orders", index, b"before")
        agent = log.cluster.agents["a"]
        agent.signal(signal.SIGTERM)
        agent.wait_for_death()
        assert set(log.leaders("orders").values()) == {"b"}
        agent.start()
        until(lambda: log.leaders("orders") == before, "the agent to have its partitions again", 30)
        for index, entries in story(log, "orders").items():
            assert leaders_without_a_gap(entries) == (["a", "b", "a"] if index in moves else ["b"])


@pytest.mark.parametrize("wal", [False, True], ids=["OBJECT", "WAL"])
def test_a_leader_that_was_paused_for_too_long_neither_acknowledges_nor_publishes(tmp_path: Path, wal: bool) -> None:
    with log_of(tmp_path, "a", "b", options=FAST) as log:
        log.create("orders", 1, wal=wal)
        agents = log.cluster.agents
        log.produce("orders", 0, b"before")
        leader = agents[log.leaders("orders")[0]]
        other = agents["b" if leader is agents["a"] else "a"]
        epoch = log.epoch("orders", 0)
        leader.signal(signal.SIGSTOP)
        # These reach the paused process, which finds them when it wakes up: too late.
        for through in (leader, other):
            with pytest.raises(HeadgateError, match="DEADLINE_EXCEEDED"):
                log.produce("orders", 0, b"too late", through=through, timeout=1.0)
        if wal:
            until(lambda: bool(log.partitions("orders")[0].waiting), "the partition to wait")
        else:
            until(lambda: log.leaders("orders")[0] == other.name, "the other agent to lead")
            assert log.produce("orders", 0, b"after", through=other) == 1
        leader.signal(signal.SIGCONT)
        # Whatever it answers from here on is under a new epoch, or is refused.
        log.produce("orders", 0, b"last")
        assert log.epoch("orders", 0) > epoch
        expected = [b"before", b"last"] if wal else [b"before", b"after", b"last"]
        assert log.values("orders", 0, other) == expected


def test_a_coordinator_restart_within_the_sessions_time_refuses_no_produce(tmp_path: Path) -> None:
    with log_of(tmp_path, "a", options=("--set", "timings.session_ttl=60s")) as log:
        log.create("orders", 1, wal=True)
        log.create("objects", 1)
        agent = log.cluster.agents["a"]
        log.produce("orders", 0, b"before", through=agent)
        epoch = log.epoch("orders", 0)
        log.cluster.coordinator.kill()
        assert log.produce("orders", 0, b"without", through=agent) == 1
        assert log.values("orders", 0, agent) == [b"before", b"without"]
        log.cluster.coordinator.start()
        assert log.produce("orders", 0, b"after", through=agent) == 2
        assert log.produce("objects", 0, b"after", through=agent) == 0
        assert log.epoch("orders", 0) == epoch


@pytest.mark.parametrize("wal", [True, False], ids=["WAL", "OBJECT"])
def test_an_agent_cut_off_for_longer_comes_back_by_itself_with_nothing_lost(tmp_path: Path, wal: bool) -> None:
    with log_of(tmp_path, "a", options=FAST) as log:
        log.create("orders", 1, wal=wal)
        agent = log.cluster.agents["a"]
        acknowledged = {log.produce("orders", 0, b"before", through=agent): b"before"}
        log.cluster.coordinator.kill()
        deadline = time.monotonic() + 20
        while True:
            value = b"maybe %d" % len(acknowledged)
            try:
                acknowledged[log.produce("orders", 0, value, through=agent)] = value
            except HeadgateError as error:
                assert error.reason.name in ("NOT_LEADER", "LEASE_CONFLICT", "RECORDS_UNCERTAIN", "DEADLINE_EXCEEDED")
                break
            assert time.monotonic() < deadline, "it goes on acknowledging without a session"
        log.cluster.coordinator.start()
        acknowledged[log.produce("orders", 0, b"after")] = b"after"
        found = log.values("orders", 0, agent)
        assert {offset: found[offset] for offset in acknowledged} == acknowledged
        assert found[-1] == b"after"
