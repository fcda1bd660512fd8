"""A network at the level of service calls.

Contract, on top of that of `dispatch.Transport`:
- Requests and answers are serialised and parsed again, and errors go through `to_status` and `from_status`, as over
  gRPC.
- A message takes the delay of its link, drawn for each message, so messages overtake each other. It is lost with the
  link's loss, and while the link's direction is blocked. A lost answer is a call that happened although its caller
  timed out. A duplicated request is handled twice; only the first answer reaches the caller.
- Requests or answers of one method may come late while all others do not, as if each had a connection of its own.
- What is sent while a link's direction is held arrives when that is over, as from the buffers of a connection that was
  cut and came back: also requests whose callers have given up long since.
- An address where nobody listens refuses: UNREACHABLE. A process that dies with calls in flight resets some of them at
  once (UNREACHABLE); of others it is seen only by the keep-alive that they are gone.
- A caller that gives up tells the server, which cancels the handler, if that message arrives.
- A stream is ordered, has a window of unread messages that holds its server back, and breaks when a message is lost.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from contextvars import Context, ContextVar
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import Message
from google.rpc import status_pb2

from headgate_common import dispatch
from headgate_common.dispatch import Call, Dispatcher, Method
from headgate_common.errors import (
    CANCELLED,
    COMMON,
    DEADLINE_EXCEEDED,
    UNREACHABLE,
    HeadgateError,
    ReasonTable,
    from_status,
    to_status,
)
from headgate_simulation.loop import Domain, SimulationLoop
from headgate_simulation.streams import stream
from headgate_simulation.trace import Trace

STREAM_WINDOW = 16
# How many messages are remembered to have been checked.
KEPT = 4096
# The operation on whose behalf a call is made; servers that answer the call see it too.
CAUSE: ContextVar[str] = ContextVar("headgate_simulation_cause", default="")
# How long a broken connection goes unnoticed by whoever only listens on it.
KEEPALIVE = 4.0
# Over which time messages that were held arrive, in any order.
HELD_SPREAD = 0.5


_check = dispatch.check
# Messages that were found to keep the rules of their proto.
_kept: dict[tuple[type[Message], bytes], None] = {}


def _check_once(request: Message) -> None:
    """The same bytes keep the same rules, and calls repeat: what passed is not checked again in this process."""
    key = (type(request), request.SerializeToString(deterministic=True))
    if key not in _kept:
        _check(request)
        if len(_kept) >= KEPT:
            _kept.clear()
        _kept[key] = None


vars(dispatch)["check"] = _check_once


@dataclass(slots=True)
class Link:
    """How messages travel in one direction between two processes. Faults change it while the run goes on."""

    source: random.Random
    delay: float = 0.001
    spread: float = 0.002
    # One message in so many takes `tail` longer.
    tail: float = 0.0
    tail_share: float = 0.0
    loss: float = 0.0
    duplication: float = 0.0
    blocked: int = 0
    slow: float = 1.0
    # When what is sent before it begins to arrive.
    held_until: float = 0.0

    def draw(self, now: float) -> float | None:
        """The delay of one message, or None if it is lost."""
        draw = self.source.random
        if self.blocked or (self.loss and draw() < self.loss):
            return None
        delay = self.delay + self.spread * draw()
        if self.tail_share and draw() < self.tail_share:
            delay += self.tail * draw()
        if now < self.held_until:
            return self.held_until - now + HELD_SPREAD * draw()
        return delay * self.slow


@dataclass(slots=True, eq=False)
class _Exchange:
    """One call in flight, as the server's side knows it."""

    caller: str
    broken: Callable[[], None]
    handlers: list[asyncio.Task[None]] = field(default_factory=list)


@dataclass(slots=True)
class _Endpoint:
    name: str
    domain: Domain
    dispatcher: Dispatcher
    exchanges: dict[int, _Exchange] = field(default_factory=dict)
    refusing: bool = False


