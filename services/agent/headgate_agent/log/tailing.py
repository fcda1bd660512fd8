"""Following several partitions at once, wherever they are led."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from headgate.log import v1 as api
from headgate_agent.log.access import FetchPart
from headgate_agent.log.answers import PageRoom, StreamRoom
from headgate_agent.log.forwarding import Leaders, batches_of
from headgate_agent.log.records import PlainRecord

_PART_BYTES = 1 << 20
_WAIT = 5.0
_PATIENCE = 30.0
# Pages that are read ahead of a slow reader, over all partitions; none reads further meanwhile.
PAGES = 8

Unpack = Callable[[bytes], Awaitable[list[PlainRecord]]]


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
    ) -> None:
        """From `starts` on, to `ends` where they are given."""
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
            part = FetchPart(self._leaders.key(self._topic, index), offset, _PART_BYTES)
            fetched = await self._leaders.fetch(part, _WAIT if end is None else 0.0, _PATIENCE, room)
            records = await self._unpack(batches_of(fetched))
        except BaseException:
            room.release()
            raise
        found = [one for one in records if one.offset >= offset and (end is None or one.offset < end)]
        if found:
            self._pages.put_nowait(Page(index, found, room))
            return found[-1].offset + 1
        room.release()
        # Up to an end there are only offsets that will never hold records.
        return offset if end is None else None
