"""The engines of an agent: which answer, which runs what, and keeping runs alive there.

A run is started under its epoch on one engine only. Where it is open whether a start happened, the epoch is spent: the
run counts as lost, and the coordinator gives the fragment another one. Every engine is called in one go for all the
runs that this agent has there; a run that is not kept alive is stopped by the engine's own clock, at the latest
`keep_alive` after the last call that it answered was sent.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

from google.protobuf.message import Message

from headgate.catalog import v1 as catalog
from headgate.engine import v1 as engine
from headgate.engine.v1 import engine_service_pb2
from headgate_agent.errors import ENGINE_LOST
from headgate_common.backoff import Backoff
from headgate_common.clock import Clock
from headgate_common.dispatch import Transport, methods
from headgate_common.errors import CANCELLED, DEADLINE_EXCEEDED, UNREACHABLE, HeadgateError
from headgate_common.signals import Signal

log = logging.getLogger(__name__)

_METHODS = methods(engine_service_pb2.DESCRIPTOR.services_by_name["EngineService"])
# The call may have happened.
_OPEN = (UNREACHABLE.name, DEADLINE_EXCEEDED.name)
# Another engine may take the run, or this one later; nothing was done.
_LATER = ("ENGINE_WARMING_UP", "NO_SLOT", "OVERLOADED", "SHUTTING_DOWN")
# Only another engine may take the run; where none may, it has failed.
_NOT_HERE = ("TOO_FEW_SLOTS",)
# A start that takes longer than this, in seconds, is told of.
_MOMENT = 1.0
# Calls in one keep-alive period: most of them may get lost.
_CALLS = 4


@dataclass(frozen=True, slots=True)
class EngineTimings:
    """In seconds."""

    # An engine stops a run that is not kept alive for this long.
    keep_alive: float
    # An engine that does not answer for this long is taken for dead.
    patience: float
    call_timeout: float
    # Starting waits for an earlier run to stop.
    start_timeout: float
    retry: Backoff
    # How long a topic that this agent does not know yet is waited for.
    topic_appears: float

    @property
    def outlives(self) -> float:
        """How long a run may go on after the last call for it that its engine has answered was sent: the engine looks
        at its clock now and then, and stopping takes a moment."""
        return self.keep_alive + self.patience


class Listener(Protocol):
    """What a run hears of its engine."""

    def missing(self) -> None:
        """The engine says that the run is not there, or has ended."""

    def silent(self, why: str) -> None:
        """The engine has not answered for longer than `patience`."""


class Engine:
    """One engine, as this agent sees it."""

    def __init__(self, address: str, transport: Transport, clock: Clock, timings: EngineTimings) -> None:
        self.address = address
        # When the last call was sent that it has answered.
        self.heard = float("-inf")
        self._transport = transport
        self._clock = clock
        self._timings = timings
        self._listeners: dict[tuple[str, int], Listener] = {}
        self._wake = asyncio.Event()

    @property
    def runs(self) -> int:
        """How many runs this agent keeps alive there."""
        return len(self._listeners)

    def keep(self, ref: engine.RunRef, listener: Listener) -> None:
        """Keeps a run alive from now on, until `release`."""
        self._listeners[ref.fragment_uid, ref.epoch] = listener
        self._wake.set()

    def release(self, ref: engine.RunRef) -> None:
        self._listeners.pop((ref.fragment_uid, ref.epoch), None)

    @property
    def stopped_by_itself(self) -> float:
        """When nothing that this agent started there can run any more, unless it is kept alive until then."""
        return self.heard + self._timings.outlives

    async def probe(self) -> None:
        """Asks whether it is there, which changes nothing."""
        sent = self._clock.monotonic()
        await self._call("KeepAlive", engine.KeepAliveRequest())
        self.heard = sent

    async def start(self, request: engine.StartFragmentRequest) -> engine.Run:
        sent = self._clock.monotonic()
        answer: engine.StartFragmentResponse = await self._call(
            "StartFragment", request, timeout=self._timings.start_timeout
        )
        self.heard = max(self.heard, sent)
        return answer.run

    async def stop(self, ref: engine.RunRef, *, soft: bool) -> engine.Run | None:
        mode = engine.STOP_MODE_SOFT if soft else engine.STOP_MODE_HARD
        answer: engine.StopFragmentResponse = await self._call(
            "StopFragment", engine.StopFragmentRequest(run=ref, mode=mode)
        )
        return answer.run if answer.HasField("run") else None

    async def get(self, ref: engine.RunRef) -> engine.Run | None:
        try:
            answer: engine.GetFragmentResponse = await self._call("GetFragment", engine.GetFragmentRequest(run=ref))
        except HeadgateError as error:
            if error.reason.name == "RUN_NOT_FOUND":
                return None
            raise
        return answer.run

    def watch(self, ref: engine.RunRef) -> AsyncGenerator[Any, None]:
        """How a run is and becomes; ends with an error when the engine does."""
        request = engine.WatchProgressRequest(runs=[ref])
        answers = self._transport.stream(self.address, _METHODS["WatchProgress"], request, timeout=None)
        return cast(AsyncGenerator[Any, None], answers)

    async def delete_checkpoint(self, request: engine.DeleteCheckpointRequest) -> None:
        await self._call("DeleteCheckpoint", request, timeout=self._timings.start_timeout)

    async def run(self) -> None:
        """Keeps runs alive until it is cancelled."""
        pause = self._timings.keep_alive / _CALLS
        while True:
            self._wake.clear()
            if not self._listeners:
                await self._wake.wait()
            await self._keep_alive()
            await asyncio.sleep(pause)

    async def _keep_alive(self) -> None:
        refs = [engine.RunRef(fragment_uid=uid, epoch=epoch) for uid, epoch in self._listeners]
        sent = self._clock.monotonic()
        try:
            answer: engine.KeepAliveResponse = await self._call("KeepAlive", engine.KeepAliveRequest(runs=refs))
        except HeadgateError as error:
            if self._clock.monotonic() - self.heard >= self._timings.patience:
                for waiting in tuple(self._listeners.values()):
                    waiting.silent(f"engine {self.address} does not answer: {error}")
            return
        self.heard = sent
        for ref in answer.missing:
            listener = self._listeners.get((ref.fragment_uid, ref.epoch))
            if listener is not None:
                listener.missing()

    async def _call(self, method: str, request: Message, *, timeout: float | None = None) -> Any:
        seconds = timeout or self._timings.call_timeout
        return await self._transport.call(self.address, _METHODS[method], request, timeout=seconds)


class Engines:
    """The engines that an agent is configured with."""

    def __init__(
        self,
        addresses: Sequence[str],
        transport: Transport,
        *,
        clock: Clock,
        source: random.Random,
        timings: EngineTimings,
    ) -> None:
        self.timings = timings
        self._source = source
        self._engines = [Engine(address, transport, clock, timings) for address in addresses]

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for one in self._engines:
                tasks.create_task(one.run())

    async def start(
        self, request: engine.StartFragmentRequest, waiting: Callable[[str], None], given_up: Signal
    ) -> Engine:
        """Starts a run on the engine with the least to do; waits while none can take it, and says so. ENGINE_LOST where
        it may have been started, and nobody knows; CANCELLED if `given_up` was set before it was; what the engines say
        where none of them will ever take it.

        It is not to be cancelled: then nobody would know either."""
        attempt = 0
        while True:
            troubles = []
            never: list[HeadgateError] = []
            for one in self._by_load():
                if given_up.is_set():
                    raise HeadgateError(CANCELLED, "the run was given up before it was started")
                try:
                    await one.probe()
                except HeadgateError as error:
                    troubles.append(f"engine {one.address} does not answer ({error.reason.name})")
                    continue
                try:
                    await self._started(one, request, waiting)
                    return one
                except HeadgateError as error:
                    if error.reason.name in _OPEN:
                        raise HeadgateError(
                            ENGINE_LOST, f"engine {one.address} did not answer to the start: {error}"
                        ) from error
                    if error.reason.name in _NOT_HERE:
                        never.append(error)
                    elif error.reason.name not in _LATER:
                        raise
                    troubles.append(f"engine {one.address}: {error}")
            if never and len(never) == len(self._engines):
                raise never[0]
            waiting("; ".join(troubles))
            await given_up.wait(self.timings.retry.delay(attempt, self._source))
            attempt += 1

    async def _started(self, one: Engine, request: engine.StartFragmentRequest, waiting: Callable[[str], None]) -> None:
        starting = asyncio.ensure_future(one.start(request))
        await asyncio.wait((starting,), timeout=_MOMENT)
        if not starting.done():
            doing = "it asks for its topics" if request.settings.mode == catalog.QUERY_MODE_REALTIME else "it is busy"
            waiting(f"engine {one.address} has not answered to the start yet: {doing}")
        await starting

    async def find(self, ref: engine.RunRef) -> tuple[Engine, engine.Run] | None:
        """The engine that has a run. None if none says so: it may be on one that does not answer."""
        for one in self._engines:
            try:
                found = await one.get(ref)
            except HeadgateError as error:
                log.info("engine does not answer", extra={"engine": one.address, "error": str(error)})
                continue
            if found is not None:
                return one, found
        return None

    async def delete_checkpoint(self, request: engine.DeleteCheckpointRequest) -> None:
        """By the first engine that can."""
        problem: HeadgateError | None = None
        for one in self._by_load():
            try:
                await one.delete_checkpoint(request)
                return
            except HeadgateError as error:
                problem = error
        if problem is not None:
            raise problem

    def _by_load(self) -> list[Engine]:
        shuffled = self._source.sample(self._engines, len(self._engines))
        return sorted(shuffled, key=lambda one: one.runs)
