"""Knows which agents answer: polls each for what changed, and writes to the catalog only what did.

One question is in flight to an agent at a time, and its time limit follows the last round trip. A miss makes the agent
UNREACHABLE, in one transaction with what that means for its queries, and from then on it is probed more seldom; an
answer that comes too late is dropped. The first answer brings it back. A process that took another's place is noticed,
because each question names the process it is for. Runs that the catalog does not know are stopped, by the process and
epoch that reported them.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, cast

from sqlalchemy import select

from headgate.catalog import v1 as catalog
from headgate.cluster import v1 as cluster
from headgate_common.backoff import Backoff
from headgate_common.clock import Clock
from headgate_common.errors import HeadgateError
from headgate_coordinator.catalog.agent_status import Applied, Asked, Run, apply_status, mark_unreachable
from headgate_coordinator.catalog.changes import Revision
from headgate_coordinator.catalog.schema import agents
from headgate_coordinator.catalog.store import Store
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.cluster.agent_client import AgentClient
from headgate_coordinator.config import Limits, Timings
from headgate_coordinator.errors import NOT_LEADER, REVISION_COMPACTED, WATCHER_TOO_SLOW

log = logging.getLogger(__name__)

_ALL_AGENTS = select(agents.c.uid, agents.c.name, agents.c.address, agents.c.state, agents.c.incarnation).order_by(
    agents.c.name
)

# Taken for the round trip of an agent that has never answered.
UNKNOWN_ROUND_TRIP = 0.25
# After something was started or stopped, an agent is asked again after these pauses, not only at the next interval.
EAGER = (0.02, 0.05, 0.1, 0.25)
# Moments in an interval at which agents are asked, some in each.
SLOTS = 4
# An agent that goes on renewing its session without news is asked with its first renewal after so many intervals.
PATIENCE = 10
# A renewal is late when it comes after this share of the TTL: agents are told to renew after a third of it.
LATE = 0.36


@dataclass(slots=True)
class Polled:
    """One agent, as far as it is remembered here. Times on the leader's monotonic clock."""

    uid: str
    name: str
    address: str
    active: bool
    incarnation: str
    due: float
    round_trip: float | None = None
    polled_at: float = 0.0
    # Until when its last renewal, which said that there is no news, stands for an answer.
    renewal_holds: float = 0.0
    # `version` of the last answer that was applied; 0 asks for everything.
    version: int = 0
    resources: catalog.AgentResources | None = None
    slots_used: int = 0
    # Runs to be stopped, and the process that reported them.
    zombies: dict[Run, str] = field(default_factory=dict)
    # How many of the eager questions are still to be asked.
    eager: int = 0
    # The next question: planned, waiting for its turn, or under way.
    timer: asyncio.TimerHandle | None = None
    queued: bool = False
    # Asked for while one was under way: to be asked again right after it.
    again: bool = False
    polling: asyncio.Task[None] | None = None
    cleaning: asyncio.Task[None] | None = None


@dataclass(slots=True)
class Lane:
    """Questions that may be under way at the same time, and agents that wait for their turn."""

    free: int
    waiting: deque[Polled] = field(default_factory=deque)


@dataclass(slots=True)
class PollStats:
    """For metrics."""

    polls: int = 0
    misses: int = 0
    zombies: int = 0
    # The last round trip of any agent, and how late its poll began, in seconds.
    round_trip: float = 0.0
    lag: float = 0.0