class Network:
    """Who listens where, and what lies between them. `profile` sets the links' delay, loss and duplication when a link
    is first used."""

    def __init__(
        self,
        loop: SimulationLoop,
        trace: Trace,
        seed: int,
        *,
        reasons: ReasonTable = COMMON,
        profile: Callable[[str, str, Link], None] | None = None,
    ) -> None:
        self.loop = loop
        self.trace = trace
        self.reasons = reasons
        self.calls = 0
        # Told when a process sends a request.
        self.sent: Callable[[str, Method, Message], None] = lambda caller, method, request: None
        # Told when a server begins to handle a call; what it answers is told when the call has been answered.
        self.arrived: Callable[[str, Method, Message], Any] = lambda server, method, request: None
        self.answered: Callable[[Any, str, Method, Message, Message | HeadgateError], None] = lambda *told: None
        self._seed = seed
        self._profile = profile
        self._endpoints: dict[str, _Endpoint] = {}
        self._names: dict[str, str] = {}
        self._links: dict[tuple[str, str], Link] = {}
        # By how much requests and answers of single methods come later than all others, at most.
        self.late_requests: dict[str, float] = {}
        self.late_answers: dict[str, float] = {}
        # Methods whose requests come once at most, as over a connection: who asks again does it itself.
        self.once: frozenset[str] = frozenset()
        self._context = Domain("network").context

    def link(self, sender: str, receiver: str) -> Link:
        link = self._links.get((sender, receiver))
        if link is None:
            link = self._links[sender, receiver] = Link(stream(self._seed, f"link/{sender}/{receiver}"))
            if self._profile is not None:
                self._profile(sender, receiver, link)
        return link

    def links(self) -> dict[tuple[str, str], Link]:
        return self._links

    def name_of(self, address: str) -> str:
        """The process that last listened at an address, or the address itself."""
        return self._names.get(address, address)

    def listen(self, address: str, name: str, domain: Domain, dispatcher: Dispatcher) -> None:
        domain.check()
        self._names[address] = name
        self._endpoints[address] = _Endpoint(name, domain, dispatcher)

    def refuse(self, address: str, domain: Domain) -> None:
        """No new call is taken at the address; those in flight go on."""
        endpoint = self._endpoints.get(address)
        if endpoint is not None and endpoint.domain is domain:
            endpoint.refusing = True

    def gone(self, address: str, domain: Domain) -> None:
        """The process has died: what was in flight to it may be reset, and will never be answered."""
        endpoint = self._endpoints.get(address)
        if endpoint is None or endpoint.domain is not domain:
            return
        del self._endpoints[address]
        for exchange in endpoint.exchanges.values():
            link = self.link(endpoint.name, exchange.caller)
            delay = link.draw(self.loop.time())
            if delay is None or link.source.random() > 0.7:
                delay = KEEPALIVE
            self.loop.call_later(delay, exchange.broken, context=self._context)

    def transport(self, name: str, domain: Domain) -> SimulatedTransport:
        return SimulatedTransport(self, name, domain)

    def post(self, link: Link, deliver: Callable[..., None], *args: Any, late: float | None = None) -> bool:
        """Sends one message, at most `late` later than the link would; False if it is lost, which the sender of course
        does not learn."""
        delay = link.draw(self.loop.time())
        if delay is None:
            return False
        if late is not None:
            delay += late * link.source.random()
        self.loop.call_later(delay, deliver, *args, context=self._context)
        return True

    def endpoint(self, address: str) -> _Endpoint | None:
        endpoint = self._endpoints.get(address)
        return None if endpoint is None or endpoint.refusing else endpoint


class SimulatedTransport:
    """`dispatch.Transport` of one process."""

    def __init__(self, network: Network, name: str, domain: Domain) -> None:
        self._network = network
        self._name = name
        self._domain = domain

    async def call(self, address: str, method: Method, request: Message, *, timeout: float) -> Message:
        self._domain.check()
        self._network.sent(self._name, method, request)
        path = _Path(self._network, self._name, address, method)
        outcome = await _UnaryCall(path, request.SerializeToString(), timeout).outcome()
        if isinstance(outcome, bytes):
            return method.response.FromString(outcome)
        if isinstance(outcome, status_pb2.Status):
            raise from_status(outcome, self._network.reasons)
        try:
            raise outcome
        finally:
            # The error knows this frame by its traceback: a frame that knows the error is freed by the collector only.
            del outcome

    async def stream(
        self, address: str, method: Method, request: Message, *, timeout: float | None
    ) -> AsyncIterator[Message]:
        self._domain.check()
        path = _Path(self._network, self._name, address, method)
        pipe = _StreamCall(path, request.SerializeToString(), timeout)
        try:
            while True:
                item = await pipe.next()
                if item is None:
                    return
                if isinstance(item, bytes):
                    yield method.response.FromString(item)
                elif isinstance(item, status_pb2.Status):
                    raise from_status(item, self._network.reasons)
                else:
                    raise item
        finally:
            pipe.close()

    async def close(self) -> None:
        pass


