"""The run of a compute fragment: on an engine, followed and kept alive from here.

An end is reported only when it is sure that the run is over, or shut out: results that go through an edge of the log
are fenced by the epoch, so a run whose engine is silent may be replaced at once; results that go straight to a topic,
or to an edge on Kafka, are not, and then the engine's own clock must have stopped the run first. Where that run was
another agent's, which may be lost, this one waits for as long before it starts the next.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass

from headgate.catalog import v1 as catalog
from headgate.engine import v1 as engine
from headgate_agent.engines import Engine, Engines
from headgate_agent.errors import ENGINE_LOST, RUN_STOPPED, SOURCE_MISSING
from headgate_agent.fragments.earlier import EarlierRuns
from headgate_agent.fragments.local_run import failure
from headgate_agent.fragments.runner import RUNNING, STOPPED, TERMINATED, Assignment, Report, failed, waits
from headgate_common.clock import Clock
from headgate_common.errors import HeadgateError
from headgate_common.signals import Signal

log = logging.getLogger(__name__)

_ENDED = (engine.RUN_STATE_STOPPED, engine.RUN_STATE_FINISHED, engine.RUN_STATE_FAILED)
# Seconds between two looks at a run that is being stopped, and between attempts to hear of one again.
_LOOK = 0.1


@dataclass(frozen=True, slots=True)
class Missing:
    """Why a run cannot be sent to an engine yet. `topic` is set where the catalog, as it is known here, has no such
    topic; that passes only if it is about to be heard of."""

    what: str
    topic: str = ""


# See `starts.Starts.settle`.
Settle = Callable[[engine.StartFragmentRequest, Callable[[str], None]], Awaitable[None]]


class ComputeRun:
    """`Run` for a compute fragment."""

    def __init__(
        self,
        assignment: Assignment,
        request: engine.StartFragmentRequest,
        engines: Engines,
        report: Callable[[Report], None],
        clock: Clock,
        missing_topic: Callable[[engine.StartFragmentRequest], Missing | None] = lambda request: None,
        computed: Callable[[int], None] = lambda rows: None,
        earlier: EarlierRuns | None = None,
        settle: Settle | None = None,
    ) -> None:
        """`missing_topic` writes into a request where its topics are, and answers what is not there.
        `computed` is told how many more rows the engine has read. `earlier` knows the runs before this one. `settle`
        writes into a request where to begin in topics that are read from their end."""
        self._assignment = assignment
        self._request = request
        self._engines = engines
        self._report = report
        self._clock = clock
        self._missing_topic = missing_topic
        self._computed = computed
        self._settle = settle
        self._earlier = earlier if earlier is not None else EarlierRuns()
        # Whether every run before this one is over, or shut out.
        self._alone = assignment.resumed
        # Rows that were told of; of a run of an earlier process it is not known which were.
        self._rows_told = None if assignment.resumed else 0
        self._engine: Engine | None = None
        self._starting: asyncio.Task[Engine] | None = None
        self._news: asyncio.Queue[engine.Run | HeadgateError] = asyncio.Queue()
        self._drained = asyncio.Event()
        self._given_up = Signal()
        self._waiting = ""
        self._running = False
        self._over = False
        self._progress: catalog.FragmentProgress | None = None
        self._asking: asyncio.Task[None] | None = None
        self._task = asyncio.create_task(self._run())

    def progress(self) -> catalog.FragmentProgress | None:
        return self._progress

    def drain(self) -> None:
        self._drained.set()

    async def stop(self) -> None:
        self._given_up.set()
        self._task.cancel()
        await asyncio.wait((self._task,))
        if self._starting is not None and not self._starting.done():
            # It may have begun: what it comes to must be known before it can be stopped.
            await asyncio.wait((self._starting,))
        if self._starting is not None and self._starting.exception() is None:
            self._engine = self._starting.result()
        if self._engine is not None and not self._over:
            await self._halt(self._engine)
        self._is_over()

    def _is_over(self) -> None:
        if self._alone:
            self._earlier.ended(self._assignment.uid, self._assignment.epoch)

    # Listener

    def missing(self) -> None:
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask())

    def silent(self, why: str) -> None:
        self._news.put_nowait(HeadgateError(ENGINE_LOST, why))

    async def _run(self) -> None:
        try:
            how = await self._follow()
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            how = failure(error)
        finally:
            if self._engine is not None:
                self._engine.release(self._request.run)
        self._over = True
        self._is_over()
        self._report(how)

    async def _follow(self) -> Report:
        """From the start of the run to its end."""
        self._engine = one = await self._placed()
        one.keep(self._request.run, self)
        watching = asyncio.create_task(self._watch(one))
        draining = asyncio.create_task(self._drain(one))
        try:
            while True:
                news = await self._news.get()
                if isinstance(news, HeadgateError):
                    await self._wait_unfenced(one.stopped_by_itself)
                    raise news
                self._saw(news)
                if news.state in _ENDED:
                    return self._end(news)
        finally:
            for task in (watching, draining, *([self._asking] if self._asking is not None else [])):
                task.cancel()
            await asyncio.gather(watching, draining, return_exceptions=True)

    async def _placed(self) -> Engine:
        if self._assignment.resumed:
            found = await self._engines.find(self._request.run)
            if found is None:
                await self._wait_unfenced(self._clock.monotonic() + self._engines.timings.outlives)
                raise HeadgateError(ENGINE_LOST, "the agent was restarted, and no engine has the run")
            return found[0]
        await self._wait_for_others()
        await self._wait_for_topics()
        if self._settle is not None:
            await self._settle(self._request, self._waits)
        self._starting = asyncio.create_task(self._engines.start(self._request, self._waits, self._given_up))
        try:
            return await asyncio.shield(self._starting)
        except HeadgateError as error:
            if error.reason.name == ENGINE_LOST.name:
                await self._wait_unfenced(self._clock.monotonic() + self._engines.timings.outlives)
            raise

    async def _wait_for_topics(self) -> None:
        """Returns when all are known; SOURCE_MISSING if one is not in time."""
        unknown_since = self._clock.monotonic()
        while missing := self._missing_topic(self._request):
            now = self._clock.monotonic()
            if not missing.topic:
                unknown_since = now
            elif now - unknown_since >= self._engines.timings.topic_appears:
                text = f"there is no topic {missing.topic}"
                raise HeadgateError(SOURCE_MISSING, text, metadata={"topic": missing.topic})
            self._waits(missing.what)
            await asyncio.sleep(_LOOK)

    async def _wait_for_others(self) -> None:
        """Nobody may be left to say that the run before is over: its agent may be lost, and its engine live."""
        run = self._request.run
        if run.epoch > 1 and not self._fenced and not self._earlier.has_ended(run.fragment_uid, run.epoch - 1):
            seconds = self._engines.timings.outlives
            self._waits(
                f"the run before may go on for {seconds:g} s on an engine that nobody hears, and writes without a fence"
            )
            await asyncio.sleep(seconds)
        self._alone = True

    def _waits(self, what: str) -> None:
        if what != self._waiting:
            self._waiting = what
            self._report(waits(what))

    async def _watch(self, one: Engine) -> None:
        """Passes on how the run goes; where that breaks off, the keep-alive tells whether it is over."""
        while True:
            try:
                async with aclosing(one.watch(self._request.run)) as changes:
                    async for change in changes:
                        self._news.put_nowait(change.run)
            except HeadgateError as error:
                log.info("engine is not heard", extra={**self._assignment.facts, "error": str(error)})
            await asyncio.sleep(_LOOK)

    async def _ask(self) -> None:
        """The engine says that the run is not running: how it ended, or that it is not there, is the end."""
        assert self._engine is not None
        try:
            run = await self._engine.get(self._request.run)
        except HeadgateError:
            # The next keep-alive tells.
            return
        if run is None:
            text = f"engine {self._engine.address} was restarted"
            self._news.put_nowait(HeadgateError(ENGINE_LOST, text))
        elif run.state in _ENDED:
            self._news.put_nowait(run)

    async def _drain(self, one: Engine) -> None:
        """The engine must be told: topics have no end, nor has an edge whose source was broken."""
        await self._drained.wait()
        while True:
            try:
                await one.stop(self._request.run, soft=True)
                return
            except HeadgateError as error:
                log.info("soft stop was not taken", extra={**self._assignment.facts, "error": str(error)})
                await asyncio.sleep(_LOOK)

    def _saw(self, run: engine.Run) -> None:
        assert self._engine is not None
        if run.state == engine.RUN_STATE_RUNNING and not self._running:
            self._running = True
            self._report(RUNNING)
        if run.state == engine.RUN_STATE_STARTING and not self._running:
            self._waits(f"engine {self._engine.address}: {run.waiting}" if run.waiting else "")
        if run.HasField("progress"):
            self._progress = progress_of(run.progress, self._engine.address)
            rows = self._progress.rows_in
            if self._rows_told is not None and rows > self._rows_told:
                self._computed(rows - self._rows_told)
            self._rows_told = rows

    def _end(self, run: engine.Run) -> Report:
        if run.state == engine.RUN_STATE_FAILED:
            return failed(run.error.reason, run.error.message, transient=run.error.transient)
        if run.state == engine.RUN_STATE_FINISHED or self._drained.is_set():
            return STOPPED if self._drained.is_set() else TERMINATED
        return failed(RUN_STOPPED.name, "the run was stopped on its engine", transient=True)

    @property
    def _fenced(self) -> bool:
        return self._request.HasField("output")

    async def _wait_unfenced(self, until: float) -> None:
        """Where nothing fences the output, no other run may begin before the engine has stopped this one."""
        if not self._fenced:
            await asyncio.sleep(max(0.0, until - self._clock.monotonic()))

    async def _halt(self, one: Engine) -> None:
        """Returns when the run has ended: because the engine says so, or must have stopped it by its own clock."""
        while self._clock.monotonic() < one.stopped_by_itself:
            try:
                run = await one.stop(self._request.run, soft=False)
                if run is None or run.state in _ENDED:
                    return
            except HeadgateError as error:
                if error.reason.name == "STALE_EPOCH":
                    return
                log.info("engine does not stop the run", extra={**self._assignment.facts, "error": str(error)})
            await asyncio.sleep(_LOOK)
        log.warning("engine is left to stop the run by itself", extra=self._assignment.facts)


def progress_of(told: engine.RunProgress, address: str) -> catalog.FragmentProgress:
    """An engine's progress as the coordinator is told it."""
    found = catalog.FragmentProgress(
        rows_in=told.rows_in,
        rows_out=told.rows_out,
        rows_in_per_second=told.rows_in_per_second,
        rows_out_per_second=told.rows_out_per_second,
        lag=told.lag,
        bad_records=told.bad_records,
        rows_late=told.rows_late,
        state_rows=told.state_rows,
        state_bytes=told.state_bytes,
        engine=address,
    )
    for name in ("batch_time", "watermark", "time"):
        if told.HasField(name):
            getattr(found, name).CopyFrom(getattr(told, name))
    return found
