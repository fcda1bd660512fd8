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
- A stream on both sides is that in either direction. A caller that gives up may look to its server as if it had ended
  its requests, until the handler is cancelled at its next wait: gRPC does the same.
"""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message
from google.rpc import status_pb2

from headgate_common import dispatch
from headgate_common.dispatch import Dispatcher, Method
from headgate_common.errors import COMMON, HeadgateError, ReasonTable, from_status
from headgate_simulation.calls import KEEPALIVE, Endpoint, Path, StreamCall, UnaryCall
from headgate_simulation.conversations import Conversation
from headgate_simulation.loop import Domain, SimulationLoop
from headgate_simulation.streams import stream
from headgate_simulation.trace import Trace

# How many messages are remembered to have been checked.
KEPT = 4096
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
        self._endpoints: dict[str, Endpoint] = {}
        self._names: dict[str, str] = {}
        self._links: dict[tuple[str, str], Link] = {}
        self._pairs: dict[tuple[str, str], tuple[Link, Link]] = {}
        # By how much requests and answers of single methods come later than all others, at most.
        self.late_requests: dict[str, float] = {}
        self.late_answers: dict[str, float] = {}
        # Methods whose requests come once at most, as over a connection: who asks again does it itself.
        self.once: frozenset[str] = frozenset()
        self.context = Domain("network").context

    def link(self, sender: str, receiver: str) -> Link:
        link = self._links.get((sender, receiver))
        if link is None:
            link = self._links[sender, receiver] = Link(stream(self._seed, f"link/{sender}/{receiver}"))
            if self._profile is not None:
                self._profile(sender, receiver, link)
        return link

    def links_between(self, caller: str, server: str) -> tuple[Link, Link]:
        """There and back."""
        pair = self._pairs.get((caller, server))
        if pair is None:
            pair = self._pairs[caller, server] = (self.link(caller, server), self.link(server, caller))
        return pair

    def links(self) -> dict[tuple[str, str], Link]:
        return self._links

    def name_of(self, address: str) -> str:
        """The process that last listened at an address, or the address itself."""
        return self._names.get(address, address)

    def listen(self, address: str, name: str, domain: Domain, dispatcher: Dispatcher) -> None:
        domain.check()
        self._names[address] = name
        self._endpoints[address] = Endpoint(name, domain, dispatcher)

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
            self.loop.call_later(delay, exchange.broken, context=self.context)

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
        self.loop.call_later(delay, deliver, *args, context=self.context)
        return True

    def endpoint(self, address: str) -> Endpoint | None:
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
        outcome = await UnaryCall(self._path(address, method), request.SerializeToString(), timeout).outcome()
        if isinstance(outcome, bytes):
            return method.response.FromString(outcome)
        if isinstance(outcome, status_pb2.Status):
            raise from_status(outcome, self._network.reasons)
        try:
            raise outcome
        finally:
            # The error knows this frame by its traceback: a frame that knows the error is freed by the collector only.
            del outcome

    def stream(
        self, address: str, method: Method, request: Message, *, timeout: float | None
    ) -> AsyncGenerator[Message, None]:
        return self._answers(
            method, lambda: StreamCall(self._path(address, method), request.SerializeToString(), timeout)
        )

    def converse(
        self, address: str, method: Method, requests: AsyncIterator[Message], *, timeout: float | None
    ) -> AsyncGenerator[Message, None]:
        return self._answers(method, lambda: Conversation(self._path(address, method), requests, timeout))

    def _path(self, address: str, method: Method) -> Path:
        return Path(self._network, self._name, address, method)

    async def _answers(self, method: Method, start: Callable[[], StreamCall]) -> AsyncGenerator[Message, None]:
        """The answers of a call that `start` makes when the first is asked for."""
        self._domain.check()
        pipe = start()
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
