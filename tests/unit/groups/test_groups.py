"""Groups on a real catalog, with two or three agents: who leads them, and what survives a change of leader."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from headgate.log import v1 as log
from headgate_agent.errors import NOT_LEADER
from headgate_agent.groups.events import (
    GroupRefused,
    GroupState,
    Join,
    Joined,
    Leave,
    Left,
    Refusal,
    Sync,
    Synced,
)
from headgate_agent.groups.groups import Groups
from headgate_common.dispatch import Method
from headgate_common.errors import HeadgateError
from tests.unit.kafka.kit import COORDINATOR, Agent, Cluster, running_cluster
from tests.unit.kafka.test_every_version import create
from tests.unit.kafka.wire import Wire

RANGE = (("range", b"m"),)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with running_cluster(tmp_path, agents=2, session_ttl=3.0) as running:
        with Wire(running.agents["agent-0"].address) as wire:
            create(wire, "t")
        yield running


def offset(value: int, partition: int = 0, topic: str = "t") -> log.GroupOffset:
    return log.GroupOffset(topic=topic, partition=partition, offset=value, leader_epoch=-1)


def leader(cluster: Cluster, group: str) -> Agent:
    owners = {agent.groups.owner(group).name for agent in cluster.agents.values()}  # type: ignore[union-attr]
    (owner,) = owners
    return cluster.agents[owner]


def led_by(cluster: Cluster, name: str) -> str:
    """A group that falls to an agent."""
    return next(group for number in range(1000) if leader(cluster, group := f"group-{number}").name == name)


async def member(groups: Groups, group: str) -> tuple[str, int]:
    """A stable group with one member."""
    led = await groups.led(group)
    first = await led.ask(Join(led.next_request(), "", None, "c", "/h", 30, 30, "consumer", RANGE, "m"), Joined)
    joined = await led.ask(
        Join(led.next_request(), first.member_id, None, "c", "/h", 30, 30, "consumer", RANGE, "x"), Joined
    )
    assert joined.refusal is None
    sync = Sync(led.next_request(), joined.member_id, None, joined.generation, assignments={joined.member_id: b"a"})
    synced = await led.ask(sync, Synced)
    assert (synced.refusal, synced.assignment) == (None, b"a")
    return joined.member_id, joined.generation


async def offsets_of(agent: Agent, group: str) -> dict[int, int]:
    return {one.partition: one.offset for one in await agent.groups.read_offsets(group)}


def test_agents_agree_on_who_leads_and_each_leads_some(cluster: Cluster) -> None:
    assert {leader(cluster, f"g{number}").name for number in range(50)} == {"agent-0", "agent-1"}


def test_only_the_leader_answers(cluster: Cluster) -> None:
    async def scenario() -> None:
        other = cluster.agents["agent-1"]
        with pytest.raises(GroupRefused) as caught:
            await other.groups.led(group)
        assert caught.value.refusal is Refusal.NOT_COORDINATOR

    group = led_by(cluster, "agent-0")
    cluster.run(scenario())


def test_commits_are_in_the_catalog_when_they_are_answered(cluster: Cluster) -> None:
    async def scenario() -> None:
        groups = agent.groups
        who, generation = await member(groups, "g")
        assert await groups.commit("g", who, None, generation, [offset(5), offset(6, 1), offset(7, 9)]) == {("t", 9)}
        stored = await groups.stored_offsets("g")
        assert {one.partition: one.offset for one in stored} == {0: 5, 1: 6}
        assert await offsets_of(agent, "g") == {0: 5, 1: 6}

    agent = leader(cluster, "g")
    cluster.run(scenario())


def test_commits_of_many_members_at_once_keep_their_order(cluster: Cluster) -> None:
    async def scenario() -> None:
        groups = agent.groups
        who, generation = await member(groups, "g")
        await asyncio.gather(*(groups.commit("g", who, None, generation, [offset(n)]) for n in range(100)))
        assert await offsets_of(agent, "g") == {0: 99}
        assert {one.offset for one in await groups.stored_offsets("g")} == {99}

    agent = leader(cluster, "g")
    cluster.run(scenario())


@pytest.mark.slow
def test_a_group_moves_to_an_agent_that_joins_with_its_offsets_and_a_higher_generation(cluster: Cluster) -> None:
    async def scenario() -> None:
        before = {f"g{number}": agent_of(f"g{number}") for number in range(20)}
        generations: dict[str, int] = {}
        for group, agent in before.items():
            who, generations[group] = await member(agent.groups, group)
            await agent.groups.commit(group, who, None, generations[group], [offset(11)])
        added = await cluster.add("agent-2")
        await cluster.until(lambda: len({one.name for one in added.broker.view.peers() if one.present}) == 3)
        moved = [group for group in before if added.groups.owner(group).name == "agent-2"]  # type: ignore[union-attr]
        assert 0 < len(moved) < 20
        for group in moved:
            old = before[group].groups
            async with asyncio.timeout(60):
                while True:
                    try:
                        _, generation = await member(added.groups, group)
                        break
                    except GroupRefused as refused:
                        assert refused.refusal is Refusal.COORDINATOR_NOT_AVAILABLE
                        await asyncio.sleep(0.05)
            assert generation > generations[group]
            assert await offsets_of(added, group) == {0: 11}
            with pytest.raises(GroupRefused):
                await old.led(group)

    def agent_of(group: str) -> Agent:
        return leader(cluster, group)

    cluster.run(scenario(), timeout=60)


@pytest.mark.slow
def test_the_groups_of_a_lost_agent_go_to_another(cluster: Cluster) -> None:
    async def scenario() -> None:
        gone = cluster.agents["agent-0"]
        who, generation = await member(gone.groups, group)
        await gone.groups.commit(group, who, None, generation, [offset(8)])
        await cluster.crash("agent-0")
        heir = cluster.agents["agent-1"]
        async with asyncio.timeout(20):
            while True:
                try:
                    _, later = await member(heir.groups, group)
                    break
                except GroupRefused:
                    await asyncio.sleep(0.1)
        assert later > generation
        assert await offsets_of(heir, group) == {0: 8}

    group = led_by(cluster, "agent-0")
    cluster.run(scenario(), timeout=60)


def test_a_former_leader_cannot_commit(cluster: Cluster) -> None:
    """Its grant has passed on, and it has not noticed yet."""

    async def scenario() -> None:
        agent = cluster.agents["agent-0"]
        who, generation = await member(agent.groups, group)
        led = await agent.groups.led(group)
        await agent.groups._catalog.release(group, led.offsets.grant)
        session = cluster.agents["agent-1"].member.session
        assert session is not None
        await cluster.agents["agent-1"].groups._catalog.acquire(session, group)
        with pytest.raises(GroupRefused) as caught:
            await agent.groups.commit(group, who, None, generation, [offset(5)])
        assert caught.value.refusal is Refusal.NOT_COORDINATOR
        assert list(await agent.groups.stored_offsets(group)) == []

    group = led_by(cluster, "agent-0")
    cluster.run(scenario())


def test_an_agent_that_may_have_lost_its_session_leads_nothing(cluster: Cluster) -> None:
    async def scenario() -> None:
        agent = cluster.agents["agent-0"]
        await member(agent.groups, group)
        agent.member._valid_until = 0.0
        with pytest.raises(GroupRefused) as caught:
            await agent.groups.led(group)
        assert caught.value.refusal is Refusal.COORDINATOR_NOT_AVAILABLE

    group = led_by(cluster, "agent-0")
    cluster.run(scenario())


def test_offsets_of_a_dropped_topic_are_not_taken_for_those_of_its_namesake(cluster: Cluster) -> None:
    async def commit() -> None:
        who, generation = await member(agent.groups, "g")
        await agent.groups.commit("g", who, None, generation, [offset(5, topic="again")])
        assert await offsets_of(agent, "g") == {0: 5}

    async def read() -> dict[int, int]:
        return await offsets_of(agent, "g")

    agent = leader(cluster, "g")
    with Wire(agent.address) as wire:
        create(wire, "again")
        cluster.run(commit())
        wire.ask(20, 6, {"topics": [{"name": "again"}], "timeout": 5000})
        create(wire, "again")
        assert cluster.run(read()) == {}


def test_consumers_without_a_group_commit_through_any_agent(cluster: Cluster) -> None:
    async def scenario() -> None:
        for number, agent in enumerate(cluster.agents.values()):
            await agent.offsets.commit(group, [offset(number)])
            assert [one.offset for one in await agent.offsets.read(group)] == [number]
        assert list(await agent.offsets.read("never heard of")) == []
        with pytest.raises(HeadgateError) as caught:
            await agent.offsets.commit(group, [offset(1, topic="absent")])
        assert caught.value.reason.name == "UNKNOWN_PARTITION"
        await member(cluster.agents["agent-0"].groups, group)
        for agent in cluster.agents.values():
            with pytest.raises(HeadgateError) as caught:
                await agent.offsets.commit(group, [offset(9)])
            assert caught.value.reason.name == "GROUP_IN_USE"

    group = led_by(cluster, "agent-0")
    cluster.run(scenario())


def test_a_commit_is_passed_on_once_though_agents_do_not_agree_on_who_leads(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    call = cluster.transport.call

    async def counted(address: str, method: Method, request: Any, *, timeout: float) -> Any:
        calls.extend([address] * (method.name == "CommitOffsets"))
        return await call(address, method, request, timeout=timeout)

    async def scenario() -> None:
        zero, one = cluster.agents.values()
        peers = {agent.name: zero.broker.view.peer(agent.name) for agent in (zero, one)}
        monkeypatch.setattr(cluster.transport, "call", counted)
        # Each takes the other for the leader.
        monkeypatch.setattr(zero.groups._placing, "owner", lambda group: peers[one.name])
        monkeypatch.setattr(one.groups._placing, "owner", lambda group: peers[zero.name])
        for agent, other in ((zero, one), (one, zero)):
            with pytest.raises(HeadgateError) as caught:
                await agent.offsets.commit("g", [offset(1)])
            assert caught.value.reason is NOT_LEADER, "a client tries again"
            assert caught.value.metadata == {"leader": agent.name, "address": f"{agent.name}:7410"}
            assert calls == [f"{other.name}:7410"]
            calls.clear()
        # They agree again, and the same call is stored.
        monkeypatch.undo()
        await zero.offsets.commit("g", [offset(1)])
        assert await offsets_of(leader(cluster, "g"), "g") == {0: 1}

    cluster.run(scenario())


def test_many_commits_at_once_are_passed_on(cluster: Cluster) -> None:
    async def scenario() -> None:
        other = cluster.agents["agent-1"]
        await asyncio.gather(*(other.offsets.commit(group, [offset(number)]) for number in range(50)))

    group = led_by(cluster, "agent-0")
    cluster.run(scenario())


def test_describing_and_listing_make_no_group(cluster: Cluster) -> None:
    async def scenario() -> None:
        agent = leader(cluster, "g")
        assert await agent.groups.describe("g") is None
        assert await agent.groups.read_offsets("g") == ()
        assert [one.name for one in await agent.groups.list()] == []
        await member(agent.groups, "g")
        view = await agent.groups.describe("g")
        assert view is not None
        assert view.state is GroupState.STABLE

    cluster.run(scenario())


def test_members_of_a_group_that_is_not_led_yet_are_unknown_and_make_no_group(cluster: Cluster) -> None:
    async def scenario() -> None:
        agent = leader(cluster, "g")
        with pytest.raises(GroupRefused) as caught:
            await agent.groups.known("g")
        assert caught.value.refusal is Refusal.UNKNOWN_MEMBER_ID
        with pytest.raises(GroupRefused) as caught:
            await agent.groups.commit("g", "somebody", None, 3, [offset(1)])
        assert caught.value.refusal is Refusal.UNKNOWN_MEMBER_ID
        assert await agent.groups.describe("g") is None

    cluster.run(scenario())


def test_an_agent_that_leaves_gives_its_groups_back_and_takes_none(cluster: Cluster) -> None:
    async def scenario() -> None:
        agent, other = cluster.agents["agent-0"], cluster.agents["agent-1"]
        await member(agent.groups, group)
        led = await agent.groups.led(group)
        first = Join(led.next_request(), "", "static", "c", "/h", 30, 30, "consumer", RANGE, "m2")
        waiting = asyncio.ensure_future(led.ask(first, Joined))
        await asyncio.sleep(0)
        await agent.groups.leave()
        assert (await waiting).refusal is Refusal.NOT_COORDINATOR
        with pytest.raises(GroupRefused) as caught:
            await agent.groups.led(group)
        assert caught.value.refusal is Refusal.COORDINATOR_NOT_AVAILABLE
        stored = await other.groups._catalog.get(group)
        assert stored is not None and stored.leader == "", "nobody need wait for the end of the session"

    group = led_by(cluster, "agent-0")
    cluster.run(scenario())


def test_closing_leaves_no_task_behind_though_the_coordinator_does_not_answer(cluster: Cluster) -> None:
    async def scenario() -> None:
        agent = cluster.agents["agent-0"]
        await member(agent.groups, group)
        before = asyncio.all_tasks()
        cluster.transport.cut.add(COORDINATOR)
        led = await agent.groups.led(group)
        await led.ask(Leave(led.next_request(), [("m", None)]), Left)
        assert led.stores, "the empty generation is on its way"
        agent.groups._give_up(led)
        loading = asyncio.ensure_future(agent.groups.led(another))
        await asyncio.sleep(0.01)
        await agent.groups.close()
        with pytest.raises(asyncio.CancelledError):
            await loading
        assert not {task for task in asyncio.all_tasks() - before if not task.done()}
        cluster.transport.cut.discard(COORDINATOR)

    group = led_by(cluster, "agent-0")
    another = next(name for number in range(1000) if leader(cluster, name := f"other-{number}").name == "agent-0")
    cluster.run(scenario())


def test_a_group_too_many_is_refused_by_the_protocols_own_error(tmp_path: Path) -> None:
    async def scenario() -> None:
        groups = cluster.agents["agent-0"].groups
        for group in ("a", "b"):
            await member(groups, group)
        with pytest.raises(GroupRefused) as caught:
            await groups.led("c")
        assert caught.value.refusal is Refusal.POLICY_VIOLATION
        assert "2 are allowed" in caught.value.message

    with running_cluster(tmp_path, most_groups=2) as cluster:
        cluster.run(scenario())
        values = {
            "group_id": "c",
            "session_timeout": 30_000,
            "rebalance_timeout": 30_000,
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b"m"}],
        }
        with Wire(cluster.agents["agent-0"].address) as wire:
            assert wire.ask(11, 9, values).error_code is ErrorCode.policy_violation
