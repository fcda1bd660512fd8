"""Calls with a stream on both sides.

Requests travel as answers do: in order, with a window of unread ones that holds their sender back, and nothing behind
one that was lost. Each request that the service has taken and not answered is told to the network together with the
next answer: where a method answers its requests one by one and in order, as ours do, that is its own.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

from google.protobuf.message import Message

from headgate_common.dispatch import Call
from headgate_common.errors import UNREACHABLE, HeadgateError
from headgate_simulation.calls import KEEPALIVE, STREAM_WINDOW, Endpoint, Path, StreamCall


class Conversation(StreamCall):
    """One call with requests as they come. The caller's task that reads them ends with the call."""

    def __init__(self, path: Path, requests: AsyncIterator[Message], timeout: float | None) -> None:
        # On the caller's side: when the last request arrives, and whether one was lost.
        self._arrives = 0.0
        self._cut = False
        self._unread = 0
        self._room_there: asyncio.Future[None] | None = None
        # On the server's side: what has arrived, None for the end, and what the service has taken.
        self._heard: deque[bytes | None] = deque()
        self._hearing: asyncio.Future[None] | None = None
        self._taken: deque[tuple[Any, Message]] = deque()
        super().__init__(path, b"", timeout)
        self._speaking = path.network.loop.create_task(self._speak(requests), name=f"requests of {path.method.path}")

    def close(self) -> None:
        super().close()
        self._speaking.cancel()

    def _open(self) -> None:
        self._post(self._arrive)

    async def _speak(self, requests: AsyncIterator[Message]) -> None:
        try:
            async for request in requests:
                while self._cut or self._unread >= STREAM_WINDOW:
                    self._room_there = self._network.loop.create_future()
                    await self._room_there
                self._unread += 1
                self._post(self._hear, request.SerializeToString())
            self._post(self._hear, None)
        except Exception:
            # As over gRPC: the call is given up, and why stays with whoever made the requests.
            self._push(HeadgateError(UNREACHABLE, f"the call of {self._path.server} was ended from this side"))

    def _post(self, deliver: Callable[..., None], *args: Any) -> None:
        """Sends one message after all that were sent before."""
        network = self._network
        delay = self._path.there.draw(network.loop.time())
        if delay is None or self._cut:
            if not self._cut:
                self._cut = True
                network.loop.call_later(KEEPALIVE, self._reset, context=network.context)
                network.loop.call_later(KEEPALIVE, self._given_up, context=network.context)
            return
        self._arrives = max(self._arrives, network.loop.time() + delay)
        network.loop.call_at(self._arrives, deliver, *args, context=network.context)

    def _hear(self, item: bytes | None) -> None:
        self._heard.append(item)
        if self._hearing is not None and not self._hearing.done():
            self._hearing.set_result(None)

    def _given_up(self) -> None:
        self._hear(None)
        self._network.loop.call_soon(super()._given_up)

    async def _requests(self, endpoint: Endpoint) -> AsyncGenerator[Message, None]:
        method = self._path.method
        while True:
            while not self._heard:
                self._hearing = self._network.loop.create_future()
                await self._hearing
            item = self._heard.popleft()
            if item is None:
                return
            self._unread -= 1
            if self._room_there is not None and not self._room_there.done() and not self._cut:
                self._room_there.set_result(None)
            request = method.request.FromString(item)
            self._taken.append((self._network.arrived(endpoint.name, method, request), request))
            yield request

    async def _responses(self, endpoint: Endpoint, call: Call) -> AsyncGenerator[Message, None]:
        method = self._path.method
        talk = endpoint.dispatcher.converse(method.path, self._requests(endpoint), call)
        async with aclosing(talk) as responses:
            async for response in responses:
                if self._taken:
                    token, request = self._taken.popleft()
                    self._network.answered(token, self._path.caller, method, request, response)
                yield response
