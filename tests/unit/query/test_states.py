"""`decide`, from every situation that can be, with agents that cooperate and with agents that do not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate_coordinator.query.states import (
    AgentView,
    Blame,
    Delete,
    Drain,
    FragmentView,
    Gone,
    NewEpoch,
    QueryView,
    Register,
    SetState,
    Start,
    StopHard,
    Unregister,
    Waiting,
    decide,
    span,
)
from tests.examples import examples
from tests.unit.query.model import World

AGENTS = ("a", "b", "c")
LIVE = ("PENDING", "REGISTERED", "STARTED", "RUNNING")


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Any legal combination of a query, its fragments and their agents."""
    agents = {
        uid: AgentView(
            uid,
            uid,
            active=draw(st.booleans()),
            incarnation=f"{uid}-{draw(st.integers(1, 2))}",
            lost=draw(st.booleans()),
            unreachable_for="5 s",
        )
        for uid in AGENTS
    }
    state = draw(st.sampled_from(["PENDING", "DEPLOYING", "RUNNING", "STOPPING", "STOPPED", "TERMINATED", "FAILED"]))
    failed = state == "FAILED" or (state == "STOPPING" and draw(st.booleans()))
    desired = draw(st.sampled_from(["RUNNING", "STOPPED", "DROPPED"]))
    if state == "STOPPED" and desired == "RUNNING":
        desired = "STOPPED"
    stop_mode = "" if desired == "RUNNING" else draw(st.sampled_from(["SOFT", "HARD"]))
    has_run = state in ("RUNNING", "STOPPED", "TERMINATED") or (state != "PENDING" and draw(st.booleans()))
    query = QueryView(
        "q",
        "q",
        state,
        desired,
        stop_mode,
        failed,
        has_run,
        deployment_late=draw(st.booleans()),
        drain_late=draw(st.booleans()),
    )
    count = draw(st.integers(1, 4))
    fragments: dict[str, FragmentView] = {}
    world = World(query, fragments, agents)
    for ordinal in range(1, count + 1):
        one = draw(_fragments(query, ordinal, agents))
        fragments[one.uid] = one
        if one.held and one.state in ("STARTED", "RUNNING") and draw(st.integers(0, 9)):
            world.runs[one.uid] = {(one.agent, one.epoch)}
    return world


@st.composite
def _fragments(draw: st.DrawFn, query: QueryView, ordinal: int, agents: dict[str, AgentView]) -> FragmentView:
    agent = draw(st.sampled_from(AGENTS))
    incarnation = agents[agent].incarnation
    upstream = tuple(draw(st.sets(st.integers(1, ordinal - 1), max_size=2))) if ordinal > 1 else ()
    one = FragmentView(
        uid=f"f{ordinal}",
        ordinal=ordinal,
        node_local=draw(st.booleans()),
        agent=agent,
        agent_name=agent,
        incarnation="",
        state="PENDING",
        epoch=1,
        held=True,
        upstream=upstream,
        brings_in=not upstream and draw(st.booleans()),
    )
    if query.state == "PENDING":
        return one
    if query.state in ("STOPPED", "TERMINATED", "FAILED"):
        return replace(one, state=draw(st.sampled_from(["STOPPED", "TERMINATED", "FAILED"])), held=False)
    state = draw(st.sampled_from([*LIVE, "STOPPED", "TERMINATED", "FAILED"]))
    sent = state != "PENDING" or draw(st.booleans())
    held = state in LIVE or draw(st.booleans())
    placed = held or one.node_local or draw(st.booleans())
    return replace(
        one,
        state=state,
        epoch=draw(st.integers(1, 3)),
        held=held,
        agent=agent if placed else "",
        incarnation=draw(st.sampled_from([incarnation, "old"])) if sent else "",
        backing_off=draw(st.booleans()),
        draining=query.state == "STOPPING" and state in ("STARTED", "RUNNING") and draw(st.booleans()),
    )


def settle(world: World, limit: int = 60) -> None:
    """Repeats decide with agents that answer and do what they are told, until nothing is left to do."""
    for _ in range(limit):
        if world.deleted:
            return
        decision = world.decide()
        if decision.writes:
            world.write(decision)
        elif decision.calls:
            world.call(decision)
        elif world.settled:
            return
        world.report()
        world.time_passes()
    raise AssertionError(f"it does not settle: {world.query} {list(world.fragments.values())} {world.steps[-8:]}")


def heal(world: World) -> None:
    for uid, agent in world.agents.items():
        world.agents[uid] = replace(agent, active=True, lost=False)


