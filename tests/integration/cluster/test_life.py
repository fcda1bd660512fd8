"""The life of a query, with the real coordinator and agent logic in one process."""

from __future__ import annotations

import asyncio

import pytest

from headgate.catalog import v1 as catalog
from headgate_agent.fragments.journal import MemoryJournal
from headgate_coordinator.catalog import fragments as fragment_rows
from headgate_coordinator.catalog.agents import drop_agent
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.query.transitions import FRAGMENT_TRANSITIONS, QUERY_TRANSITIONS
from tests.integration.cluster.kit import Cluster, cluster
from tests.integration.cluster.runners import Script


async def three(c: Cluster, **options: object) -> None:
    for name in ("a", "b", "c"):
        await c.add_agent(name, **options)  # type: ignore[arg-type]
    await c.lead()
    for name in ("a", "b", "c"):
        await c.until(lambda name=name: _active(c, name), f"agent {name} to be ACTIVE")


async def _active(c: Cluster, name: str) -> bool:
    return await c.agent_state(name) == "ACTIVE"


async def epochs(c: Cluster, name: str) -> list[int]:
    return [one.epoch for one in await c.fragments(name)]


async def assert_clean(c: Cluster) -> None:
    """Nothing is reserved, and no agent has anything."""
    assert set((await c.slots()).values()) <= {0}
    assert [agent.running() for agent in c.agents.values() if agent.registry] == [
        [] for agent in c.agents.values() if agent.registry
    ]


async def test_an_accepted_query_reaches_running_on_all_its_agents() -> None:
    async with cluster() as c:
        await three(c)
        uid = await c.create("q", "a", "b", "c")
        await c.until_state("q", "RUNNING")
        assert [agent.running() for agent in c.agents.values()] == [[(f.uid, 1)] for f in await c.fragments("q")]
        assert await c.slots() == {"a": 1, "b": 1, "c": 1}
        query = await c.query("q")
        assert query is not None and not query.HasField("waiting")
        told = [(e.fragment, e.from_state, e.to_state) for e in await c.story(uid)]
        assert [step[1:] for step in told if step[0] == 0] == [
            ("", "PENDING"),
            ("PENDING", "DEPLOYING"),
            ("DEPLOYING", "RUNNING"),
        ]
        for fragment, before, after in told:
            table = FRAGMENT_TRANSITIONS if fragment else QUERY_TRANSITIONS
            assert before in ("", after) or (before, after) in table


async def test_nothing_starts_before_every_agent_has_accepted_its_part() -> None:
    async with cluster() as c:
        await three(c)
        c.wires.mute.add("c:1")
        await c.create("q", "a", "b", "c")
        await c.until(lambda: ("c:1", "RegisterFragment") in c.wires.calls)
        await asyncio.sleep(0.1)
        assert "StartFragment" not in {method for _, method in c.wires.calls}
        c.wires.mute.clear()
        await c.until_state("q", "RUNNING")


async def test_a_hard_drop_stops_everything_deletes_the_query_and_returns_its_slots() -> None:
    async with cluster() as c:
        await three(c)
        uid = await c.create("q", "a", "b", "c")
        await c.until_state("q", "RUNNING")
        await c.ask("q", "DROPPED")
        await c.until_state("q", "")
        await assert_clean(c)
        assert (await c.story(uid))[-1].to_state == ""


async def test_a_soft_stop_drains_from_the_sources_to_the_sinks_and_keeps_the_row() -> None:
    scripts = {name: Script() for name in ("a", "b", "c")}
    for script in scripts.values():
        script.drain.clear()
    async with cluster() as c:
        for name, script in scripts.items():
            await c.add_agent(name, runner=script)
        await c.lead()
        for name in scripts:
            await c.until(lambda name=name: _active(c, name))
        await c.create("q", "a", "b", "c")
        await c.until_state("q", "RUNNING")
        await c.ask("q", "STOPPED", "SOFT", drain=60)
        for name in ("a", "b", "c"):
            await c.until(lambda name=name: scripts[name].drains, f"{name} to be drained")
            later = [other for other in scripts if other > name]
            assert not any(scripts[other].drains for other in later)
            query = await c.query("q")
            assert query is not None and query.waiting.reason == catalog.WAITING_REASON_DRAINING
            assert ("UnregisterFragment") not in {method for _, method in c.wires.calls}
            scripts[name].drain.set()
        await c.until_state("q", "STOPPED")
        await assert_clean(c)


