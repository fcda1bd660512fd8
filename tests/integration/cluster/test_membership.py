"""Polling: who answers, who does not, and who answers in another's place."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import insert, select

from headgate.catalog import v1 as catalog
from headgate.cluster import v1 as cluster_pb
from headgate_agent.fragments.journal import MemoryJournal
from headgate_agent.fragments.service import FragmentService
from headgate_common.dispatch import Call, Dispatcher
from headgate_coordinator.catalog.schema import agents, fenced_incarnations
from headgate_coordinator.cluster.membership import Polled
from headgate_coordinator.config import Limits, Timings
from tests.integration.cluster.kit import FAST, Cluster, cluster


async def state_of(c: Cluster, name: str, state: str) -> bool:
    return await c.agent_state(name) == state


async def active(c: Cluster, *names: str) -> None:
    for name in names:
        await c.until(lambda name=name: state_of(c, name, "ACTIVE"), f"{name} to be ACTIVE")


async def test_an_agent_is_unreachable_until_its_first_answer() -> None:
    async with cluster() as c:
        await c.add_agent("a")
        c.wires.cut.add("a:1")
        await c.lead()
        await asyncio.sleep(0.3)
        assert await c.agent_state("a") == "UNREACHABLE"
        c.wires.cut.clear()
        await active(c, "a")
        row = await c.store.read(lambda tx: tx.connection.execute(select(agents)).one())
        assert c.agents["a"].registry is not None and row.incarnation == c.agents["a"].registry.incarnation


@pytest.mark.parametrize("how", ["cut", "mute"])
async def test_a_miss_makes_it_unreachable_and_the_first_answer_brings_it_back(how: str) -> None:
    async with cluster() as c:
        await c.add_agent("a")
        await c.lead()
        await active(c, "a")
        getattr(c.wires, how).add("a:1")
        await c.until(lambda: state_of(c, "a", "UNREACHABLE"))
        getattr(c.wires, how).clear()
        await active(c, "a")


async def test_an_answer_that_comes_too_late_is_dropped() -> None:
    async with cluster(poll_timeout_min=0.05, poll_constant=0.05, poll_multiplier=1.0, probe_interval=0.2) as c:
        await c.add_agent("a")
        await c.lead()
        await active(c, "a")
        service = c.wires.servers["a:1"]
        answered = asyncio.Event()

        class Late:
            descriptor = FragmentService.descriptor

            def __getattr__(self, name: str) -> Any:
                async def late(request: Any, call: Call) -> Any:
                    try:
                        await asyncio.sleep(0.3)
                    finally:
                        answered.set()
                    return await service.unary(f"/headgate.cluster.v1.FragmentService/{name}", request, call)

                return late

        late = Late()
        c.wires.servers["a:1"] = Dispatcher([late])
        await c.until(lambda: state_of(c, "a", "UNREACHABLE"))
        await answered.wait()
        await asyncio.sleep(0.5)
        assert await c.agent_state("a") == "UNREACHABLE"


async def test_idle_polls_write_nothing_and_what_agents_report_is_kept_in_memory() -> None:
    async with cluster() as c:
        agent = await c.add_agent("a")
        assert agent.registry is not None
        c.wires.servers["a:1"] = Dispatcher(
            [FragmentService(agent.registry, "a", lambda: catalog.AgentResources(cpu=0.5, memory_bytes=7, backlog=3))]
        )
        await c.lead()
        await active(c, "a")
        await asyncio.sleep(0.3)
        revision, writes = c.store.changes.position, c.store.stats.writes
        assert c.control is not None
        polls = c.control.membership.stats.polls
        await c.until(lambda: c.control and c.control.membership.stats.polls >= polls + 5)
        renewals = 20
        assert c.store.changes.position == revision
        assert c.store.stats.writes <= writes + renewals, "only the leader's renewals are written"
        uid = await c.store.read(lambda tx: tx.connection.execute(select(agents.c.uid)).scalar_one())
        resources = c.control.membership.resources_of(uid)
        assert resources is not None and (resources.cpu, resources.memory_bytes, resources.backlog) == (0.5, 7, 3)


async def test_the_time_limit_follows_the_last_round_trip_within_bounds() -> None:
    timings = Timings(poll_multiplier=4.0, poll_constant=0.5, poll_timeout_min=0.5, poll_timeout_max=10.0)
    async with cluster() as c:
        await c.lead()
        assert c.control is not None
        membership = c.control.membership
        membership._timings = timings
        agent = Polled("u", "a", "a:1", True, "p", 0.0)
        limits = []
        for round_trip in (0.0, 0.1, 1.0, 60.0):
            agent.round_trip = round_trip
            limits.append(membership.time_limit(agent))
        assert limits == pytest.approx([0.5, 0.9, 4.5, 10.0])


async def test_another_agent_at_the_address_is_not_taken_for_it() -> None:
    async with cluster() as c:
        await c.add_agent("a")
        await c.lead()
        await active(c, "a")
        other = await c.add_agent("b")
        assert other.registry is not None
        c.wires.servers["a:1"] = Dispatcher([FragmentService(other.registry, "b", catalog.AgentResources)])
        await c.until(lambda: state_of(c, "a", "UNREACHABLE"))
        reason = await c.store.read(
            lambda tx: tx.connection.execute(select(agents.c.state_reason).where(agents.c.name == "a")).scalar_one()
        )
        assert "agent b answers at its address" in reason


async def test_a_process_in_anothers_place_is_noticed_though_it_answers_in_time() -> None:
    async with cluster(lost_after=60) as c:
        for name in ("a", "b"):
            await c.add_agent(name)
        await c.lead()
        await active(c, "a", "b")
        await c.create("q", "a", "b", "a")
        await c.until_state("q", "RUNNING")
        with c.store.changes.subscribe() as changes:
            # The new process stands where the old one stood before a question can fall between them.
            old = c.agents["b"].registry
            await c.agents["b"].start(MemoryJournal())
            assert old is not None
            await old.close()
            await c.until_state("q", "RUNNING")
            await c.until(lambda: _epoch_is(c, "q", 2, 2))
            seen = []
            while (revision := changes.get_nowait()) is not None:
                seen += [one for one in revision.changes if one.kind == "AGENT" and one.name == "b"]
        assert all(getattr(one.after, "state", 0) == catalog.AGENT_STATE_ACTIVE for one in seen)


async def _epoch_is(c: Cluster, name: str, ordinal: int, epoch: int) -> bool:
    return (await c.fragments(name))[ordinal - 1].epoch == epoch


async def test_runs_that_the_catalog_does_not_know_are_stopped_by_their_process_and_epoch() -> None:
    async with cluster() as c:
        agent = await c.add_agent("a")
        assert agent.registry is not None
        ref = cluster_pb.FragmentRef(uid="fragment-zombie", epoch=7)
        await agent.registry.register(
            cluster_pb.RegisterFragmentRequest(command=cluster_pb.Command(), fragment=ref, query_uid="query-gone")
        )
        await agent.registry.start(cluster_pb.StartFragmentRequest(command=cluster_pb.Command(), fragment=ref))
        asked: list[cluster_pb.UnregisterFragmentRequest] = []
        unregister = agent.registry.unregister

        async def note(request: cluster_pb.UnregisterFragmentRequest) -> None:
            asked.append(request)
            await unregister(request)

        agent.registry.unregister = note  # type: ignore[method-assign]
        c.wires.lose_answers["UnregisterFragment"] = 1
        await c.lead()
        await c.until(lambda: agent.running() == [])
        assert asked[0].command.incarnation == agent.registry.incarnation
        assert (asked[0].fragment.uid, asked[0].fragment.epoch) == ("fragment-zombie", 7)
        await c.until(lambda: c.control and not next(iter(c.control.membership._agents.values())).zombies)


async def test_a_process_that_was_declared_gone_is_not_taken_back_and_its_runs_are_stopped() -> None:
    async with cluster() as c:
        agent = await c.add_agent("a")
        assert agent.registry is not None
        incarnation = agent.registry.incarnation
        ref = cluster_pb.FragmentRef(uid="fragment-old", epoch=1)
        await agent.registry.register(
            cluster_pb.RegisterFragmentRequest(command=cluster_pb.Command(), fragment=ref, query_uid="query-old")
        )
        await c.store.write(
            lambda tx: tx.connection.execute(
                insert(fenced_incarnations).values(incarnation=incarnation, agent_name="a", time=0)
            )
        )
        await c.lead()
        await c.until(lambda: agent.registry and agent.registry.fragments == 0)
        assert await c.agent_state("a") == "UNREACHABLE"
        await agent.crash()
        await agent.start()
        await active(c, "a")


async def test_an_agent_that_says_it_has_news_is_asked_at_once() -> None:
    async with cluster(poll_interval=600.0) as c:
        await c.add_agent("a")
        await c.lead()
        assert c.control is not None
        membership = c.control.membership
        await c.until(lambda: membership._agents)
        (agent,) = membership._agents.values()
        membership.renewed(agent.uid, 0)
        await active(c, "a")
        polls = membership.stats.polls
        membership.renewed(agent.uid, agent.version)
        await asyncio.sleep(0.1)
        assert membership.stats.polls == polls, "it has nothing new to tell"
        membership.renewed(agent.uid, agent.version + 1)
        await c.until(lambda: membership.stats.polls == polls + 1)


async def test_an_agent_that_renews_is_asked_more_seldom_but_still_asked_and_silence_is_noticed() -> None:
    async with cluster(poll_interval=0.1, session_ttl=6.0) as c:
        await c.add_agent("a")
        await c.lead()
        await active(c, "a")
        assert c.control is not None
        membership = c.control.membership
        (agent,) = membership._agents.values()
        await asyncio.sleep(0.5)
        membership.renewed(agent.uid, agent.version)
        await asyncio.sleep(0.1)
        polls, began = membership.stats.polls, time.monotonic()
        while membership.stats.polls < polls + 3:
            await asyncio.sleep(0.05)
            membership.renewed(agent.uid, agent.version)
        assert time.monotonic() - began >= 2.0, "three polls, the first perhaps soon, the others ten intervals later"
        c.wires.cut.add("a:1")
        await c.until(lambda: state_of(c, "a", "UNREACHABLE"))


async def test_an_agent_that_was_dropped_is_polled_no_more() -> None:
    async with cluster() as c:
        await c.add_agent("a")
        await c.lead()
        await active(c, "a")

        def drop(tx: Any) -> None:
            from headgate_coordinator.catalog import agents as agent_operations

            agent_operations.drop_agent(tx, catalog.DropAgentRequest(name="a"))

        await c.store.write(drop)
        assert c.control is not None
        await c.until(lambda: c.control and not c.control.membership._agents)
        count = len(c.wires.calls)
        await asyncio.sleep(0.4)
        assert len(c.wires.calls) == count


async def test_agents_that_do_not_answer_do_not_keep_others_from_being_asked() -> None:
    async with cluster(poll_timeout_min=5.0, poll_timeout_max=5.0) as c:
        for number in range(10):
            await c.add_agent(f"dead{number}")
            c.wires.mute.add(f"dead{number}:1")
        await c.add_agent("alive")
        await c.lead()
        assert c.control is not None
        c.control.membership._limits = replace(Limits(), polls=3)
        await active(c, "alive")
        asked = sum(1 for address, _ in c.wires.calls if address == "alive:1")
        await c.until(lambda: sum(1 for address, _ in c.wires.calls if address == "alive:1") >= asked + 5)


async def test_500_agents_are_polled_without_falling_behind() -> None:
    """Every agent gets its question in every interval, while queries are deployed on some of them."""
    timings = replace(FAST, poll_interval=2.0, lost_after=60.0, poll_timeout_min=5.0, reconcile_interval=5.0)
    async with cluster(timings) as c:
        for number in range(500):
            await c.add_agent(f"a{number}")
        await c.lead()
        await c.until(lambda: _all_active(c, 500), "500 agents to be ACTIVE", seconds=60)
        c.wires.calls.clear()
        began = asyncio.get_running_loop().time()
        for number in range(20):
            await c.create(f"q{number}", f"a{number}", f"a{number + 1}", f"a{number + 2}")
        for number in range(20):
            await c.until_state(f"q{number}", "RUNNING")
        await asyncio.sleep(max(0.0, 7.0 - (asyncio.get_running_loop().time() - began)))
        intervals = (asyncio.get_running_loop().time() - began) / timings.poll_interval
        asked: dict[str, int] = {}
        for address, method in c.wires.calls:
            asked[address] = asked.get(address, 0) + (method == "GetStatus")
        assert len(asked) == 500
        assert min(asked.values()) >= int(intervals / 1.1) - 1
        assert await _all_active(c, 500)


async def _all_active(c: Cluster, count: int) -> bool:
    found = await c.store.read(
        lambda tx: tx.connection.execute(select(agents.c.uid).where(agents.c.state == "ACTIVE")).all()
    )
    return len(found) == count
