"""The runs of an engine: which there are, which epoch each has, how long each is kept alive.

Contract: of each fragment at most one run is there, that of the highest epoch that was asked for; an earlier one is
stopped before a later one starts. A run that is not kept alive is stopped by the engine's own clock. Belongs to one
event loop; the runs themselves work in threads and report through `_Reporter`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from google.protobuf import timestamp_pb2

from headgate.engine import v1 as engine
from headgate_common.clock import Clock
from headgate_common.errors import HeadgateError
from headgate_engine.errors import KEEP_ALIVE_MISSED, RUN_NOT_FOUND, SPARK_FAILED, STALE_EPOCH
from headgate_engine.fragments.errors import Failure
from headgate_engine.fragments.run import Report

log = logging.getLogger(__name__)

# Steps of a start are told when they have taken so many seconds: those that wait for somebody else, and Spark's own,
# which take long on a busy machine and must not hide what other fragments of the query wait for.
_MOMENT = 1.0
_LONG = 10.0
ENDED = frozenset({engine.RUN_STATE_STOPPED, engine.RUN_STATE_FINISHED, engine.RUN_STATE_FAILED})


class Work(Protocol):
    """A run that goes on by itself. Both methods return at once."""

    def start(self) -> None: ...

    def stop(self, *, soft: bool) -> None: ...


Launch = Callable[[engine.StartFragmentRequest, Report], Work]
# Takes what a run holds for as long as it is there, or refuses it; answers how to give it back.
Admit = Callable[[engine.StartFragmentRequest], Awaitable[Callable[[], None]]]


@dataclass(slots=True)
class Record:
    """What is known of one run."""

    run: engine.Run
    keep_alive: float
    deadline: float
    give_back: Callable[[], None]
    work: Work | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    ended_at: float = 0.0
    version: int = 0
    # Why the engine itself stops it.
    verdict: Failure | None = None
    # What it is doing, while it is STARTING.
    step: str = ""

    @property
    def epoch(self) -> int:
        return self.run.ref.epoch


@dataclass(slots=True)
class _Turn:
    """Starts of one fragment come one after the other."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    # How many hold it or wait for it: it is forgotten with the last of them, and never before.
    users: int = 0


