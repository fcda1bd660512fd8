"""How an agent reaches the leading coordinator: the one client that membership, the log's metadata and its view share.

Any coordinator may be asked: a standby names the leader, and whoever learns of another leader tells the others by
sharing this client. Nothing is repeated here: what may be repeated, and how soon, its caller knows. A watch is of the
catalog that the agent has joined, and is refused by any other (CATALOG_MISMATCH): what is missing in it is let go.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, cast

from google.protobuf.message import Message

from headgate.catalog import v1 as catalog
from headgate_common.dispatch import Method, Transport
from headgate_common.errors import HeadgateError

_GONE = ("NOT_LEADER", "UNREACHABLE", "DEADLINE_EXCEEDED", "SHUTTING_DOWN")


class Coordinators:
    def __init__(self, transport: Transport, addresses: Sequence[str], *, timeout: float) -> None:
        """`addresses` are tried in turn while no leader is known; `timeout` is for one call, in seconds."""
        self._transport = transport
        self._addresses = tuple(addresses)
        self._timeout = timeout
        self._turn = 0
        # Where the leader was last found; empty while it is not known.
        self.leader = ""
        # The catalog that the agent has joined; empty before.
        self.catalog_uid = ""

    async def call(self, method: Method, request: Message, *, timeout: float | None = None) -> Any:
        """Asks the leader where it is known, else the coordinators in turn."""
        address = self._address()
        try:
            answer = await self._transport.call(address, method, request, timeout=timeout or self._timeout)
        except HeadgateError as error:
            self._failed(address, error)
            raise
        self.leader = address
        return answer

    async def stream(self, method: Method, request: Message) -> AsyncGenerator[Message, None]:
        """The answers of a streaming method, until it ends or breaks."""
        if isinstance(request, catalog.WatchRequest):
            request.catalog_uid = self.catalog_uid
        address = self._address()
        answers = cast(AsyncGenerator[Message, None], self._transport.stream(address, method, request, timeout=None))
        try:
            async with aclosing(answers):
                async for answer in answers:
                    yield answer
        except HeadgateError as error:
            self._failed(address, error)
            raise

    def _address(self) -> str:
        return self.leader or self._addresses[self._turn % len(self._addresses)]

    def _failed(self, address: str, error: HeadgateError) -> None:
        named = error.metadata.get("leader", "") if error.reason.name == "NOT_LEADER" else ""
        if named and named != address:
            self.leader = named
        elif error.reason.name in _GONE and self.leader in ("", address):
            self.leader = ""
            self._turn += 1