async def test_a_hard_drop_overrides_a_running_soft_stop() -> None:
    script = Script()
    script.drain.clear()
    async with cluster() as c:
        await three(c, runner=script)
        await c.create("q", "a", "b", "c")
        await c.until_state("q", "RUNNING")
        await c.ask("q", "STOPPED", "SOFT", drain=60)
        await c.until(lambda: script.drains)
        await c.ask("q", "DROPPED", "HARD")
        await c.until_state("q", "")
        await assert_clean(c)


async def test_a_drain_that_takes_too_long_becomes_a_hard_stop() -> None:
    script = Script()
    script.drain.clear()
    async with cluster() as c:
        await three(c, runner=script)
        uid = await c.create("q", "a", "b", "c")
        await c.until_state("q", "RUNNING")
        await c.ask("q", "STOPPED", "SOFT", drain=0.3)
        await c.until_state("q", "STOPPED")
        told = [(entry.to_state, entry.cause) for entry in await c.story(uid) if not entry.fragment]
        assert ("STOPPING", "stopped hard after the drain deadline; what was in flight is lost") in told
        assert told[-1] == ("STOPPED", "every fragment is gone, stopped hard after the drain deadline")
        query = await c.query("q")
        assert query is not None and query.drain_abandoned and query.stop_mode == catalog.STOP_MODE_HARD
        await assert_clean(c)


async def test_a_stop_that_was_asked_to_be_hard_abandons_no_drain() -> None:
    script = Script()
    script.drain.clear()
    async with cluster() as c:
        await three(c, runner=script)
        await c.create("q", "a", "b", "c")
        await c.until_state("q", "RUNNING")
        await c.ask("q", "STOPPED", "SOFT", drain=60)
        await c.until(lambda: script.drains)
        await c.ask("q", "STOPPED", "HARD")
        await c.until_state("q", "STOPPED")
        query = await c.query("q")
        assert query is not None and not query.drain_abandoned


async def test_bounded_sources_end_the_query_as_terminated() -> None:
    async with cluster() as c:
        await three(c)
        await c.create("q", "a", "b", "c", rows=200)
        await c.until_state("q", "TERMINATED")
        await assert_clean(c)
        assert [one.state for one in await c.fragments("q")] == ["TERMINATED", "STOPPED", "STOPPED"]


async def test_a_refused_fragment_fails_the_query_with_the_reason_and_nothing_is_left() -> None:
    async with cluster() as c:
        await three(c)
        await c.add_agent("d", runner=Script(refuse=True))
        await c.until(lambda: _active(c, "d"))
        await c.create("q", "a", "d", "c")
        await c.until_state("q", "FAILED")
        query = await c.query("q")
        assert query is not None
        failure = query.failure
        assert (failure.reason, failure.agent, failure.fragment, failure.attempts) == ("FRAGMENT_REFUSED", "d", 2, 1)
        assert "PLAN_UNSUPPORTED" in failure.last_error and "nothing of the kind" in failure.message
        await assert_clean(c)
        await c.ask("q", "DROPPED")
        await c.until_state("q", "")


async def test_a_run_that_breaks_but_may_pass_is_started_again_under_a_new_epoch() -> None:
    async with cluster() as c:
        await three(c)
        script = Script(fail=[True, True])
        await c.add_agent("d", runner=script)
        await c.until(lambda: _active(c, "d"))
        await c.create("q", "a", "d", "c")
        await c.until(lambda: len(script.starts) == 3)
        await c.until_state("q", "RUNNING")
        assert [one.epoch for one in script.starts] == [1, 2, 3]
        assert await epochs(c, "q") == [1, 3, 1]
        assert await c.slots() == {"a": 1, "b": 0, "c": 1, "d": 1}


