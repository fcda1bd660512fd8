"""The newest batches of partitions, in memory: what no segment holds yet, and what was read from here last.

A batch stays until a segment holds it, and then for as long as there is room: consumers that keep up are served from
here. What is kept beyond that leaves in the order in which it became settled, over all partitions of the agent; reading
puts nothing here, so a consumer far behind evicts nobody's tail.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from headgate_agent.log.record_batch import BatchHeader

DEFAULT_KEPT_BYTES = 64 << 20
DEFAULT_UNSETTLED_BYTES = 256 << 20
DEFAULT_STAGED_BYTES = 32 << 20
_COMPACT_ABOVE = 1024


@dataclass(slots=True)
class TailBatch:
    header: BatchHeader
    data: bytes
    # The write-ahead file that holds it; 0 if none does.
    wal_file: int
    arrived: float


class Memory:
    """What all tails of an agent may take together, and the stages of WAL edges that no commit has named yet."""

    def __init__(
        self,
        kept: int = DEFAULT_KEPT_BYTES,
        unsettled: int = DEFAULT_UNSETTLED_BYTES,
        staged: int = DEFAULT_STAGED_BYTES,
    ) -> None:
        self._kept_limit = kept
        self._unsettled_limit = unsettled
        self._staged_limit = staged
        # One for each batch that is kept, and those that were let go of otherwise, which are `_stale`.
        self._order: deque[Tail] = deque()
        self._stale = 0
        self._room = asyncio.Event()
        self._room.set()
        # Called when there is no room: each partition uploads what it has.
        self.pressed: set[Callable[[], None]] = set()
        # Called when it becomes tight, in the order in which they came.
        self.tightened: dict[Callable[[], None], None] = {}
        self.kept = 0
        self.unsettled = 0
        self.staged = 0

    @property
    def has_room(self) -> bool:
        return self._room.is_set()

    @property
    def tight(self) -> bool:
        """Whether more than half of what may wait for upload does: nobody keeps more than a segment back then."""
        return self.unsettled > self._unsettled_limit // 2

    async def room(self) -> None:
        """Returns when what waits for upload is within its limit."""
        while not self._room.is_set():
            for press in tuple(self.pressed):
                press()
            await self._room.wait()

    def waits(self, size: int) -> None:
        """`size` more bytes wait for upload; fewer if it is negative."""
        was_tight = self.tight
        self.unsettled += size
        if self.unsettled <= self._unsettled_limit:
            self._room.set()
        else:
            self._room.clear()
        if self.tight and not was_tight:
            for tell in tuple(self.tightened):
                tell()

    def keep(self, tail: Tail, size: int) -> None:
        self.kept += size
        self._order.append(tail)
        while self.kept > self._kept_limit and self._order:
            size = self._order.popleft().evict()
            self.kept -= size
            self._stale -= not size

    def forget(self, size: int, batches: int) -> None:
        """A tail has let go of batches by itself."""
        self.kept -= size
        self._stale += batches
        if self._stale > _COMPACT_ABOVE and self._stale * 2 > len(self._order):
            self._compact()

    def _compact(self) -> None:
        """A tail that is gone for good is forgotten with its places."""
        left: dict[Tail, int] = {}
        order: deque[Tail] = deque()
        for tail in reversed(self._order):
            count = left.setdefault(tail, tail.kept_batches)
            if count:
                left[tail] = count - 1
                order.appendleft(tail)
        self._order, self._stale = order, 0

    def keep_stage(self, size: int) -> bool:
        """Whether there is room for a stage; it then counts until `forget_stage`."""
        if self.staged + size > self._staged_limit:
            return False
        self.staged += size
        return True

    def forget_stage(self, size: int) -> None:
        self.staged -= size


class Tail:
    """The newest batches of one partition, in offset order: those that are settled, then those that are not."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._batches: list[TailBatch] = []
        self._ends: list[int] = []
        self._head = 0
        self._settled = 0
        self._kept_bytes = 0
        self.unsettled_bytes = 0

    def __len__(self) -> int:
        """How many no segment holds yet."""
        return len(self._batches) - self._settled

    @property
    def kept_batches(self) -> int:
        """How many are here though a segment holds them."""
        return self._settled - self._head

    @property
    def oldest(self) -> TailBatch:
        """The first that no segment holds yet."""
        return self._batches[self._settled]

    def append(self, batch: TailBatch) -> None:
        self._batches.append(batch)
        self._ends.append(batch.header.next_offset)
        self.unsettled_bytes += len(batch.data)
        self._memory.waits(len(batch.data))

    def pop(self) -> TailBatch:
        """Takes the last one back; it must not be settled."""
        assert len(self), "what a segment holds is not taken back"
        batch = self._batches.pop()
        self._ends.pop()
        self.unsettled_bytes -= len(batch.data)
        self._memory.waits(-len(batch.data))
        return batch

    def settle(self, committed: int) -> None:
        """Segments hold everything below `committed`."""
        while len(self) and self.oldest.header.next_offset <= committed:
            size = len(self.oldest.data)
            self._settled += 1
            self.unsettled_bytes -= size
            self._memory.waits(-size)
            self._kept_bytes += size
            self._memory.keep(self, size)

    def evict(self) -> int:
        """Lets go of the oldest one that is settled; answers its size, 0 if there is none."""
        if self._head >= self._settled:
            return 0
        size = len(self._batches[self._head].data)
        self._batches[self._head].data = b""
        self._head += 1
        self._kept_bytes -= size
        if self._head > _COMPACT_ABOVE and self._head * 2 > len(self._batches):
            del self._batches[: self._head]
            del self._ends[: self._head]
            self._settled -= self._head
            self._head = 0
        return size

    def release(self) -> None:
        """Lets go of all that are settled."""
        while size := self.evict():
            self._memory.forget(size, 1)

    def clear(self) -> None:
        """Gives all memory back; not for use afterwards."""
        self._memory.waits(-self.unsettled_bytes)
        size, batches = self._kept_bytes, self.kept_batches
        self._batches, self._ends = [], []
        self._head = self._settled = self._kept_bytes = self.unsettled_bytes = 0
        self._memory.forget(size, batches)

    def holds(self, offset: int) -> bool:
        """Whether batches from the one with `offset` on are here."""
        return self._head < len(self._batches) and self._batches[self._head].header.base_offset <= offset

    def from_offset(self, offset: int) -> Iterator[TailBatch]:
        for at in range(bisect_right(self._ends, offset, lo=self._head), len(self._batches)):
            yield self._batches[at]

    def unsettled(self) -> Iterator[TailBatch]:
        for at in range(self._settled, len(self._batches)):
            yield self._batches[at]