class Runs:
    """See the module."""

    def __init__(
        self,
        launch: Launch,
        admit: Admit,
        clock: Clock,
        *,
        keep_alive: float,
        stop_timeout: float,
        forget_after: float,
    ) -> None:
        self._launch = launch
        self._admit = admit
        self._clock = clock
        self._keep_alive = keep_alive
        self._stop_timeout = stop_timeout
        self._forget_after = forget_after
        self._records: dict[str, Record] = {}
        self._turns: dict[str, _Turn] = {}
        self._version = 0
        self._changed = asyncio.Event()

    def active(self) -> list[Record]:
        return [record for record in self._records.values() if not record.ended.is_set()]

    async def start(self, request: engine.StartFragmentRequest) -> engine.Run:
        """Starts a run, or answers the one of the same epoch."""
        uid, epoch = request.run.fragment_uid, request.run.epoch
        async with self._turn(uid):
            known = self._records.get(uid)
            if known is not None and known.epoch == epoch:
                self._renew(known)
                return known.run
            if known is not None and known.epoch > epoch:
                raise _stale(uid, epoch, known.epoch)
            if known is not None:
                await self._replace(known)
            return await self._begin(request)

    @asynccontextmanager
    async def _turn(self, uid: str) -> AsyncIterator[None]:
        turn = self._turns.setdefault(uid, _Turn())
        turn.users += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.users -= 1
            if not turn.users:
                del self._turns[uid]

    async def _begin(self, request: engine.StartFragmentRequest) -> engine.Run:
        give_back = await self._admitted(request)
        run = engine.Run(ref=request.run, query=request.query)
        keep_alive = request.settings.keep_alive.ToNanoseconds() / 1e9 or self._keep_alive
        record = Record(run, keep_alive, self._clock.monotonic() + keep_alive, give_back)
        try:
            record.work = self._launch(request, _Reporter(self, record, asyncio.get_running_loop()))
        except BaseException:
            give_back()
            raise
        self._records[request.run.fragment_uid] = record
        self.set_state(record, engine.RUN_STATE_STARTING)
        record.work.start()
        return record.run

    async def _admitted(self, request: engine.StartFragmentRequest) -> Callable[[], None]:
        """What it takes is given back where the caller gives up meanwhile: a thread that asks brokers goes on."""
        admitting = asyncio.ensure_future(self._admit(request))
        try:
            return await asyncio.shield(admitting)
        except asyncio.CancelledError:
            admitting.add_done_callback(_given_back)
            raise

    async def _replace(self, record: Record) -> None:
        if not record.ended.is_set():
            self._stop(record, soft=False)
            try:
                await asyncio.wait_for(record.ended.wait(), self._stop_timeout)
            except TimeoutError:
                raise HeadgateError(
                    SPARK_FAILED,
                    f"run {record.epoch} of {record.run.ref.fragment_uid} does not stop; try another engine",
                ) from None

    def stop(self, ref: engine.RunRef, *, soft: bool) -> engine.Run | None:
        """Asks a run to stop. None if it is not there; a later epoch is not touched."""
        record = self._records.get(ref.fragment_uid)
        if record is None or record.epoch < ref.epoch:
            return None
        if record.epoch > ref.epoch:
            raise _stale(ref.fragment_uid, ref.epoch, record.epoch)
        if not record.ended.is_set():
            self._stop(record, soft=soft)
        return record.run

    def _stop(self, record: Record, *, soft: bool) -> None:
        assert record.work is not None
        record.work.stop(soft=soft)
        if soft and record.run.state == engine.RUN_STATE_RUNNING:
            self.set_state(record, engine.RUN_STATE_DRAINING)

    def get(self, ref: engine.RunRef) -> engine.Run:
        record = self._records.get(ref.fragment_uid)
        if record is None or record.epoch != ref.epoch:
            raise HeadgateError(RUN_NOT_FOUND, f"there is no run {ref.epoch} of {ref.fragment_uid} here")
        return record.run

    def page(self, after: str, size: int) -> tuple[list[engine.Run], str]:
        """Runs ordered by fragment, from behind `after` on, and where the next page begins."""
        uids = sorted(uid for uid in self._records if uid > after)
        chosen = uids[:size]
        return [self._records[uid].run for uid in chosen], chosen[-1] if len(uids) > size else ""

    def keep(self, refs: Iterable[engine.RunRef]) -> list[engine.RunRef]:
        """Keeps runs alive; answers those that are not running here."""
        missing = []
        for ref in refs:
            record = self._records.get(ref.fragment_uid)
            if record is None or record.epoch != ref.epoch or record.ended.is_set():
                missing.append(ref)
            else:
                self._renew(record)
        return missing

    def _renew(self, record: Record) -> None:
        record.deadline = self._clock.monotonic() + record.keep_alive

    def expire(self) -> None:
        """Stops the runs that nobody has kept alive, and forgets those that ended long ago."""
        now = self._clock.monotonic()
        for uid, record in tuple(self._records.items()):
            if record.ended.is_set():
                if now - record.ended_at >= self._forget_after:
                    del self._records[uid]
            elif now >= record.deadline and record.verdict is None:
                text = f"the agent did not keep the run alive for {record.keep_alive:g} s"
                record.verdict = Failure(KEEP_ALIVE_MISSED, text, transient=True)
                log.warning("run not kept alive", extra={"fragment": uid, "epoch": record.epoch})
                self._stop(record, soft=False)

    async def look(self, seconds: float) -> None:
        """Runs `expire` for as long as the process lives."""
        while True:
            await asyncio.sleep(seconds)
            self.expire()

    async def stop_all(self) -> None:
        """Hard: another engine resumes them from their checkpoints."""
        active = self.active()
        for record in active:
            self._stop(record, soft=False)
        if active:
            waits = [asyncio.ensure_future(record.ended.wait()) for record in active]
            _, left = await asyncio.wait(waits, timeout=self._stop_timeout)
            for task in left:
                task.cancel()

    async def watch(self, refs: Iterable[engine.RunRef]) -> AsyncGenerator[engine.Run, None]:
        """Every run as it is, then as it changes. Changes that come while nobody listens are told as one."""
        wanted = {(ref.fragment_uid, ref.epoch) for ref in refs}
        seen = 0
        while True:
            changed = self._changed
            news = [one for one in self._records.values() if one.version > seen]
            for record in sorted(news, key=lambda one: one.version):
                seen = record.version
                if not wanted or (record.run.ref.fragment_uid, record.epoch) in wanted:
                    copy = engine.Run()
                    copy.CopyFrom(record.run)
                    yield copy
            if not any(one.version > seen for one in self._records.values()):
                await changed.wait()

    def set_state(self, record: Record, state: engine.RunState.ValueType, failure: Failure | None = None) -> None:
        """Takes a state that a run reports. The end is final, and a draining run is not running again."""
        current = record.run.state
        if record.ended.is_set() or (current == engine.RUN_STATE_DRAINING and state == engine.RUN_STATE_RUNNING):
            return
        if state in ENDED:
            if record.verdict is not None:
                state, failure = engine.RUN_STATE_FAILED, record.verdict
            record.ended.set()
            record.ended_at = self._clock.monotonic()
            record.give_back()
        elif state == current:
            return
        record.run.state = state
        record.step = record.run.waiting = ""
        stamp = timestamp_pb2.Timestamp()
        stamp.FromDatetime(self._clock.wall())
        record.run.since.CopyFrom(stamp)
        if failure is not None:
            record.run.error.CopyFrom(failure.to_proto())
        self._touch(record)
        fields = {"fragment": record.run.ref.fragment_uid, "epoch": record.epoch, "query": record.run.query}
        log.info("run", extra={**fields, "state": engine.RunState.Name(state).removeprefix("RUN_STATE_")})

    def set_step(self, record: Record, step: str, *, own: bool) -> None:
        """Takes what a run that is STARTING does now; `own` if it waits for nobody. It is told only if it lasts."""
        record.step = step
        if record.run.waiting:
            self._say(record, step, "" if own else step)
        asyncio.get_running_loop().call_later(_LONG if own else _MOMENT, self._say, record, step, step)

    def _say(self, record: Record, step: str, waiting: str) -> None:
        still = record.step == step and record.run.state == engine.RUN_STATE_STARTING
        if still and record.run.waiting != waiting:
            record.run.waiting = waiting
            self._touch(record)

    def set_progress(self, record: Record, progress: engine.RunProgress) -> None:
        record.run.progress.CopyFrom(progress)
        self._touch(record)

    def _touch(self, record: Record) -> None:
        self._version += 1
        record.version = self._version
        # Each change has its own event: those who wait hold the old one.
        self._changed.set()
        self._changed = asyncio.Event()


def _given_back(admitting: asyncio.Future[Callable[[], None]]) -> None:
    if not admitting.cancelled() and admitting.exception() is None:
        admitting.result()()


def _stale(uid: str, epoch: int, known: int) -> HeadgateError:
    return HeadgateError(
        STALE_EPOCH, f"run {known} of {uid} is here, and run {epoch} is earlier", metadata={"epoch": str(known)}
    )


class _Reporter:
    """Brings what a run's thread says to the event loop."""

    def __init__(self, runs: Runs, record: Record, loop: asyncio.AbstractEventLoop) -> None:
        self._runs = runs
        self._record = record
        self._loop = loop

    def state(self, state: engine.RunState.ValueType, failure: Failure | None = None) -> None:
        self._loop.call_soon_threadsafe(self._runs.set_state, self._record, state, failure)

    def step(self, step: str, *, own: bool = False) -> None:
        self._loop.call_soon_threadsafe(partial(self._runs.set_step, self._record, step, own=own))

    def progress(self, progress: engine.RunProgress) -> None:
        self._loop.call_soon_threadsafe(self._runs.set_progress, self._record, progress)