async def test_a_run_that_breaks_for_good_fails_the_query() -> None:
    async with cluster() as c:
        await three(c)
        await c.add_agent("d", runner=Script(fail=[False]))
        await c.until(lambda: _active(c, "d"))
        await c.create("q", "a", "d", "c")
        await c.until_state("q", "FAILED")
        query = await c.query("q")
        assert query is not None and query.failure.reason == "FRAGMENT_FAILED"
        assert (query.failure.agent, query.failure.fragment) == ("d", 2)
        await assert_clean(c)


async def test_the_transaction_that_marks_an_agent_unreachable_takes_its_running_queries_back() -> None:
    async with cluster(lost_after=60) as c:
        await three(c)
        uid = await c.create("q", "a", "b", "c")
        await c.create("other", "b", "b", "b")
        await c.until_state("q", "RUNNING")
        await c.until_state("other", "RUNNING")
        with c.store.changes.subscribe() as changes:
            c.wires.cut.add("a:1")
            while True:
                revision = await asyncio.wait_for(changes.get(), 60)
                after = {change.name: change.after for change in revision.changes if change.kind in ("AGENT", "QUERY")}
                if "a" in after and getattr(after["a"], "state", 0) == catalog.AGENT_STATE_UNREACHABLE:
                    break
        assert getattr(after["q"], "state", 0) == catalog.QUERY_STATE_DEPLOYING
        assert "other" not in after
        await c.until(lambda: _waits_for(c, "q", "agent a unreachable"))
        query = await c.query("q")
        assert query is not None and query.waiting.reason == catalog.WAITING_REASON_AGENT_UNREACHABLE
        assert query.waiting.message.startswith("fragment 1 of 3: agent a unreachable for ")
        c.wires.cut.clear()
        await c.until_state("q", "RUNNING")
        assert await epochs(c, "q") == [1, 1, 1]
        assert any("agent a is unreachable" in entry.cause for entry in await c.story(uid))


async def _waits_for(c: Cluster, name: str, text: str) -> bool:
    query = await c.query(name)
    return query is not None and text in query.waiting.message


async def test_a_lost_agents_compute_fragment_runs_elsewhere_and_its_old_run_is_stopped_on_return() -> None:
    async with cluster(lost_after=0.3) as c:
        await three(c)
        await c.add_agent("d")
        await c.until(lambda: _active(c, "d"))
        await c.create("q", "a", "b", "c")
        await c.until_state("q", "RUNNING")
        c.wires.cut.add("b:1")
        await c.until_state("q", "DEPLOYING")
        await c.until_state("q", "RUNNING")
        placed = await c.fragments("q")
        assert placed[1].agent_name != "b" and placed[1].epoch == 2
        assert (placed[0].agent_name, placed[2].agent_name) == ("a", "c")
        assert c.agents["b"].running() == [(placed[1].uid, 1)]
        assert (await c.slots())["b"] == 0
        c.wires.cut.clear()
        await c.until(lambda: not c.agents["b"].running(), "the old run to be stopped")
        assert await c.state("q") == "RUNNING"
        assert sum((await c.slots()).values()) == 3


async def test_node_local_fragments_of_a_lost_agent_wait_for_it() -> None:
    async with cluster(lost_after=0.2) as c:
        await three(c)
        await c.create("q", "a", "b", "c")
        await c.until_state("q", "RUNNING")
        c.wires.cut.add("a:1")
        await c.until_state("q", "DEPLOYING")
        await asyncio.sleep(0.6)
        assert (await c.fragments("q"))[0].agent_name == "a"
        assert await c.state("q") == "DEPLOYING"
        c.wires.cut.clear()
        await c.until_state("q", "RUNNING")