class Membership:
    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        source: random.Random,
        timings: Timings,
        limits: Limits,
        reported: Callable[[Iterable[cluster.FragmentReport]], None] = lambda reports: None,
    ) -> None:
        """`reported` is told how runs had done that have ended."""
        self._store = store
        self._reported = reported
        self._clock = clock
        self._source = source
        self._timings = timings
        self._limits = limits
        self._retry = Backoff(initial=timings.retry_min, cap=timings.retry_max)
        self.stats = PollStats()
        self._forget_everything()

    def _forget_everything(self) -> None:
        self._term = 0
        self._client: AgentClient | None = None
        self._agents: dict[str, Polled] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended = asyncio.Event()
        self._fatal: BaseException | None = None
        # Agents that do not answer must not keep those that do from being asked.
        self._polls = Lane(self._limits.polls)
        self._probes = Lane(self._limits.polls)

    async def run(self, term: int, client: AgentClient) -> None:
        """Goes on until it is cancelled, or raises NOT_LEADER when `term` is over. Leaves nothing running behind."""
        self._forget_everything()
        self._term, self._client = term, client
        self._spawn(self._follow())
        try:
            await self._ended.wait()
            assert self._fatal is not None
            raise self._fatal
        finally:
            for agent in self._agents.values():
                _cancel_timer(agent)
            tasks = set(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._forget_everything()

    def resources_of(self, agent_uid: str) -> catalog.AgentResources | None:
        """What the agent last reported about itself, if it did since this coordinator leads."""
        agent = self._agents.get(agent_uid)
        return None if agent is None else agent.resources

    def reported_slots(self, agent_uid: str) -> int | None:
        """How many slots the agent has in use by its own count."""
        agent = self._agents.get(agent_uid)
        return None if agent is None or agent.resources is None else agent.slots_used

    def poll_soon(self, agent_uid: str) -> None:
        """Asks the agent at once, and again a few times shortly after."""
        agent = self._agents.get(agent_uid)
        if agent is not None:
            agent.eager = len(EAGER)
            self._plan(agent, EAGER[0], sooner=True)

    def renewed(self, agent_uid: str, version: int) -> None:
        """The agent has renewed its session: asked now if it did not answer before, or has something new to tell.

        Otherwise it is a sign of life like an answer: the next question can wait until the next renewal is late, but
        not for ever, because only an answer shows that the agent can be reached.
        """
        agent = self._agents.get(agent_uid)
        if agent is None:
            return
        if not agent.active or (version and version != agent.version):
            self._plan(agent, 0.0, sooner=True)
        elif version:
            now = self._clock.monotonic()
            agent.renewal_holds = now + LATE * self._timings.session_ttl
            if now - agent.polled_at >= PATIENCE * self._timings.poll_interval:
                self._plan(agent, 0.0, sooner=True)
            elif agent.timer is not None and not agent.eager:
                due = self._slot(agent.renewal_holds)
                if due > agent.due:
                    self._plan(agent, due - now)

    async def _follow(self) -> None:
        """Follows the change feed, to know which agents there are."""
        while True:
            with self._store.changes.subscribe() as changes:
                await self._load()
                try:
                    async for revision in changes:
                        self._changed(revision)
                except HeadgateError as error:
                    if error.reason not in (WATCHER_TOO_SLOW, REVISION_COMPACTED):
                        raise
                    log.warning("the change feed was cut off", extra={"error": str(error)})

    async def _load(self) -> None:
        attempt = 0
        while True:
            try:
                rows = await self._store.read(_all_agents)
                break
            except HeadgateError as error:
                log.warning("the agents cannot be read", extra={"error": str(error)})
                await asyncio.sleep(self._retry.delay(attempt, self._source))
                attempt += 1
        listed = {uid for uid, *_ in rows}
        for uid in self._agents.keys() - listed:
            self._drop(uid)
        # Spread over an interval, so that they are not asked in step for ever.
        for uid, name, address, state, incarnation in rows:
            delay = self._source.uniform(0.0, self._timings.poll_interval)
            self._see(uid, name, address, state == "ACTIVE", incarnation, delay)

    def _changed(self, revision: Revision) -> None:
        for change in revision.changes:
            if change.kind != "AGENT":
                continue
            after = cast(catalog.Agent | None, change.after)
            if after is None:
                self._drop(change.uid)
            else:
                active = after.state == catalog.AGENT_STATE_ACTIVE
                self._see(after.uid, after.name, after.address, active, after.incarnation, 0.0)

    def _see(self, uid: str, name: str, address: str, active: bool, incarnation: str, delay: float) -> None:
        """Takes note of an agent as the catalog has it. A new one, or a new process, is asked after `delay`."""
        agent = self._agents.get(uid)
        if agent is None:
            agent = self._agents[uid] = Polled(uid, name, address, active, incarnation, due=0.0)
            self._plan(agent, delay)
            return
        another = agent.incarnation != incarnation or agent.address != address
        agent.address, agent.incarnation, agent.active = address, incarnation, active
        if another:
            agent.version, agent.renewal_holds = 0, 0.0
            self._plan(agent, delay, sooner=True)

    def _drop(self, uid: str) -> None:
        agent = self._agents.pop(uid, None)
        if agent is not None:
            _cancel_timer(agent)
            for task in (agent.polling, agent.cleaning):
                if task is not None:
                    task.cancel()

    def _plan(self, agent: Polled, delay: float, *, sooner: bool = False) -> None:
        """Has the agent asked after `delay`; with `sooner`, only if that is earlier than planned."""
        if agent.queued or agent.polling is not None:
            agent.again = True
            return
        due = self._clock.monotonic() + delay
        if sooner and agent.timer is not None and agent.due <= due:
            return
        _cancel_timer(agent)
        agent.due = due
        agent.timer = asyncio.get_running_loop().call_later(delay, self._queue, agent)

    def _queue(self, agent: Polled) -> None:
        agent.timer = None
        agent.queued = True
        lane = self._polls if agent.active else self._probes
        lane.waiting.append(agent)
        self._begin_polls(lane)

    def _begin_polls(self, lane: Lane) -> None:
        while lane.free and lane.waiting:
            agent = lane.waiting.popleft()
            agent.queued = False
            if self._agents.get(agent.uid) is agent:
                lane.free -= 1
                agent.polling = self._spawn(self._poll_in(lane, agent))

    async def _poll_in(self, lane: Lane, agent: Polled) -> None:
        started = agent.polled_at = self._clock.monotonic()
        agent.again = False
        self.stats.lag = max(0.0, started - agent.due)
        try:
            await self._poll(agent)
        finally:
            lane.free += 1
            agent.polling = None
        self._begin_polls(lane)
        if self._agents.get(agent.uid) is agent:
            self._plan(agent, max(0.0, self._next(agent, started) - self._clock.monotonic()))

    def _next(self, agent: Polled, started: float) -> float:
        """When the agent is to be asked next, after a poll that began at `started`."""
        if agent.again:
            agent.again = False
            return started + EAGER[0]
        if agent.active and agent.eager:
            agent.eager -= 1
            return started + EAGER[len(EAGER) - 1 - agent.eager]
        timings = self._timings
        pause = timings.poll_interval * 0.9 if agent.active else timings.probe_interval
        due = started + pause * self._source.uniform(0.9, 1.1)
        return self._slot(max(due, agent.renewal_holds) if agent.active else due)

    def _slot(self, after: float) -> float:
        """Soon after `after`.

        Agents that are asked in the same moment cost less than those asked one by one: their answers come together.
        """
        slot = self._timings.poll_interval / SLOTS
        return math.ceil(after / slot) * slot

    def time_limit(self, agent: Polled) -> float:
        timings = self._timings
        round_trip = UNKNOWN_ROUND_TRIP if agent.round_trip is None else agent.round_trip
        limit = round_trip * timings.poll_multiplier + timings.poll_constant
        return min(max(limit, timings.poll_timeout_min), timings.poll_timeout_max)

    async def _poll(self, agent: Polled) -> None:
        """One question, and what follows from its answer or the lack of one."""
        self.stats.polls += 1
        asked = Asked(agent.incarnation, self._store.changes.position)
        started = self._clock.monotonic()
        try:
            status = await self._ask(agent)
        except HeadgateError as error:
            await self._missed(agent, f"{error.reason.name}: {error.message}")
            return
        agent.round_trip = self.stats.round_trip = self._clock.monotonic() - started
        if status.agent and status.agent != agent.name:
            await self._missed(agent, f"agent {status.agent} answers at its address")
            return
        agent.resources, agent.slots_used = status.resources, status.slots_used
        # Before the catalog says that they have ended, so that whoever sees that finds it.
        self._reported(
            cluster.FragmentReport(uid=one.fragment.uid, epoch=one.fragment.epoch, progress=one.progress)
            for one in status.fragments
            if one.HasField("progress")
        )
        if _is_news(agent, status):
            await self._apply(agent, asked, status)
        else:
            agent.version = status.version
        self._clean(agent)

    async def _ask(self, agent: Polled) -> cluster.GetStatusResponse:
        """Asks the process that is known; if another one answers in its place, asks that one for everything."""
        assert self._client is not None
        limit = self.time_limit(agent)
        try:
            return await self._client.status(agent.address, agent.incarnation, agent.version, timeout=limit)
        except HeadgateError as error:
            if error.reason.name != "WRONG_INCARNATION":
                raise
        return await self._client.status(agent.address, "", 0, timeout=limit)

    async def _apply(self, agent: Polled, asked: Asked, status: cluster.GetStatusResponse) -> None:
        try:
            applied: Applied = await self._store.write(
                lambda tx: apply_status(tx, agent.uid, asked, status), self._term
            )
        except HeadgateError as error:
            # Nothing is lost: the same `since` is asked for again.
            self._catalog_failed(agent, error)
            return
        for run in applied.zombies:
            agent.zombies[run] = status.incarnation
        if applied.accepted:
            agent.active, agent.incarnation = True, status.incarnation
            agent.version = status.version if applied.settled else 0
        else:
            agent.version = 0

    async def _missed(self, agent: Polled, reason: str) -> None:
        self.stats.misses += 1
        # What it has is asked for anew when it is back.
        agent.version = agent.eager = 0
        agent.renewal_holds = 0.0
        agent.resources = None
        if not agent.active:
            return
        log.warning("an agent does not answer", extra={"agent": agent.name, "error": reason})
        try:
            await self._store.write(lambda tx: mark_unreachable(tx, agent.uid, reason), self._term)
        except HeadgateError as error:
            self._catalog_failed(agent, error)
            return
        agent.active = False

    def _catalog_failed(self, agent: Polled, error: HeadgateError) -> None:
        if error.reason is NOT_LEADER:
            raise error
        log.warning("what an agent said cannot be written", extra={"agent": agent.name, "error": str(error)})

    def _clean(self, agent: Polled) -> None:
        if agent.zombies and agent.cleaning is None:
            agent.cleaning = self._spawn(self._stop_zombies(agent))

    async def _stop_zombies(self, agent: Polled) -> None:
        """Stops what the agent should not have. What fails is tried again after its next answer."""
        assert self._client is not None
        try:
            for run, incarnation in list(agent.zombies.items()):
                try:
                    # A run of the fragment elsewhere may need what this one has kept.
                    await self._client.unregister(agent.address, incarnation, run.uid, run.epoch, for_good=False)
                except HeadgateError as error:
                    if error.reason.name not in ("STALE_EPOCH", "WRONG_INCARNATION"):
                        log.info(
                            "a zombie could not be stopped",
                            extra={"agent": agent.name, "fragment": run.uid, "epoch": run.epoch, "error": str(error)},
                        )
                        return
                    # A later run has its place, or its process is gone.
                else:
                    self.stats.zombies += 1
                    log.info(
                        "a zombie was stopped",
                        extra={
                            "agent": agent.name,
                            "fragment": run.uid,
                            "epoch": run.epoch,
                            "incarnation": incarnation,
                        },
                    )
                agent.zombies.pop(run, None)
        finally:
            agent.cleaning = None

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[None]) -> None:
        """None of the tasks ends by itself but to clean up; one that breaks ends `run`."""
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fatal = self._fatal or error
            self._ended.set()


def _cancel_timer(agent: Polled) -> None:
    if agent.timer is not None:
        agent.timer.cancel()
        agent.timer = None


def _is_news(agent: Polled, status: cluster.GetStatusResponse) -> bool:
    """Whether the answer may change the catalog."""
    return bool(
        not agent.active
        or status.incarnation != agent.incarnation
        or status.full
        or status.fragments
        or status.forgotten
    )


def _all_agents(tx: Tx) -> list[tuple[str, str, str, str, str]]:
    found = tx.connection.execute(_ALL_AGENTS)
    return [(row.uid, row.name, row.address, row.state, row.incarnation) for row in found]