class _Path:
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
        self.there = network.link(caller, self.server)
        self.back = network.link(self.server, caller)


class _UnaryCall:
    """One call from its first byte to its outcome: the answer, the service's status, or what the transport says."""

    def __init__(self, path: _Path, payload: bytes, timeout: float) -> None:
        network = path.network
        loop = network.loop
        self._path = path
        self._network = network
        self._payload = payload
        self._until = loop.time() + timeout
        self._answer: asyncio.Future[bytes | status_pb2.Status | HeadgateError] = loop.create_future()
        self._timer = loop.call_at(self._until, self._expire)
        self._endpoint: _Endpoint | None = None
        self._cause = CAUSE.get()
        network.post(self._path.there, self._arrive, True, late=network.late_requests.get(path.method.name))
        if self._path.there.duplication and self._path.there.source.random() < self._path.there.duplication:
            late = self._path.there.source.uniform(0.0, 5.0)
            if path.method.name not in network.once:
                loop.call_later(late, self._arrive, False, context=network._context)

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
            endpoint.exchanges[self._path.number] = _Exchange(self._path.caller, self._reset, [task])

    def _given_up(self) -> None:
        endpoint = self._endpoint
        exchange = endpoint.exchanges.get(self._path.number) if endpoint is not None else None
        if exchange is not None:
            for task in exchange.handlers:
                task.cancel()

    async def _handle(self, endpoint: _Endpoint, request: Message, call: Call, first: bool) -> None:
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


class _StreamCall:
    """One server-streaming call. Messages keep their order; the window holds the server back."""

    def __init__(self, path: _Path, payload: bytes, timeout: float | None) -> None:
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
        self._endpoint: _Endpoint | None = None
        self._task: asyncio.Task[None] | None = None
        self._in_flight = 0
        self._room: asyncio.Future[None] | None = None
        self._last_arrival = 0.0
        self._broken = False
        if not network.post(self._path.there, self._arrive):
            loop.call_later(KEEPALIVE, self._reset, context=network._context)

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
            self._network.loop.call_later(KEEPALIVE, self._given_up, context=self._network._context)

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
                network.loop.call_later(KEEPALIVE, self._reset, context=network._context)
            return
        if self._ended:
            return
        left = None if self._until is None else self._until - network.loop.time()
        request = self._path.method.request.FromString(self._payload)
        self._endpoint = endpoint
        self._task = network.loop.create_task(
            self._serve(endpoint, request, Call(peer=self._path.caller, timeout=left)),
            name=self._path.method.path,
            context=endpoint.domain.context.copy(),
        )
        endpoint.exchanges[self._path.number] = _Exchange(self._path.caller, self._died, [self._task])

    def _died(self) -> None:
        self._reset()

    def _given_up(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _send(self, endpoint: _Endpoint, item: bytes | status_pb2.Status | None) -> None:
        network = self._network
        endpoint.domain.check()
        delay = self._path.back.draw(network.loop.time())
        if delay is None:
            # A lost message stops everything behind it; both ends notice by their keep-alive.
            self._broken = True
            network.loop.call_later(KEEPALIVE, self._reset, context=network._context)
            network.loop.call_later(KEEPALIVE, self._given_up, context=network._context)
            return
        self._last_arrival = max(self._last_arrival, network.loop.time() + delay)
        network.loop.call_at(self._last_arrival, self._push, item, context=network._context)

    async def _serve(self, endpoint: _Endpoint, request: Message, call: Call) -> None:
        try:
            async with aclosing(endpoint.dispatcher.stream(self._path.method.path, request, call)) as responses:
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