async def test_a_restarted_agent_goes_on_with_what_it_was_told_under_the_same_epoch() -> None:
    async with cluster(lost_after=60) as c:
        await three(c)
        uid = await c.create("q", "a", "b", "c")
        await c.until_state("q", "RUNNING")
        await c.agents["b"].crash()
        await c.agents["b"].start()
        await c.until(lambda: _told(c, uid, "restarted"))
        await c.until_state("q", "RUNNING")
        assert await epochs(c, "q") == [1, 1, 1]
        placed = await c.fragments("q")
        assert c.agents["b"].running() == [(placed[1].uid, 1)]
        assert c.agents["b"].registry is not None
        assert placed[1].incarnation == c.agents["b"].registry.incarnation


async def test_an_agent_that_restarted_without_its_journal_gets_its_fragments_again_under_a_new_epoch() -> None:
    async with cluster(lost_after=60) as c:
        await three(c)
        uid = await c.create("q", "a", "b", "c")
        await c.until_state("q", "RUNNING")
        await c.agents["b"].crash()
        await c.agents["b"].start(MemoryJournal())
        await c.until(lambda: _told(c, uid, "does not know it"))
        await c.until_state("q", "RUNNING")
        assert await epochs(c, "q") == [1, 2, 1]
        assert await c.slots() == {"a": 1, "b": 1, "c": 1}


async def _told(c: Cluster, uid: str, text: str) -> bool:
    return any(text in entry.cause for entry in await c.story(uid))


async def test_a_query_dropped_while_an_agent_is_unreachable_keeps_its_name_until_the_agent_confirms() -> None:
    async with cluster(lost_after=60) as c:
        await three(c)
        await c.create("q", "a", "b", "c")
        await c.until_state("q", "RUNNING")
        c.wires.cut.add("b:1")
        await c.until_state("q", "DEPLOYING")
        await c.ask("q", "DROPPED")
        await c.until(lambda: _blocked(c, "q"))
        assert await _waits_for(c, "q", "agent b unreachable")
        # The others are gone, and their slots were returned when they were, not at the end.
        await c.until(lambda: _slots_are(c, {"a": 0, "b": 1, "c": 0}))
        assert await c.state("q") == "STOPPING"
        c.wires.cut.clear()
        await c.until_state("q", "")
        await assert_clean(c)


async def _blocked(c: Cluster, name: str) -> bool:
    query = await c.query(name)
    return query is not None and query.waiting.reason == catalog.WAITING_REASON_STOP_BLOCKED


async def _slots_are(c: Cluster, expected: dict[str, int]) -> bool:
    return await c.slots() == expected


async def test_what_was_never_sent_to_an_agent_is_gone_without_asking_it() -> None:
    async with cluster(lost_after=60) as c:
        await three(c)
        c.wires.cut.update({"a:1", "b:1", "c:1"})
        for name in ("a", "b", "c"):
            await c.until(lambda name=name: _unreachable(c, name))
        await c.create("q", "a", "b", "c")
        await c.until_state("q", "DEPLOYING")
        await c.ask("q", "DROPPED")
        await c.until_state("q", "")
        assert set((await c.slots()).values()) == {0}


async def _unreachable(c: Cluster, name: str) -> bool:
    return await c.agent_state(name) == "UNREACHABLE"


async def test_drop_while_deploying_gives_up_calls_in_flight_and_cleans_up() -> None:
    async with cluster(command_timeout=30.0, poll_timeout_min=30.0, poll_timeout_max=30.0, lost_after=60) as c:
        await three(c)
        c.wires.mute.add("b:1")
        await c.create("q", "a", "b", "c")
        await c.until(lambda: ("b:1", "RegisterFragment") in c.wires.calls)
        await c.ask("q", "DROPPED")
        await c.until(lambda: ("b:1", "UnregisterFragment") in c.wires.calls, "the call in flight to be given up")
        await c.until(lambda: _slots_are(c, {"a": 0, "b": 1, "c": 0}))


