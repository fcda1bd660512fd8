"""Calls in flight: what happens between a request that is sent and its outcome, on both sides of the network.

The contract is that of `transport.py`. A call knows the two links it travels on and tells its endpoint of itself, so
that the death of the server's process reaches whoever waits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from contextvars import Context, ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from google.protobuf.message import Message
from google.rpc import status_pb2

from headgate_common.dispatch import Call, Dispatcher, Method
from headgate_common.errors import CANCELLED, DEADLINE_EXCEEDED, UNREACHABLE, HeadgateError, to_status
from headgate_simulation.loop import Domain

if TYPE_CHECKING:
    from headgate_simulation.transport import Network

STREAM_WINDOW = 16
# The operation on whose behalf a call is made; servers that answer the call see it too.
CAUSE: ContextVar[str] = ContextVar("headgate_simulation_cause", default="")
# How long a broken connection goes unnoticed by whoever only listens on it.
KEEPALIVE = 4.0


@dataclass(slots=True, eq=False)
class Exchange:
    """One call in flight, as the server's side knows it."""

    caller: str
    broken: Callable[[], None]
    handlers: list[asyncio.Task[None]] = field(default_factory=list)


@dataclass(slots=True)
class Endpoint:
    name: str
    domain: Domain
    dispatcher: Dispatcher
    exchanges: dict[int, Exchange] = field(default_factory=dict)
    refusing: bool = False


class Path:
    """From one process to an address, and which method is called there."""

    __slots__ = ("address", "back", "caller", "method", "network", "number", "server", "there")

    def __init__(self, network: Network, caller: str, address: str, method: Method) -> None:
        network.calls += 1
        self.network = network
        self.caller = caller
        self.address = address
        self.method = method
        self.number = network.calls
        self.server = network.name_of(address)
        self.there, self.back = network.links_between(caller, self.server)


class UnaryCall:
    """One call from its first byte to its outcome: the answer, the service's status, or what the transport says."""

    def __init__(self, path: Path, payload: bytes, timeout: float) -> None:
        network = path.network
        loop = network.loop
        self._path = path
        self._network = network
        self._payload = payload
        self._until = loop.time() + timeout
        self._answer: asyncio.Future[bytes | status_pb2.Status | HeadgateError] = loop.create_future()
        self._timer = loop.call_at(self._until, self._expire)
        self._endpoint: Endpoint | None = None
        self._cause = CAUSE.get()
        network.post(self._path.there, self._arrive, True, late=network.late_requests.get(path.method.name))
        if self._path.there.duplication and self._path.there.source.random() < self._path.there.duplication:
            late = self._path.there.source.uniform(0.0, 5.0)
            if path.method.name not in network.once:
                loop.call_later(late, self._arrive, False, context=network.context)

    async def outcome(self) -> bytes | status_pb2.Status | HeadgateError:
        try:
            return await self._answer
        finally:
            self._timer.cancel()
            endpoint = self._endpoint
            if endpoint is not None and self._path.number in endpoint.exchanges:
                self._network.post(self._path.there, self._given_up)

    def _settle(self, outcome: bytes | status_pb2.Status | HeadgateError) -> None:
        if not self._answer.done():
            self._answer.set_result(outcome)

    def _expire(self) -> None:
        self._settle(HeadgateError(DEADLINE_EXCEEDED, f"{self._path.server} did not answer in time"))

    def _reset(self) -> None:
        self._settle(HeadgateError(UNREACHABLE, f"{self._path.server} cannot be reached"))

    def _arrive(self, first: bool) -> None:
        network = self._network
        endpoint = network.endpoint(self._path.address)
        if endpoint is None:
            if first:
                network.post(self._path.back, self._reset)
            return
        domain = endpoint.domain
        left = self._until - network.loop.time()
        request = self._path.method.request.FromString(self._payload)
        call = Call(peer=self._path.caller, timeout=left)
        task = network.loop.create_task(
            self._handle(endpoint, request, call, first),
            name=self._path.method.path,
            context=_context_of(domain, self._cause),
        )
        if first:
            self._endpoint = endpoint
            endpoint.exchanges[self._path.number] = Exchange(self._path.caller, self._reset, [task])

    def _given_up(self) -> None:
        endpoint = self._endpoint
        exchange = endpoint.exchanges.get(self._path.number) if endpoint is not None else None
        if exchange is not None:
            for task in exchange.handlers:
                task.cancel()

    async def _handle(self, endpoint: Endpoint, request: Message, call: Call, first: bool) -> None:
        outcome: bytes | status_pb2.Status
        told: Message | HeadgateError
        token = self._network.arrived(endpoint.name, self._path.method, request)
        try:
            told = await endpoint.dispatcher.unary(self._path.method.path, request, call)
            outcome = told.SerializeToString()
        except HeadgateError as error:
            told = error
            outcome = to_status(error)
        except asyncio.CancelledError:
            told = HeadgateError(CANCELLED, "the caller gave up")
            outcome = to_status(told)
        endpoint.domain.check()
        self._network.answered(token, self._path.caller, self._path.method, request, told)
        endpoint.domain.check()
        if first:
            endpoint.exchanges.pop(self._path.number, None)
            late = self._network.late_answers.get(self._path.method.name)
            self._network.post(self._path.back, self._settle, outcome, late=late)
        # An error knows this frame by its traceback (see `SimulatedTransport.call`).
        del told


