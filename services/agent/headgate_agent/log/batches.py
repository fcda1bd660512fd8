"""Record batches over gRPC, to and from partitions that this agent leads. Each partition is answered for itself."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any

from headgate.log import v1 as api
from headgate_agent.log import access as seam
from headgate_agent.log.access import LogAccess
from headgate_agent.log.answers import Answers
from headgate_agent.log.contract import PartitionKey, Uncertain
from headgate_agent.log.limits import CallLimits
from headgate_agent.log.record_batch import headers
from headgate_agent.log.refusals import EXPECTED, refusal, refuse_internal
from headgate_common.dispatch import Call

_DEFAULT_PART_BYTES = 1 << 20
_DEFAULT_BYTES = 16 << 20


class Batches:
    def __init__(self, access: LogAccess, own_name: str, answers: Answers, limits: CallLimits) -> None:
        self._access = access
        self._own_name = own_name
        self._answers = answers
        self._limits = limits
        # Bytes of requests of streams that are being stored.
        self._streamed = 0

    async def produce(self, parts: Sequence[api.ProducePart]) -> list[api.ProducedPart]:
        done = await asyncio.gather(*(self._produce(part) for part in parts))
        return [await self._confirmed(part, each) for part, each in zip(parts, done, strict=True)]

    async def _confirmed(self, part: api.ProducePart, done: api.ProducedPart) -> api.ProducedPart:
        if done.error_reason:
            return done
        key = PartitionKey(part.topic_uid, part.partition)
        try:
            await self._access.confirm(key)
        except EXPECTED as error:
            return self._refused(key, Uncertain(str(error)))
        return done

    async def stream_produce(
        self, requests: AsyncIterator[api.StreamProduceRequest]
    ) -> AsyncGenerator[api.StreamProduceResponse, None]:
        """Many requests at once, answered in their order."""
        running: deque[asyncio.Task[list[api.ProducedPart]]] = deque()
        reading: asyncio.Task[api.StreamProduceRequest | None] | None = None
        ended = False
        try:
            while not ended or running:
                if reading is None and not ended and (not running or self._takes_more(len(running))):
                    reading = asyncio.ensure_future(_next(requests))
                waiting: list[asyncio.Task[Any]] = [reading] if reading is not None else []
                if running:
                    waiting.append(running[0])
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                if reading is not None and reading.done():
                    request, reading = reading.result(), None
                    if request is None:
                        ended = True
                    else:
                        # Begun in the order of the requests, so batches of one partition keep theirs.
                        running.append(self._begin(request.parts))
                while running and running[0].done():
                    yield api.StreamProduceResponse(parts=running.popleft().result())
        finally:
            for task in (*running, *([reading] if reading is not None else [])):
                task.cancel()

    def _takes_more(self, running: int) -> bool:
        """Whether a stream with requests under way may have one more."""
        return running < self._limits.stream_window and self._streamed < self._limits.stream_bytes

    def _begin(self, parts: Sequence[api.ProducePart]) -> asyncio.Task[list[api.ProducedPart]]:
        """Counts what is under way from this moment on, until it is stored or given up."""
        size = sum(len(part.batches) for part in parts)
        self._streamed += size
        task = asyncio.ensure_future(self.produce(parts))

        def over(_: object) -> None:
            self._streamed -= size

        task.add_done_callback(over)
        return task

    async def fetch(self, request: api.FetchRequest, max_wait: float, call: Call) -> api.FetchResponse:
        with self._answers.one(call) as room:
            fetched = await self._access.fetch(
                [_part(part) for part in request.parts],
                max_wait=max_wait,
                min_bytes=request.min_bytes or 1,
                max_bytes=min(request.max_bytes or _DEFAULT_BYTES, self._limits.answer_most),
                room=room,
            )
            return api.FetchResponse(
                parts=[self._fetched(part, found) for part, found in zip(request.parts, fetched, strict=True)]
            )

    async def stream_fetch(
        self, request: api.StreamFetchRequest, call: Call
    ) -> AsyncGenerator[api.StreamFetchResponse, None]:
        """What comes, from the offsets on. A part that fails says why, and is not read any more."""
        parts = {place: _part(part) for place, part in enumerate(request.parts)}
        with self._answers.stream(call, pages=1) as stream:
            while parts:
                places = list(parts)
                page = stream.page()
                fetched = await self._access.fetch(
                    [parts[place] for place in places],
                    max_wait=self._limits.stream_wait,
                    min_bytes=1,
                    max_bytes=self._limits.answer_most,
                    room=page,
                )
                for place, found in zip(places, fetched, strict=True):
                    if found.error is None and not found.batches:
                        continue
                    with stream.on_its_way():
                        yield api.StreamFetchResponse(part=place, fetched=self._fetched(request.parts[place], found))
                    if found.error is not None:
                        del parts[place]
                    else:
                        before = parts[place]
                        parts[place] = seam.FetchPart(before.key, _end_of(found.batches), before.max_bytes)
                page.release()
                # Whoever was first comes last now, so that a busy partition does not starve the others.
                if len(parts) > 1:
                    first = next(iter(parts))
                    parts[first] = parts.pop(first)

    async def _produce(self, part: api.ProducePart) -> api.ProducedPart:
        key = PartitionKey(part.topic_uid, part.partition)
        topic = self._access.view.topic_by_uid(part.topic_uid)
        try:
            if topic is not None:
                refuse_internal(topic)
            appended = await self._access.produce(key, part.batches)
        except EXPECTED as error:
            return self._refused(key, error)
        return api.ProducedPart(base_offset=appended.base_offset, log_start=appended.log_start)

    def _refused(self, key: PartitionKey, error: Exception) -> api.ProducedPart:
        told = refusal(error, self._access.view, key, self._own_name)
        return api.ProducedPart(
            error_reason=told.reason.name,
            error_message=told.message,
            leader=told.metadata.get("leader", ""),
            leader_address=told.metadata.get("address", ""),
        )

    def _fetched(self, part: api.FetchPart, found: seam.FetchedPart) -> api.FetchedPart:
        message = api.FetchedPart(batches=b"".join(found.batches))
        if found.bounds is not None:
            message.high_watermark = found.bounds.high_watermark
            message.log_start = found.bounds.log_start
        if found.error is not None:
            key = PartitionKey(part.topic_uid, part.partition)
            told = refusal(found.error, self._access.view, key, self._own_name)
            message.error_reason, message.error_message = told.reason.name, told.message
            message.leader = told.metadata.get("leader", "")
            message.leader_address = told.metadata.get("address", "")
        return message


async def _next(requests: AsyncIterator[api.StreamProduceRequest]) -> api.StreamProduceRequest | None:
    return await anext(requests, None)


def _part(part: api.FetchPart) -> seam.FetchPart:
    return seam.FetchPart(
        PartitionKey(part.topic_uid, part.partition), part.offset, part.max_bytes or _DEFAULT_PART_BYTES
    )


def _end_of(batches: Sequence[bytes | memoryview]) -> int:
    return max(header.next_offset for batch in batches for header in headers(batch))
