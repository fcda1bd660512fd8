"""Faults of plans: how many, when, of which kind, to whom, and how bad."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headgate_simulation.log_faults import STORE
from headgate_simulation.plan import LEADER, AgentSpec, Fault
from headgate_simulation.streams import stream

# Calls of agents about partitions, each of which changes the catalog, if it may, and how often they come late.
_COMMITTING = (
    ("ReplaceSegments", 4),
    ("CompleteTransfers", 5),
    ("CommitSegments", 2),
    ("StartTransfers", 1),
    ("AnswerTransfers", 1),
    ("AcquirePartitions", 1),
    ("ReleasePartitions", 1),
    ("ReserveOffsets", 1),
)


class Moment(NamedTuple):
    """When much happens at a time, and to which agent most of it."""

    at: float
    agent: str


@dataclass(frozen=True, slots=True)
class FaultKinds:
    """What can go wrong in plans of one sort."""

    # How often, what, and with whom: an agent, a coordinator, whoever leads at that moment, the object store (for one
    # agent or for all), or any process.
    kinds: Sequence[tuple[float, str, str]]
    # How many there are, at least and at most.
    count: tuple[int, int]
    # Between which times those are spread that come alone.
    between: tuple[float, float]
    # How often one comes around a moment.
    together: float
    # How long one of a kind lasts, about, in seconds, and by which factors that differs.
    lasts: Callable[[str], Sequence[float]]
    spread: tuple[float, float]

    def draw(
        self, source: random.Random, agents: Sequence[AgentSpec], coordinators: int, moments: Sequence[Moment]
    ) -> list[Fault]:
        names = [agent.name for agent in agents]
        leaders = [f"c{number}" for number in range(1, coordinators + 1)]
        faults = []
        for number in range(1, source.randint(*self.count) + 1):
            moment = source.choice(moments) if source.random() < self.together else None
            at = source.uniform(*self.between) if moment is None else around(source, moment, self.between[1])
            struck = names if moment is None or source.random() < 0.4 else [moment.agent]
            kind, target, arguments = self._fault(source, struck, leaders)
            faults.append(
                Fault(
                    id=f"f{number}",
                    at=round(at, 3),
                    lasts=round(source.choice(self.lasts(kind)) * source.uniform(*self.spread), 3),
                    kind=kind,
                    target=target,
                    arguments=tuple(arguments.items()),
                )
            )
        return sorted(faults, key=lambda fault: fault.at)

    def _fault(
        self, source: random.Random, agents: Sequence[str], coordinators: Sequence[str]
    ) -> tuple[str, str, dict[str, object]]:
        (_, kind, whom) = source.choices(self.kinds, weights=[entry[0] for entry in self.kinds])[0]
        agent, coordinator = source.choice(agents), source.choice(coordinators)
        targets = {"agent": agent, "coordinator": coordinator, "leader": LEADER}
        targets["any"] = source.choice([*agents, *coordinators])
        if any(entry[2] == "store" for entry in self.kinds):
            targets["store"] = STORE if source.random() < 0.5 else agent
        other = coordinator if whom == "agent" else agent
        return kind, targets[whom], _arguments(source, kind, other)


def late(source: random.Random, moments: Sequence[Moment]) -> list[Fault]:
    """Messages that come late. All at a time: an agent whose messages are held loses its session; one that hears
    nothing of the coordinator stops by its own clock, and its session lives on. Or those of one method, so that what
    was sent before a leader stopped comes when it leads again: in a time, or the next one that is sent, after which
    nobody hears of its session for a moment."""
    faults: list[Fault] = []

    def add(kind: str, target: str, at: float, **arguments: object) -> None:
        lasts = round(source.uniform(2.0, 8.0), 3)
        faults.append(Fault(f"l{len(faults) + 1}", round(at, 3), lasts, kind, target, tuple(arguments.items())))

    for _ in range(source.choice((0, 1, 2, 2))):
        moment = source.choice(moments)
        match source.randrange(5):
            case 0:
                add("held", moment.agent, moment.at + source.uniform(0.1, 2.0))
            case 1:
                add("held", LEADER, moment.at, after="StartTransfers")
            case _:
                ((method, _),) = source.choices(_COMMITTING, [share for _, share in _COMMITTING])
                if source.random() < 0.3:
                    add("late-requests", method, moment.at, by=source.choice((2.0, 5.0)))
                    add("late-replies", "RenewSession", moment.at, by=source.choice((2.0, 3.0)))
                else:
                    deaf = source.uniform(1.2, 2.5)
                    add("late-next", method, moment.at, by=deaf + source.uniform(0.3, 3.0), deaf=deaf)
    return faults


def clocks(seed: int, agents: Sequence[AgentSpec], coordinators: int, between: tuple[float, float]) -> list[Fault]:
    """Wall clocks that jump, by more than any lease lives and by more than anything is kept. Nothing may come of it."""
    source = stream(seed, "clocks")
    # Whoever leads, who stands by, and two agents.
    targets = [LEADER, *(f"c{number}" for number in range(1, coordinators + 1)), *(agent.name for agent in agents[:2])]
    targets += targets[1 : coordinators + 1]
    faults = []
    for number in range(1, source.choice((0, 1, 2, 3, 4)) + 1):
        target = source.choice(targets)
        by = source.choice((1.0, -1.0)) * source.choice((5.0, 600.0, 100_000.0))
        at = round(source.uniform(*between), 3)
        faults.append(Fault(f"h{number}", at, 0.0, "wall-clock", target, (("by", by),)))
    return faults


def between_agents(seed: int, agents: Sequence[AgentSpec], between: tuple[float, float]) -> list[Fault]:
    """Agents that do not reach each other, both ways or one, though the coordinator reaches all of them."""
    source = stream(seed, "between-agents")
    faults = []
    for number in range(1, source.choice((1, 2, 3)) + 1):
        target, other = source.sample([agent.name for agent in agents], 2)
        kind = source.choice(("partition", "one-way", "one-way"))
        at, lasts = round(source.uniform(*between), 3), round(source.choice((0.5, 2.0, 6.0)), 3)
        faults.append(Fault(f"b{number}", at, lasts, kind, target, (("other", other),)))
    return faults


def around(source: random.Random, moment: Moment, latest: float) -> float:
    return min(moment.at + source.uniform(-0.3, 0.7), latest)


def _arguments(source: random.Random, kind: str, other: str) -> dict[str, object]:
    """How bad a fault of a kind is; `other` is whom it is with, where it is between two."""
    arguments: dict[str, object] = {}
    match kind:
        case "partition" | "one-way":
            arguments["other"] = other
        case "slow" | "depose":
            arguments["factor"] = source.choice((20.0, 200.0, 1000.0))
        case "late-answers":
            arguments["tail"] = source.choice((0.4, 1.0, 3.0))
        case "lossy":
            arguments["loss"] = source.choice((0.1, 0.3, 0.6))
        case "duplicating":
            arguments["share"] = source.choice((0.3, 0.8))
        case "commit-fails" | "commit-lost" | "store-fails" | "store-lost":
            arguments["share"] = source.choice((0.1, 0.5, 1.0))
        case "commit-pauses":
            arguments["delay"] = source.choice((0.5, 2.0, 5.0))
        case "store-slow":
            arguments["delay"] = source.choice((0.3, 1.0, 6.0))
        case "crash-at-commit" | "crash-at-journal":
            arguments["after"] = source.random() < 0.6
        case "crash-at-wal":
            arguments["when"] = source.choice(("before", "unsynced", "unsynced", "unsynced", "synced"))
            arguments["power"] = source.random() < 0.7
        case "crash-at-upload":
            arguments["when"] = source.choice(("before", "after", "after"))
        case "disk-full":
            arguments["broken"] = source.random() < 0.4
        case "wall-clock":
            arguments["by"] = source.choice((-86400.0, -30.0, 30.0, 86400.0))
        case "runs-break":
            arguments["transient"] = source.random() < 0.7
    return arguments