async def test_a_deployment_that_misses_its_deadline_fails_and_says_which_fragment() -> None:
    async with cluster(lost_after=60) as c:
        await three(c)
        script = Script()
        script.up.clear()
        await c.add_agent("d", runner=script)
        await c.until(lambda: _active(c, "d"))
        await c.create("q", "a", "d", "c", deadline=0.5)
        await c.until_state("q", "FAILED")
        query = await c.query("q")
        assert query is not None
        assert (query.failure.reason, query.failure.fragment) == ("DEPLOYMENT_DEADLINE_EXCEEDED", 2)
        await assert_clean(c)


async def test_the_deployment_deadline_does_not_end_a_query_that_has_run() -> None:
    async with cluster(lost_after=60) as c:
        await three(c)
        await c.create("q", "a", "b", "c", deadline=0.4)
        await c.until_state("q", "RUNNING")
        c.wires.cut.add("a:1")
        await c.until_state("q", "DEPLOYING")
        await asyncio.sleep(0.8)
        assert await c.state("q") == "DEPLOYING"
        c.wires.cut.clear()
        await c.until_state("q", "RUNNING")


@pytest.mark.parametrize("method", ["RegisterFragment", "StartFragment", "UnregisterFragment"])
async def test_a_lost_answer_is_not_taken_for_a_call_that_did_not_happen(method: str) -> None:
    async with cluster() as c:
        await three(c)
        c.wires.lose_answers[method] = 3
        await c.create("q", "a", "b", "c")
        await c.until_state("q", "RUNNING")
        assert await epochs(c, "q") == [1, 1, 1]
        await c.ask("q", "DROPPED")
        await c.until_state("q", "")
        await assert_clean(c)


async def test_an_agent_declared_gone_releases_what_waits_for_it_and_what_can_move_moves() -> None:
    async with cluster(lost_after=60) as c:
        await three(c)
        await c.create("moves", "a", "b", "c")
        await c.create("waits", "b", "b", "b")
        await c.until_state("moves", "RUNNING")
        await c.until_state("waits", "RUNNING")
        c.wires.cut.add("b:1")
        await c.until_state("waits", "DEPLOYING")
        await c.ask("waits", "DROPPED")
        await c.until(lambda: _blocked(c, "waits"))
        uid = (await c.fragments("waits"))[0].agent_uid
        assert uid is not None
        await c.store.write(lambda tx: fragment_rows.release_agent(tx, uid))
        await c.until_state("waits", "")
        await c.until_state("moves", "RUNNING")
        assert (await c.fragments("moves"))[1].agent_name in ("a", "c")
        assert (await c.slots())["b"] == 0


async def test_a_new_leader_takes_up_what_the_last_one_left() -> None:
    async with cluster() as c:
        await three(c)
        for number in range(10):
            await c.create(f"q{number}", "a", "b", "c")
        await asyncio.sleep(0.02)
        await c.stop()
        states = {await c.state(f"q{number}") for number in range(10)}
        await c.lead()
        for number in range(10):
            await c.until_state(f"q{number}", "RUNNING")
        assert states - {"RUNNING"}, "the leader was stopped too late for the test to mean anything"
        assert await c.slots() == {"a": 10, "b": 10, "c": 10}


