"""The consumer groups of an agent: takes the lead of those that fall to it, and answers their members.

A group is led under a grant of the catalog, with an epoch: every commit of offsets and every generation is checked
against it there. An agent that takes a group over knows its offsets and its last generation, and not its members: they
are told UNKNOWN_MEMBER_ID, and join again. An agent that should not lead a group answers NOT_COORDINATOR. While it is
in doubt whether its own session lives, an agent keeps its groups, and whoever asks waits; where it has ended, the
answer is COORDINATOR_NOT_AVAILABLE.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from headgate.log import v1 as log_api
from headgate_agent.groups.catalog import GroupCatalog, GroupGrant
from headgate_agent.groups.events import GroupRefused, GroupState, Refusal
from headgate_agent.groups.machine import Member, Rules
from headgate_agent.groups.offsets import LedOffsets, OffsetKey
from headgate_agent.groups.placing import GroupPlacing
from headgate_agent.groups.shell import LedGroup
from headgate_agent.log.access import ClusterView, Peer
from headgate_agent.log.certainty import Certainty
from headgate_agent.shared_fetches import SharedFetches
from headgate_common.clock import Clock
from headgate_common.errors import HeadgateError
from headgate_common.signals import Signal

log = logging.getLogger(__name__)

MAX_NAME = 255
_NOT_OURS = ("STALE_EPOCH", "SESSION_EXPIRED", "GRANT_CONFLICT")


@dataclass(frozen=True, slots=True)
class GroupTimings:
    """In seconds, on the agent's monotonic clock."""

    # Groups without members leave memory after so long without a request; their offsets are in the catalog.
    forget_after: float = 600.0
    # How often it is looked whether groups fall to another agent, and a grant that was not given back is tried again.
    look_interval: float = 0.5
    # After these times it is looked whether a call that was given up, or made again, has come late.
    looks_back: Sequence[float] = (0.0, 2.0, 8.0, 30.0)


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group as an operator sees it."""

    name: str
    state: GroupState
    protocol_type: str
    protocol: str
    members: Sequence[Member]


@dataclass(slots=True)
class _Doubt:
    """A session that may have been given a group, or may be yet, since when, and how often that was looked at."""

    session: str
    since: float
    looks: int = 0


class Groups:
    def __init__(
        self,
        agent: str,
        view: ClusterView,
        catalog: GroupCatalog,
        certainty: Certainty,
        rules: Rules,
        clock: Clock,
        timings: GroupTimings | None = None,
    ) -> None:
        """`certainty` is of this agent's session."""
        self._agent, self._view, self._catalog, self._certainty = agent, view, catalog, certainty
        self._rules, self._clock, self._timings = rules, clock, timings or GroupTimings()
        self._leaving = False
        self._placing = GroupPlacing(view)
        self._led: dict[str, LedGroup] = {}
        self._loading: SharedFetches[str, LedGroup] = SharedFetches()
        self._releasing: dict[str, asyncio.Task[None]] = {}
        # Groups that may be led without knowing it.
        self._doubts: dict[str, _Doubt] = {}
        # Set when there is something to look after.
        self._busy = Signal()

    def owner(self, group: str) -> Peer | None:
        return self._placing.owner(group)

    async def run(self) -> None:
        """Gives up groups that fall to another agent, until it is cancelled."""
        while True:
            if not self._led and not self._doubts:
                self._busy.clear()
                await self._busy.wait()
            await asyncio.sleep(self._timings.look_interval)
            now, session = self._clock.monotonic(), self._certainty.session
            for led in tuple(self._led.values()):
                owner = self.owner(led.name)
                granted = led.offsets.grant.session
                lives = session == granted or self._certainty.in_doubt(granted)
                ours = lives and owner is not None and owner.name == self._agent
                unused = led.machine.state is GroupState.EMPTY and now - led.last_used > self._timings.forget_after
                if not ours or unused:
                    self._give_up(led)
            self._look_back(now, session)

    def _look_back(self, now: float, session: str | None) -> None:
        """Gives back what came to this agent after it had stopped waiting for it."""
        looks_back = self._timings.looks_back
        for group, doubt in tuple(self._doubts.items()):
            if session not in (None, doubt.session) or doubt.looks == len(looks_back):
                del self._doubts[group]
            elif session is None or now - doubt.since < looks_back[doubt.looks]:
                continue
            elif group not in self._led and group not in self._releasing and group not in self._loading:
                doubt.looks += 1
                self._release_soon(group, self._settle(group, doubt))

    async def leave(self) -> None:
        """Gives up all groups, so that others can lead them at once, and takes no more. Before the session ends."""
        self._leaving = True
        await asyncio.gather(*self._loading.running(), return_exceptions=True)
        for led in tuple(self._led.values()):
            self._give_up(led)
        await asyncio.gather(*self._releasing.values(), return_exceptions=True)

    async def close(self) -> None:
        """Ends all that is under way, and tells everyone who waits. What was not given back goes with the session."""
        self._leaving = True
        under_way: list[asyncio.Task[Any]] = [*self._loading.running(), *self._releasing.values()]
        for led in tuple(self._led.values()):
            del self._led[led.name]
            led.lose(Refusal.NOT_COORDINATOR)
            under_way += led.stores
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)

    async def led(self, group: str) -> LedGroup:
        """The group, led by this agent; takes the lead if that falls to it. Raises `GroupRefused`."""
        session = await self._ours(group)
        known = self._led.get(group)
        if known is not None:
            if known.offsets.grant.session == session:
                return known
            self._give_up(known)
        return await self._loading.get(group, lambda: self._load(group, session))

    async def known(self, group: str) -> LedGroup:
        """The group if this agent leads it: only then it has members, so others are told UNKNOWN_MEMBER_ID. Raises
        `GroupRefused`."""
        session = await self._ours(group)
        led = self._led.get(group)
        if led is None or led.offsets.grant.session != session:
            raise GroupRefused(Refusal.UNKNOWN_MEMBER_ID)
        return led

    async def read_offsets(self, group: str) -> Sequence[log_api.GroupOffset]:
        """How far the group has read; nothing for a group that is not known. Takes no lead."""
        session = await self._ours(group)
        known = self._led.get(group)
        if known is not None and known.offsets.grant.session == session:
            known.last_used = self._clock.monotonic()
            return known.offsets.all()
        return await self.stored_offsets(group)

    async def stored_offsets(self, group: str) -> Sequence[log_api.GroupOffset]:
        """The same, from the catalog, whoever leads the group."""
        try:
            found = await self._catalog.get(group)
        except HeadgateError as error:
            self._unavailable(group, error)
        return found.offsets if found is not None else ()

    async def commit(
        self,
        group: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        offsets: Sequence[log_api.GroupOffset],
    ) -> set[OffsetKey]:
        """Stores offsets for a member, or without one for an empty group; answers those without a topic."""
        led = await (self.known(group) if member_id else self.led(group))
        refusal = led.check_commit(member_id, instance_id, generation)
        if refusal is not None:
            raise GroupRefused(refusal)
        try:
            return await led.offsets.commit(led.machine.generation if generation < 0 else generation, offsets)
        except HeadgateError as error:
            if error.reason.name in _NOT_OURS:
                self._give_up(led)
                raise GroupRefused(Refusal.NOT_COORDINATOR, error.message) from error
            if error.reason.name == "STALE_GENERATION":
                raise GroupRefused(Refusal.ILLEGAL_GENERATION, error.message) from error
            self._unavailable(group, error)

    async def describe(self, group: str) -> GroupView | None:
        """None if there is no such group."""
        await self._ours(group)
        led = self._led.get(group)
        if led is not None:
            return _view(led)
        try:
            stored = await self._catalog.get(group)
        except HeadgateError as error:
            self._unavailable(group, error)
        return GroupView(group, GroupState.EMPTY, "", "", ()) if stored is not None else None

    async def list(self) -> list[GroupView]:
        """The groups that this agent leads, or would."""
        found = {name: _view(led) for name, led in self._led.items()}
        try:
            stored = await self._catalog.list()
        except HeadgateError as error:
            raise GroupRefused(Refusal.COORDINATOR_NOT_AVAILABLE, error.message) from error
        for group in stored:
            owner = self.owner(group.name)
            if group.name not in found and owner is not None and owner.name == self._agent:
                found[group.name] = GroupView(group.name, GroupState.EMPTY, "consumer", "", ())
        return [found[name] for name in sorted(found)]

    async def delete(self, group: str) -> None:
        await self._ours(group)
        led = self._led.get(group)
        if led is not None and (led.machine.state is not GroupState.EMPTY or led.machine.promised):
            raise GroupRefused(Refusal.NON_EMPTY_GROUP)
        try:
            await self._catalog.drop(group, led.offsets.grant if led is not None else None)
        except HeadgateError as error:
            if error.reason.name == "GROUP_NOT_FOUND":
                raise GroupRefused(Refusal.GROUP_ID_NOT_FOUND) from error
            if error.reason.name == "GROUP_IN_USE":
                raise GroupRefused(Refusal.NON_EMPTY_GROUP, error.message) from error
            self._unavailable(group, error)
        if led is not None:
            self._give_up(led)

    async def _ours(self, group: str) -> str:
        """The session under which this agent may lead the group, once that is certain; without waiting if it is now."""
        if not group or len(group.encode()) > MAX_NAME:
            raise GroupRefused(Refusal.INVALID_GROUP_ID)
        await self._certainty.settled()
        owner = self.owner(group)
        session = self._certainty.session
        if owner is None or session is None or self._leaving:
            raise GroupRefused(Refusal.COORDINATOR_NOT_AVAILABLE)
        if owner.name != self._agent:
            raise GroupRefused(Refusal.NOT_COORDINATOR, f"agent {owner.name} leads the group")
        return session

    async def _load(self, group: str, session: str) -> LedGroup:
        releasing = self._releasing.get(group)
        if releasing is not None:
            # Else it might release what is acquired now.
            await asyncio.wait([releasing])
        grant: GroupGrant | None = None
        try:
            grant = await self._catalog.acquire(session, group)
            stored = await self._catalog.get(group)
        except HeadgateError as error:
            if grant is not None:
                self._give_back(group, grant)
            elif error.reason.name not in _NOT_OURS:
                self._doubt(group, session)
            if error.reason.name == "GROUP_LIMIT_EXCEEDED":
                raise GroupRefused(Refusal.POLICY_VIOLATION, error.message) from error
            self._unavailable(group, error)
        offsets = LedOffsets(group, grant, self._catalog, self._view)
        offsets.keep(stored.offsets if stored is not None else ())
        led = LedGroup(offsets, self._rules, self._clock, self._give_up, lambda: self._certainty.in_doubt(session))
        self._led[group] = led
        self._busy.set()
        log.info("leads group", extra={"group": group, "epoch": grant.epoch, "generation": grant.generation})
        return led

    def _give_up(self, led: LedGroup) -> None:
        if self._led.get(led.name) is not led:
            return
        del self._led[led.name]
        led.lose(Refusal.NOT_COORDINATOR)
        self._give_back(led.name, led.offsets.grant)

    def _doubt(self, group: str, session: str) -> None:
        self._doubts[group] = _Doubt(session, self._clock.monotonic())
        self._busy.set()

    def _give_back(self, group: str, grant: GroupGrant) -> None:
        self._doubt(group, grant.session)
        self._release_soon(group, self._release(group, grant))

    def _release_soon(self, group: str, work: Coroutine[Any, Any, None]) -> None:
        release = asyncio.ensure_future(work)
        self._releasing[group] = release
        release.add_done_callback(lambda _: self._releasing.pop(group, None))

    async def _settle(self, group: str, doubt: _Doubt) -> None:
        """Gives back a group that the catalog says is led here. (Who begins to lead it waits until this is over.)"""
        try:
            stored = await self._catalog.get(group)
        except HeadgateError:
            doubt.looks -= 1
            return
        if stored is not None and stored.leader == self._agent:
            await self._release(group, GroupGrant(doubt.session, stored.epoch, stored.generation))

    async def _release(self, group: str, grant: GroupGrant) -> None:
        """Until it is done, or the session is another: while it lives, nobody else can lead the group."""
        while self._certainty.session in (None, grant.session):
            try:
                await self._catalog.release(group, grant)
                return
            except HeadgateError as error:
                log.info("group not released", extra={"group": group, "error": str(error)})
                if error.reason.name == "SESSION_EXPIRED":
                    return
            await asyncio.sleep(self._timings.look_interval)

    def _unavailable(self, group: str, error: HeadgateError) -> NoReturn:
        log.warning("group not available", extra={"group": group, "error": str(error)})
        raise GroupRefused(Refusal.COORDINATOR_NOT_AVAILABLE, error.message) from error


def _view(led: LedGroup) -> GroupView:
    machine = led.machine
    return GroupView(
        led.name,
        machine.state,
        machine.protocol_type or "",
        machine.protocol or "",
        tuple(machine.members.values()),
    )
