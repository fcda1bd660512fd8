"""Runs the state machine of one group that this agent leads: passes events in, answers those who wait, keeps its time,
and tells the catalog of new generations."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from headgate_agent.groups.events import (
    Answer,
    Beat,
    Event,
    HungUp,
    Join,
    Leave,
    Lost,
    Refusal,
    Store,
    Stored,
    StoreFailed,
    Sync,
    Tick,
)
from headgate_agent.groups.machine import GroupMachine, Rules
from headgate_agent.groups.offsets import LedOffsets
from headgate_common.clock import Clock
from headgate_common.errors import HeadgateError

log = logging.getLogger(__name__)

A = TypeVar("A", bound=Answer)


class LedGroup:
    """`lost` is called when the catalog says that another agent leads the group; `in_doubt` says whether this agent
    cannot know if it still does."""

    def __init__(
        self,
        offsets: LedOffsets,
        rules: Rules,
        clock: Clock,
        lost: Callable[[LedGroup], None],
        in_doubt: Callable[[], bool],
    ) -> None:
        self.name = offsets.group
        self.offsets = offsets
        self.machine = GroupMachine(rules, generation=offsets.grant.generation)
        self._tick_interval = rules.tick_interval
        self._clock = clock
        self._told_lost = lost
        self._in_doubt = in_doubt
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self._requests = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")
        self._stores: set[asyncio.Task[None]] = set()
        self.last_used = clock.monotonic()

    @property
    def stores(self) -> Sequence[asyncio.Task[None]]:
        """What is on its way to the catalog."""
        return tuple(self._stores)

    def next_request(self) -> int:
        self._requests += 1
        return self._requests

    async def ask(self, event: Join | Sync | Beat | Leave, kind: type[A]) -> A:
        """Hands in a request and waits for its answer. The machine bounds the wait: by the rebalance timeout."""
        self.last_used = self._clock.monotonic()
        waiting: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[event.request] = waiting
        self._handle(event)
        try:
            answer = await waiting
        except asyncio.CancelledError:
            if self._waiting.pop(event.request, None) is not None:
                self._handle(HungUp(event.request))
            raise
        assert isinstance(answer, kind)
        return answer

    def check_commit(self, member_id: str, instance_id: str | None, generation: int) -> Refusal | None:
        self.last_used = self._clock.monotonic()
        return self.machine.check_commit(member_id, instance_id, generation, self._clock.monotonic())

    def lose(self, refusal: Refusal) -> None:
        """Ends leadership: everyone who waits is told."""
        self._handle(Lost(refusal))
        if self._timer is not None:
            self._timer.cancel()
        for task in self._stores:
            task.cancel()

    def _handle(self, event: Event) -> None:
        for instruction in self.machine.handle(event, self._clock.monotonic()):
            if isinstance(instruction, Store):
                task = asyncio.ensure_future(self._store(instruction.generation))
                self._stores.add(task)
                task.add_done_callback(self._stores.discard)
                continue
            waiting = self._waiting.pop(instruction.request, None)
            if waiting is not None and not waiting.done():
                waiting.set_result(instruction)
        self._set_timer()

    def _set_timer(self) -> None:
        due = self.machine.due
        if due >= self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = due
        delay = max(self._tick_interval, due - self._clock.monotonic())
        self._timer = asyncio.get_running_loop().call_later(delay, self._tick)

    def _tick(self) -> None:
        self._timer, self._timer_at = None, float("inf")
        if self._in_doubt():
            # Members wait to be heard: nobody's time is over because of that.
            self._set_timer()
            return
        self._handle(Tick())

    async def _store(self, generation: int) -> None:
        try:
            await self.offsets.commit(generation, ())
        except HeadgateError as error:
            log.warning("generation not stored", extra={"group": self.name, "error": str(error)})
            if error.reason.name in ("STALE_EPOCH", "SESSION_EXPIRED", "GRANT_CONFLICT"):
                self._told_lost(self)
                return
            self._handle(StoreFailed(generation, Refusal.COORDINATOR_NOT_AVAILABLE))
            return
        self._handle(Stored(generation))
