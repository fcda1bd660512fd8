"""Consumer groups in plans with a log: from a random stream of their own, beside what the plan has already."""

from __future__ import annotations

import random
from collections.abc import Sequence

from headgate_simulation.plan import AgentSpec, Fault, Operation
from headgate_simulation.streams import stream

# Share of plans that have groups.
GROUPS = 0.8
# What may come late: of members, and of those who lead.
_OF_MEMBERS = ("OffsetCommit", "OffsetCommit", "OffsetCommit", "SyncGroup")
_OF_LEADERS = ("CommitGroupOffsets", "CommitGroupOffsets", "CommitGroupOffsets", "AcquireGroup", "ReleaseGroups")


def groups(
    seed: int, agents: Sequence[AgentSpec], operations: Sequence[Operation], span: tuple[float, float]
) -> tuple[list[Operation], list[Fault]]:
    """Operations of consumers of the plan's topics between two times, and requests of theirs that come late."""
    source = stream(seed, "groups")
    topics = [one for one in operations if one.kind == "create_topic" and not str(one["topic"]).startswith("e")]
    if not topics or source.random() >= GROUPS:
        return [], []
    made = _Made(source, span)
    for number in range(1, source.choice((1, 1, 2)) + 1):
        topic = source.choice(topics)
        pace = source.choice((0.1, 0.1, 0.3, 0.6))
        if source.random() < 0.5:
            made.members(f"m{number}", topic, pace)
        else:
            made.committers(f"c{number}", topic, pace)
    moves = [one.at for one in operations if one.kind in ("join", "leave")]
    if source.random() < 0.5:
        moves.append(made.movement(source.choice(agents).name))
    for at in moves[-2:]:
        # Who leads changes while something is on its way.
        made.late(source.choice(_OF_LEADERS), at)
    return made.operations, made.faults


class _Made:
    def __init__(self, source: random.Random, span: tuple[float, float]) -> None:
        self._source = source
        self._span = span
        self.operations: list[Operation] = []
        self.faults: list[Fault] = []

    def members(self, group: str, topic: Operation, pace: float) -> None:
        """One after the other, so that each makes the others join again."""
        source = self._source
        at = self._when()
        for _ in range(source.choice((2, 2, 3))):
            self._add(at, "join_group", group=group, topic=topic["topic"], rounds=source.choice((20, 30)), pace=pace)
            at += source.uniform(0.0, 40.0 * pace)
            if source.random() < 0.8:
                self.late(source.choice(_OF_MEMBERS), at)

    def committers(self, group: str, topic: Operation, pace: float) -> None:
        source, count = self._source, topic["partitions"]
        assert isinstance(count, int)
        for index in range(min(count, 2)):
            commits = source.choice((10, 30))
            arguments = {"topic": topic["topic"], "partition": index, "commits": commits, "pace": pace}
            self._add(self._when(), "commit_offsets", group=group, **arguments)

    def movement(self, name: str) -> float:
        """An agent leaves and comes back: what it leads falls to others and, soon after, to it."""
        at = self._when()
        self._add(at, "leave", name=name)
        self._add(at + self._source.uniform(0.3, 4.0), "join", name=name)
        return at

    def late(self, method: str, at: float) -> None:
        source = self._source
        self.faults.append(
            Fault(
                f"k{len(self.faults) + 1}",
                round(max(self._span[0], at + source.uniform(-1.0, 0.3)), 3),
                round(source.uniform(1.0, 4.0), 3),
                "late-requests",
                method,
                (("by", source.choice((1.0, 4.0))),),
            )
        )

    def _when(self) -> float:
        begins, ends = self._span
        return begins + self._source.uniform(0.0, 0.6) * (ends - begins)

    def _add(self, at: float, kind: str, **arguments: object) -> None:
        self.operations.append(
            Operation(
                id=f"g{len(self.operations) + 1}",
                at=round(at, 3),
                client=1,
                kind=kind,
                arguments=tuple(arguments.items()),
                timeout=self._source.choice((1.0, 3.0, 8.0)),
            )
        )
