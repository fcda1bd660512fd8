"""The `Transport` of production: grpc.aio channels, one for each address.

Calls never wait for a peer that is known to be away: they fail with UNREACHABLE, and the caller's own back-off decides.
The channel tries again on its own, at least once a second, so that a restarted peer is found within about that time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from google.rpc import status_pb2

from headgate_common.calls import DETAILS_HEADER
from headgate_common.dispatch import Method, Transport, methods, snake_case
from headgate_common.errors import COMMON, INTERNAL, UNREACHABLE, HeadgateError, ReasonTable, from_code, from_status
from headgate_common.tracing import Tracing

DEFAULT_MESSAGE_SIZE = 64 * 2**20


class GrpcTransport:
    """Calls services over gRPC. `reasons` gives errors the reasons of the services that are called."""

    def __init__(
        self,
        *,
        credentials: grpc.ChannelCredentials | None = None,
        reasons: ReasonTable = COMMON,
        tracing: Tracing | None = None,
        message_size: int = DEFAULT_MESSAGE_SIZE,
    ) -> None:
        self._credentials = credentials
        self._reasons = reasons
        self._tracing = tracing or Tracing()
        self._options = _options(message_size)
        self._peers: dict[str, _Peer] = {}
        self._closed = False

    async def call(self, address: str, method: Method, request: Message, *, timeout: float) -> Message:
        cancelled = _cancellations()
        with self._tracing.calling(method.path, address) as metadata:
            try:
                raw = await self._peer(address).unary(method.path)(
                    request.SerializeToString(), timeout=timeout, metadata=metadata
                )
            except grpc.aio.AioRpcError as error:
                if _cancellations() > cancelled:
                    # Of a call that ends while its task is cancelled gRPC tells the end; then nobody would stop.
                    raise asyncio.CancelledError from None
                raise self._error(address, method, error) from None
            except asyncio.CancelledError:
                _check_cancelled(address, method)
                raise
            return _parse(method, raw)

    def stream(
        self, address: str, method: Method, request: Message, *, timeout: float | None
    ) -> AsyncGenerator[Message, None]:
        return self._answers(
            address,
            method,
            lambda metadata: self._peer(address).stream(method.path)(
                request.SerializeToString(), timeout=timeout, metadata=metadata
            ),
        )

    def converse(
        self, address: str, method: Method, requests: AsyncIterator[Message], *, timeout: float | None
    ) -> AsyncGenerator[Message, None]:
        return self._answers(
            address,
            method,
            lambda metadata: self._peer(address).conversation(method.path)(timeout=timeout, metadata=metadata),
            requests,
        )

    async def _answers(
        self,
        address: str,
        method: Method,
        start: Callable[[Any], Any],
        requests: AsyncIterator[Message] | None = None,
    ) -> AsyncGenerator[Message, None]:
        """The answers of a call that `start` makes, with the metadata to send, when the first is asked for."""
        with self._tracing.calling(method.path, address) as metadata:
            call = start(metadata)
        speaking = asyncio.ensure_future(_speak(call, requests)) if requests is not None else None
        try:
            async for raw in call:
                yield _parse(method, raw)
        except grpc.aio.AioRpcError as error:
            raise self._error(address, method, error) from None
        except asyncio.CancelledError:
            _check_cancelled(address, method)
            raise
        finally:
            call.cancel()
            if speaking is not None:
                speaking.cancel()

    async def forget(self, address: str) -> None:
        """Closes the channel of a peer that will not be called again; a later call makes a new one."""
        peer = self._peers.pop(address, None)
        if peer is not None:
            await peer.channel.close()

    async def close(self) -> None:
        """Ends every call and closes every channel."""
        self._closed = True
        peers, self._peers = self._peers, {}
        await asyncio.gather(*(peer.channel.close() for peer in peers.values()))

    async def __aenter__(self) -> GrpcTransport:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    def _peer(self, address: str) -> _Peer:
        peer = self._peers.get(address)
        if peer is None:
            if self._closed:
                raise RuntimeError("the transport is closed")
            if self._credentials is None:
                channel = grpc.aio.insecure_channel(address, options=self._options)
            else:
                channel = grpc.aio.secure_channel(address, self._credentials, options=self._options)
            peer = self._peers[address] = _Peer(channel)
        return peer

    def _error(self, address: str, method: Method, error: grpc.aio.AioRpcError) -> HeadgateError:
        for key, value in error.trailing_metadata() or ():
            if key == DETAILS_HEADER and isinstance(value, bytes):
                try:
                    return from_status(status_pb2.Status.FromString(value), self._reasons)
                except DecodeError:
                    break
        return from_code(error.code(), f"{address}{method.path}: {error.details() or error.code().name}")


class Client:
    """The methods of one service at one address, by their names in snake case.

    `await client.get_query(request)` answers a unary method; `client.watch(request)` is an async generator for a
    streaming one. Both take `timeout` in seconds (None, for streams only, sets none).
    """

    def __init__(
        self, transport: Transport, address: str, descriptor: ServiceDescriptor, *, timeout: float = 30.0
    ) -> None:
        self._transport = transport
        self._address = address
        self._timeout = timeout
        self._methods = {snake_case(name): method for name, method in methods(descriptor).items()}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = self.__dict__.get("_methods", {}).get(name)
        if method is None:
            raise AttributeError(f"there is no method {name}; there are: {', '.join(self._methods)}")
        bound = self._streaming(method) if method.streams else self._unary(method)
        setattr(self, name, bound)
        return bound

    def _unary(self, method: Method) -> Callable[..., Awaitable[Message]]:
        def call(request: Message, *, timeout: float | None = None) -> Awaitable[Message]:
            seconds = self._timeout if timeout is None else timeout
            return self._transport.call(self._address, method, request, timeout=seconds)

        return call

    def _streaming(self, method: Method) -> Callable[..., Any]:
        def call(request: Message, *, timeout: float | None = None) -> Any:
            return self._transport.stream(self._address, method, request, timeout=timeout)

        return call


class _Peer:
    """A channel and its methods, made once."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel
        self._unary: dict[str, Any] = {}
        self._stream: dict[str, Any] = {}
        self._conversation: dict[str, Any] = {}

    def unary(self, path: str) -> Any:
        found = self._unary.get(path)
        if found is None:
            found = self._unary[path] = self.channel.unary_unary(path)
        return found

    def stream(self, path: str) -> Any:
        found = self._stream.get(path)
        if found is None:
            found = self._stream[path] = self.channel.unary_stream(path)
        return found

    def conversation(self, path: str) -> Any:
        found = self._conversation.get(path)
        if found is None:
            found = self._conversation[path] = self.channel.stream_stream(path)
        return found


