"""Following several partitions at once, wherever they are led."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

from headgate.log import v1 as api
from headgate_agent.log.access import FetchPart
from headgate_agent.log.forwarding import Leaders, batches_of
from headgate_agent.log.records import PlainRecord

_PART_BYTES = 1 << 20
_WAIT = 5.0
_PATIENCE = 30.0
# Pages that wait for a slow reader; a partition reads no further meanwhile.
_PAGES = 8

Unpack = Callable[[bytes], Awaitable[list[PlainRecord]]]


async def tail_records(
    leaders: Leaders,
    unpack: Unpack,
    topic: api.Topic,
    starts: Mapping[int, int],
    ends: Mapping[int, int] | None,
) -> AsyncIterator[tuple[int, Sequence[PlainRecord]]]:
    """Partition and records as they come, each partition in order; to `ends` where they are given."""
    pages: asyncio.Queue[tuple[int, Sequence[PlainRecord]] | BaseException | None] = asyncio.Queue(_PAGES)

    async def follow(index: int) -> None:
        try:
            offset = starts[index]
            while ends is None or offset < ends[index]:
                part = FetchPart(leaders.key(topic, index), offset, _PART_BYTES)
                fetched = await leaders.fetch(part, _WAIT if ends is None else 0.0, _PATIENCE)
                found = [one for one in await unpack(batches_of(fetched)) if one.offset >= offset]
                if ends is not None:
                    found = [one for one in found if one.offset < ends[index]]
                if found:
                    offset = found[-1].offset + 1
                    await pages.put((index, found))
                elif ends is not None:
                    # Up to the end there are only offsets that will never hold records.
                    break
        except Exception as error:
            await pages.put(error)
        else:
            await pages.put(None)

    tasks = [asyncio.ensure_future(follow(index)) for index in starts]
    left = len(tasks)
    try:
        while left:
            page = await pages.get()
            if page is None:
                left -= 1
            elif isinstance(page, BaseException):
                raise page
            else:
                yield page
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
