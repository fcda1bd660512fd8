"""Reading several partitions in one request, and waiting until there is enough.

What is in memory is answered at once; segments of different partitions are read side by side. A part that fails does
not fail the others, one whose segments cannot be read in time is told so, and a request that waits is woken by the
partitions it waits for, not by looking again and again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from headgate_agent.log.access import AnswerRoom, FetchedPart, FetchPart, OffsetOutOfRange, UnknownPartition
from headgate_agent.log.contract import NotLeader, PartitionKey
from headgate_agent.log.led import Led
from headgate_agent.log.metrics import LogMetrics
from headgate_agent.log.objects import ObjectMissing, ObjectStoreFailed
from headgate_agent.log.segment import DEFAULT_BLOCK_BYTES, CorruptSegment
from headgate_common.errors import DEADLINE_EXCEEDED, HeadgateError

_EXPECTED = (
    NotLeader,
    UnknownPartition,
    OffsetOutOfRange,
    ObjectMissing,
    ObjectStoreFailed,
    CorruptSegment,
    HeadgateError,
)
DEFAULT_READS = 16
# Fewer partitions are read at once where each would get less than a block.
_LEAST_SHARE = DEFAULT_BLOCK_BYTES


class Fetching:
    def __init__(
        self, leads: Callable[[PartitionKey], Led], metrics: LogMetrics, read_timeout: float, reads: int = DEFAULT_READS
    ) -> None:
        """`read_timeout` is how long one read of segments may take, and how long one waits for room, in seconds.
        Segments of `reads` partitions are read at once for one request."""
        self._leads = leads
        self._metrics = metrics
        self._read_timeout = read_timeout
        self._reads = reads

    async def fetch(
        self,
        parts: Sequence[FetchPart],
        *,
        max_wait: float,
        min_bytes: int,
        max_bytes: int,
        room: AnswerRoom | None = None,
    ) -> list[FetchedPart]:
        news = asyncio.Event()
        watched: list[Led] = []
        try:
            for part in parts:
                with suppress(NotLeader, UnknownPartition):
                    led = self._leads(part.key)
                    led.partition.readers.add(news.set)
                    watched.append(led)
            answer = await self._read_within(parts, max_bytes, room)
            if answer is None:
                answer = [self._empty(part) for part in parts]
            if max_wait > 0:
                with suppress(TimeoutError):
                    async with asyncio.timeout(max_wait):
                        while not _enough(answer, min_bytes):
                            await news.wait()
                            news.clear()
                            answer = await self._read_within(parts, max_bytes, room) or answer
        finally:
            for led in watched:
                led.partition.readers.discard(news.set)
        # Whoever gets no records is told how far the partition reaches now, not when it began to wait.
        answer = [
            each if each.batches or each.error else self._empty(part) for part, each in zip(parts, answer, strict=True)
        ]
        if room is not None:
            room.keep(_size(answer))
        self._metrics.bytes_out.inc(_size(answer))
        return answer

    async def _read_within(
        self, parts: Sequence[FetchPart], max_bytes: int, room: AnswerRoom | None
    ) -> list[FetchedPart] | None:
        """None if no room was found in time: the reader asks again."""
        if room is None:
            return await self._read(parts, max_bytes)
        try:
            most = await room.take(max_bytes, self._read_timeout)
        except TimeoutError:
            return None
        answer = await self._read(parts, most)
        room.keep(_size(answer))
        return answer

    async def _read(self, parts: Sequence[FetchPart], max_bytes: int) -> list[FetchedPart]:
        answer: list[FetchedPart] = []
        slow: list[int] = []
        left = max_bytes
        for place, part in enumerate(parts):
            found = self._in_memory(part, min(part.max_bytes, left))
            if found is None:
                slow.append(place)
                found = self._empty(part)
            answer.append(found)
            left = max(0, left - _size([found]))
        at = 0
        # The first is read whatever is left, so that what is in memory does not keep readers from segments for good.
        while at < len(slow) and (left > 0 or at == 0):
            places = slow[at : at + max(1, min(self._reads, left // _LEAST_SHARE))]
            shares = divide(left, [parts[place].max_bytes for place in places])
            read = await asyncio.gather(*map(self._slowly, (parts[place] for place in places), shares))
            for place, found in zip(places, read, strict=True):
                # Each brings a whole batch at least, so together they may have brought too much.
                answer[place] = found if left > 0 or place == slow[0] else _without_batches(found)
                left = max(0, left - _size([found]))
            at += len(places)
        return answer

    def _in_memory(self, part: FetchPart, max_bytes: int) -> FetchedPart | None:
        if max_bytes <= 0:
            return self._empty(part)
        try:
            led = self._leads(part.key)
            found = led.in_memory(part.offset, max_bytes)
            return None if found is None else FetchedPart(found, led.bounds)
        except _EXPECTED as error:
            return self._failed(part, error)

    def _empty(self, part: FetchPart) -> FetchedPart:
        try:
            led = self._leads(part.key)
            led.check(part.offset)
            return FetchedPart((), led.bounds)
        except _EXPECTED as error:
            return self._failed(part, error)

    async def _slowly(self, part: FetchPart, max_bytes: int) -> FetchedPart:
        try:
            led = self._leads(part.key)
            async with asyncio.timeout(self._read_timeout):
                batches = await led.read(part.offset, max(max_bytes, 1))
            # What was read is committed, and true whoever leads by now; how far the partition reaches is not.
            return FetchedPart(batches, self._leads(part.key).bounds)
        except TimeoutError:
            # What was asked for goes on, and the next fetch finds it in the cache.
            return self._failed(part, too_slow(self._read_timeout))
        except _EXPECTED as error:
            return self._failed(part, error)

    def _failed(self, part: FetchPart, error: Exception) -> FetchedPart:
        try:
            bounds = self._leads(part.key).bounds
        except (NotLeader, UnknownPartition) as lost:
            # That is why, whatever came of it.
            return FetchedPart((), None, lost)
        return FetchedPart((), bounds if isinstance(error, OffsetOutOfRange) else None, error)


def too_slow(seconds: float) -> HeadgateError:
    return HeadgateError(
        DEADLINE_EXCEEDED,
        f"segments were not read within {seconds:g} s: the object store or the coordinator is slow or away; ask again",
    )


def divide(total: int, wanted: Sequence[int]) -> list[int]:
    """Shares of `total`, none larger than what is wanted: what one does not want is left to the others."""
    shares = [0] * len(wanted)
    left, open_ = total, len(wanted)
    for place in sorted(range(len(wanted)), key=wanted.__getitem__):
        shares[place] = min(wanted[place], left // open_)
        left -= shares[place]
        open_ -= 1
    return shares


def _without_batches(part: FetchedPart) -> FetchedPart:
    return FetchedPart((), part.bounds, part.error)


def _size(parts: Sequence[FetchedPart]) -> int:
    return sum(len(batch) for part in parts for batch in part.batches)


def _enough(parts: Sequence[FetchedPart], min_bytes: int) -> bool:
    return any(part.error is not None for part in parts) or _size(parts) >= min_bytes
