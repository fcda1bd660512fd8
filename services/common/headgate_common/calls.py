"""How one call goes through a server: admitted, read, given to the `Dispatcher`, answered, counted.

`rpc.RpcServer` owns what is here. Bytes go in and out: messages are parsed by us, so that a request that cannot be read
gets a typed error like any other.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any, NoReturn, TypeAlias

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from headgate_common.admission import Admission, Full
from headgate_common.clock import Clock
from headgate_common.dispatch import Call, Dispatcher, Method
from headgate_common.errors import (
    DEADLINE_EXCEEDED,
    INTERNAL,
    INVALID_ARGUMENT,
    MESSAGE_TOO_LARGE,
    OVERLOADED,
    SHUTTING_DOWN,
    UNIMPLEMENTED,
    UNREACHABLE,
    HeadgateError,
    to_status,
)
from headgate_common.metrics import OK, UNKNOWN_METHOD, RpcMetrics
from headgate_common.settings import LimitsConfig
from headgate_common.tracing import Tracing

DETAILS_HEADER = "grpc-status-details-bin"
_CANCELLED = "CANCELLED"
_HEADER_NAME = re.compile(r"[0-9a-z_.\-]+")

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"


class Lane:
    """The calls of one kind: how many are admitted, and the tasks that serve them."""

    def __init__(self, running: int, waiting: int) -> None:
        self.admission = Admission(running, waiting)
        self.tasks: set[asyncio.Task[Any]] = set()

    def cancel(self) -> None:
        for task in tuple(self.tasks):
            task.cancel()

    async def emptied(self, timeout: float) -> bool:
        """Waits until the calls of this moment have ended; says whether they did in time."""
        if not self.tasks:
            return True
        _, left = await asyncio.wait(tuple(self.tasks), timeout=timeout)
        return not left


class Desk:
    """What all methods of a server share."""

    def __init__(
        self, limits: LimitsConfig, metrics: RpcMetrics, tracing: Tracing, clock: Clock, source: random.Random
    ) -> None:
        self.limits = limits
        self.metrics = metrics
        self.tracing = tracing
        self.clock = clock
        self.calls = Lane(limits.in_flight, limits.queue)
        self.streams = Lane(limits.streams, 0)
        self.draining = False
        # The time to finish is over: what is cancelled from here on may or may not have happened.
        self.cut_off = False
        self._source = source

    def overloaded(self) -> HeadgateError:
        # Each caller is told another delay, so that they do not all come back in the same moment.
        delay = self.limits.retry_after * self._source.uniform(0.5, 1.5)
        return HeadgateError(OVERLOADED, f"too many calls at once; try again in {delay:.2f} s", retry_after=delay)

    def shutting_down(self) -> HeadgateError:
        return HeadgateError(SHUTTING_DOWN, "the server is shutting down; try again, elsewhere or a little later")


class MethodHandler:
    """Serves one method. `exempt` methods are served by a full or draining server too."""

    def __init__(self, desk: Desk, dispatcher: Dispatcher, method: Method, lane: Lane, *, exempt: bool = False) -> None:
        self._desk = desk
        self._dispatcher = dispatcher
        self._method = method
        self.path = method.path
        self._parse = method.request.FromString
        self._metrics = desk.metrics.method(method.path)
        self._exempt = exempt
        self.lane = lane
        # No serializers: bytes in, bytes out.
        self.handler: Handler = (
            grpc.stream_stream_rpc_method_handler(self._converse)
            if method.converses
            else grpc.unary_stream_rpc_method_handler(self._stream)
            if method.streams
            else grpc.unary_unary_rpc_method_handler(self._unary)
        )

    def refusal(self) -> HeadgateError | None:
        """Why a call that arrives now is not even read."""
        if self._exempt:
            return None
        if self._desk.draining:
            return self._desk.shutting_down()
        return self._desk.overloaded() if self.lane.admission.full() else None

    def refused(self, error: HeadgateError) -> None:
        self._metrics.refused(error.reason.name)

    async def _unary(self, raw: bytes, context: Context) -> bytes:
        desk, lane = self._desk, self.lane
        started = desk.clock.monotonic()
        outcome = _CANCELLED
        call = _call_of(context)
        task = _current_task()
        lane.tasks.add(task)
        try:
            self._check_open()
            with desk.tracing.serving(self.path, call.metadata):
                if call.timeout is not None:
                    answer = await self._answer(raw, call)
                else:
                    async with asyncio.timeout(desk.limits.deadline):
                        answer = await self._answer(raw, call)
            if call.trailers:
                context.set_trailing_metadata(_checked(call.trailers))
            outcome = OK
            return answer
        except HeadgateError as raised:
            outcome, error = raised.reason.name, raised
        except TimeoutError:
            text = f"not finished within the server's default of {desk.limits.deadline:g} s; set a deadline"
            outcome, error = DEADLINE_EXCEEDED.name, HeadgateError(DEADLINE_EXCEEDED, text)
        except asyncio.CancelledError:
            if not desk.cut_off or context.cancelled():
                raise
            error = HeadgateError(UNREACHABLE, "the server stopped before this call had finished")
            outcome = UNREACHABLE.name
        except Exception as broken:
            outcome, error = INTERNAL.name, self._dispatcher.defect(self.path, broken)
        finally:
            # Counted before the caller can know, so that who looks after an answer finds it counted.
            lane.tasks.discard(task)
            self._metrics.ended(outcome, desk.clock.monotonic() - started)
        return await abort(context, error, call.trailers)

    async def _answer(self, raw: bytes, call: Call) -> bytes:
        admission = self.lane.admission
        try:
            await admission.enter()
        except Full:
            raise self._desk.overloaded() from None
        try:
            return self._write(await self._dispatcher.unary(self.path, self._read(raw), call))
        finally:
            admission.leave()

    async def _stream(self, raw: bytes, context: Context) -> None:
        await self._serve(lambda call: self._dispatcher.stream(self.path, self._read(raw), call), context)

    async def _converse(self, raw: AsyncIterator[bytes], context: Context) -> None:
        await self._serve(lambda call: self._dispatcher.converse(self.path, self._read_all(raw), call), context)

    async def _serve(self, answers: Callable[[Call], AsyncGenerator[Message, None]], context: Context) -> None:
        desk, lane = self._desk, self.lane
        started = desk.clock.monotonic()
        outcome = _CANCELLED
        call = _call_of(context)
        task = _current_task()
        cut = _CutOff(task)
        call.on_cut_off = cut
        lane.tasks.add(task)
        try:
            self._check_open()
            with desk.tracing.serving(self.path, call.metadata):
                await self._answers(answers, call, context)
            if call.trailers:
                context.set_trailing_metadata(_checked(call.trailers))
            outcome = OK
            return
        except HeadgateError as raised:
            outcome, error = raised.reason.name, raised
        except asyncio.CancelledError:
            if context.cancelled() or not (cut.error or desk.draining):
                raise
            error = cut.error or desk.shutting_down()
            outcome = error.reason.name
        except Exception as broken:
            outcome, error = INTERNAL.name, self._dispatcher.defect(self.path, broken)
        finally:
            lane.tasks.discard(task)
            self._metrics.ended(outcome, desk.clock.monotonic() - started)
        await abort(context, error, call.trailers)

    async def _answers(
        self, answers: Callable[[Call], AsyncGenerator[Message, None]], call: Call, context: Context
    ) -> None:
        admission = self.lane.admission
        try:
            await admission.enter()
        except Full:
            raise self._desk.overloaded() from None
        try:
            async with aclosing(answers(call)) as responses:
                begun = False
                async for response in responses:
                    if not begun:
                        await begin(context)
                        begun = True
                    await context.write(self._write(response))
        finally:
            admission.leave()

    def _check_open(self) -> None:
        """Draining may have begun between the headers of a call and its request."""
        if self._desk.draining and not self._exempt:
            raise self._desk.shutting_down()

    async def _read_all(self, raw: AsyncIterator[bytes]) -> AsyncIterator[Message]:
        async for one in raw:
            yield self._read(one)

    def _read(self, raw: bytes) -> Message:
        if len(raw) > self._desk.limits.message_size:
            raise self._too_large("request", len(raw))
        try:
            return self._parse(raw)
        except DecodeError as error:
            name = self._method.request.DESCRIPTOR.full_name
            text = f"the request is not a {name}: its bytes cannot be read, or a text in it is not UTF-8"
            raise HeadgateError(INVALID_ARGUMENT, text) from error

    def _write(self, response: Message) -> bytes:
        raw = response.SerializeToString()
        if len(raw) > self._desk.limits.message_size:
            raise self._too_large("answer", len(raw))
        return raw

    def _too_large(self, what: str, size: int) -> HeadgateError:
        limit = self._desk.limits.message_size
        return HeadgateError(
            MESSAGE_TOO_LARGE,
            f"the {what} has {size} bytes and the server's limit is {limit}",
            metadata={"size": str(size), "limit": str(limit)},
        )


class _CutOff:
    """`Call.on_cut_off` of a stream that this task serves."""

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self._task = task
        self.error: HeadgateError | None = None

    def __call__(self, error: HeadgateError) -> None:
        if self.error is None:
            self.error = error
            self._task.cancel()


class Router(grpc.GenericRpcHandler):
    """Finds the handler of a call when its headers have arrived, and refuses what need not be read."""

    def __init__(self, methods: Mapping[str, MethodHandler], metrics: RpcMetrics) -> None:
        self._methods = methods
        self._unknown = metrics.method(UNKNOWN_METHOD)

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Handler:
        path = handler_call_details.method
        method = self._methods.get(path)
        if method is None:
            self._unknown.refused(UNIMPLEMENTED.name)
            return _refusing(HeadgateError(UNIMPLEMENTED, f"there is no method {path}", metadata={"method": path}))
        error = method.refusal()
        if error is None:
            return method.handler
        method.refused(error)
        return _refusing(error)


async def begin(context: Context) -> None:
    """Sends the headers of a stream, to their end also when it is cancelled: gRPC would not know that they are sent and
    would send them again with the status, which then never goes out. Cancelled twice, or by the caller, it ends at
    once."""
    sending = asyncio.ensure_future(context.send_initial_metadata(()))
    try:
        await asyncio.shield(sending)
    except asyncio.CancelledError:
        if not context.cancelled():
            await asyncio.wait((sending,))
        raise
    finally:
        if not sending.done():
            sending.cancel()
        elif not sending.cancelled():
            # Looked at, so that asyncio does not report it as lost.
            sending.exception()


async def abort(context: Context, error: HeadgateError, trailers: Mapping[str, str] | None = None) -> NoReturn:
    """Ends the call with the error as its status."""
    status = to_status(error)
    details = (DETAILS_HEADER, status.SerializeToString())
    sendable = [pair for pair in (trailers or {}).items() if _is_header(*pair)]
    await context.abort(error.reason.code, status.message, (*sendable, details))


def _is_header(name: str, value: str) -> bool:
    return _HEADER_NAME.fullmatch(name) is not None and value.isascii() and value.isprintable()


def _checked(trailers: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """gRPC breaks the call over a header that it cannot send, and says nothing to the caller."""
    for name, value in trailers.items():
        if not _is_header(name, value):
            raise ValueError(f"{name!r}: {value!r} cannot be sent as a trailer")
    return tuple(trailers.items())


def _refusing(error: HeadgateError) -> Handler:
    """Answers with the error. A stream on both sides, because only that kind does not wait for the request first."""

    async def refuse(_requests: Any, context: Context) -> None:
        await abort(context, error)

    return grpc.stream_stream_rpc_method_handler(refuse)


def _call_of(context: Context) -> Call:
    metadata = context.invocation_metadata() or ()
    texts = {key: value for key, value in metadata if isinstance(value, str)}
    call = Call(peer=context.peer(), metadata=texts, timeout=context.time_remaining())
    # An answer is done with when the connection has taken all of it, or is gone.
    call.on_sent = partial(_when_done, context)
    return call


def _when_done(context: Context, release: Callable[[], None]) -> None:
    # The stubs ask for a class that gRPC does not have.
    done: Any = lambda _: release()  # noqa: E731
    context.add_done_callback(done)


def _current_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task
