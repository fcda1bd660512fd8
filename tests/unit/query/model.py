"""A world as small as `decide` needs: rows without a database, agents without a network."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from headgate_coordinator.query.states import (
    Address,
    AgentView,
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
    Write,
    decide,
)
from headgate_coordinator.query.transitions import (
    FRAGMENT_ENDED,
    FRAGMENT_TRANSITIONS,
    QUERY_ENDED,
    QUERY_TRANSITIONS,
)


@dataclass
class World:
    """Checks each step: transitions are legal, slots are returned once, no more than one current run is alive."""

    query: QueryView
    fragments: dict[str, FragmentView]
    agents: dict[str, AgentView]
    # What agents run: by fragment, (agent, epoch) of every live run.
    runs: dict[str, set[tuple[str, int]]] = field(default_factory=dict)
    returned: dict[str, int] = field(default_factory=dict)
    deleted: bool = False
    steps: list[object] = field(default_factory=list)

    def decide(self) -> Decision:
        ordered = sorted(self.fragments.values(), key=lambda one: one.ordinal)
        return decide(self.query, ordered, self.agents)

    def write(self, decision: Decision) -> None:
        for write in decision.writes:
            self.steps.append(write)
            self._write(write)

    def _write(self, write: Write) -> None:
        match write:
            case SetState(to, _, blame):
                assert (self.query.state, to) in QUERY_TRANSITIONS, (self.query, write)
                if to == "RUNNING":
                    assert all(self._confirmed(one) for one in self.fragments.values())
                if to in QUERY_ENDED:
                    assert not any(one.held for one in self.fragments.values())
                assert blame is None or not self.query.failed
                failed = self.query.failed or blame is not None
                assert to != "FAILED" or failed
                self.query = replace(self.query, state=to, failed=failed, has_run=self.query.has_run or to == "RUNNING")
            case StopHard():
                assert self.query.stop_mode == "SOFT"
                self.query = replace(self.query, stop_mode="HARD")
            case Address(uid, incarnation):
                one = self.fragments[uid]
                assert one.state == "PENDING" and self.agents[one.agent].active
                self.fragments[uid] = replace(one, incarnation=incarnation)
            case NewEpoch(uid, move, _):
                self._new_epoch(self.fragments[uid], move)
            case Gone(uid, _):
                one = self.fragments[uid]
                assert not self.runs.get(uid), "something runs that is said to be gone"
                self._gone(one)
            case Delete():
                assert self.query.state in QUERY_ENDED and self.query.desired == "DROPPED"
                assert not any(one.held for one in self.fragments.values())
                self.deleted = True

    def _confirmed(self, one: FragmentView) -> bool:
        agent = self.agents.get(one.agent)
        if one.state == "TERMINATED":
            return True
        return one.state == "RUNNING" and agent is not None and agent.active and agent.incarnation == one.incarnation

    def _new_epoch(self, one: FragmentView, move: bool) -> None:
        assert one.state == "PENDING" or (one.state, "PENDING") in FRAGMENT_TRANSITIONS, one
        assert one.state != "TERMINATED"
        agent = one.agent
        if move:
            assert not one.node_local
            free = [uid for uid, other in self.agents.items() if other.active and uid != one.agent]
            if not free:
                self.fragments[one.uid] = replace(one, no_room=True)
                return
            agent = free[0]
        self.fragments[one.uid] = replace(
            one,
            state="PENDING",
            epoch=one.epoch + 1,
            agent=agent,
            agent_name=agent,
            incarnation="",
            held=True,
            draining=False,
            backing_off=False,
            last_error="",
        )

    def _gone(self, one: FragmentView) -> None:
        assert one.held
        self.returned[one.uid] = self.returned.get(one.uid, 0) + 1
        state = one.state if one.state in FRAGMENT_ENDED else "STOPPED"
        assert state == one.state or (one.state, state) in FRAGMENT_TRANSITIONS
        self.fragments[one.uid] = replace(one, held=False, state=state)

    def call(self, decision: Decision, *, works: bool = True) -> None:
        """What agents that answer do; if not `works`, the call happens and its answer is lost."""
        for call in decision.calls:
            self.steps.append(call)
            one = self.fragments[call.fragment]
            agent = self.agents[one.agent]
            assert agent.active, "an agent that does not answer is not called"
            assert not one.backing_off
            runs = self.runs.setdefault(one.uid, set())
            match call:
                case Register():
                    assert one.state == "PENDING" and one.incarnation == agent.incarnation
                    # A higher epoch replaces the former run on the same agent.
                    self.runs[one.uid] = {run for run in runs if run[0] != one.agent}
                    self._to(one, "REGISTERED", works)
                case Start():
                    assert one.state == "REGISTERED"
                    current = {run for run in runs if run[1] == one.epoch and run[0] != one.agent}
                    assert not current, "two live runs of one epoch"
                    runs.add((one.agent, one.epoch))
                    self._to(one, "STARTED", works)
                case Drain():
                    assert one.state in ("STARTED", "RUNNING")
                    for other in self.fragments.values():
                        if other.ordinal in one.upstream:
                            assert (one.agent, other.epoch) not in self.runs.get(other.uid, set()) or other.state in (
                                FRAGMENT_ENDED
                            ), "drained before what feeds it"
                    if works:
                        self.fragments[one.uid] = replace(one, draining=True)
                case Unregister():
                    assert one.held
                    self.runs[one.uid] = {run for run in runs if run[0] != one.agent}
                    if works:
                        self._gone(one)

    def _to(self, one: FragmentView, state: str, works: bool) -> None:
        if works:
            assert (one.state, state) in FRAGMENT_TRANSITIONS
            self.fragments[one.uid] = replace(one, state=state)

    @property
    def _hard(self) -> bool:
        return self.query.state == "STOPPING" and (self.query.failed or self.query.stop_mode == "HARD")

    def report(self) -> None:
        """A poll of every agent that answers: what started runs, what drains has stopped, zombies are stopped."""
        for uid, runs in self.runs.items():
            one = self.fragments[uid]
            current = (one.agent, one.epoch) if one.held else None
            self.runs[uid] = {run for run in runs if run == current or not self.agents[run[0]].active}
        for uid, one in list(self.fragments.items()):
            agent = self.agents.get(one.agent)
            if agent is None or not agent.active or not one.held:
                continue
            running = (one.agent, one.epoch) in self.runs.get(uid, set())
            if one.draining and one.state in ("STARTED", "RUNNING"):
                self.runs.get(uid, set()).discard((one.agent, one.epoch))
                self.fragments[uid] = replace(one, state="STOPPED", incarnation=agent.incarnation)
            elif one.state in ("REGISTERED", "STARTED", "RUNNING") and running:
                self.fragments[uid] = replace(one, state="RUNNING", incarnation=agent.incarnation)
            elif one.state in ("STARTED", "RUNNING") and not self._hard:
                # The agent does not know it.
                self.fragments[uid] = replace(one, state="PENDING", epoch=one.epoch + 1, incarnation="", draining=False)

    def time_passes(self) -> None:
        """Back-offs are over."""
        for uid, one in self.fragments.items():
            self.fragments[uid] = replace(one, backing_off=False, no_room=False)

    @property
    def settled(self) -> bool:
        query = self.query
        if self.deleted:
            return True
        if query.state in QUERY_ENDED:
            return query.desired != "DROPPED"
        return query.state == "RUNNING" and query.desired == "RUNNING"
