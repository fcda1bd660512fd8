"""The segments of one led partition, as the catalog has them: listed when first needed, then kept as they change here.

Only the leader changes them, so its own copy stays true for as long as it leads.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import islice

from headgate_agent.log.contract import PartitionKey, SegmentInfo
from headgate_agent.log.metadata import LogCatalog
from headgate_agent.log.segment_reader import SegmentRef
from headgate_agent.shared_fetches import SharedFetches


class Segments:
    def __init__(self, catalog: LogCatalog, key: PartitionKey, log_start: int, committed: int) -> None:
        """`log_start` and `committed` as they were when leadership was granted."""
        self._catalog = catalog
        self._key = key
        self._log_start = log_start
        self._granted = committed
        self._list: list[SegmentInfo] = []
        self._ends: list[int] = []
        self._loaded = log_start >= committed
        # Whether the list is still worth asking for; whoever leads says.
        self.wanted: Callable[[], bool] = lambda: True
        self._loading: SharedFetches[PartitionKey, None] = SharedFetches()
        # Grows with every segment that is added.
        self.added = 0
        self._bytes = 0

    async def all(self) -> Sequence[SegmentInfo]:
        """In offset order. Not to be changed."""
        await self._load()
        return self._list

    async def size(self) -> int:
        """Bytes of all of them."""
        await self._load()
        return self._bytes

    async def from_offset(self, offset: int, count: int) -> Sequence[SegmentInfo]:
        """The first one that ends after `offset`, and those that follow it."""
        if offset < self._granted:
            await self._load()
        at = bisect_right(self._ends, offset)
        return self._list[at : at + count]

    async def since(self, timestamp: int, offset: int) -> SegmentInfo | None:
        """The first one that may hold a record of at least that time at or after an offset."""
        if offset < self._granted:
            await self._load()
        at = bisect_right(self._ends, offset)
        return next((info for info in islice(self._list, at, None) if info.max_timestamp >= timestamp), None)

    def add(self, info: SegmentInfo) -> None:
        """The next one has been committed."""
        self.added += 1
        self._bytes += info.size
        self._list.append(info)
        self._ends.append(info.next_offset)

    def replace(self, gone: Sequence[SegmentInfo], merged: SegmentInfo) -> None:
        """Puts one in the place of those that are left of some: the start may have passed the others meanwhile."""
        left = [info for info in gone if info.next_offset > self._log_start]
        if not left:
            return
        at = self._list.index(left[0])
        self._list[at : at + len(left)] = [merged]
        self._ends[at : at + len(left)] = [merged.next_offset]
        self._bytes += merged.size - sum(info.size for info in left)

    def trim(self, log_start: int) -> int:
        """Those that end at or before the new start are gone; how many of those that were listed is the answer."""
        self._log_start = max(self._log_start, log_start)
        count = bisect_right(self._ends, log_start)
        self._bytes -= sum(info.size for info in self._list[:count])
        del self._list[:count]
        del self._ends[:count]
        return count

    async def _load(self) -> None:
        if not self._loaded:
            await self._loading.get(self._key, self._fetch)

    async def _fetch(self) -> None:
        listed = await self._catalog.segments(self._key, self._log_start, self._granted, wanted=self.wanted)
        before = [info for info in listed if info.next_offset > self._log_start]
        self._list[:0] = before
        self._ends[:0] = [info.next_offset for info in before]
        self._bytes += sum(info.size for info in before)
        self._loaded = True


def ref_of(info: SegmentInfo) -> SegmentRef:
    return SegmentRef(info.key, info.size, info.base_offset, info.next_offset, info.epoch)
