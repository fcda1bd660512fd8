"""Drives every query towards where it should be: one loop, three wake-ups.

A query is looked at because the catalog changed, because a call about it finished, or because time has passed; the
periodic look is the backstop for a wake-up that was lost. Looks at one query follow one another; looks at different
queries, and calls about different fragments, run side by side, within bounds. What a look costs does not depend on how
many queries there are.

All state that matters is in the catalog. What is kept here (back-offs, how long something has waited, what was
accepted) can be lost at any moment, and is when leadership passes: the next leader looks at all that is unsettled.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import random
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from sqlalchemy import select

from headgate.catalog import v1 as catalog
from headgate_common.backoff import Backoff
from headgate_common.clock import Clock
from headgate_common.errors import HeadgateError
from headgate_common.signals import Signal
from headgate_coordinator.catalog import fragments, query_states
from headgate_coordinator.catalog.changes import Revision
from headgate_coordinator.catalog.schema import agents
from headgate_coordinator.catalog.store import Store
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.cluster.agent_client import AgentClient
from headgate_coordinator.config import Limits, Timings
from headgate_coordinator.errors import NOT_LEADER, REVISION_COMPACTED, WATCHER_TOO_SLOW
from headgate_coordinator.failpoints import failpoint
from headgate_coordinator.query.advance import ChooseAgent, Command, advance, look
from headgate_coordinator.query.answers import LOST, Answer, classify
from headgate_coordinator.query.transitions import QUERY_ENDED
from headgate_coordinator.query.views import Drain, Register, Start, Unregister
from headgate_coordinator.query.work import Work

log = logging.getLogger(__name__)

_SILENT = select(agents.c.uid).where(agents.c.state == "UNREACHABLE").order_by(agents.c.uid)
_ENDED = (catalog.QUERY_STATE_STOPPED, catalog.QUERY_STATE_TERMINATED, catalog.QUERY_STATE_FAILED)


@dataclass(slots=True)
class Backlog:
    """For metrics."""

    # Queries that wait for a look, and how long the first has waited, in seconds.
    waiting: int = 0
    oldest: float = 0.0
    # Queries that are remembered here: on their way, or just arrived.
    unsettled: int = 0
    looks: int = 0
    calls: int = 0
    failed_calls: int = 0


class Reconciler:
    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        source: random.Random,
        timings: Timings,
        limits: Limits,
        choose_agent: ChooseAgent,
        poll_soon: Callable[[str], None] = lambda agent_uid: None,
    ) -> None:
        """`poll_soon` asks for a fresh status of an agent, whose uid it takes."""
        self._store = store
        self._clock = clock
        self._source = source
        self._timings = timings
        self._limits = limits
        self._choose_agent = choose_agent
        self._poll_soon = poll_soon
        self._retry = Backoff(initial=timings.retry_min, cap=timings.retry_max)
        self.backlog = Backlog()
        self._forget_everything()

    def _forget_everything(self) -> None:
        self._term = 0
        self._client: AgentClient | None = None
        self._works: dict[str, Work] = {}
        # Works that can be looked at now, and how many looks are under way.
        self._ready: deque[Work] = deque()
        self._looking = 0
        self._timers: list[tuple[float, int, str]] = []
        self._timer_count = 0
        # Agents that do not answer, by uid, since when they are known here not to.
        self._unreachable: dict[str, float] = {}
        self._calls_to: dict[str, set[asyncio.Task[None]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._wake = Signal()
        self._fatal: BaseException | None = None

    async def run(self, term: int, client: AgentClient) -> None:
        """Goes on until it is cancelled, or raises NOT_LEADER when `term` is over. Leaves nothing running behind."""
        self._forget_everything()
        self._term, self._client = term, client
        supports = {asyncio.create_task(self._follow()), asyncio.create_task(self._tick())}
        try:
            while True:
                for task in supports:
                    if task.done():
                        task.result()
                if self._fatal is not None:
                    raise self._fatal
                self._ring_timers()
                self._begin_looks()
                await self._wait()
        finally:
            await self._stop(supports)

    async def _wait(self) -> None:
        """Until something happened or a timer is due."""
        await self._wake.wait(max(0.0, self._timers[0][0] - self._clock.monotonic()) if self._timers else None)
        self._wake.clear()

    async def _stop(self, tasks: set[asyncio.Task[None]]) -> None:
        for work in self._works.values():
            tasks.update(task for _, task in work.calls.values())
            if work.looking is not None:
                tasks.add(work.looking)
        tasks |= self._tasks
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._forget_everything()

    # First wake-up: the catalog changed.

    async def _follow(self) -> None:
        """Follows the change feed. Where it is cut off, everything unsettled is looked at again."""
        try:
            while True:
                with self._store.changes.subscribe() as changes:
                    await self._look_around()
                    try:
                        async for revision in changes:
                            self._changed(revision)
                    except HeadgateError as error:
                        if error.reason not in (WATCHER_TOO_SLOW, REVISION_COMPACTED):
                            raise
                        log.warning("the change feed was cut off", extra={"error": str(error)})
        finally:
            self._wake.set()

    async def _look_around(self) -> None:
        """Learns which agents do not answer, and what is unsettled. Tried until the catalog answers."""
        attempt = 0
        while True:
            try:
                unreachable, unsettled = await self._store.read(_whole_picture)
                break
            except HeadgateError as error:
                log.warning("the catalog cannot be read", extra={"error": str(error)})
                await asyncio.sleep(self._retry.delay(attempt, self._source))
                attempt += 1
        known, self._unreachable = self._unreachable, {}
        for uid in unreachable:
            self._count_lost(uid, known.get(uid, self._clock.monotonic()))
        for uid in unsettled:
            self._mark(uid)

    def _changed(self, revision: Revision) -> None:
        for change in revision.changes:
            if change.kind == "QUERY":
                self._query_changed(
                    change.uid,
                    cast(catalog.Query | None, change.before),
                    cast(catalog.Query | None, change.after),
                    revision.number,
                )
            elif change.kind == "FRAGMENT" and change.after is not None:
                self._fragment_changed(cast(catalog.Fragment, change.after), revision.number)
            elif change.kind == "AGENT":
                self._agent_changed(
                    change.uid, cast(catalog.Agent | None, change.before), cast(catalog.Agent | None, change.after)
                )

    def _query_changed(
        self, uid: str, before: catalog.Query | None, after: catalog.Query | None, revision: int
    ) -> None:
        work = self._works.get(uid)
        if after is None:
            if work is not None:
                work.settled = True
                if work.idle:
                    self._works.pop(uid, None)
            return
        if before is None:
            self._mark(uid, sure=True)
            return
        asked_else = (before.desired_state, before.stop_mode) != (after.desired_state, after.stop_mode)
        if asked_else and work is not None:
            # Calls towards the former goal are given up; they may happen all the same.
            for command, task in work.calls.values():
                if not isinstance(command.call, Unregister):
                    task.cancel()
        if work is None and _at_rest(after):
            return
        if work is None or work.revision < revision:
            self._mark(uid, sure=asked_else)

    def _fragment_changed(self, after: catalog.Fragment, revision: int) -> None:
        work = self._works.get(after.query_uid)
        if work is None and (after.state == catalog.FRAGMENT_STATE_RUNNING or not after.slots_held):
            return
        if work is None or work.revision < revision:
            self._mark(after.query_uid)

    def _agent_changed(self, uid: str, before: catalog.Agent | None, after: catalog.Agent | None) -> None:
        if after is None:
            self._unreachable.pop(uid, None)
            return
        if before is not None and (before.state, before.incarnation) == (after.state, after.incarnation):
            return
        if after.state == catalog.AGENT_STATE_UNREACHABLE:
            if uid not in self._unreachable:
                self._count_lost(uid, self._clock.monotonic())
            for task in self._calls_to.get(uid, ()):
                task.cancel()
        else:
            self._unreachable.pop(uid, None)
        self._spawn(self._mark_queries_on(uid))

    def _count_lost(self, agent_uid: str, since: float) -> None:
        self._unreachable[agent_uid] = since
        self._set_timer(since + self._timings.lost_after, f"agent:{agent_uid}")

    async def _mark_queries_on(self, agent_uid: str) -> None:
        try:
            for uid in await self._store.read(lambda tx: fragments.queries_on(tx, agent_uid)):
                self._mark(uid)
        except HeadgateError as error:
            # The periodic look finds them.
            log.warning("the queries of an agent cannot be read", extra={"agent": agent_uid, "error": str(error)})

    # Second wake-up: a call finished.

    def _call(self, work: Work, command: Command) -> None:
        """Makes a call, unless the same is under way; one for something else is given up first."""
        under_way = work.calls.get(command.fragment)
        if under_way is not None:
            earlier, task = under_way
            if (type(earlier.call), earlier.epoch) != (type(command.call), command.epoch):
                task.cancel()
            return
        self.backlog.calls += 1
        task = asyncio.create_task(self._send(command))
        work.calls[command.fragment] = (command, task)
        self._calls_to.setdefault(command.agent_uid, set()).add(task)
        task.add_done_callback(partial(self._called, work, command))

    async def _send(self, command: Command) -> None:
        client = self._client
        assert client is not None
        where, run = (command.address, command.incarnation), (command.fragment, command.epoch)
        match command.call:
            case Register():
                assert command.registration is not None
                failpoint("before-register")
                await client.register(*where, command.registration)
                failpoint("after-register")
            case Start():
                failpoint("before-start")
                await client.start(*where, *run)
                failpoint("after-start")
            case Drain():
                await client.drain(*where, *run)
            case Unregister():
                failpoint("before-unregister")
                # Only what is taken down is unregistered, and that never comes up again.
                await client.unregister(*where, *run, for_good=True)
                failpoint("after-unregister")

    def _called(self, work: Work, command: Command, task: asyncio.Task[None]) -> None:
        work.calls.pop(command.fragment, None)
        calls = self._calls_to.get(command.agent_uid)
        if calls is not None:
            calls.discard(task)
            if not calls:
                del self._calls_to[command.agent_uid]
        # One that was given up is as if it had never been made: the next look sees to it.
        if not task.cancelled():
            error = task.exception()
            if error is None:
                self._worked(work, command)
            else:
                self._failed(work, command, error)
        self._mark(work.uid)

    def _worked(self, work: Work, command: Command) -> None:
        work.good_call(command.fragment)
        if isinstance(command.call, Drain):
            work.draining.add((command.fragment, command.epoch, command.incarnation))
        if isinstance(command.call, Start | Drain):
            self._poll_soon(command.agent_uid)
        work.answers.append(_answer(command, None))

    def _failed(self, work: Work, command: Command, error: BaseException) -> None:
        self.backlog.failed_calls += 1
        until = work.failed_call(command.fragment, self._clock.monotonic(), retry=self._retry, source=self._source)
        self._set_timer(until, work.uid)
        facts = {
            "query": work.uid,
            "fragment": command.ordinal,
            "epoch": command.epoch,
            "agent": command.agent_name,
            "call": type(command.call).__name__,
        }
        if not isinstance(error, HeadgateError):
            log.error("a defect stopped a call", extra=facts, exc_info=error)
            return
        log.info("a call to an agent failed", extra={**facts, "error": str(error)})
        if classify(error) == LOST or error.reason.name == "WRONG_INCARNATION":
            self._poll_soon(command.agent_uid)
        work.answers.append(_answer(command, error))

    # Third wake-up: time has passed.

    async def _tick(self) -> None:
        """The backstop: looks at all that is unsettled, the more seldom the longer it has waited."""
        try:
            while True:
                await asyncio.sleep(self._timings.reconcile_interval)
                try:
                    unsettled = await self._store.read(query_states.unsettled)
                except HeadgateError as error:
                    log.warning("no periodic look at the queries", extra={"error": str(error)})
                    continue
                now = self._clock.monotonic()
                for uid in unsettled:
                    work = self._works.get(uid)
                    if work is None or work.due(now, self._timings.reconcile_interval):
                        self._mark(uid)
        finally:
            self._wake.set()

    def _set_timer(self, due: float, key: str) -> None:
        """`key` is the uid of a query, or of an agent behind `agent:`."""
        self._timer_count += 1
        heapq.heappush(self._timers, (due, self._timer_count, key))
        self._wake.set()

    def _ring_timers(self) -> None:
        now = self._clock.monotonic()
        while self._timers and self._timers[0][0] <= now:
            _, _, key = heapq.heappop(self._timers)
            agent_uid = key.removeprefix("agent:")
            if agent_uid != key:
                if agent_uid in self._unreachable:
                    self._spawn(self._mark_queries_on(agent_uid))
            elif key in self._works:
                self._mark(key)

    # Looks

    def _mark(self, uid: str, *, sure: bool = False) -> None:
        """Has the query looked at; `sure` if there is certainly something to write."""
        now = self._clock.monotonic()
        work = self._works.get(uid)
        if work is None:
            work = self._works[uid] = Work(uid, changed_at=now)
        work.sure = work.sure or sure
        if work.dirty_since is None:
            work.dirty_since = now
            if work.looking is None:
                self._ready.append(work)
        self._wake.set()

    def _begin_looks(self) -> None:
        while self._ready and self._looking < self._limits.reconciling:
            work = self._ready.popleft()
            work.dirty_since = None
            self._looking += 1
            work.looking = asyncio.create_task(self._look(work))
            work.looking.add_done_callback(partial(self._looked, work))
        first = self._ready[0].dirty_since if self._ready else None
        self.backlog.waiting = len(self._ready)
        self.backlog.oldest = 0.0 if first is None else self._clock.monotonic() - first
        self.backlog.unsettled = len(self._works)

    async def _look(self, work: Work) -> None:
        self.backlog.looks += 1
        now = self._clock.monotonic()
        lost_after = self._timings.lost_after
        lost = frozenset(uid for uid, since in self._unreachable.items() if now - since >= lost_after)
        memory, answers = work.memory(now, lost), list(work.answers)
        sure, work.sure = work.sure, False
        found = None
        if not answers and not sure:
            found = await self._store.read(lambda tx: look(tx, work.uid, memory))
        if found is None or found.unfinished:
            choose = self._choose_agent
            found = await self._store.write(lambda tx: advance(tx, work.uid, memory, answers, choose), self._term)
            work.changed_at = now
            del work.answers[: len(answers)]
        for passed in found.passed:
            failpoint(_FAILPOINTS.get(passed, passed))
        search = self._timings.reconcile_interval
        for due in work.remember(found, now, retry=self._retry, search=search, source=self._source):
            self._set_timer(due, work.uid)
        for command in found.commands:
            self._call(work, command)

    def _looked(self, work: Work, task: asyncio.Task[None]) -> None:
        work.looking = None
        self._looking -= 1
        self._wake.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            self._look_failed(work, error)
        elif not task.cancelled():
            work.failures = 0
        if work.dirty_since is not None:
            self._ready.append(work)
        elif work.idle:
            self._works.pop(work.uid, None)

    def _look_failed(self, work: Work, error: BaseException) -> None:
        if isinstance(error, HeadgateError) and error.reason is NOT_LEADER:
            self._fatal = error
            return
        if isinstance(error, HeadgateError):
            log.warning("a look at a query failed", extra={"query": work.uid, "error": str(error)})
        else:
            log.error("a defect stopped the look at a query", extra={"query": work.uid}, exc_info=error)
        work.settled = False
        self._set_timer(self._clock.monotonic() + self._retry.delay(work.failures, self._source), work.uid)
        work.failures += 1

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


_FAILPOINTS = {
    "DEPLOYING": "taken-up",
    "RUNNING": "running",
    "STOPPING": "stopping",
    **dict.fromkeys(QUERY_ENDED, "ended"),
}


def _answer(command: Command, error: HeadgateError | None) -> Answer:
    return Answer(command.call, command.fragment, command.epoch, command.agent_uid, command.incarnation, error)


def _at_rest(query: catalog.Query) -> bool:
    if query.state == catalog.QUERY_STATE_RUNNING:
        return query.desired_state == catalog.DESIRED_STATE_RUNNING
    return query.state in _ENDED and query.desired_state != catalog.DESIRED_STATE_DROPPED


def _whole_picture(tx: Tx) -> tuple[list[str], list[str]]:
    """Uids of the agents that do not answer, and of the unsettled queries."""
    return list(tx.connection.execute(_SILENT).scalars()), query_states.unsettled(tx)
