"""From a method's full name and a request to an answer or a `HeadgateError`: the same path for gRPC and the simulator.

A service is a plain object. Its class names the protobuf service in `descriptor` and has one coroutine for each RPC, in
snake case, that takes the request and a `Call` and returns the response, or, for a server-streaming RPC, an async
generator that yields responses; where requests are a stream too, it takes an async iterator of them. It raises
`HeadgateError` and never sees gRPC. Requests are checked against the protovalidate rules of the proto before the
service sees them. A handler is cancelled when its caller gives up, and a generator is closed when its caller stops
listening.
"""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from typing import Any, Protocol

import protovalidate
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.rpc import error_details_pb2

from headgate_common.enums import undefined_enums
from headgate_common.errors import INTERNAL, INVALID_ARGUMENT, UNIMPLEMENTED, HeadgateError
from headgate_common.ids import Ids, RandomIds
from headgate_common.nul import find_nul

log = logging.getLogger(__name__)

# An error travels in headers, so it names so many fields and counts the rest.
MAX_VIOLATIONS = 20


class Service(Protocol):
    """Anything with a `descriptor` and a coroutine for each of its methods."""

    @property
    def descriptor(self) -> ServiceDescriptor: ...


@dataclass(frozen=True, slots=True)
class Method:
    """One RPC: how it is called on the wire and what goes in and out."""

    path: str
    name: str
    request: type[Message]
    response: type[Message]
    # Answers are a stream.
    streams: bool
    # Requests are a stream too.
    converses: bool = False


@dataclass(slots=True)
class Call:
    """What a service may know about the call it answers."""

    peer: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    # Seconds left when the call arrived, or None where the caller set no deadline.
    timeout: float | None = None
    # Told to the caller beside the answer, such as where the leading coordinator is: lower-case names, ASCII values.
    trailers: dict[str, str] = field(default_factory=dict)
    # These are of a transport where an answer may wait for its caller; see `when_sent` and `cut_off`.
    on_sent: Callable[[Callable[[], None]], None] | None = None
    on_cut_off: Callable[[HeadgateError], None] | None = None

    def when_sent(self, release: Callable[[], None]) -> None:
        """Has `release` called once, when the one answer has been sent or never will be: to give back what it takes
        until then. At once where nothing lies between a service and its caller."""
        if self.on_sent is None:
            release()
        else:
            self.on_sent(release)

    def cut_off(self, error: HeadgateError) -> None:
        """Ends a stream with the error while it waits for its caller to take what was sent. Without effect where a
        caller does not hold up its server."""
        if self.on_cut_off is not None:
            self.on_cut_off(error)


class Transport(Protocol):
    """Calls a service of another process.

    Contract: `call` returns the response or raises `HeadgateError`: with the reason of the service; or UNREACHABLE or
    DEADLINE_EXCEEDED, and then the call may have happened, may still happen, and may happen twice. `stream` is the
    same for server-streaming methods. Closing the iterator ends the call.
    """

    async def call(self, address: str, method: Method, request: Message, *, timeout: float) -> Message: ...

    def stream(
        self, address: str, method: Method, request: Message, *, timeout: float | None
    ) -> AsyncIterator[Message]: ...


class ConversingTransport(Transport, Protocol):
    """A `Transport` that can also call methods with a stream on both sides.

    Contract: as `stream`; requests are read as fast as the other side takes them, and their end is told to it.
    """

    def converse(
        self, address: str, method: Method, requests: AsyncIterator[Message], *, timeout: float | None
    ) -> AsyncIterator[Message]: ...


@cache
def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


@cache
def method_of(descriptor: MethodDescriptor) -> Method:
    service = descriptor.containing_service
    if descriptor.client_streaming and not descriptor.server_streaming:
        raise TypeError(f"{descriptor.full_name}: a stream of requests with one answer is not supported")
    return Method(
        path=f"/{service.full_name}/{descriptor.name}",
        name=descriptor.name,
        request=message_factory.GetMessageClass(descriptor.input_type),
        response=message_factory.GetMessageClass(descriptor.output_type),
        streams=bool(descriptor.server_streaming),
        converses=bool(descriptor.client_streaming),
    )


def methods(service: ServiceDescriptor) -> dict[str, Method]:
    """The methods of a service by their name in the proto."""
    return {m.name: method_of(m) for m in service.methods}