@pytest.mark.slow
@settings(max_examples=examples(400), deadline=None)
@given(worlds())
def test_from_any_situation_agents_that_cooperate_bring_the_query_where_it_should_be(world: World) -> None:
    heal(world)
    settle(world)
    query = world.query
    if query.desired == "DROPPED":
        assert world.deleted
    elif query.desired == "STOPPED":
        assert query.state in ("STOPPED", "TERMINATED", "FAILED")
    else:
        assert query.state in ("RUNNING", "TERMINATED", "FAILED")
    if query.state != "RUNNING":
        assert not any(world.runs.values()), "something of an ended query still runs"
        assert all(times == 1 for times in world.returned.values()), "slots were returned twice"


@pytest.mark.slow
@settings(max_examples=examples(400), deadline=None)
@given(worlds(), st.data())
def test_whatever_agents_and_answers_do_no_step_is_illegal_and_the_end_is_reached_once_they_heal(
    world: World, data: st.DataObject
) -> None:
    for _ in range(12):
        decision = world.decide()
        if decision.writes:
            world.write(decision)
            if world.deleted:
                return
        else:
            world.call(decision, works=data.draw(st.booleans()))
        action = data.draw(st.sampled_from(["report", "flip", "restart", "time", "ask", "nothing"]))
        uid = data.draw(st.sampled_from(AGENTS))
        agent = world.agents[uid]
        if action == "report":
            world.report()
        elif action == "flip":
            world.agents[uid] = replace(agent, active=not agent.active, lost=data.draw(st.booleans()))
        elif action == "restart":
            world.agents[uid] = replace(agent, incarnation=f"{agent.incarnation}+")
            for runs in world.runs.values():
                runs.difference_update({run for run in runs if run[0] == uid})
        elif action == "time":
            world.time_passes()
        elif action == "ask" and world.query.desired != "DROPPED":
            world.query = replace(world.query, desired="DROPPED", stop_mode="HARD")
    heal(world)
    settle(world)
    world.report()
    if world.query.desired == "DROPPED":
        assert world.deleted and not any(world.runs.values())


@pytest.mark.slow
@settings(max_examples=examples(300), deadline=None)
@given(worlds())
def test_an_unsettled_query_with_nothing_to_do_says_what_it_waits_for(world: World) -> None:
    """And one that is where it should be waits for nothing."""
    decision = world.decide()
    if decision.writes:
        return
    if world.settled:
        assert not decision.calls and decision.waiting is None
    else:
        assert decision.waiting is not None and decision.waiting.message


@settings(max_examples=examples(300), deadline=None)
@given(worlds())
@pytest.mark.slow
def test_agents_that_do_not_answer_and_fragments_that_back_off_are_left_alone(world: World) -> None:
    for call in world.decide().calls:
        one = world.fragments[call.fragment]
        assert world.agents[one.agent].active and not one.backing_off and one.held


@pytest.mark.slow
@settings(max_examples=examples(300), deadline=None)
@given(worlds())
def test_deciding_is_pure(world: World) -> None:
    assert world.decide() == world.decide()


def query(state: str, desired: str = "RUNNING", **options: object) -> QueryView:
    values: dict[str, object] = {"stop_mode": "", "failed": False, "has_run": True} | options
    return QueryView("q", "q", state, desired, **values)  # type: ignore[arg-type]


def fragment(ordinal: int, state: str, agent: str = "a", **options: object) -> FragmentView:
    values: dict[str, object] = {
        "node_local": False,
        "incarnation": f"{agent}-1",
        "epoch": 1,
        "held": True,
        "upstream": (ordinal - 1,) if ordinal > 1 else (),
    } | options
    return FragmentView(uid=f"f{ordinal}", ordinal=ordinal, agent=agent, agent_name=agent, state=state, **values)  # type: ignore[arg-type]


def agent(name: str, active: bool = True, **options: object) -> AgentView:
    return AgentView(name, name, active, f"{name}-1", **options)  # type: ignore[arg-type]


