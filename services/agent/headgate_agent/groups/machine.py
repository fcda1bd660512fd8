"""One consumer group as its leading agent sees it: a pure state machine. Events and the time go in, instructions come
out; there is no I/O and no clock here.

    Empty ---join---> PreparingRebalance ---all have joined, or time is up---> CompletingRebalance
      ^                  ^   |    ^                                                  |
      |   no members left|   |    |  a member joins, leaves or falls silent          | the leader has assigned, and the
      +------------------+---+    +------------------------------- Stable <----------+ catalog has the generation

The agent passes members' metadata and assignments on without looking into them, so eager and cooperative assignors work
alike. Each completed join is a new generation. A generation is in the catalog before any member works under it, so the
next agent to lead the group, which begins above what is stored, never gives one out again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from headgate_agent.groups.events import (
    Beat,
    Beaten,
    Event,
    GroupState,
    HungUp,
    Instruction,
    Join,
    Joined,
    Leave,
    Left,
    Lost,
    Refusal,
    Store,
    Stored,
    StoreFailed,
    Sync,
    Synced,
    Tick,
)

_NEVER = float("inf")
# Events of a group that are kept for whoever debugs one; no client and no operator is shown them.
STORY_LENGTH = 50


@dataclass(frozen=True, slots=True)
class Rules:
    """What members may ask for; times in seconds."""

    session_timeout_min: float = 1.0
    session_timeout_max: float = 1800.0
    rebalance_timeout_max: float = 3600.0
    max_size: int = 10_000
    # Of the metadata of one member, and of metadata and assignments of all members together.
    member_bytes: int = 1 << 20
    group_bytes: int = 64 << 20
    initial_rebalance_delay: float = 0.0
    # Looks at what is due come at least so far apart.
    tick_interval: float = 0.005


@dataclass(slots=True)
class Member:
    """`joining` and `syncing` are the requests that wait for an answer; while one does, silence is no fault."""

    id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout: float
    rebalance_timeout: float
    protocols: tuple[tuple[str, bytes], ...]
    expires: float
    assignment: bytes = b""
    joining: int | None = None
    syncing: int | None = None
    synced: bool = False

    @property
    def waits(self) -> bool:
        return self.joining is not None or self.syncing is not None

    @property
    def held(self) -> int:
        """Bytes that are kept of it."""
        return _length(self.protocols) + len(self.assignment)

    def metadata(self, protocol: str | None) -> bytes:
        return next((data for name, data in self.protocols if name == protocol), b"")


@dataclass(slots=True)
class GroupMachine:
    """`generation` is where it begins: above everything that was stored."""

    rules: Rules
    generation: int = 0
    state: GroupState = GroupState.EMPTY
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    members: dict[str, Member] = field(default_factory=dict)
    # Ids that were given out and have not joined yet, with the time at which they are forgotten.
    promised: dict[str, float] = field(default_factory=dict)
    # The instance ids of static members.
    statics: dict[str, str] = field(default_factory=dict)
    # What happened last, for people.
    story: list[str] = field(default_factory=list)
    # When something must happen at the latest; a lower bound.
    due: float = _NEVER
    _rebalance_at: float = _NEVER
    # The first rebalance of a group waits for more members, but not beyond this.
    _gather_until: float | None = None
    _assigned: dict[str, bytes] | None = None
    _out: list[Instruction] = field(default_factory=list)

    def handle(self, event: Event, now: float) -> list[Instruction]:
        self._out = []
        match event:
            case Join():
                self._join(event, now)
            case Sync():
                self._sync(event, now)
            case Beat():
                self._out.append(Beaten(event.request, self._beat(event, now)))
            case Leave():
                self._leave(event, now)
            case Stored():
                self._stored(event.generation, now)
            case StoreFailed():
                self._store_failed(event, now)
            case HungUp():
                self._hung_up(event.request, now)
            case Tick():
                self._tick(now)
            case Lost():
                self._lost(event.refusal)
        return self._out

    def check_commit(self, member_id: str, instance_id: str | None, generation: int, now: float) -> Refusal | None:
        """Whether a commit of offsets may be stored; one by a member also says that it is alive."""
        if self.state is GroupState.DEAD:
            return Refusal.NOT_COORDINATOR
        if generation < 0 and not member_id:
            return None if self.state is GroupState.EMPTY else Refusal.UNKNOWN_MEMBER_ID
        refusal = self._check(member_id, instance_id, generation)
        if refusal is not None:
            return refusal
        self._touch(self.members[member_id], now)
        return Refusal.REBALANCE_IN_PROGRESS if self.state is GroupState.COMPLETING_REBALANCE else None

    def _join(self, join: Join, now: float) -> None:
        refusal = self._check_join(join)
        if refusal is not None:
            self._refuse_join(join, refusal)
        elif not join.member_id and join.instance_id is not None:
            self._join_static(join, now)
        elif not join.member_id and join.needs_id:
            self.promised[join.new_id] = self._at(now + join.session_timeout)
            self._out.append(Joined(join.request, Refusal.MEMBER_ID_REQUIRED, join.new_id))
        elif not join.member_id:
            self._add(join, join.new_id, now)
        elif join.member_id in self.promised:
            del self.promised[join.member_id]
            self._add(join, join.member_id, now)
        else:
            self._join_again(join, self.members[join.member_id], now)

    def _check_join(self, join: Join) -> Refusal | None:
        rules = self.rules
        if self.state is GroupState.DEAD:
            return Refusal.NOT_COORDINATOR
        if not rules.session_timeout_min <= join.session_timeout <= rules.session_timeout_max:
            return Refusal.INVALID_SESSION_TIMEOUT
        if join.member_id and join.member_id not in self.promised:
            if join.instance_id is not None and self.statics.get(join.instance_id, join.member_id) != join.member_id:
                return Refusal.FENCED_INSTANCE_ID
            if join.member_id not in self.members:
                return Refusal.UNKNOWN_MEMBER_ID
        elif join.instance_id not in self.statics and self._size(join.member_id) >= rules.max_size:
            return Refusal.GROUP_MAX_SIZE_REACHED
        if not join.protocols or not join.protocol_type:
            return Refusal.INCONSISTENT_GROUP_PROTOCOL
        if not self._has_room(join):
            return Refusal.POLICY_VIOLATION
        if self.members:
            others = [member for member in self.members.values() if not self._same(member, join)]
            common = _common(others)
            if join.protocol_type != self.protocol_type or (
                common is not None and not any(name in common for name, _ in join.protocols)
            ):
                return Refusal.INCONSISTENT_GROUP_PROTOCOL
        return None

    def _has_room(self, join: Join) -> bool:
        """Whether what a member says of itself may be kept."""
        said = _length(join.protocols)
        others = sum(member.held for member in self.members.values() if not self._same(member, join))
        return said <= self.rules.member_bytes and others + said <= self.rules.group_bytes

    def _size(self, member_id: str) -> int:
        return len(self.members) + len(self.promised) - (member_id in self.promised)

    def _same(self, member: Member, join: Join) -> bool:
        return member.id == join.member_id or (join.instance_id is not None and member.instance_id == join.instance_id)

    def _refuse_join(self, join: Join, refusal: Refusal) -> None:
        self._out.append(Joined(join.request, refusal, join.member_id))

    def _add(self, join: Join, member_id: str, now: float) -> None:
        member = Member(
            member_id,
            join.instance_id,
            join.client_id,
            join.client_host,
            join.session_timeout,
            self._rebalance_timeout(join),
            join.protocols,
            expires=self._at(now + join.session_timeout),
            joining=join.request,
        )
        if not self.members:
            self.protocol_type = join.protocol_type
        self.members[member_id] = member
        if join.instance_id is not None:
            self.statics[join.instance_id] = member_id
        self._tell(f"{member_id} joins")
        self._rebalance(now)

    def _rebalance_timeout(self, join: Join) -> float:
        # Version 0 of the request has none: the session's is meant.
        asked = join.rebalance_timeout if join.rebalance_timeout >= 0 else join.session_timeout
        return min(asked, self.rules.rebalance_timeout_max)

    def _join_static(self, join: Join, now: float) -> None:
        """A static member comes back: it takes the place, and the assignment, of the process before it."""
        assert join.instance_id is not None
        old_id = self.statics.get(join.instance_id)
        if old_id is None:
            self._add(join, join.new_id, now)
            return
        old = self.members.pop(old_id)
        self._answer_member(old, Refusal.FENCED_INSTANCE_ID)
        leader_before = self.leader
        if self.leader == old_id:
            self.leader = join.new_id
        member = Member(
            join.new_id,
            join.instance_id,
            join.client_id,
            join.client_host,
            join.session_timeout,
            self._rebalance_timeout(join),
            join.protocols,
            expires=self._at(now + join.session_timeout),
            assignment=old.assignment,
        )
        self.members[join.new_id] = member
        self.statics[join.instance_id] = join.new_id
        self._tell(f"{join.new_id} takes the place of {old_id}")
        if self.state is GroupState.STABLE and self._select() == self.protocol:
            leads = self.leader == join.new_id
            skip = leads and join.skips_assignment
            # A leader that cannot skip assigning is told its former id: it then follows, and nothing is assigned anew.
            self._out.append(
                self._joined(
                    member, join.request, leader_before if leads and not skip else self.leader, full=skip, skip=skip
                )
            )
            return
        member.joining = join.request
        if self.state is GroupState.PREPARING_REBALANCE:
            self._try_complete(now)
        else:
            self._rebalance(now)

    def _join_again(self, join: Join, member: Member, now: float) -> None:
        unchanged = member.protocols == join.protocols
        settled = self.state is GroupState.COMPLETING_REBALANCE or (
            self.state is GroupState.STABLE and member.id != self.leader
        )
        if unchanged and settled:
            # It may not have got the answer to its last join.
            self._touch(member, now)
            self._out.append(self._joined(member, join.request, self.leader, full=member.id == self.leader))
            return
        self._answer_member(member, Refusal.REBALANCE_IN_PROGRESS)
        member.protocols = join.protocols
        member.session_timeout, member.rebalance_timeout = join.session_timeout, self._rebalance_timeout(join)
        member.joining = join.request
        self._rebalance(now)

    def _rebalance(self, now: float) -> None:
        """Begins a rebalance, unless one has begun; completes it if everyone is there."""
        if self.state is not GroupState.PREPARING_REBALANCE:
            self._abandon_syncs(Refusal.REBALANCE_IN_PROGRESS, now)
            first = self.state is GroupState.EMPTY and self.rules.initial_rebalance_delay > 0
            self.state = GroupState.PREPARING_REBALANCE
            longest = self._longest_rebalance()
            self._gather_until = now + longest if first else None
            self._rebalance_at = self._at(now + (self.rules.initial_rebalance_delay if first else longest))
        self._try_complete(now)

    def _longest_rebalance(self) -> float:
        return max((member.rebalance_timeout for member in self.members.values()), default=0.0)

    def _abandon_syncs(self, refusal: Refusal, now: float) -> None:
        self._assigned = None
        for member in self.members.values():
            member.synced = False
            if member.syncing is not None:
                self._out.append(Synced(member.syncing, refusal))
                member.syncing = None
                self._touch(member, now)

    def _try_complete(self, now: float) -> None:
        if self._gather_until is not None or (self.promised and self.members):
            return
        if all(member.joining is not None for member in self.members.values()):
            self._complete(now)

    def _complete(self, now: float) -> None:
        """Everyone who will has joined: the next generation."""
        for member in [one for one in self.members.values() if one.joining is None and one.instance_id is None]:
            self._forget(member, "did not join in time")
        joined = [member for member in self.members.values() if member.joining is not None]
        if self.members and not joined:
            # Only static members that are away: they have until their sessions end.
            self._rebalance_at = self._at(now + max(self._longest_rebalance(), 1.0))
            return
        self._gather_until = None
        self.generation += 1
        if not self.members:
            self._become_empty()
            return
        if self.leader not in self.members or self.members[self.leader].joining is None:
            self.leader = joined[0].id
        self.protocol = self._select()
        self.state = GroupState.COMPLETING_REBALANCE
        self._rebalance_at = self._at(now + self._longest_rebalance())
        self._tell(f"generation {self.generation}: {len(self.members)} members, {self.protocol}")
        for member in self.members.values():
            member.synced = False
            if member.joining is not None:
                self._out.append(self._joined(member, member.joining, self.leader, full=member.id == self.leader))
                member.joining = None
                self._touch(member, now)

    def _become_empty(self) -> None:
        self.state = GroupState.EMPTY
        self.protocol, self.leader, self._rebalance_at = None, "", _NEVER
        self._tell(f"generation {self.generation}: no members")
        self._out.append(Store(self.generation))

    def _joined(self, member: Member, request: int, leader: str, *, full: bool, skip: bool = False) -> Joined:
        members = (
            [(one.id, one.instance_id, one.metadata(self.protocol)) for one in self.members.values()] if full else []
        )
        return Joined(
            request, None, member.id, self.generation, self.protocol_type, self.protocol, leader, members, skip
        )

    def _select(self) -> str:
        """The protocol that all know and most prefer; among equals the one that the oldest member prefers."""
        common = _common(self.members.values()) or set()
        votes = Counter(
            next(name for name, _ in member.protocols if name in common) for member in self.members.values()
        )
        return votes.most_common(1)[0][0]

    def _sync(self, sync: Sync, now: float) -> None:
        refusal = self._check_sync(sync)
        if refusal is not None:
            self._out.append(Synced(sync.request, refusal))
            return
        member = self.members[sync.member_id]
        self._touch(member, now)
        if self.state is GroupState.STABLE:
            self._out.append(self._synced(member, sync.request))
            return
        if member.syncing is not None:
            self._out.append(Synced(member.syncing, Refusal.REBALANCE_IN_PROGRESS))
        member.syncing, member.synced = sync.request, True
        if member.id == self.leader and self._assigned is None:
            self._assigned = dict(sync.assignments)
            self._out.append(Store(self.generation))

    def _check_sync(self, sync: Sync) -> Refusal | None:
        refusal = self._check(sync.member_id, sync.instance_id, sync.generation)
        if refusal is not None:
            return refusal
        if self.state is GroupState.PREPARING_REBALANCE:
            return Refusal.REBALANCE_IN_PROGRESS
        if sync.protocol_type not in (None, self.protocol_type) or sync.protocol not in (None, self.protocol):
            return Refusal.INCONSISTENT_GROUP_PROTOCOL
        if sync.assignments and not self._has_room_for(sync):
            return Refusal.POLICY_VIOLATION
        return None

    def _has_room_for(self, sync: Sync) -> bool:
        """Whether the assignments of all members may be kept, in the place of those that they have."""
        said = sum(_length(member.protocols) for member in self.members.values())
        return said + sum(map(len, sync.assignments.values())) <= self.rules.group_bytes

    def _synced(self, member: Member, request: int) -> Synced:
        return Synced(request, None, self.protocol_type, self.protocol, member.assignment)

    def _stored(self, generation: int, now: float) -> None:
        if self._assigned is None or generation != self.generation or self.state is not GroupState.COMPLETING_REBALANCE:
            return
        self.state = GroupState.STABLE
        assigned, self._assigned = self._assigned, None
        # Members that have not synced yet get theirs when they do; those that never do are found by their silence.
        self._rebalance_at = _NEVER
        for member in self.members.values():
            member.assignment = assigned.get(member.id, b"")
            if member.syncing is not None:
                self._out.append(self._synced(member, member.syncing))
                member.syncing = None
                self._touch(member, now)

    def _store_failed(self, failed: StoreFailed, now: float) -> None:
        if self._assigned is None or failed.generation != self.generation:
            return
        self._tell(f"generation {failed.generation} could not be stored: {failed.refusal.name}")
        self._abandon_syncs(failed.refusal, now)

    def _beat(self, beat: Beat, now: float) -> Refusal | None:
        refusal = self._check(beat.member_id, beat.instance_id, beat.generation)
        if refusal is not None:
            return refusal
        self._touch(self.members[beat.member_id], now)
        return Refusal.REBALANCE_IN_PROGRESS if self.state is GroupState.PREPARING_REBALANCE else None

    def _check(self, member_id: str, instance_id: str | None, generation: int) -> Refusal | None:
        if self.state is GroupState.DEAD:
            return Refusal.NOT_COORDINATOR
        if instance_id is not None and self.statics.get(instance_id, member_id) != member_id:
            return Refusal.FENCED_INSTANCE_ID
        if member_id not in self.members:
            return Refusal.UNKNOWN_MEMBER_ID
        return Refusal.ILLEGAL_GENERATION if generation != self.generation else None

    def _leave(self, leave: Leave, now: float) -> None:
        refusals: list[Refusal | None] = []
        gone = False
        for member_id, instance_id in leave.members:
            refusal, found = self._leaving(member_id, instance_id)
            refusals.append(refusal)
            if found is not None:
                self._answer_member(found, Refusal.UNKNOWN_MEMBER_ID)
                self._forget(found, "leaves")
                gone = True
        self._out.append(Left(leave.request, refusals))
        if gone:
            self._shrunk(now)
        elif self.state is GroupState.PREPARING_REBALANCE:
            self._try_complete(now)

    def _leaving(self, member_id: str, instance_id: str | None) -> tuple[Refusal | None, Member | None]:
        if self.state is GroupState.DEAD:
            return Refusal.NOT_COORDINATOR, None
        if instance_id is not None:
            known = self.statics.get(instance_id)
            if known is None:
                return Refusal.UNKNOWN_MEMBER_ID, None
            if member_id and member_id != known:
                return Refusal.FENCED_INSTANCE_ID, None
            return None, self.members[known]
        if self.promised.pop(member_id, None) is not None:
            return None, None
        member = self.members.get(member_id)
        return (None, member) if member is not None else (Refusal.UNKNOWN_MEMBER_ID, None)

    def _shrunk(self, now: float) -> None:
        """Members are gone: what they had goes to the others."""
        if self.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self._rebalance(now)
        elif self.state is GroupState.PREPARING_REBALANCE:
            if not self.members:
                self._gather_until = None
            self._try_complete(now)

    def _forget(self, member: Member, why: str) -> None:
        self._tell(f"{member.id} {why}")
        del self.members[member.id]
        if member.instance_id is not None and self.statics.get(member.instance_id) == member.id:
            del self.statics[member.instance_id]
        if self.leader == member.id:
            self.leader = ""

    def _answer_member(self, member: Member, refusal: Refusal) -> None:
        """Answers what a member waits for."""
        if member.joining is not None:
            self._out.append(Joined(member.joining, refusal, member.id))
            member.joining = None
        if member.syncing is not None:
            self._out.append(Synced(member.syncing, refusal))
            member.syncing = None

    def _hung_up(self, request: int, now: float) -> None:
        for member in self.members.values():
            if member.joining == request:
                member.joining = None
                self._touch(member, now)
            if member.syncing == request:
                member.syncing = None
                self._touch(member, now)

    def _tick(self, now: float) -> None:
        for member_id in [one for one, until in self.promised.items() if until <= now]:
            del self.promised[member_id]
        silent = [member for member in self.members.values() if not member.waits and member.expires <= now]
        for member in silent:
            self._forget(member, "fell silent")
        if silent:
            self._shrunk(now)
        if self.state is GroupState.PREPARING_REBALANCE:
            self._rebalance_due(now)
        elif self.state is GroupState.COMPLETING_REBALANCE and self._rebalance_at <= now and self._assigned is None:
            late = [member for member in self.members.values() if not member.synced]
            for member in late:
                self._forget(member, "did not sync in time")
            self._shrunk(now)
        self.due = self._next_due()

    def _rebalance_due(self, now: float) -> None:
        if self._rebalance_at > now:
            self._try_complete(now)
        elif self._gather_until is not None and self.promised and now < self._gather_until:
            self._rebalance_at = min(now + self.rules.initial_rebalance_delay, self._gather_until)
        else:
            self._gather_until = None
            self._complete(now)

    def _next_due(self) -> float:
        times: list[float] = [self._rebalance_at, *self.promised.values()]
        times.extend(member.expires for member in self.members.values() if not member.waits)
        return min(times)

    def _lost(self, refusal: Refusal) -> None:
        for member in self.members.values():
            self._answer_member(member, refusal)
        self.members, self.promised, self.statics = {}, {}, {}
        self.state, self.leader, self.protocol = GroupState.DEAD, "", None
        self._rebalance_at = self.due = _NEVER
        self._assigned = None

    def _touch(self, member: Member, now: float) -> None:
        member.expires = self._at(now + member.session_timeout)

    def _at(self, when: float) -> float:
        self.due = min(self.due, when)
        return when

    def _tell(self, what: str) -> None:
        self.story.append(what)
        del self.story[:-STORY_LENGTH]


def _common(members: Iterable[Member]) -> set[str] | None:
    """The protocols that all members know; None where there is no member."""
    common: set[str] | None = None
    for member in members:
        names = {name for name, _ in member.protocols}
        common = names if common is None else common & names
    return common


def _length(protocols: Iterable[tuple[str, bytes]]) -> int:
    return sum(len(name) + len(data) for name, data in protocols)
