"""What to do next about one query: a pure function of what is so, with no I/O, no clock and no asyncio.

`decide` looks at a query, its fragments and their agents and answers with writes (to be made in one transaction, after
which it is asked again), calls (to be made to agents; each is idempotent and its answer changes the fragment) and what
the query waits for. What depends on time comes in as booleans. Whoever carries the answer out needs no further
judgement: repeated with agents that answer, it brings every query to where it should be.

The teardown of a query has two forms. A *drain* goes from the fragments without inputs to those without outputs, and
takes nothing away before everything has ended, because a fragment's agent keeps the log that the next one reads. A
*hard stop* unregisters everything at once. In both a fragment is gone only when its agent has confirmed it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headgate_coordinator.query.transitions import QUERY_ENDED
from headgate_coordinator.query.views import (
    Address,
    AgentView,
    Blame,
    Call,
    Decision,
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
    Write,
)

SPAN_STEPS = (1, 2, 5, 10, 20, 40, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400)


@dataclass(frozen=True, slots=True)
class _Step:
    """What one fragment needs."""

    write: Write | None = None
    call: Call | None = None
    waiting: Waiting | None = None


_NOTHING = _Step()
_ABANDONED = "stopped hard after the drain deadline"
_STARTING = Waiting("FRAGMENTS_STARTING", "its fragments are being started")


def decide(query: QueryView, fragments: Sequence[FragmentView], agents: Mapping[str, AgentView]) -> Decision:
    """See above. `agents` has every agent that a fragment names."""
    situation = Situation(query, tuple(fragments), agents)
    if query.state in QUERY_ENDED:
        return _ended(situation)
    return _BY_STATE[query.state](situation)


@dataclass(frozen=True, slots=True)
class Situation:
    query: QueryView
    fragments: tuple[FragmentView, ...]
    agents: Mapping[str, AgentView]

    def agent_of(self, fragment: FragmentView) -> AgentView | None:
        return self.agents.get(fragment.agent)

    def answers(self, fragment: FragmentView) -> bool:
        agent = self.agent_of(fragment)
        return agent is not None and agent.active

    def confirmed(self, fragment: FragmentView) -> bool:
        """Running on a process that answers, or complete."""
        agent = self.agent_of(fragment)
        if fragment.state == "TERMINATED":
            return agent is None or agent.active
        return (
            fragment.state == "RUNNING"
            and agent is not None
            and agent.active
            and agent.incarnation == fragment.incarnation
        )

    def upstream_of(self, fragment: FragmentView) -> tuple[FragmentView, ...]:
        return tuple(other for other in self.fragments if other.ordinal in fragment.upstream)

    def of(self, fragment: FragmentView, text: str) -> str:
        return f"fragment {fragment.ordinal} of {len(self.fragments)}: {text}"


def span(seconds: float) -> str:
    """A length of time for people, in steps that grow, so that it does not change with every look."""
    reached = max((step for step in SPAN_STEPS if step <= seconds), default=0)
    if reached < 60:
        return f"{reached} s" if reached else "less than 1 s"
    if reached < 3600:
        return f"{reached // 60} min"
    return f"{reached // 3600} h"


def _pending(now: Situation) -> Decision:
    query = now.query
    if query.desired != "RUNNING":
        return _set("STOPPING", "it was stopped before it was taken up")
    if query.deployment_late:
        return _too_late(now)
    return _set("DEPLOYING", "taken up")


def _deploying(now: Situation) -> Decision:
    interrupted = _interrupted(now)
    if interrupted is not None:
        return interrupted
    if all(now.confirmed(fragment) for fragment in now.fragments):
        return _set("RUNNING", "every fragment is confirmed running")
    if now.query.deployment_late and not now.query.has_run:
        return _too_late(now)
    return _gather([_bring_up(now, fragment) for fragment in now.fragments])


def _running(now: Situation) -> Decision:
    interrupted = _interrupted(now)
    if interrupted is not None:
        return interrupted
    for fragment in now.fragments:
        if not now.confirmed(fragment):
            return _set("DEPLOYING", now.of(fragment, "it is not confirmed running any more"))
    return Decision()


def _stopping(now: Situation) -> Decision:
    query = now.query
    if query.stop_mode == "SOFT" and query.drain_late and not query.failed:
        return Decision(writes=(StopHard(f"{_ABANDONED}; what was in flight is lost"),))
    if all(not fragment.held for fragment in now.fragments):
        return _set(*_end(query))
    if _drains(now) and not all(_drained(now, fragment) for fragment in now.fragments):
        return _gather([_drain(now, fragment) for fragment in now.fragments], Waiting("DRAINING", "it drains"))
    return _gather([_take_down(now, fragment) for fragment in now.fragments])


def _ended(now: Situation) -> Decision:
    if now.query.desired == "DROPPED" and all(not fragment.held for fragment in now.fragments):
        return Decision(writes=(Delete(),))
    return Decision()


_BY_STATE = {"PENDING": _pending, "DEPLOYING": _deploying, "RUNNING": _running, "STOPPING": _stopping}


def _interrupted(now: Situation) -> Decision | None:
    """What ends deploying and running alike."""
    query = now.query
    if query.desired == "DROPPED":
        return _set("STOPPING", "it was dropped")
    if query.desired == "STOPPED":
        return _set("STOPPING", "it was stopped")
    for fragment in now.fragments:
        if fragment.node_local and not fragment.agent:
            text = now.of(fragment, f"agent {fragment.agent_name}, the only one for it, was declared gone for good")
            return _set("STOPPING", text, Blame("AGENT_GONE", text, fragment.ordinal))
    first = [fragment for fragment in now.fragments if not fragment.upstream]
    if first and all(fragment.state == "TERMINATED" for fragment in first):
        return _set("STOPPING", "its sources have ended by themselves")
    return None


def _too_late(now: Situation) -> Decision:
    """The deployment deadline has passed: the first fragment that is not up gets the blame."""
    for fragment in now.fragments:
        if not now.confirmed(fragment):
            why = fragment.last_error or fragment.waiting or _whereabouts(now, fragment)
            text = now.of(fragment, f"it was not running before the deployment deadline ({why})")
            return _set("STOPPING", text, Blame("DEPLOYMENT_DEADLINE_EXCEEDED", text, fragment.ordinal))
    text = "it was not running before the deployment deadline"
    return _set("STOPPING", text, Blame("DEPLOYMENT_DEADLINE_EXCEEDED", text))


def _whereabouts(now: Situation, fragment: FragmentView) -> str:
    agent = now.agent_of(fragment)
    if agent is None or agent.active:
        return f"it is {fragment.state} on agent {fragment.agent_name}"
    return f"agent {agent.name} is unreachable"


def _bring_up(now: Situation, fragment: FragmentView) -> _Step:
    """The next step of a fragment towards RUNNING."""
    agent = now.agent_of(fragment)
    if now.confirmed(fragment):
        return _NOTHING
    # What is gone from its agent, though it should run, is so because the agent was declared gone.
    if agent is None or (not agent.active and (agent.lost or not fragment.held)):
        return _move(now, fragment, agent)
    if not agent.active:
        return _Step(waiting=_unreachable(now, fragment, agent))
    if fragment.backing_off:
        return _Step(waiting=_retrying(now, fragment))
    return _UP[fragment.state](now, fragment, agent)


def _move(now: Situation, fragment: FragmentView, agent: AgentView | None) -> _Step:
    if fragment.state == "TERMINATED" or (fragment.node_local and agent is not None):
        assert agent is not None
        return _Step(waiting=_unreachable(now, fragment, agent))
    if fragment.no_room:
        why = now.of(fragment, "no other agent has room for it, with an engine and links where it needs them")
        return _Step(waiting=Waiting("NO_CAPACITY", why))
    gone = "is gone for good" if agent is None else f"is unreachable for {agent.unreachable_for}"
    return _Step(write=NewEpoch(fragment.uid, move=True, cause=f"agent {fragment.agent_name} {gone}"))


def _up_pending(now: Situation, fragment: FragmentView, agent: AgentView) -> _Step:
    if fragment.incarnation != agent.incarnation:
        return _Step(write=Address(fragment.uid, agent.incarnation))
    return _Step(call=Register(fragment.uid), waiting=_STARTING)


def _up_registered(now: Situation, fragment: FragmentView, agent: AgentView) -> _Step:
    """The first time, nothing starts before every agent has accepted its part: then a refusal has no effects."""
    first_time = now.query.state == "DEPLOYING" and not now.query.has_run
    if first_time and any(other.state == "PENDING" for other in now.fragments):
        return _Step(waiting=_STARTING)
    return _Step(call=Start(fragment.uid), waiting=_STARTING)


def _up_started(now: Situation, fragment: FragmentView, agent: AgentView) -> _Step:
    if fragment.waiting:
        return _Step(waiting=Waiting(_STARTING.reason, now.of(fragment, fragment.waiting)))
    return _Step(waiting=_STARTING)


def _up_again(now: Situation, fragment: FragmentView, agent: AgentView) -> _Step:
    """It has ended though it should run, and what ended it may pass."""
    if not fragment.held and fragment.no_room:
        return _Step(waiting=Waiting("NO_CAPACITY", now.of(fragment, f"agent {agent.name} has no room for it")))
    return _Step(write=NewEpoch(fragment.uid, move=False, cause=fragment.last_error or "it is to run again"))


_UP = {
    "PENDING": _up_pending,
    "REGISTERED": _up_registered,
    "STARTED": _up_started,
    # Running, but on a process that is not the one that answers: the next status tells.
    "RUNNING": _up_started,
    "STOPPED": _up_again,
    "FAILED": _up_again,
    "TERMINATED": _up_started,
}


def _drains(now: Situation) -> bool:
    """Whether what is in flight is to be emitted; not if nothing can be in flight."""
    query = now.query
    if query.failed or query.stop_mode == "HARD":
        return False
    # (those that are gone may never have been started: a query that is taken down must not come up again for them)
    return query.has_run or any(
        fragment.held and fragment.state not in ("PENDING", "REGISTERED") for fragment in now.fragments
    )


def _drained(now: Situation, fragment: FragmentView) -> bool:
    """Ended, or without anything to emit: a source that is not running produces nothing. What computes has open windows
    from its first run on, also where it reads topics itself and nobody is upstream."""
    if fragment.state in ("STOPPED", "TERMINATED") or not fragment.held:
        return True
    keeps_nothing = fragment.brings_in or not (fragment.upstream or now.query.has_run)
    return keeps_nothing and fragment.state in ("PENDING", "REGISTERED", "FAILED")


def _drain(now: Situation, fragment: FragmentView) -> _Step:
    """The next step of a fragment towards having emitted everything: up if it is down, then the soft stop."""
    if _drained(now, fragment):
        return _NOTHING
    agent = now.agent_of(fragment)
    if fragment.state not in ("STARTED", "RUNNING") or agent is None or (agent.lost and not agent.active):
        step = _bring_up(now, fragment)
        return _Step(step.write, step.call, _blocked(now, fragment, step.waiting))
    if not agent.active:
        return _Step(waiting=_blocked(now, fragment, _unreachable(now, fragment, agent)))
    if not all(_drained(now, other) for other in now.upstream_of(fragment)):
        return _NOTHING
    draining = Waiting("DRAINING", now.of(fragment, f"it drains on agent {agent.name}"))
    if fragment.draining:
        return _Step(waiting=draining)
    if fragment.backing_off:
        return _Step(waiting=_retrying(now, fragment))
    return _Step(call=Drain(fragment.uid), waiting=draining)


def _blocked(now: Situation, fragment: FragmentView, waiting: Waiting | None) -> Waiting | None:
    """A stop that waits for an agent is told as one."""
    if waiting is not None and waiting.reason == "AGENT_UNREACHABLE":
        return Waiting("STOP_BLOCKED", waiting.message)
    return waiting


def _take_down(now: Situation, fragment: FragmentView) -> _Step:
    """The next step of a fragment towards being gone."""
    if not fragment.held:
        return _NOTHING
    if fragment.epoch == 1 and fragment.state == "PENDING" and not fragment.incarnation:
        return _Step(write=Gone(fragment.uid, "it was never sent to its agent"))
    agent = now.agent_of(fragment)
    assert agent is not None, "what is held is somewhere"
    if not agent.active:
        return _Step(waiting=_blocked(now, fragment, _unreachable(now, fragment, agent)))
    if fragment.backing_off:
        return _Step(waiting=_retrying(now, fragment))
    stopping = f"its fragments are {_ABANDONED}" if now.query.drain_abandoned else "its fragments are being stopped"
    return _Step(call=Unregister(fragment.uid), waiting=Waiting("FRAGMENTS_STOPPING", stopping))


def _end(query: QueryView) -> tuple[str, str]:
    if query.failed:
        return "FAILED", "every fragment is gone, after a failure"
    if query.desired == "RUNNING":
        return "TERMINATED", "every fragment ended by itself and is gone"
    if query.drain_abandoned:
        return "STOPPED", f"every fragment is gone, {_ABANDONED}"
    return "STOPPED", "every fragment is gone, as was asked for"


def _unreachable(now: Situation, fragment: FragmentView, agent: AgentView) -> Waiting:
    return Waiting("AGENT_UNREACHABLE", now.of(fragment, f"agent {agent.name} unreachable for {agent.unreachable_for}"))


def _retrying(now: Situation, fragment: FragmentView) -> Waiting:
    return Waiting("RETRYING", now.of(fragment, fragment.last_error or f"agent {fragment.agent_name} is called again"))


def _set(to: str, cause: str, blame: Blame | None = None) -> Decision:
    return Decision(writes=(SetState(to, cause, blame),))


# The reason that says most comes first; of the same reason, what is said of one fragment.
_WEIGHT = (
    "STOP_BLOCKED",
    "AGENT_UNREACHABLE",
    "NO_CAPACITY",
    "RETRYING",
    "DRAINING",
    "FRAGMENTS_STOPPING",
    "FRAGMENTS_STARTING",
)


def _gather(steps: Sequence[_Step], otherwise: Waiting | None = None) -> Decision:
    waits = [step.waiting for step in steps if step.waiting is not None]
    waiting = min(waits, key=lambda one: (_WEIGHT.index(one.reason), one == _STARTING), default=otherwise)
    return Decision(
        writes=tuple(step.write for step in steps if step.write is not None),
        calls=tuple(step.call for step in steps if step.call is not None),
        waiting=waiting,
    )
