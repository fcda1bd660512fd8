"""Record batches over one stream: many requests on their way at once, answered in their order.

A stream is opened anew where it broke, and where another agent leads. What was sent and not answered may be stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from headgate.log import v1 as api
from headgate_common.errors import DEADLINE_EXCEEDED, UNREACHABLE, HeadgateError
from headgate_simulation.violation import fail

if TYPE_CHECKING:
    from headgate_simulation.log_clients import LogClient


class ProduceStream:
    """Of one client, to one address at a time."""

    def __init__(self, client: LogClient) -> None:
        self._client = client
        self._address = ""
        self._said: asyncio.Queue[api.StreamProduceRequest | None] = asyncio.Queue()
        self._talk: AsyncGenerator[Any, None] | None = None

    async def produce(self, address: str, request: api.ProduceRequest, timeout: float) -> list[api.ProducedPart]:
        """What was answered: for all parts, or for the first ones if the stream broke then."""
        talk = self._talk
        if talk is None or address != self._address:
            await self.close(timeout)
            self._said = asyncio.Queue()
            self._address = address
            talk = self._talk = self._client.converse(address, "StreamProduce", _taken(self._said))
        for part in request.parts:
            self._said.put_nowait(api.StreamProduceRequest(parts=[part]))
        answered: list[api.ProducedPart] = []
        failure: HeadgateError
        try:
            async with asyncio.timeout(timeout):
                while len(answered) < len(request.parts):
                    answered += (await anext(talk)).parts
            return answered
        except HeadgateError as error:
            failure = error
        except TimeoutError:
            failure = HeadgateError(DEADLINE_EXCEEDED, f"{address} did not answer in time")
        except StopAsyncIteration:
            failure = HeadgateError(UNREACHABLE, f"{address} ended the stream")
        await self._drop()
        if not answered:
            raise failure
        return answered

    async def close(self, timeout: float) -> None:
        """Ends the requests, and waits for the end of the answers."""
        talk = self._talk
        if talk is None:
            return
        self._said.put_nowait(None)
        try:
            async with asyncio.timeout(timeout):
                async for response in talk:
                    fail("a request has one answer", f"{self._address} answered {response} to nobody")
        except (HeadgateError, TimeoutError):
            pass  # (all that was asked is answered)
        await self._drop()

    async def _drop(self) -> None:
        talk, self._talk = self._talk, None
        if talk is not None:
            async with aclosing(talk):
                pass


async def _taken(said: asyncio.Queue[api.StreamProduceRequest | None]) -> AsyncIterator[Any]:
    while (request := await said.get()) is not None:
        yield request