async def test_a_lost_wake_up_is_repaired_by_the_periodic_look(monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster(reconcile_interval=0.2) as c:
        await three(c)
        assert c.control is not None
        monkeypatch.setattr(c.control.reconciler, "_changed", lambda revision: None)
        await c.create("q", "a", "b", "c")
        await c.until_state("q", "RUNNING")
        await c.ask("q", "DROPPED")
        await c.until_state("q", "")


async def test_after_everything_has_settled_nothing_is_remembered_and_nothing_runs() -> None:
    async with cluster() as c:
        await three(c)
        for number in range(20):
            await c.create(f"q{number}", "a", "b", "c")
        for number in range(20):
            await c.until_state(f"q{number}", "RUNNING")
        assert c.control is not None
        reconciler = c.control.reconciler
        await c.until(lambda: not reconciler._works, "the works to be forgotten")
        assert not reconciler._calls_to and not reconciler._tasks and not reconciler._looking


async def test_what_is_taken_down_is_discarded_for_good_and_what_moved_away_is_not() -> None:
    async with cluster(lost_after=0.3) as c:
        scripts = {name: Script() for name in "abcd"}
        for name, script in scripts.items():
            await c.add_agent(name, runner=script)
        await c.lead()
        await c.until(lambda: _active(c, "d"))
        await c.create("q", "a", "b", "c")
        await c.until_state("q", "RUNNING")
        c.wires.cut.add("b:1")
        await c.until_state("q", "DEPLOYING")
        await c.until_state("q", "RUNNING")
        c.wires.cut.clear()
        await c.until(lambda: not c.agents["b"].running(), "the old run to be stopped")
        assert not any(script.discards for script in scripts.values()), "its checkpoint is in use elsewhere"
        source, compute, sink = await c.fragments("q")
        await c.ask("q", "DROPPED")
        await c.until_state("q", "")
        discarded = {name: script.discards for name, script in scripts.items() if script.discards}
        expected: dict[str, list[str]] = {}
        for one in (source, compute, sink):
            expected.setdefault(one.agent_name, []).append(one.uid)
        assert {name: sorted(uids) for name, uids in discarded.items()} == {
            name: sorted(uids) for name, uids in expected.items()
        }
        assert "b" not in discarded


async def test_a_sink_that_moves_takes_its_edge_along_and_the_query_runs_on() -> None:
    async with cluster(lost_after=0.3) as c:
        scripts = {name: Script() for name in "abcd"}
        for name, script in scripts.items():
            await c.add_agent(name, runner=script)
        await c.lead()
        await c.until(lambda: _active(c, "d"))
        await c.create("q", "a", "b", "c", sink_moves=True)
        await c.until_state("q", "RUNNING")
        c.wires.cut.add("c:1")
        await c.until_state("q", "DEPLOYING")
        await c.until_state("q", "RUNNING")
        source, compute, sink = await c.fragments("q")
        assert (source.epoch, compute.epoch, sink.epoch) == (1, 2, 2)
        for one in (compute, sink):
            run = scripts[one.agent_name].starts[-1]
            assert (run.uid, run.epoch) == (one.uid, one.epoch)
            assert (run.topics[2].agent, run.topics[2].address) == (sink.agent_name, f"{sink.agent_name}:1")
        assert scripts["b"].starts[-1].topics[1].agent == "a"


async def test_what_a_run_waits_for_is_seen_in_its_query() -> None:
    async with cluster() as c:
        script = Script(waits="the engine is warming up")
        script.up.clear()
        await c.add_agent("a")
        await c.add_agent("b", runner=script)
        await c.lead()
        await c.until(lambda: _active(c, "b"))
        await c.create("q", "a", "b", "a")
        await c.until(lambda: _waits_for(c, "q", "fragment 2 of 3: the engine is warming up"))
        assert (await c.fragments("q"))[1].waiting == "the engine is warming up"
        script.up.set()
        await c.until_state("q", "RUNNING")
        assert (await c.fragments("q"))[1].waiting == ""


async def test_what_agents_keep_of_a_fragment_is_needed_until_its_query_has_ended_wherever_its_agent_is() -> None:
    async with cluster() as c:
        await three(c)
        await c.create("q", "a", "b", "c")
        await c.until_state("q", "RUNNING")
        uids = [one.uid for one in await c.fragments("q")]

        async def needed() -> list[str]:
            return sorted(await c.store.read(lambda tx: fragment_rows.that_may_run(tx, [*uids, "fragment-unknown"])))

        assert await needed() == sorted(uids)
        for agent in c.agents.values():
            await agent.crash()
        await c.ask("q", "STOPPED")
        await c.until_state("q", "STOPPING")
        assert await needed() == sorted(uids), "nobody has confirmed that they are gone"

        def declare_gone(tx: Tx) -> None:
            for name in ("a", "b", "c"):
                drop_agent(tx, catalog.DropAgentRequest(name=name, force=True))

        await c.store.write(declare_gone)
        await c.until_state("q", "STOPPED")
        assert await needed() == [], "nobody was there to be told, so whoever finds something of them removes it"