def test_the_message_names_the_fragment_the_agent_and_the_time() -> None:
    agents = {"a": agent("a"), "b": agent("b", active=False, unreachable_for="40 s")}
    found = decide(query("DEPLOYING"), [fragment(1, "RUNNING"), fragment(2, "RUNNING", "b", node_local=True)], agents)
    assert found.waiting is not None
    assert (found.waiting.reason, found.waiting.message) == (
        "AGENT_UNREACHABLE",
        "fragment 2 of 2: agent b unreachable for 40 s",
    )


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "less than 1 s"), (7, "5 s"), (45, "40 s"), (59, "40 s"), (130, "2 min"), (9000, "2 h")]
)
def test_spans_grow_in_steps(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_the_first_start_waits_until_everybody_has_registered() -> None:
    agents = {"a": agent("a")}
    views = [fragment(1, "REGISTERED"), fragment(2, "PENDING")]
    assert decide(query("DEPLOYING", has_run=False), views, agents).calls == (Register("f2"),)
    assert decide(query("DEPLOYING", has_run=True), views, agents).calls == (Start("f1"), Register("f2"))


def test_a_lost_agents_compute_fragment_moves_and_its_node_local_one_waits() -> None:
    agents = {"a": agent("a"), "b": agent("b", active=False, lost=True, unreachable_for="10 s")}
    views = [fragment(1, "RUNNING", "b", node_local=True), fragment(2, "RUNNING", "b")]
    found = decide(query("DEPLOYING"), views, agents)
    assert found.writes == (NewEpoch("f2", move=True, cause="agent b is unreachable for 10 s"),)
    assert found.waiting is not None and found.waiting.reason == "AGENT_UNREACHABLE"


def test_what_ended_complete_is_never_run_again() -> None:
    agents = {"b": agent("b", active=False, lost=True, unreachable_for="10 s")}
    views = [fragment(1, "TERMINATED", "b"), fragment(2, "RUNNING", "b", node_local=True)]
    found = decide(query("DEPLOYING"), views, agents)
    assert not [write for write in found.writes if isinstance(write, NewEpoch)]


def test_a_hard_stop_unregisters_everything_at_once_and_a_soft_one_begins_at_the_sources() -> None:
    agents = {"a": agent("a")}
    views = [fragment(1, "RUNNING"), fragment(2, "RUNNING"), fragment(3, "RUNNING")]
    hard = decide(query("STOPPING", "STOPPED", stop_mode="HARD"), views, agents)
    assert hard.calls == (Unregister("f1"), Unregister("f2"), Unregister("f3"))
    soft = decide(query("STOPPING", "STOPPED", stop_mode="SOFT"), views, agents)
    assert soft.calls == (Drain("f1"),)
    views[0] = fragment(1, "STOPPED")
    assert decide(query("STOPPING", "STOPPED", stop_mode="SOFT"), views, agents).calls == (Drain("f2"),)


def test_while_draining_nothing_is_unregistered_before_everything_has_ended() -> None:
    agents = {"a": agent("a")}
    views = [fragment(1, "STOPPED"), fragment(2, "STOPPED"), fragment(3, "RUNNING", draining=True)]
    found = decide(query("STOPPING", "STOPPED", stop_mode="SOFT"), views, agents)
    assert found.calls == () and found.waiting is not None and found.waiting.reason == "DRAINING"
    views[2] = fragment(3, "STOPPED")
    assert len(decide(query("STOPPING", "STOPPED", stop_mode="SOFT"), views, agents).calls) == 3


def test_the_drain_deadline_makes_a_soft_stop_hard() -> None:
    found = decide(
        query("STOPPING", "STOPPED", stop_mode="SOFT", drain_late=True), [fragment(1, "RUNNING")], {"a": agent("a")}
    )
    assert found.writes == (StopHard("stopped hard after the drain deadline; what was in flight is lost"),)


def test_a_query_that_never_ran_does_not_come_up_again_while_it_is_taken_down() -> None:
    """The first of its fragments are gone when the last one has not answered yet."""
    gone = [fragment(1, "STOPPED", held=False), fragment(3, "STOPPED", held=False, upstream=(2,))]
    last = fragment(2, "PENDING", upstream=(1,))
    asked = query("STOPPING", "DROPPED", stop_mode="SOFT", has_run=False)
    assert decide(asked, [gone[0], last, gone[1]], {"a": agent("a")}).calls == (Unregister("f2"),)


def test_a_soft_stop_that_became_hard_says_so_while_it_stops_and_when_it_has() -> None:
    agents = {"a": agent("a")}
    became_hard = query("STOPPING", "STOPPED", stop_mode="HARD", drain_abandoned=True)
    found = decide(became_hard, [fragment(1, "RUNNING")], agents)
    assert found.waiting == Waiting("FRAGMENTS_STOPPING", "its fragments are stopped hard after the drain deadline")
    (end,) = decide(became_hard, [fragment(1, "STOPPED", held=False)], agents).writes
    assert end == SetState("STOPPED", "every fragment is gone, stopped hard after the drain deadline", None)
    asked = query("STOPPING", "STOPPED", stop_mode="HARD")
    (end,) = decide(asked, [fragment(1, "STOPPED", held=False)], agents).writes
    assert end == SetState("STOPPED", "every fragment is gone, as was asked for", None)


def test_a_soft_stop_brings_a_broken_fragment_up_again_to_drain_it() -> None:
    agents = {"a": agent("a")}
    views = [fragment(1, "STOPPED"), fragment(2, "FAILED", last_error="BROKEN: it broke")]
    found = decide(query("STOPPING", "STOPPED", stop_mode="SOFT"), views, agents)
    assert found.writes == (NewEpoch("f2", move=False, cause="BROKEN: it broke"),)


@pytest.mark.parametrize("state", ["FAILED", "PENDING", "REGISTERED"])
def test_a_soft_stop_brings_up_again_what_computes_from_topics_and_not_a_source(state: str) -> None:
    """Its engine died while it drained, or its agent: the windows that it had open are in its checkpoint."""
    agents = {"a": agent("a")}
    computes = fragment(1, state, last_error="ENGINE_LOST: it is gone")
    stopping = query("STOPPING", "STOPPED", stop_mode="SOFT")
    found = decide(stopping, [computes], agents)
    assert found.writes or found.calls, "it comes up to drain"
    assert not any(isinstance(call, Unregister) for call in found.calls), "and is not taken down before"
    (down,) = decide(stopping, [replace(computes, brings_in=True)], agents).calls
    assert isinstance(down, Unregister), "a source has nothing to emit"
    (down,) = decide(replace(stopping, has_run=False), [computes, fragment(2, "STARTED")], agents).calls
    assert down == Drain("f2"), "nor has what never ran"


def test_what_was_never_sent_is_gone_without_asking_but_a_later_epoch_is_not() -> None:
    agents = {"a": agent("a", active=False, unreachable_for="1 s")}
    never = fragment(1, "PENDING", incarnation="")
    stopping = query("STOPPING", "DROPPED", stop_mode="HARD", has_run=False)
    assert decide(stopping, [never], agents).writes == (Gone("f1", "it was never sent to its agent"),)
    again = decide(stopping, [replace(never, epoch=2)], agents)
    assert not again.writes and again.waiting is not None and again.waiting.reason == "STOP_BLOCKED"


def test_the_deployment_deadline_blames_the_first_fragment_that_is_not_up() -> None:
    agents = {"a": agent("a"), "b": agent("b", active=False, unreachable_for="5 s")}
    views = [fragment(1, "RUNNING"), fragment(2, "PENDING", "b", node_local=True)]
    late = decide(query("DEPLOYING", has_run=False, deployment_late=True), views, agents)
    (write,) = late.writes
    assert isinstance(write, SetState) and isinstance(write.blame, Blame)
    assert (write.to, write.blame.reason, write.blame.fragment) == ("STOPPING", "DEPLOYMENT_DEADLINE_EXCEEDED", 2)
    assert "agent b is unreachable" in write.blame.message


def test_the_deployment_deadline_says_what_was_waited_for() -> None:
    waits = replace(fragment(1, "STARTED"), waiting="engine e:1: it asks the brokers of topic t")
    late = decide(query("DEPLOYING", has_run=False, deployment_late=True), [waits], {"a": agent("a")})
    (write,) = late.writes
    assert isinstance(write, SetState) and isinstance(write.blame, Blame)
    assert "(engine e:1: it asks the brokers of topic t)" in write.blame.message


@pytest.mark.parametrize(
    ("desired", "failed", "end"),
    [("RUNNING", False, "TERMINATED"), ("STOPPED", False, "STOPPED"), ("STOPPED", True, "FAILED")],
)
def test_how_a_query_ends(desired: str, failed: bool, end: str) -> None:
    found = decide(query("STOPPING", desired, failed=failed), [fragment(1, "STOPPED", held=False)], {"a": agent("a")})
    (write,) = found.writes
    assert isinstance(write, SetState) and write.to == end


def test_an_ended_query_is_deleted_only_when_it_is_to_be_dropped() -> None:
    gone = [fragment(1, "STOPPED", held=False)]
    assert decide(query("FAILED", "DROPPED", failed=True), gone, {}).writes == (Delete(),)
    assert decide(query("FAILED", "RUNNING", failed=True), gone, {}).writes == ()


def test_a_query_is_running_only_if_the_process_that_answers_is_the_one_that_runs_it() -> None:
    other = replace(agent("a"), incarnation="a-2")
    assert not decide(query("DEPLOYING"), [fragment(1, "RUNNING")], {"a": other}).writes
    (write,) = decide(query("RUNNING"), [fragment(1, "RUNNING")], {"a": other}).writes
    assert isinstance(write, SetState) and write.to == "DEPLOYING"


@pytest.mark.parametrize("state", ["DEPLOYING", "RUNNING"])
def test_a_query_fails_when_the_only_agent_for_a_fragment_was_declared_gone(state: str) -> None:
    query = QueryView("q", "q", state, "RUNNING", "", failed=False, has_run=True)
    fragment = FragmentView("f", 1, True, "", "edge", "", "FAILED", 1, held=False)
    (write,) = decide(query, [fragment], {}).writes
    assert isinstance(write, SetState) and write.to == "STOPPING"
    assert write.blame is not None and write.blame.reason == "AGENT_GONE"
    assert "edge" in write.blame.message