class Dispatcher:
    """Finds the coroutine of a method, checks the request, runs it, and lets only `HeadgateError` out."""

    def __init__(self, services: Iterable[Service], ids: Ids | None = None) -> None:
        self._ids = ids or RandomIds()
        self._routes: dict[str, tuple[Method, Callable[..., Any]]] = {}
        for service in services:
            for method in methods(service.descriptor).values():
                if method.path in self._routes:
                    raise TypeError(f"{method.path} is served twice")
                handler = getattr(service, snake_case(method.name), None)
                if handler is None:
                    raise TypeError(f"{type(service).__name__} has no {snake_case(method.name)}")
                if inspect.isasyncgenfunction(handler) != method.streams:
                    raise TypeError(f"{method.path}: streaming in the proto and code must agree")
                self._routes[method.path] = (method, handler)

    def methods(self) -> Iterable[Method]:
        return (method for method, _ in self._routes.values())

    async def unary(self, path: str, request: Message, call: Call) -> Message:
        method, found = self._route(path)
        handler: Callable[..., Awaitable[Message]] = found
        try:
            check(request)
            return _expect(method, await handler(request, call))
        except HeadgateError:
            raise
        except Exception as error:
            raise self.defect(path, error) from error

    async def stream(self, path: str, request: Message, call: Call) -> AsyncGenerator[Message, None]:
        method, found = self._route(path)
        handler: Callable[..., AsyncGenerator[Message, None]] = found
        try:
            check(request)
            async with aclosing(handler(request, call)) as responses:
                async for response in responses:
                    yield _expect(method, response)
        except HeadgateError:
            raise
        except Exception as error:
            raise self.defect(path, error) from error

    async def converse(self, path: str, requests: AsyncIterator[Message], call: Call) -> AsyncGenerator[Message, None]:
        """For a method with a stream on both sides. Each request is checked when the service takes it."""
        method, found = self._route(path)
        handler: Callable[..., AsyncGenerator[Message, None]] = found
        try:
            async with aclosing(handler(_checked(requests), call)) as responses:
                async for response in responses:
                    yield _expect(method, response)
        except HeadgateError:
            raise
        except Exception as error:
            raise self.defect(path, error) from error

    def _route(self, path: str) -> tuple[Method, Callable[..., Any]]:
        route = self._routes.get(path)
        if route is None:
            raise HeadgateError(UNIMPLEMENTED, f"there is no method {path}", metadata={"method": path})
        return route

    def defect(self, path: str, error: Exception) -> HeadgateError:
        """What a caller is told of an error that nobody foresaw; the log has the rest."""
        incident = self._ids.uid("incident")
        log.error("defect", extra={"incident": incident, "method": path}, exc_info=error)
        return HeadgateError(
            INTERNAL,
            f"a defect stopped this call; its trace is in the server's log under {incident}",
            metadata={"incident": incident},
        )


def _expect(method: Method, response: Message) -> Message:
    """Another message would be read by the caller as the wrong one, without an error."""
    if not isinstance(response, method.response):
        raise TypeError(f"{method.path} answered with {type(response).__name__}")
    return response


async def _checked(requests: AsyncIterator[Message]) -> AsyncIterator[Message]:
    async for request in requests:
        check(request)
        yield request


def check(request: Message) -> None:
    """Refuses a request that breaks the rules of its proto, naming the fields.

    Beside the rules that are written there: no NUL character in a text, and no number that its enum does not have.
    """
    found: dict[str, str] = {}
    nul = find_nul(request)
    if nul is not None:
        found[nul] = "there is a NUL character in the text"
    for violation in protovalidate.collect_violations(request):
        proto = violation.proto
        found.setdefault(_path(proto.field), proto.message or proto.rule_id)
    found.update(undefined_enums(request))
    if not found:
        return
    bad = error_details_pb2.BadRequest()
    for field_path, description in islice(found.items(), MAX_VIOLATIONS):
        bad.field_violations.add(field=field_path, description=description)
    first = bad.field_violations[0]
    rest = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    raise HeadgateError(
        INVALID_ARGUMENT,
        f"{first.field}: {first.description}{rest}",
        metadata={"field": first.field},
        details=[bad],
    )


def _path(path: Any) -> str:
    """`items[3].statement`, `labels["zone"]`."""
    text = ""
    for element in path.elements if path else ():
        text += f".{element.field_name}" if text else element.field_name
        if element.subscript is not None:
            value = element.subscript.value
            text += f'["{value}"]' if isinstance(value, str) else f"[{value}]"
    return text
