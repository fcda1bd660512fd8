"""How an agent's process takes its leave: one order, in which nothing is lost and nobody waits longer than must be."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass

from headgate_agent.fragments.registry import FragmentRegistry
from headgate_agent.fragments.service import FragmentService
from headgate_agent.groups.groups import Groups
from headgate_agent.log.broker import Broker
from headgate_agent.member import Member


@dataclass(frozen=True, slots=True)
class LeavingLog:
    broker: Broker
    groups: Groups
    # How long giving up groups may take, in seconds; the broker has a time of its own.
    timeout: float


@dataclass(frozen=True, slots=True)
class Leaving:
    registry: FragmentRegistry
    service: FragmentService
    member: Member
    # What keeps it a member.
    membership: asyncio.Task[None]
    log: LeavingLog | None

    async def __call__(self) -> None:
        # While their edges are led here, and without a word of failure: the next process goes on with them.
        await self.registry.close()
        if self.log is not None:
            # While its session lives: others take over what it leads.
            await self.log.broker.leave()
            with suppress(TimeoutError):
                async with asyncio.timeout(self.log.timeout):
                    await self.log.groups.leave()
        self.membership.cancel()
        self.service.left = True
        await self.member.leave()
