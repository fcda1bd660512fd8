"""Which agent leads which partition: consistent hashing that every agent computes alone, with the same result.

Each agent stands at 150 places of a ring of 64-bit hashes; a partition belongs to the agent at the first place
clockwise of its own hash. So an agent that joins takes only what falls to it, and what a lost one leaves goes to its
neighbours on the ring. Where agents name zones, no zone leads more of a topic than its share of agents and some slack
allows: a partition walks on clockwise past zones that are full.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

VIRTUAL_NODES = 150
# How far above its fair share of a topic's partitions a zone may go. Less slack spreads better and moves more when
# membership changes; at 1.25 the movement stays within a few per cent of the bare ring's.
ZONE_SLACK = 1.25

_MASK = (1 << 64) - 1
_FNV_OFFSET = 0xCBF29CE484222325
_FNV_PRIME = 0x100000001B3


def fnv1a(data: bytes) -> int:
    value = _FNV_OFFSET
    for byte in data:
        value = ((value ^ byte) * _FNV_PRIME) & _MASK
    return value


def finalise(value: int) -> int:
    """Murmur3's 64-bit finaliser: FNV-1a alone leaves similar keys close together."""
    value ^= value >> 33
    value = (value * 0xFF51AFD7ED558CCD) & _MASK
    value ^= value >> 33
    value = (value * 0xC4CEB9FE1A85EC53) & _MASK
    return value ^ (value >> 33)


def place(key: str) -> int:
    """Where a key stands on the ring. The same in every process: tests/unit/log has vectors."""
    return finalise(fnv1a(key.encode()))


@dataclass(frozen=True, slots=True)
class Member:
    """An agent whose session lives."""

    name: str
    zone: str = ""
    group: str = "default"


# What is done by one agent for all is looked up again and again, mostly among the same members.
@lru_cache(maxsize=64)
def _laid_out(members: tuple[Member, ...]) -> tuple[tuple[int, ...], tuple[Member, ...]]:
    """All places on the ring in order, and who stands there."""
    # Two places may collide; the name decides, so that the order of `members` does not.
    points = sorted(
        (place(f"{member.name}:vn{index}"), member.name, member) for member in members for index in range(VIRTUAL_NODES)
    )
    return tuple(point for point, _, _ in points), tuple(member for _, _, member in points)


@dataclass(slots=True)
class Ring:
    """The ring of one group's members. Immutable once made; make a new one when membership changes."""

    members: Sequence[Member]
    _places: Sequence[int] = field(init=False)
    _owners: Sequence[Member] = field(init=False)

    def __post_init__(self) -> None:
        self._places, self._owners = _laid_out(tuple(self.members))

    def leaders(self, topic: str, partitions: int) -> list[str]:
        """The leader of each partition of a topic, by index. Empty names where the group has no member."""
        if not self._places:
            return [""] * partitions
        room = self._room(partitions)
        return [self._walk(topic, partition, room) for partition in range(partitions)]

    def _walk(self, topic: str, partition: int, room: dict[str, int] | None) -> str:
        count = len(self._places)
        start = bisect_left(self._places, place(f"{topic}:{partition}"))
        for step in range(count):
            member = self._owners[(start + step) % count]
            if room is None:
                return member.name
            if room[member.zone] > 0:
                room[member.zone] -= 1
                return member.name
        raise AssertionError("the zones together have room for every partition")

    def _room(self, partitions: int) -> dict[str, int] | None:
        """How many partitions each zone may still lead; None where zones do not matter."""
        sizes: dict[str, int] = {}
        for member in self.members:
            sizes[member.zone] = sizes.get(member.zone, 0) + 1
        if len(sizes) < 2:
            return None
        total = len(self.members)
        return {zone: math.ceil(partitions * size / total * ZONE_SLACK) for zone, size in sizes.items()}


def rings(members: Iterable[Member]) -> dict[str, Ring]:
    """One ring for each group."""
    groups: dict[str, list[Member]] = {}
    for member in members:
        groups.setdefault(member.group, []).append(member)
    return {group: Ring(tuple(found)) for group, found in groups.items()}
