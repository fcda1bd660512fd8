"""Reading several partitions in one request, and waiting until there is enough.

What is in memory is answered at once; segments of different partitions are read side by side. A part that fails does
not fail the others, and a request that waits is woken by the partitions it waits for, not by looking again and again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from headgate_agent.log.access import FetchedPart, FetchPart, OffsetOutOfRange, UnknownPartition
from headgate_agent.log.contract import NotLeader, PartitionKey
from headgate_agent.log.led import Led
from headgate_agent.log.metrics import LogMetrics
from headgate_agent.log.objects import ObjectMissing, ObjectStoreFailed
from headgate_agent.log.segment import CorruptSegment
from headgate_common.errors import HeadgateError

_EXPECTED = (
    NotLeader,
    UnknownPartition,
    OffsetOutOfRange,
    ObjectMissing,
    ObjectStoreFailed,
    CorruptSegment,
    HeadgateError,
)
# Segments of so many partitions are read at once for one request.
_READS_AT_ONCE = 16


class Fetching:
    def __init__(self, leads: Callable[[PartitionKey], Led], metrics: LogMetrics) -> None:
        self._leads = leads
        self._metrics = metrics

    async def fetch(
        self, parts: Sequence[FetchPart], *, max_wait: float, min_bytes: int, max_bytes: int
    ) -> list[FetchedPart]:
        news = asyncio.Event()
        watched: list[Led] = []
        try:
            for part in parts:
                with suppress(NotLeader, UnknownPartition):
                    led = self._leads(part.key)
                    led.partition.readers.add(news.set)
                    watched.append(led)
            answer = await self._read(parts, max_bytes)
            if max_wait > 0:
                with suppress(TimeoutError):
                    async with asyncio.timeout(max_wait):
                        while not _enough(answer, min_bytes):
                            await news.wait()
                            news.clear()
                            answer = await self._read(parts, max_bytes)
        finally:
            for led in watched:
                led.partition.readers.discard(news.set)
        self._metrics.bytes_out.inc(_size(answer))
        return answer

    async def _read(self, parts: Sequence[FetchPart], max_bytes: int) -> list[FetchedPart]:
        answer: list[FetchedPart | None] = []
        slow: list[int] = []
        left = max_bytes
        for place, part in enumerate(parts):
            found = self._in_memory(part, min(part.max_bytes, left))
            answer.append(found)
            if found is None:
                slow.append(place)
            else:
                left = max(0, left - _size([found]))
        for at in range(0, len(slow), _READS_AT_ONCE):
            places = slow[at : at + _READS_AT_ONCE] if left > 0 or at == 0 else []
            read = await asyncio.gather(*(self._slowly(parts[p], min(parts[p].max_bytes, left)) for p in places))
            for place, found in zip(places, read, strict=True):
                answer[place] = found if left > 0 or place == slow[0] else _without_batches(found)
                left = max(0, left - _size([found]))
        return [
            found if found is not None else FetchedPart((), self._leads(part.key).bounds)
            for part, found in zip(parts, answer, strict=True)
        ]

    def _in_memory(self, part: FetchPart, max_bytes: int) -> FetchedPart | None:
        try:
            led = self._leads(part.key)
            if max_bytes <= 0:
                led.check(part.offset)
                return FetchedPart((), led.bounds)
            found = led.in_memory(part.offset, max_bytes)
            return None if found is None else FetchedPart(found, led.bounds)
        except _EXPECTED as error:
            return self._failed(part, error)

    async def _slowly(self, part: FetchPart, max_bytes: int) -> FetchedPart:
        try:
            led = self._leads(part.key)
            batches = await led.read(part.offset, max(max_bytes, 1))
            # Leadership may have ended meanwhile; what was read is committed, so it is true all the same.
            return FetchedPart(batches, led.bounds)
        except _EXPECTED as error:
            return self._failed(part, error)

    def _failed(self, part: FetchPart, error: Exception) -> FetchedPart:
        bounds = None
        if isinstance(error, OffsetOutOfRange):
            with suppress(NotLeader, UnknownPartition):
                bounds = self._leads(part.key).bounds
        return FetchedPart((), bounds, error)


def _without_batches(part: FetchedPart) -> FetchedPart:
    return FetchedPart((), part.bounds, part.error)


def _size(parts: Sequence[FetchedPart]) -> int:
    return sum(len(batch) for part in parts for batch in part.batches)


def _enough(parts: Sequence[FetchedPart], min_bytes: int) -> bool:
    return any(part.error is not None for part in parts) or _size(parts) >= min_bytes
