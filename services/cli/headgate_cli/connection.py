"""The one way to the coordinator: calls by name, retried only where that is safe, and the stream of changes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, TypeVar, cast

from google.protobuf.message import Message
from grpc_health.v1 import health_pb2

from headgate.catalog import v1 as catalog
from headgate.catalog.v1 import (
    agent_service_pb2,
    query_service_pb2,
    sink_service_pb2,
    source_service_pb2,
    statement_service_pb2,
    watch_service_pb2,
)
from headgate.cluster.v1 import result_service_pb2
from headgate.log.v1 import edge_service_pb2, group_service_pb2, log_service_pb2, topic_service_pb2
from headgate_cli.failures import ExitCode, Failure
from headgate_cli.options import Options
from headgate_common.backoff import Backoff
from headgate_common.dispatch import Method, Transport, methods
from headgate_common.errors import UNREACHABLE, HeadgateError
from headgate_common.ids import Ids, RandomIds
from headgate_common.tls import channel_credentials
from headgate_common.transport import GrpcTransport

T = TypeVar("T")

_FILES = (
    agent_service_pb2,
    edge_service_pb2,
    group_service_pb2,
    health_pb2,
    log_service_pb2,
    query_service_pb2,
    result_service_pb2,
    sink_service_pb2,
    source_service_pb2,
    statement_service_pb2,
    topic_service_pb2,
    watch_service_pb2,
)
_METHODS: dict[str, Method] = {
    f"{service.name}.{name}": method
    for file in _FILES
    for service in file.DESCRIPTOR.services_by_name.values()
    for name, method in methods(service).items()
}
# Nothing was done, and the server says when to come back, or who leads.
_NOT_DONE = {"OVERLOADED", "NOT_LEADER"}
_MOST_ATTEMPTS = 5
_PAGE_SIZE = 1000
# The coordinator is away for a while: a read may be asked again, a stream resumed from the last revision seen.
_RESUMABLE = {"UNREACHABLE", "SHUTTING_DOWN", "OVERLOADED", "NOT_LEADER", "WATCHER_TOO_SLOW", "CATALOG_UNAVAILABLE"}


class Connection:
    """Calls of one command. `address` is where the coordinator answered last; a standby points to the leader."""

    def __init__(
        self,
        transport: Transport,
        address: str,
        timeout: float,
        ids: Ids | None = None,
        source: random.Random | None = None,
    ) -> None:
        self.address = address
        self._transport = transport
        self._timeout = timeout
        self._ids = ids or RandomIds()
        self._source = source or random.SystemRandom()
        self._backoff = Backoff(initial=0.2, cap=3.0)

    def request_id(self) -> str:
        """Makes a mutation safe to send again."""
        return self._ids.uid("cli")

    async def call(self, method: str, request: Message) -> Any:
        """Calls `Service.Method`. Tries again only where the coordinator says that nothing was done."""
        for attempt in range(_MOST_ATTEMPTS):
            try:
                return await self._transport.call(self.address, _METHODS[method], request, timeout=self._timeout)
            except HeadgateError as error:
                if error.reason.name not in _NOT_DONE or attempt == _MOST_ATTEMPTS - 1:
                    raise
                await self._before_retry(error, attempt)
        raise AssertionError("the last attempt returns or raises")

    async def call_at(self, address: str, method: str, request: Message) -> Any:
        """Calls `Service.Method` of another process, once."""
        return await self._transport.call(address, _METHODS[method], request, timeout=self._timeout)

    async def stream_at(self, address: str, method: str, request: Message) -> AsyncIterator[Any]:
        """A stream of another process, until the caller closes it or it breaks."""
        stream = self._transport.stream(address, _METHODS[method], request, timeout=None)
        async with aclosing(cast(Any, stream)) as messages:
            async for message in messages:
                yield message

    async def _before_retry(self, error: HeadgateError, attempt: int) -> None:
        leader = error.metadata.get("leader", "")
        if leader and leader != self.address:
            self.address = leader
            return
        delay = error.retry_after if error.retry_after is not None else self._backoff.delay(attempt, self._source)
        await asyncio.sleep(min(delay, 3.0))

    async def pages(self, method: str, request: Any, field: str) -> list[Any]:
        """Every page of a list call, in one list."""
        found: list[Any] = []
        asked = type(request)()
        asked.CopyFrom(request)
        asked.page_size = _PAGE_SIZE
        while True:
            answer = await self.call(method, asked)
            found.extend(getattr(answer, field))
            if not answer.next_page_token:
                return found
            asked.page_token = answer.next_page_token

    async def insist(
        self, ask: Callable[[], Awaitable[T]], interrupted: Callable[[HeadgateError], None] = lambda _: None
    ) -> T:
        """What `ask` answers, which only reads: asked again for as long as the coordinator is away."""
        failures = 0
        while True:
            try:
                return await ask()
            except HeadgateError as error:
                if error.reason.name not in _RESUMABLE:
                    raise
                interrupted(error)
                if leader := error.metadata.get("leader", ""):
                    self.address = leader
            await asyncio.sleep(self._backoff.delay(failures, self._source))
            failures += 1

    async def watch(self, request: catalog.WatchRequest) -> AsyncIterator[catalog.WatchResponse]:
        """One stream of changes, until the caller closes it or it breaks."""
        stream = self._transport.stream(self.address, _METHODS["WatchService.Watch"], request, timeout=None)
        async with aclosing(cast(Any, stream)) as messages:
            async for message in messages:
                yield message

    async def watch_resumed(
        self, request: catalog.WatchRequest, interrupted: Callable[[HeadgateError], None] = lambda _: None
    ) -> AsyncIterator[catalog.WatchResponse]:
        """A stream of changes that goes on after it breaks, from the last revision that was passed on.

        It breaks for good where the first connection fails, or the coordinator refuses. A snapshot that was cut off is
        begun again, so that a caller sees its parts from the start.
        """
        resumed = catalog.WatchRequest()
        resumed.CopyFrom(request)
        connected = False
        failures = 0
        while True:
            try:
                async with aclosing(cast(Any, self.watch(resumed))) as messages:
                    async for message in messages:
                        connected, failures = True, 0
                        resumed.from_revision = _seen(message) or resumed.from_revision
                        yield message
            except HeadgateError as error:
                if not connected or error.reason.name not in _RESUMABLE:
                    raise
                interrupted(error)
                if leader := error.metadata.get("leader", ""):
                    self.address = leader
            await asyncio.sleep(self._backoff.delay(failures, self._source))
            failures += 1


def _seen(message: catalog.WatchResponse) -> int:
    """The revision up to which everything has been seen with this message; 0 in the middle of a snapshot."""
    match message.WhichOneof("message"):
        case "snapshot":
            return message.snapshot.revision if message.snapshot.complete else 0
        case "events":
            return message.events.revision
        case "bookmark":
            return message.bookmark.revision
        case _:
            return 0


def _nobody(address: str, error: HeadgateError) -> Failure:
    """What to say where nobody answered, instead of what a gRPC library says."""
    refused = "Connection refused" in error.message
    why = "nothing listens there" if refused else error.message.rpartition(": ")[2].rstrip("]")
    return Failure(
        ExitCode.UNREACHABLE,
        f"no coordinator answers at {address} ({why})",
        "Start one with `headgate dev`, or say where it is with --coordinator or HEADGATE_COORDINATOR.",
    )


def run(options: Options, work: Callable[[Connection], Awaitable[T]]) -> T:
    """Runs the work of one command with a connection of its own."""

    async def connected() -> T:
        async with GrpcTransport(credentials=channel_credentials(options.tls)) as transport:
            connection = Connection(transport, options.coordinator, options.rpc_timeout)
            try:
                return await work(connection)
            except HeadgateError as error:
                if error.reason is UNREACHABLE:
                    raise _nobody(connection.address, error) from error
                raise

    return asyncio.run(connected())
