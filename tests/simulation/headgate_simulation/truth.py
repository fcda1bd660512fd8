"""What really runs: the runs that agents' processes execute at this moment, whatever the catalog believes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headgate.catalog import v1 as catalog
from headgate_agent.fragments.registry import FragmentRegistry
from headgate_simulation.loop import Domain, SimulationError

ENDED = (catalog.FRAGMENT_STATE_STOPPED, catalog.FRAGMENT_STATE_TERMINATED, catalog.FRAGMENT_STATE_FAILED)


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """One execution of one fragment by one process."""

    agent: str
    incarnation: str
    uid: str
    epoch: int
    domain: Domain

    def __str__(self) -> str:
        return f"run {self.uid} epoch {self.epoch} on {self.agent} ({self.incarnation})"


class TwoRuns(SimulationError):
    """Two epochs of one fragment act at the same time where only one may."""


class Truth:
    """Told by the scripted runs when they begin, run, complete and end. A process that dies ends its runs."""

    def __init__(self) -> None:
        self._runs: dict[str, dict[int, Run]] = {}
        # (uid, epoch) of runs that were running, and that completed by themselves.
        self.ran: set[tuple[str, int]] = set()
        self.completed: set[tuple[str, int]] = set()
        # Those that broke for good, and fragments that an agent refused for good.
        self.broken: set[tuple[str, int]] = set()
        self.refused: set[str] = set()
        # Those whose end an agent has told the coordinator.
        self._ended: set[tuple[str, int]] = set()
        # What the last process of each agent holds, whether or not it runs.
        self._registries: dict[str, tuple[Domain, FragmentRegistry]] = {}

    def opened(self, agent: str, domain: Domain, registry: FragmentRegistry) -> None:
        """A process of the agent has read its journal."""
        self._registries[agent] = (domain, registry)

    def holds(self, agent: str, incarnation: str, uid: str) -> int:
        """The epoch in which that process of the agent holds the fragment; 0 if it does not, or is no more."""
        domain, registry = self._registries.get(agent, (None, None))
        if domain is None or registry is None or not domain.alive or registry.incarnation != incarnation:
            return 0
        held = registry._held.get(uid)
        return 0 if held is None else held.epoch

    def count(self, agent: str, incarnation: str) -> int:
        """How many fragments that process of the agent has; 0 if it is no more."""
        domain, registry = self._registries.get(agent, (None, None))
        if domain is None or registry is None or not domain.alive or registry.incarnation != incarnation:
            return 0
        return len(registry._held)

    def all_held(self) -> list[tuple[str, int, str]]:
        """Every fragment that a process has, ended ones included: uid, epoch, agent."""
        return [
            (uid, held.epoch, agent)
            for agent, (domain, registry) in self._registries.items()
            if domain.alive
            for uid, held in registry._held.items()
        ]

    def begin(self, run: Run) -> None:
        """A run begins to act. One process never acts in two runs of one fragment at a time."""
        for other in self.runs_of(run.uid):
            if other.domain is run.domain:
                raise TwoRuns(f"one epoch acts at a time: {run} begins while {other} runs")
            if other.epoch == run.epoch and other.agent != run.agent:
                raise TwoRuns(f"one epoch acts at a time: {run} begins while {other} runs elsewhere")
        if (run.uid, run.epoch) in self._ended:
            raise TwoRuns(f"what has ended does not run again: {run} begins, though its end was told")
        self._runs.setdefault(run.uid, {})[id(run)] = run

    def running(self, run: Run) -> None:
        self.ran.add((run.uid, run.epoch))

    def end(self, run: Run) -> None:
        self._runs.get(run.uid, {}).pop(id(run), None)

    def complete(self, run: Run) -> None:
        self.completed.add((run.uid, run.epoch))
        self.end(run)

    def told(self, status: Any) -> None:
        """An agent has answered with its status."""
        for one in status.fragments:
            if one.state in ENDED:
                self._ended.add((one.fragment.uid, one.fragment.epoch))

    def runs_of(self, uid: str) -> list[Run]:
        found = self._runs.get(uid)
        if not found:
            return []
        for key in [key for key, run in found.items() if not run.domain.alive]:
            del found[key]
        return list(found.values())

    def all_runs(self) -> list[Run]:
        return [run for uid in tuple(self._runs) for run in self.runs_of(uid)]

    def check(self) -> None:
        """What `begin` checks, for all that runs now."""
        seen: dict[tuple[str, str], Run] = {}
        for run in self.all_runs():
            other = seen.setdefault((run.uid, run.domain.name), run)
            if other is not run:
                raise TwoRuns(f"one epoch acts at a time: {other} and {run}")
