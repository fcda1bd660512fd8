"""The run of a source or a sink on this agent: one task, and what it says of itself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from google.protobuf.timestamp_pb2 import Timestamp
from grpc import StatusCode

from headgate.catalog import v1 as catalog
from headgate_agent.fragments.meter import Meter
from headgate_agent.fragments.runner import RUNNING, STOPPED, TERMINATED, Report, failed, waits
from headgate_common.clock import Clock
from headgate_common.errors import INTERNAL, HeadgateError

log = logging.getLogger(__name__)

# What made a run fail may pass.
_PASSING = (StatusCode.UNAVAILABLE, StatusCode.DEADLINE_EXCEEDED, StatusCode.ABORTED, StatusCode.RESOURCE_EXHAUSTED)


def failure(error: BaseException) -> Report:
    """How a run ends that an error has stopped."""
    if isinstance(error, HeadgateError):
        return failed(error.reason.name, error.message, transient=error.reason.code in _PASSING)
    log.error("a defect stopped a run", exc_info=error)
    return failed(INTERNAL.name, f"a defect of the agent: {error!r}", transient=False)


class LocalRun:
    """`Run` for a source or a sink.

    `work` is given the run, and returns when everything was done: because there is nothing more, or because `stopping`
    was set.
    """

    def __init__(
        self,
        report: Callable[[Report], None],
        work: Callable[[LocalRun], Awaitable[None]],
        progress: Callable[[], catalog.FragmentProgress],
        clock: Clock,
    ) -> None:
        self.stopping = asyncio.Event()
        self._report = report
        self._work = work
        self._progress = progress
        self._clock = clock
        self._rates = Meter(clock), Meter(clock)
        self._last = catalog.FragmentProgress()
        self._waiting = ""
        self._running = False
        self._task = asyncio.create_task(self._run())

    def waits(self, what: str) -> None:
        """Something is in its way, or no longer."""
        if what != self._waiting and not self._running:
            self._waiting = what
            self._report(waits(what))

    def opened(self) -> None:
        """Rows can flow."""
        if not self._running:
            self._running = True
            self._report(RUNNING)

    def progress(self) -> catalog.FragmentProgress:
        now = self._progress()
        now.rows_in_per_second = self._rates[0].rate(now.rows_in)
        now.rows_out_per_second = self._rates[1].rate(now.rows_out)
        now.time.CopyFrom(self._last.time)
        if now != self._last or not now.HasField("time"):
            stamp = Timestamp()
            stamp.FromDatetime(self._clock.wall())
            now.time.CopyFrom(stamp)
            self._last = now
        return now

    def drain(self) -> None:
        self.stopping.set()

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait((self._task,))

    async def _run(self) -> None:
        try:
            await self._work(self)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._report(failure(error))
        else:
            self._report(STOPPED if self.stopping.is_set() else TERMINATED)
