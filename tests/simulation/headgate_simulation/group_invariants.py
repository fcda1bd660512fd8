"""What must hold of consumer groups: one leads at a time, generations and what is committed never go back.

A committed offset is a register. Every try of a commit has a tag of its own, stored as the text beside the offset, so
what the catalog holds names the try that put it there. A try that was acknowledged has happened by then and does not
happen again; one that failed may happen once more, at any later time. What is read is not older than what was
acknowledged before the question.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headgate_coordinator.catalog.log.groups import GRANT
from headgate_simulation.violation import fail

if TYPE_CHECKING:
    from headgate_simulation.log_world import LogWorld

_GROUPS = f"""
SELECT c.name, c.generation, g.epoch, g.session_uid
FROM consumer_groups c LEFT JOIN grants g ON g.kind = '{GRANT}' AND g.key = c.name
"""
_OFFSETS = "SELECT group_name, partition_key, metadata, next_offset FROM group_offsets"

# A group and a partition's key.
Place = tuple[str, str]


@dataclass(slots=True)
class Try:
    """One try of a commit, by ticks: when it began, and when its client was told that it is done."""

    place: Place
    tag: str
    offset: int
    generation: int
    began: int
    acknowledged: int | None = None
    # When the leader of the group first sent it to the catalog, and under which grant.
    sent: int | None = None
    grant: tuple[int, str] = (0, "")


@dataclass(slots=True)
class Register:
    """What a place has held, in order: the try, and the tick."""

    values: list[tuple[Try, int]] = field(default_factory=list)


class GroupChecker:
    def __init__(self, log: LogWorld) -> None:
        self._log = log
        self._raw = log.world.database.raw
        self._tick = 0
        self._groups: dict[str, tuple[int, int | None, str | None]] = {}
        self._offsets: dict[Place, tuple[str, int]] = {}
        # Groups and offsets as they were read.
        self._found: tuple[list[Any], list[Any]] = ([], [])
        self._writes = log.world.database.writes
        self._seen = -1
        self._tries: dict[str, Try] = {}
        self._registers: dict[Place, Register] = {}
        # By group and generation: who assigned, and which member has which partition.
        self._assigned: dict[tuple[str, int], dict[str, str]] = {}

    # What clients do

    def began(self, group: str, partition: str, tag: str, offset: int, generation: int = -1) -> Try:
        self._tick += 1
        one = self._tries[tag] = Try((group, partition), tag, offset, generation, self._tick)
        return one

    def acknowledged(self, one: Try) -> None:
        """The client knows that it is done: so it is stored, or one that came at the same time is in its place."""
        self._tick += 1
        one.acknowledged = self._tick
        self._log.world.trace.note("groups", "acknowledged", one.tag, *one.place)
        values = self._register(one.place).values
        if not any(tick > one.began for _, tick in values):
            fail("an acknowledged offset is stored", f"{one} was acknowledged, {_last(values)}", _about(one.place))

    def sent(self, request: Any) -> None:
        """A leader sends offsets to the catalog, for the first time or again."""
        self._tick += 1
        for offset in request.offsets:
            one = self._tries.get(offset.metadata)
            if one is not None and one.sent is None:
                one.sent, one.grant = self._tick, (request.epoch, request.session_id)

    def asks(self) -> int:
        self._tick += 1
        return self._tick

    def read(self, place: Place, since: int, tag: str | None) -> None:
        """A reader that asked at tick `since` was told of the commit with this tag; of none, if it is None."""
        values = self._register(place).values
        last = max((number for number, (one, _) in enumerate(values) if one.tag == tag), default=-1)
        if tag is not None and last < 0:
            fail("what is read was committed", f"{tag} of {place} was never stored", _about(place))
        for one, _ in values[last + 1 :]:
            if one.acknowledged is not None and one.acknowledged < since:
                fail(
                    "an acknowledged offset is read",
                    f"{place} was read as {tag}, after {one.tag} was acknowledged",
                    _about(place),
                )

    # After every commit

    def committed(self) -> None:
        self._tick += 1
        writes = self._writes["consumer_groups"] + self._writes["group_offsets"] + self._writes["grants"]
        if writes == self._seen:
            return
        self._seen = writes
        groups = self._raw.execute(_GROUPS).fetchall()
        offsets = self._raw.execute(_OFFSETS).fetchall()
        if (groups, offsets) == self._found:
            return
        self._found = (groups, offsets)
        before, self._groups = self._groups, {row[0]: row[1:] for row in groups}
        for name, row in self._groups.items():
            was = before.get(name)
            if was == row:
                continue
            if was is not None and row[0] < was[0]:
                fail("generations only grow", f"group {name} was at {was[0]}, and is at {row[0]}", (name,))
            self._leads_alone(name)
        held, self._offsets = self._offsets, {}
        for group, partition, tag, offset in offsets:
            place = (group, partition)
            self._offsets[place] = (tag, offset)
            if held.get(place) != (tag, offset):
                self._stored(place, tag, offset, before.get(group))
        if held.keys() - self._offsets.keys():
            fail("offsets stay", f"{held.keys() - self._offsets.keys()} are gone", ())

    def _stored(self, place: Place, tag: str, offset: int, group: tuple[int, int | None, str | None] | None) -> None:
        one = self._tries.get(tag)
        if one is None or one.place != place or one.offset != offset:
            fail("what is stored was committed", f"{place} became {offset} of {tag}, which is {one}", _about(place))
        values = self._register(place).values
        if one.acknowledged is not None:
            fail(
                "what was acknowledged does not happen again",
                f"{place} went from {_last(values)} to {tag}, which was acknowledged before",
                _about(place),
            )
        if self._groups[place[0]][1:] != one.grant:
            fail(
                "only the leader of a group commits",
                f"{one} was stored, and {self._groups[place[0]][1:]} leads",
                _about(place),
            )
        late = [other.tag for other, _ in values if other.acknowledged and (other.sent or 0) > (one.sent or 0)]
        if late:
            fail(
                "commits are stored in their order",
                f"{place} became {tag}, which its leader had sent before {late}, which were acknowledged",
                _about(place),
            )
        if group is not None and 0 <= one.generation < group[0]:
            fail(
                "a generation of before does not commit",
                f"{one} was stored while group {place[0]} was at generation {group[0]}",
                _about(place),
            )
        values.append((one, self._tick))

    def _leads_alone(self, name: str) -> None:
        """Nobody answers for a group, by its own clock, that another leads."""
        _, epoch, session = self._groups[name]
        for agent, log in self._log.alive():
            led = log.groups._led.get(name)
            if led is None or session is None or led.offsets.grant.session != log.member.session:
                continue
            if led.offsets.grant.session != session:
                fail(
                    "a group has one leader",
                    f"{agent} leads group {name} in epoch {led.offsets.grant.epoch}; the catalog says {epoch} of "
                    f"{session}",
                    (name, agent),
                )

    # With every answer to a member

    def told(self, agent: str, method: str, body: Any, answer: Any) -> None:
        """What an agent is about to tell a member. A generation that members may act in is stored, and has one
        assignment: no two members have the same partition in it."""
        if method != "SyncGroup" or answer.get("error_code"):
            return
        group, generation = body.group_id, body.generation_id
        stored = self._groups[group][0] if group in self._groups else -1
        if stored < generation:
            self._broken(
                "members are told of generations that are stored",
                f"{agent} let {body.member_id} into generation {generation} of {group}, stored is {stored}",
                (group, agent),
            )
        owners = self._assigned.setdefault((group, generation), {})
        for partition in answer["assignment"].decode().split():
            other = owners.setdefault(partition, body.member_id)
            if other != body.member_id:
                self._broken(
                    "a partition has one reader in a generation",
                    f"{partition} is {other}'s and {body.member_id}'s in generation {generation} of {group}",
                    (group, agent),
                )

    def _broken(self, invariant: str, message: str, about: tuple[str, ...]) -> None:
        with self._log.world.checking():
            fail(invariant, message, about)

    # At quiet

    def everything(self) -> None:
        """What is there is the last that was acknowledged, or one that may have come after it."""
        for place, register in self._registers.items():
            if not register.values:
                continue
            last = register.values[-1][0]
            later = [
                one
                for one in self._tries.values()
                if one.place == place and one.acknowledged is not None and one.began > (last.acknowledged or one.began)
            ]
            if later:
                fail("an acknowledged offset is kept", f"{place} ends with {last}, after {later}", _about(place))

    @property
    def places(self) -> list[Place]:
        return list(self._registers)

    def _register(self, place: Place) -> Register:
        found = self._registers.get(place)
        if found is None:
            found = self._registers[place] = Register()
        return found


def _about(place: Place) -> tuple[str, ...]:
    return place


def _last(values: list[tuple[Try, int]]) -> str:
    return f"{values[-1][0].tag} is there" if values else "nothing is there"
