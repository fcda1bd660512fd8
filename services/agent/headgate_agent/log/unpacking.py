"""Looking into the batches of clients: by time, or for their records.

A few bytes of a client may unpack to millions of records, and looking at each takes time. Contract: whoever looks into
such a batch waits for it, and nobody else does. So the work goes in slices, between which others have their turn and a
time limit is kept; and batches that unpack to much are looked into one at a time, so that they take the memory of one.
Those of usual size never wait for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from dataclasses import dataclass
from functools import partial

from headgate_agent.log.access import TimedOffset
from headgate_agent.log.codecs import DEFAULT_UNPACKED, UnpackedTooLarge
from headgate_agent.log.record_batch import BatchHeader, headers
from headgate_agent.log.records import PlainRecord, Walk, open_batch
from headgate_agent.work import Work

# Steps of a slice, in passing one record by: what it takes to make one for a reader, and to unpack so many bytes.
_TAKE_STEPS = 16
_BYTES_PER_STEP = 256
# What the message of a record has beyond the record, about.
_MESSAGE_BYTES = 24


@dataclass(frozen=True, slots=True)
class UnpackLimits:
    # Bytes that the records of one batch may take unpacked; those of a larger one are never looked at.
    batch_bytes: int = DEFAULT_UNPACKED
    # Batches whose records take more are looked into one at a time.
    small_bytes: int = 4 << 20
    # Records that are passed by in one slice, about.
    slice_records: int = 50_000


class Unpacking:
    def __init__(self, work: Work, limits: UnpackLimits | None = None) -> None:
        self._work = work
        self._limits = limits or UnpackLimits()
        self._one_large = asyncio.Lock()
        # The large batch that somebody has read a page of and may go on in; it goes when another needs its memory.
        self._kept: tuple[Hashable, Walk] | None = None

    async def first_at(self, data: bytes, timestamp: int, start: int) -> TimedOffset | None:
        """The first record of whole batches, at or after `start`, that is not older than `timestamp`."""
        task = _FirstAt(data, timestamp, start)
        await self._run(task)
        return task.found

    async def largest(self, data: bytes, start: int, best: TimedOffset | None = None) -> TimedOffset | None:
        """The first record with the largest timestamp at or after `start`, or `best` if none is above that."""
        task = _Largest(data, start, best)
        await self._run(task)
        return task.best

    async def records(
        self, of: Hashable, data: bytes, offset: int, *, until: int | None = None, most: int, most_bytes: int
    ) -> list[PlainRecord]:
        """The records of whole batches from `offset` on and before `until`: one at least, then so many, or about so
        many bytes of them. `of` is the partition they are of."""
        task = _Page(data, offset, until, most, most_bytes)
        await self._run(task, of)
        return task.records

    async def _run(self, task: _Task, of: Hashable = None) -> None:
        limits = self._limits
        while not task.done:
            try:
                await self._work.run(partial(task.some, limits.small_bytes, limits.slice_records))
            except UnpackedTooLarge:
                async with self._one_large:
                    await self._through_large(task, of)

    async def _through_large(self, task: _Task, of: Hashable) -> None:
        header = task.header
        assert header is not None, "a batch was to be opened"
        key = (of, header.base_offset, header.leader_epoch, header.crc)
        kept, self._kept = self._kept, None
        if kept is not None and of is not None and kept[0] == key and kept[1].offset <= task.begin:
            task.walk = kept[1]
        else:
            # Before another is unpacked.
            kept = None
            task.walk = await self._work.run(partial(open_batch, task.data, header, self._limits.batch_bytes))
        while task.walk is not None and not task.done:
            await self._work.run(partial(task.step, self._limits.slice_records))
        if of is not None and task.walk is not None:
            self._kept = (key, task.walk)


class _Task:
    """Goes through whole batches from the first on, in slices."""

    def __init__(self, data: bytes, begin: int) -> None:
        self.data, self.begin = data, begin
        self.done = False
        # The batch that is next or under way, and its records once it is open.
        self.header: BatchHeader | None = None
        self.walk: Walk | None = None
        self._headers = headers(data)

    def some(self, limit: int, steps: int) -> None:
        """About so many steps. `UnpackedTooLarge` if the batch that is next takes more bytes unpacked."""
        while steps > 0 and not self.done:
            if self.walk is not None:
                steps -= self.step(steps)
            elif self.header is not None:
                self.walk = open_batch(self.data, self.header, limit)
                steps -= self.walk.size // _BYTES_PER_STEP
            else:
                steps -= 1
                header = next(self._headers, None)
                if header is None:
                    self.done = True
                elif header.next_offset > self.begin and self._concerns(header):
                    self.header = header

    def step(self, steps: int) -> int:
        """As many steps in the open batch, or a few more; how many it took is the answer."""
        walk = self.walk
        assert walk is not None, "a batch is open"
        at = walk.index
        if walk.offset < self.begin:
            walk.skip(self.begin, steps)
            taken = walk.index - at
        else:
            taken = self._go(walk, steps)
        if walk.ended:
            self._close()
        return taken + 1

    def _close(self) -> None:
        self.walk = self.header = None

    def _concerns(self, header: BatchHeader) -> bool:
        """Whether the batch must be looked into."""
        raise NotImplementedError

    def _go(self, walk: Walk, steps: int) -> int:
        raise NotImplementedError


class _FirstAt(_Task):
    def __init__(self, data: bytes, timestamp: int, start: int) -> None:
        super().__init__(data, start)
        self.found: TimedOffset | None = None
        self._timestamp = timestamp

    def _concerns(self, header: BatchHeader) -> bool:
        if header.max_timestamp < self._timestamp:
            return False
        known = _told(header, self.begin)
        if known is not None and known.timestamp >= self._timestamp:
            self._answer(known)
            return False
        return True

    def _go(self, walk: Walk, steps: int) -> int:
        at = walk.index
        found = walk.first_at(self._timestamp, steps)
        if found is not None:
            self._answer(TimedOffset(*found, walk.header.leader_epoch))
        return walk.index - at

    def _answer(self, found: TimedOffset) -> None:
        self.found, self.done = found, True


class _Largest(_Task):
    def __init__(self, data: bytes, start: int, best: TimedOffset | None) -> None:
        super().__init__(data, start)
        self.best = best

    @property
    def _above(self) -> int:
        # Those below 0 have none.
        return 0 if self.best is None else self.best.timestamp + 1

    def _concerns(self, header: BatchHeader) -> bool:
        if header.max_timestamp < self._above:
            return False
        known = _told(header, self.begin)
        if known is not None and known.timestamp >= self._above:
            self.best = known
        return header.max_timestamp >= self._above

    def _go(self, walk: Walk, steps: int) -> int:
        at = walk.index
        while walk.index - at < steps and not walk.ended:
            found = walk.first_at(self._above, steps - (walk.index - at))
            if found is not None:
                self.best = TimedOffset(*found, walk.header.leader_epoch)
        return walk.index - at


class _Page(_Task):
    def __init__(self, data: bytes, offset: int, until: int | None, most: int, most_bytes: int) -> None:
        super().__init__(data, offset)
        self.records: list[PlainRecord] = []
        self._until, self._most, self._room = until, most, most_bytes

    def _concerns(self, header: BatchHeader) -> bool:
        if self._until is not None and header.base_offset >= self._until:
            self.done = True
        return not self.done

    def _go(self, walk: Walk, steps: int) -> int:
        taken = 0
        while taken < steps and not walk.ended:
            size = walk.next_size + _MESSAGE_BYTES
            ends = self._until is not None and walk.offset >= self._until
            if ends or (self.records and (size > self._room or len(self.records) >= self._most)):
                self.done = True
                break
            self.records.append(walk.take())
            self._room -= size
            taken += _TAKE_STEPS + size // _BYTES_PER_STEP
        return taken


def _told(header: BatchHeader, start: int) -> TimedOffset | None:
    """What the header alone says of its first record at or after `start`."""
    timestamp = header.first_timestamp
    if timestamp is None or (header.base_offset < start and not header.append_time):
        return None
    return TimedOffset(max(header.base_offset, start), timestamp, header.leader_epoch)
