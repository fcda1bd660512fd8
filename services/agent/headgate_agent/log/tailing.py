"""Following several partitions at once, wherever they are led."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from headgate.log import v1 as api
from headgate_agent.log.access import FetchedPart, FetchPart
from headgate_agent.log.answers import PageRoom, StreamRoom
from headgate_agent.log.forwarding import Leaders
from headgate_agent.log.limits import CallLimits
from headgate_agent.log.records import PlainRecord


class Unpack(Protocol):
    """As `LogService` has it."""

    async def __call__(
        self, part: FetchPart, fetched: FetchedPart | api.FetchedPart, *, until: int | None, most: int
    ) -> list[PlainRecord]: ...


@dataclass(frozen=True, slots=True)
class Page:
    """Records of one partition, in order, and what they take until they are sent."""

    partition: int
    records: Sequence[PlainRecord]
    room: PageRoom


class Tailing:
    def __init__(
        self,
        leaders: Leaders,
        unpack: Unpack,
        topic: api.Topic,
        starts: Mapping[int, int],
        ends: Mapping[int, int] | None,
        room: StreamRoom,
        limits: CallLimits,
    ) -> None:
        """From `starts` on, to `ends` where they are given."""
        self._limits = limits
        self._leaders, self._unpack, self._topic = leaders, unpack, topic
        self._starts, self._ends, self._room = starts, ends, room
        # Behind the pages of a partition comes why they end: None where all was read.
        self._pages: asyncio.Queue[Page | Exception | None] = asyncio.Queue()

    async def pages(self) -> AsyncGenerator[Page, None]:
        """As they come, each partition in order. What a page takes is given back when the next one is asked for, and
        what is left when the stream's room is."""
        tasks = [asyncio.ensure_future(self._follow(index)) for index in self._starts]
        left = len(tasks)
        try:
            while left:
                page = await self._pages.get()
                if page is None:
                    left -= 1
                elif isinstance(page, Exception):
                    raise page
                else:
                    yield page
                    page.room.release()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self, index: int) -> None:
        offset: int | None = self._starts[index]
        try:
            while offset is not None:
                offset = await self._read(index, offset)
        except Exception as error:
            self._pages.put_nowait(error)
        else:
            self._pages.put_nowait(None)

    async def _read(self, index: int, offset: int) -> int | None:
        """Where to go on; None at the end."""
        end = None if self._ends is None else self._ends[index]
        if end is not None and offset >= end:
            return None
        room = self._room.page()
        try:
            part = FetchPart(self._leaders.key(self._topic, index), offset, self._limits.tail_page_bytes)
            wait = self._limits.stream_wait if end is None else 0.0
            fetched = await self._leaders.fetch(part, wait, self._limits.tail_patience, room)
            found = await self._unpack(part, fetched, until=end, most=self._limits.tail_page_records)
            # From here on it is these that take room.
            room.keep(sum(record.size for record in found))
        except BaseException:
            room.release()
            raise
        if found:
            self._pages.put_nowait(Page(index, found, room))
            return found[-1].offset + 1
        room.release()
        # Up to an end there are only offsets that will never hold records.
        return offset if end is None else None