async def _speak(call: Any, requests: AsyncIterator[Message]) -> None:
    """Sends requests until there are no more. gRPC would do it, but go on to wait for them when the call is over."""
    try:
        async for request in requests:
            await call.write(request.SerializeToString())
        await call.done_writing()
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
        return  # (the call is over, and whoever reads its answers is told why)
    except Exception:
        # The server must not take it for an end of the requests.
        call.cancel()


def _cancellations() -> int:
    """How often this task was asked to end."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


def _check_cancelled(address: str, method: Method) -> None:
    """gRPC cancels the calls of a channel that is closed, and would so end a task that nobody cancelled."""
    if asyncio.current_task() is not None and not _cancellations():
        raise HeadgateError(UNREACHABLE, f"{address}{method.path}: the connection was closed from this side")


def _parse(method: Method, raw: bytes) -> Message:
    try:
        return method.response.FromString(raw)
    except DecodeError as error:
        name = method.response.DESCRIPTOR.full_name
        raise HeadgateError(INTERNAL, f"the answer to {method.path} is not a {name}") from error


def _options(message_size: int) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", message_size),
        ("grpc.max_send_message_length", -1),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 1_000),
        # How long one attempt to connect may take, despite its name.
        ("grpc.min_reconnect_backoff_ms", 2_000),
        ("grpc.keepalive_time_ms", 20_000),
        ("grpc.keepalive_timeout_ms", 5_000),
        ("grpc.http2.max_pings_without_data", 0),
        # Peers are named by their own addresses; a proxy for the outside world is not on the way to them.
        ("grpc.enable_http_proxy", 0),
        # Two transports in one process must not share connections or each other's back-off.
        ("grpc.use_local_subchannel_pool", 1),
    ]
