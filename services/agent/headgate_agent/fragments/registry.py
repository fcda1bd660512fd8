"""What the agent was told to run, what runs, and what it has been told to forget.

The rules are those of `fragment_service.proto`. What a command changes is in the journal before the command is
answered, and in memory only after it is in the journal; a caller that gives up does not stop a command that has begun.
Commands about one fragment follow one another. A process that starts on the journal of another goes on with what that
one was told, under the same epochs.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import Message

from headgate.catalog import v1 as catalog
from headgate.cluster import v1 as cluster
from headgate_agent.errors import FRAGMENT_NOT_REGISTERED, STALE_EPOCH, STALE_TERM, WRONG_INCARNATION
from headgate_agent.fragments.journal import Journal
from headgate_agent.fragments.records import ENDED, REGISTERED, STARTED, Held, replay, snapshot
from headgate_agent.fragments.runner import STOPPED, Assignment, Report, Run, Runner
from headgate_common.clock import Clock
from headgate_common.errors import HeadgateError
from headgate_common.signals import Signal

log = logging.getLogger(__name__)

# How many forgotten fragments are remembered for callers that ask what changed; one that is further behind gets all.
FORGOTTEN = 10_000
# Tombstones of the current term that are kept; of earlier terms none is needed, because their commands are refused.
TOMBSTONES = 100_000
# Seconds between attempts to write down that a run has ended.
RETRY_END = 1.0
# The journal is rewritten when it has this many records more than are needed.
SLACK = 1_000


@dataclass(slots=True)
class _Turns:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


class FragmentRegistry:
    def __init__(self, *, incarnation: str, runner: Runner, journal: Journal, clock: Clock) -> None:
        self.incarnation = incarnation
        self.term = 0
        # The highest one that the journal has: a term is obeyed at once, its commands when it is kept.
        self._kept_term = 0
        self._runner = runner
        self._journal = journal
        self._clock = clock
        self._held: dict[str, Held] = {}
        # Forgotten fragments: the highest epoch that must not come back, and the term in which it was forgotten.
        self._tombstones: dict[str, tuple[int, int]] = {}
        self._version = 1
        # Set whenever there is something new for GetStatus to tell; whoever waits for it clears it.
        self.changed = Signal()
        self._forgotten: deque[tuple[int, str]] = deque()
        self._oldest_kept = 0
        self._turns: dict[str, _Turns] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._records = 0
        self._appending = 0
        self._quiet = asyncio.Condition()
        self._compacting = False
        self._closing = False

    @property
    def fragments(self) -> int:
        """How many it has, ended ones included."""
        return len(self._held)

    @property
    def version(self) -> int:
        """Grows with every change that GetStatus would tell."""
        return self._version

    @property
    def slots_used(self) -> int:
        return sum(held.request.plan.slots for held in self._held.values())

    @property
    def backlog(self) -> int:
        """Commands that wait for another on the same fragment."""
        return sum(max(0, turns.users - 1) for turns in self._turns.values())

    async def open(self) -> None:
        """Takes up what the journal says. Call it once, before anything else."""
        records = await self._journal.load()
        self._records = len(records)
        restored = replay(records, self._clock.wall())
        self.term, self._tombstones, self._held = restored.term, restored.tombstones, restored.held
        self._kept_term = self.term
        for held in self._held.values():
            held.version = self._next_version()
        for held in self._held.values():
            if held.state == STARTED:
                self._launch(held, resumed=True)

    async def close(self) -> None:
        """Stops every run. The journal keeps them, so the next process goes on with them."""
        self._closing = True
        await asyncio.gather(*(held.run.stop() for held in self._held.values() if held.run is not None))
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def forget_everything(self) -> None:
        """Stops and forgets all fragments, for good."""
        for uid in list(self._held):
            async with self._turn(uid):
                held = self._held.get(uid)
                if held is not None:
                    await self._forget(held.request.fragment, self.term, for_good=False)

    # Commands

    async def register(self, request: cluster.RegisterFragmentRequest) -> None:
        await self._obey(request.command, request.fragment.uid, self._register, request)

    async def start(self, request: cluster.StartFragmentRequest) -> None:
        await self._obey(request.command, request.fragment.uid, self._start, request)

    async def stop(self, request: cluster.StopFragmentRequest) -> None:
        await self._obey(request.command, request.fragment.uid, self._stop, request)

    async def unregister(self, request: cluster.UnregisterFragmentRequest) -> None:
        await self._obey(request.command, request.fragment.uid, self._unregister, request)

    async def saw_term(self, term: int) -> None:
        """Remembers a term that leads, whoever told of it."""
        self.term = max(self.term, term)

        def kept() -> None:
            self._kept_term = max(self._kept_term, term)

        if term > self._kept_term:
            await self._commit(b"T", cluster.Command(term=term), kept)

    async def status(
        self, request: cluster.GetStatusRequest, resources: catalog.AgentResources
    ) -> cluster.GetStatusResponse:
        await self._check(request.command)
        since = request.since
        full = since == 0 or since > self._version or since < self._oldest_kept
        changed = [held for held in self._held.values() if full or held.version > since]
        return cluster.GetStatusResponse(
            incarnation=self.incarnation,
            version=self._version,
            full=full,
            fragments=[held.status() for held in changed],
            forgotten=[]
            if full
            else [uid for version, uid in self._forgotten if version > since and uid not in self._held],
            resources=resources,
            slots_used=self.slots_used,
        )

    def reports(self) -> list[cluster.FragmentReport]:
        """How runs are doing, where that is news; `told` says that they were passed on."""
        found = []
        for held in self._held.values():
            progress = held.run.progress() if held.run is not None else None
            if progress is not None and progress != held.told:
                found.append(cluster.FragmentReport(uid=held.uid, epoch=held.epoch, progress=progress))
        return found

    def told(self, reports: Iterable[cluster.FragmentReport]) -> None:
        for report in reports:
            held = self._held.get(report.uid)
            if held is not None and held.epoch == report.epoch:
                held.told = report.progress

    def tell_again(self) -> None:
        """Whoever was told may have forgotten it."""
        for held in self._held.values():
            held.told = None

    async def _obey(
        self,
        command: cluster.Command,
        uid: str,
        action: Callable[[Any], Coroutine[Any, Any, None]],
        request: Message,
    ) -> None:
        """Carries a command out to its end, even if its caller does not wait for that."""

        async def carry_out() -> None:
            async with self._turn(uid):
                # Looked at again when it is this command's turn: a later term may have come meanwhile.
                await self._check(command)
                await action(request)

        await self._check(command)
        await asyncio.shield(self._spawn(carry_out()))

    async def _check(self, command: cluster.Command) -> None:
        if command.incarnation and command.incarnation != self.incarnation:
            raise HeadgateError(
                WRONG_INCARNATION,
                f"the command is for process {command.incarnation}, and this is {self.incarnation}",
                metadata={"incarnation": self.incarnation},
            )
        if command.term < self.term:
            raise HeadgateError(
                STALE_TERM,
                f"the command is of term {command.term}, and this agent obeys term {self.term}",
                metadata={"term": str(self.term)},
            )
        await self.saw_term(command.term)

    async def _register(self, request: cluster.RegisterFragmentRequest) -> None:
        ref = request.fragment
        held = self._require_no_later(ref)
        if held is not None and held.epoch == ref.epoch:
            return
        forgotten = self._tombstones.get(ref.uid)
        if forgotten is not None and ref.epoch <= forgotten[0]:
            raise _stale(ref, forgotten[0], "was forgotten")
        self._runner.check(_assignment(request))
        if held is not None and held.run is not None:
            await held.run.stop()
            held.run = None
        kept = cluster.RegisterFragmentRequest()
        kept.CopyFrom(request)

        def apply() -> None:
            self._held[ref.uid] = Held(kept, REGISTERED, self._clock.wall(), self._next_version())

        await self._commit(b"R", kept, apply)
        log.info("registered", extra=_facts(kept))

    async def _start(self, request: cluster.StartFragmentRequest) -> None:
        held = self._require_no_later(request.fragment)
        if held is None or held.epoch < request.fragment.epoch:
            raise HeadgateError(
                FRAGMENT_NOT_REGISTERED,
                f"epoch {request.fragment.epoch} of fragment {request.fragment.uid} is not registered here",
            )
        if held.state != REGISTERED:
            return
        await self._commit(b"S", held.request.fragment, lambda: self._set(held, STARTED))
        self._launch(held)

    async def _stop(self, request: cluster.StopFragmentRequest) -> None:
        held = self._require_no_later(request.fragment)
        if held is None or held.epoch < request.fragment.epoch or held.ended or held.ending is not None:
            return
        if request.mode == catalog.STOP_MODE_SOFT and held.run is not None:
            if not held.draining:
                await self._commit(b"D", held.request.fragment, lambda: setattr(held, "draining", True))
            held.run.drain()
            return
        run, held.run = held.run, None
        if run is not None:
            await run.stop()
        await self._end(held, STOPPED)

    async def _unregister(self, request: cluster.UnregisterFragmentRequest) -> None:
        self._require_no_later(request.fragment)
        await self._forget(request.fragment, request.command.term, for_good=request.for_good)

    async def _forget(self, ref: cluster.FragmentRef, term: int, *, for_good: bool) -> None:
        """Leaves a tombstone, so that nothing of this epoch or a lower one comes back."""
        held = self._held.get(ref.uid)
        forgotten = self._tombstones.get(ref.uid)
        if held is None and forgotten is not None and forgotten >= (ref.epoch, term):
            return
        if held is not None and held.run is not None:
            await held.run.stop()
            held.run = None
        if held is not None and for_good:
            await self._runner.discard(_assignment(held.request))

        def apply() -> None:
            self._tombstones[ref.uid] = (ref.epoch, term)
            if self._held.pop(ref.uid, None) is not None:
                self._forgotten.append((self._next_version(), ref.uid))
                if len(self._forgotten) > FORGOTTEN:
                    self._oldest_kept = self._forgotten.popleft()[0]

        kept = cluster.UnregisterFragmentRequest(command=cluster.Command(term=term), fragment=ref)
        await self._commit(b"U", kept, apply)
        if held is not None:
            log.info("forgotten", extra=_facts(held.request))

    def _require_no_later(self, ref: cluster.FragmentRef) -> Held | None:
        held = self._held.get(ref.uid)
        if held is not None and held.epoch > ref.epoch:
            raise _stale(ref, held.epoch, "has a later run")
        return held

    # Runs

    def _launch(self, held: Held, *, resumed: bool = False) -> None:
        if self._closing:
            return

        def report(how: Report) -> None:
            if held.run is run and self._held.get(held.uid) is held:
                self._reported(held, how)

        run: Run | None = None
        run = held.run = self._runner.start(_assignment(held.request, resumed=resumed), report)
        if held.draining:
            run.drain()

    def _reported(self, held: Held, how: Report) -> None:
        if how.state in ENDED:
            held.last = _at_end(held.run.progress()) if held.run is not None else None
            held.run, held.ending = None, how
            self._spawn(self._end_in_turn(held, how))
        elif not held.ended and (held.state, held.waiting) != (how.state, how.waiting):
            held.waiting = how.waiting
            self._set(held, how.state)

    async def _end_in_turn(self, held: Held, how: Report) -> None:
        """Tried until it is written, because nobody asks for it again."""
        while not self._closing:
            async with self._turn(held.uid):
                if self._held.get(held.uid) is not held or held.ended:
                    return
                try:
                    await self._end(held, how)
                    return
                except HeadgateError as error:
                    log.warning("an end could not be written", extra={**_facts(held.request), "error": str(error)})
            await asyncio.sleep(RETRY_END)

    async def _end(self, held: Held, how: Report) -> None:
        """An end is told only once it is durable: what has ended must not run again."""

        def apply() -> None:
            held.error, held.waiting = how.error, ""
            self._set(held, how.state)

        ended = cluster.FragmentStatus(fragment=held.request.fragment, state=how.state, error=how.error)
        await self._commit(b"E", ended, apply)
        log.info("ended", extra={**_facts(held.request), "state": catalog.FragmentState.Name(how.state)})

    def _set(self, held: Held, state: catalog.FragmentState.ValueType) -> None:
        held.state = state
        held.since = self._clock.wall()
        held.version = self._next_version()

    def _next_version(self) -> int:
        self._version += 1
        self.changed.set()
        return self._version

    # The journal

    async def _commit(self, tag: bytes, message: Message, apply: Callable[[], None]) -> None:
        """Writes a record, and only then makes it so in memory."""
        async with self._quiet:
            await self._quiet.wait_for(lambda: not self._compacting)
            self._appending += 1
        try:
            await self._journal.append(tag + message.SerializeToString())
            self._records += 1
            apply()
        finally:
            self._appending -= 1
            async with self._quiet:
                self._quiet.notify_all()
        if self._records > self._needed() + SLACK and not self._compacting:
            await self._compact()

    def _needed(self) -> int:
        return 1 + 3 * len(self._held) + len(self._tombstones)

    async def _compact(self) -> None:
        """Rewrites the journal with what is still needed, while nothing is being appended."""
        self._compacting = True
        try:
            async with self._quiet:
                await self._quiet.wait_for(lambda: not self._appending)
            current = [(uid, tomb) for uid, tomb in self._tombstones.items() if tomb[1] >= self.term]
            self._tombstones = dict(current[-TOMBSTONES:])
            term = self.term
            records = snapshot(term, self._tombstones, self._held.values())
            await self._journal.rewrite(records)
            self._records, self._kept_term = len(records), max(self._kept_term, term)
        except HeadgateError as error:
            # The old journal is complete; it only stays longer than it should.
            log.warning("the journal could not be compacted", extra={"error": str(error)})
        finally:
            self._compacting = False
            async with self._quiet:
                self._quiet.notify_all()

    # Turns and tasks

    @asynccontextmanager
    async def _turn(self, uid: str) -> AsyncIterator[None]:
        turns = self._turns.setdefault(uid, _Turns())
        turns.users += 1
        try:
            async with turns.lock:
                yield
        finally:
            turns.users -= 1
            if not turns.users:
                self._turns.pop(uid, None)

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, HeadgateError):
            log.error("a defect stopped a command", exc_info=error)


def _assignment(request: cluster.RegisterFragmentRequest, *, resumed: bool = False) -> Assignment:
    return Assignment(
        uid=request.fragment.uid,
        epoch=request.fragment.epoch,
        query=request.query,
        query_uid=request.query_uid,
        plan=request.plan,
        topics={topic.edge: topic for topic in request.topics},
        errors=request.errors if request.HasField("errors") else None,
        mode=request.mode,
        resumed=resumed,
    )


def _at_end(progress: catalog.FragmentProgress | None) -> catalog.FragmentProgress | None:
    """What is still true of a run when it is over."""
    if progress is None:
        return None
    last = catalog.FragmentProgress()
    last.CopyFrom(progress)
    for passing in ("rows_in_per_second", "rows_out_per_second", "batch_time", "waiting", "engine"):
        last.ClearField(passing)
    return last


def _stale(ref: cluster.FragmentRef, epoch: int, what: str) -> HeadgateError:
    return HeadgateError(
        STALE_EPOCH,
        f"fragment {ref.uid} {what} here: epoch {epoch}, not {ref.epoch}",
        metadata={"epoch": str(epoch)},
    )


def _facts(request: cluster.RegisterFragmentRequest) -> dict[str, object]:
    return {"query": request.query, "fragment": request.plan.ordinal, "epoch": request.fragment.epoch}