def _context_of(domain: Domain, cause: str) -> Context:
    context = domain.context.copy()
    if cause:
        context.run(CAUSE.set, cause)
    return context


class StreamCall:
    """One server-streaming call. Messages keep their order; the window holds the server back."""

    def __init__(self, path: Path, payload: bytes, timeout: float | None) -> None:
        network = path.network
        loop = network.loop
        self._path = path
        self._network = network
        self._payload = payload
        self._items: deque[bytes | status_pb2.Status | HeadgateError | None] = deque()
        self._wake: asyncio.Future[None] | None = None
        self._ended = False
        self._until = None if timeout is None else loop.time() + timeout
        self._timer = None if timeout is None else loop.call_later(timeout, self._expire)
        self._task: asyncio.Task[None] | None = None
        self._in_flight = 0
        self._room: asyncio.Future[None] | None = None
        self._last_arrival = 0.0
        self._broken = False
        self._open()

    def _open(self) -> None:
        if not self._network.post(self._path.there, self._arrive):
            self._network.loop.call_later(KEEPALIVE, self._reset, context=self._network.context)

    async def next(self) -> bytes | status_pb2.Status | HeadgateError | None:
        while not self._items:
            self._wake = self._network.loop.create_future()
            await self._wake
        item = self._items.popleft()
        if isinstance(item, bytes):
            self._in_flight -= 1
            if self._room is not None and not self._room.done() and self._in_flight < STREAM_WINDOW:
                self._room.set_result(None)
        return item

    def close(self) -> None:
        """The reader is done: the server learns of it, if the message arrives or the connection is seen to be gone."""
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None and not self._network.post(self._path.there, self._given_up):
            self._network.loop.call_later(KEEPALIVE, self._given_up, context=self._network.context)

    def _push(self, item: bytes | status_pb2.Status | HeadgateError | None) -> None:
        if self._ended:
            return
        if not isinstance(item, bytes):
            self._ended = True
        self._items.append(item)
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def _expire(self) -> None:
        self._push(HeadgateError(DEADLINE_EXCEEDED, f"{self._path.server} was listened to for long enough"))
        self._given_up()

    def _reset(self) -> None:
        self._push(HeadgateError(UNREACHABLE, f"the connection to {self._path.server} broke"))

    def _arrive(self) -> None:
        network = self._network
        endpoint = network.endpoint(self._path.address)
        if endpoint is None:
            if not network.post(self._path.back, self._reset):
                network.loop.call_later(KEEPALIVE, self._reset, context=network.context)
            return
        if self._ended:
            return
        left = None if self._until is None else self._until - network.loop.time()
        self._task = network.loop.create_task(
            self._serve(endpoint, Call(peer=self._path.caller, timeout=left)),
            name=self._path.method.path,
            context=endpoint.domain.context.copy(),
        )
        endpoint.exchanges[self._path.number] = Exchange(self._path.caller, self._died, [self._task])

    def _died(self) -> None:
        self._reset()

    def _given_up(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _send(self, endpoint: Endpoint, item: bytes | status_pb2.Status | None) -> None:
        network = self._network
        endpoint.domain.check()
        delay = self._path.back.draw(network.loop.time())
        if delay is None:
            # A lost message stops everything behind it; both ends notice by their keep-alive.
            self._broken = True
            network.loop.call_later(KEEPALIVE, self._reset, context=network.context)
            network.loop.call_later(KEEPALIVE, self._given_up, context=network.context)
            return
        self._last_arrival = max(self._last_arrival, network.loop.time() + delay)
        network.loop.call_at(self._last_arrival, self._push, item, context=network.context)

    def _responses(self, endpoint: Endpoint, call: Call) -> AsyncGenerator[Message, None]:
        method = self._path.method
        return endpoint.dispatcher.stream(method.path, method.request.FromString(self._payload), call)

    async def _serve(self, endpoint: Endpoint, call: Call) -> None:
        try:
            async with aclosing(self._responses(endpoint, call)) as responses:
                async for response in responses:
                    while self._broken or self._in_flight >= STREAM_WINDOW:
                        self._room = self._network.loop.create_future()
                        await self._room
                    self._in_flight += 1
                    self._send(endpoint, response.SerializeToString())
            self._send(endpoint, None)
        except HeadgateError as error:
            self._send(endpoint, to_status(error))
        except asyncio.CancelledError:
            self._send(endpoint, to_status(HeadgateError(CANCELLED, "the caller gave up")))
        finally:
            endpoint.exchanges.pop(self._path.number, None)
