"""What a leader holds of a partition in memory, and how it gets into segments that the catalog knows.

Offsets, from old to new:

    log_start <= committed <= durable <= next
                 |            |          first offset not yet given to a batch
                 |            first offset not yet acknowledged: the high watermark, where readers stop
                 first offset that no segment in the catalog holds

The start moves here first, and the catalog is told before the next upload, or when somebody wants to be sure
(`tell_trim`). What a WAL partition acknowledged and its start has passed is never uploaded; until the catalog is told,
the write-ahead log keeps it. A new leader begins at the start that the catalog was told last: it may have more than is
needed, never less.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Sequence

from headgate_agent.log.contract import (
    Durability,
    Grant,
    Metadata,
    NotLeader,
    PartitionKey,
    PartitionSettings,
    SegmentInfo,
    Start,
)
from headgate_agent.log.objects import Objects
from headgate_agent.log.producers import Producers
from headgate_agent.log.record_batch import BatchHeader, header_at, headers, placed
from headgate_agent.log.reservation import Reservation
from headgate_agent.log.tail import Memory, Tail, TailBatch
from headgate_agent.log.tenure import Tenure
from headgate_agent.log.uploading import DEFAULT_BACKOFF, Uploader
from headgate_agent.work import Inline, Work
from headgate_common.backoff import Backoff
from headgate_common.clock import Clock
from headgate_common.ids import Ids

log = logging.getLogger(__name__)


class Publishing:
    """A led partition from its tail on; what goes into the tail is `partition.Partition`'s."""

    def __init__(
        self,
        key: PartitionKey,
        name: str,
        start: Start,
        settings: PartitionSettings,
        *,
        objects: Objects,
        metadata: Metadata,
        grant: Grant,
        clock: Clock,
        ids: Ids,
        source: random.Random,
        backoff: Backoff = DEFAULT_BACKOFF,
        memory: Memory | None = None,
        work: Work | None = None,
    ) -> None:
        self.key = key
        self.name = name
        self.epoch = start.epoch
        self.settings = settings
        self.log_start = start.log_start
        self.committed = start.committed
        self.durable = start.committed
        self.next = start.committed
        # Called, without waiting, when there is more to read or leadership is lost.
        self.readers: set[Callable[[], None]] = set()
        self._metadata, self._clock = metadata, clock
        self._tenure = Tenure(name, grant, self._end)
        self._reservation = Reservation(key, name, start.epoch, start.reserved, metadata=metadata, tenure=self._tenure)
        self._uploader = Uploader(objects, work or Inline(), ids, source, backoff)
        self._memory = memory or Memory()
        self._producers = Producers(settings.max_producers, start.producers_forgotten)
        self._producers.restore(start.producers)
        self._tail = Tail(self._memory)
        self._flusher: asyncio.Task[None] | None = None
        # What is below this offset is uploaded without waiting for more.
        self._flush_until = 0
        # Whoever changes where the partition ends or begins in the catalog does so alone.
        self._publishing = asyncio.Lock()
        self._told_start = start.log_start
        self._memory.pressed.add(self.hurry)
        self._memory.tightened[self._tenure.announce] = None

    @property
    def lost(self) -> str | None:
        """Why it is no longer led here; None while it is."""
        return self._tenure.lost

    @property
    def leads(self) -> bool:
        """Whether it is certainly still led here, by this agent's own clock."""
        return self._tenure.leads

    @property
    def memory(self) -> Memory:
        """What it takes its room from, with the other partitions of the agent."""
        return self._memory

    def read(self, offset: int, max_bytes: int) -> list[bytes] | None:
        """Acknowledged batches in memory from the one that holds `offset` on; None where only a segment holds it."""
        if offset < self.committed and not self._tail.holds(offset):
            return None
        found: list[bytes] = []
        size = 0
        for batch in self._tail.from_offset(offset):
            if batch.header.next_offset > self.durable or (found and size + len(batch.data) > max_bytes):
                break
            found.append(batch.data)
            size += len(batch.data)
        return found

    def tail_headers(self) -> Iterable[tuple[BatchHeader, bytes]]:
        """Acknowledged batches that no segment holds, oldest first."""
        for batch in self._tail.unsettled():
            if batch.header.next_offset > self.durable:
                return
            yield batch.header, batch.data

    @property
    def oldest_wal_file(self) -> int | None:
        """The first write-ahead file that still holds something of this partition that no segment does."""
        return min((batch.wal_file for batch in self._tail.unsettled() if batch.wal_file), default=None)

    @property
    def trim_untold(self) -> bool:
        """Whether the catalog could be told of a later start."""
        return self._whole_start() > self._told_start

    @property
    def unread_bytes(self) -> int:
        """Bytes from the start on that are acknowledged and in no segment."""
        if self.log_start <= self.committed and self.durable == self.next:
            return self._tail.unsettled_bytes
        wanted = (batch for batch in self._tail.unsettled() if batch.header.next_offset > self.log_start)
        return sum(len(batch.data) for batch in wanted if batch.header.next_offset <= self.durable)

    @property
    def unflushed_bytes(self) -> int:
        return self._tail.unsettled_bytes

    def renewed(self) -> None:
        """It is certain again, or known to be over: whoever waits for that looks."""
        self._tenure.announce()
        self._tell_readers()

    def hurry(self) -> None:
        """Uploads what there is without waiting for more."""
        if len(self._tail):
            self._flush_until = self.next
            self._start_flusher()
            self._tenure.announce()

    async def flush(self) -> None:
        """Returns when the catalog knows everything that was taken before."""
        target = self.next
        self.hurry()
        while self.committed < min(target, self.next):
            await self._tenure.wait()

    def trim(self, log_start: int) -> None:
        """Moves the start forward; nothing before it is read any more. See `tell_trim`."""
        self.log_start = max(self.log_start, log_start)

    async def tell_trim(self) -> None:
        """Returns when the catalog knows the start, or of a WAL partition the last whole batch before it."""
        async with self._publishing:
            await self._tell_trim()

    async def _tell_trim(self) -> None:
        start = self._whole_start()
        if start <= self._told_start:
            return
        self._tenure.check_lost()
        try:
            await self._metadata.trim(self.key, self.epoch, start)
        except NotLeader as error:
            self.lose(str(error), type(error))
            raise
        self._told_start = start
        if start > self.committed:
            self._settle(start)

    def _whole_start(self) -> int:
        """The start, or the first batch that is needed where no segment can begin there."""
        if self.log_start <= self.committed:
            return self.log_start
        at = self.committed
        for batch in self._tail.unsettled():
            if batch.header.next_offset > self.log_start:
                break
            at = batch.header.next_offset
        return at

    def shown(self, segments: Sequence[tuple[SegmentInfo, bytes | None]]) -> None:
        """A commit of stages has made segments visible, while this partition was held for it. Those that come with
        their batches are read from memory while there is room."""
        for segment, data in segments:
            self._metadata.shown(self.key, segment)
            if data is None:
                # What is in memory must not end in a gap.
                self._tail.settle(segment.next_offset)
                self._tail.release()
            else:
                self._keep(segment, data)
        self.next = segments[-1][0].next_offset
        self._settle(self.next)

    def _keep(self, segment: SegmentInfo, data: bytes) -> None:
        offset = segment.base_offset
        for header in headers(data):
            stored = placed(data, header, offset, segment.epoch)
            batch = TailBatch(header_at(stored, 0), stored, 0, self._clock.monotonic())
            self._tail.append(batch)
            offset = batch.header.next_offset

    def lose(self, reason: str, kind: type[NotLeader] = NotLeader) -> None:
        """Ends leadership: everyone who waits is told with that kind of error, nothing more is answered."""
        self._tenure.lose(reason, kind)

    def _end(self) -> None:
        if self._flusher is not None and self._flusher is not asyncio.current_task():
            self._flusher.cancel()
        self._reservation.cancel()
        self._memory.pressed.discard(self.hurry)
        self._memory.tightened.pop(self._tenure.announce, None)
        self._tell_readers()

    def close(self) -> None:
        """Gives its memory back. After `lose`, once nothing of it is needed."""
        self._tail.clear()

    def _start_flusher(self) -> None:
        if self._flusher is None and len(self._tail) and self._tenure.lost is None:
            self._flusher = asyncio.ensure_future(self._flush_loop())

    async def _flush_loop(self) -> None:
        try:
            while len(self._tail):
                delay = self._due() - self._clock.monotonic()
                if delay > 0 and self.committed >= self._flush_until:
                    await self._tenure.sleep(delay)
                    continue
                await self._upload()
        except NotLeader as error:
            self.lose(str(error), type(error))
        except Exception as error:
            log.exception("upload failed", extra={"partition": self.name, "epoch": self.epoch})
            self.lose(f"its records cannot be uploaded: {error}")
        finally:
            self._flusher = None

    def _due(self) -> float:
        """When the tail must be uploaded."""
        full = self.settings.segment_bytes
        # A reader that comes soon spares all that is held back its way into a segment.
        if self._tail.unsettled_bytes >= (full if self._memory.tight else max(full, self.settings.hold_bytes)):
            return 0.0
        wait = self.settings.linger if self.settings.durability is Durability.OBJECT else self.settings.segment_age
        return self._tail.oldest.arrived + wait

    async def _upload(self) -> None:
        """Puts what is in memory into one segment, and tells the catalog."""
        async with self._publishing:
            if self._whole_start() > self.committed:
                # What is left may not be due yet.
                await self._tell_trim()
                return
            await self._upload_tail()

    async def _upload_tail(self) -> None:
        limit = self.next if self.settings.durability is Durability.OBJECT else self.durable
        chosen: list[TailBatch] = []
        size = 0
        for batch in self._tail.unsettled():
            if batch.header.next_offset > limit or size > self.settings.segment_bytes:
                break
            # What a former epoch wrote (taken back from the write-ahead log) stays that epoch's.
            if chosen and batch.header.leader_epoch != chosen[0].header.leader_epoch:
                break
            chosen.append(batch)
            size += len(batch.data)
        if not chosen:
            await self._tenure.sleep(self.settings.linger)
            return
        info = await self._uploader.upload(self.key, self.epoch, chosen, self._tenure.check_grant)
        self._tenure.check_grant()
        wrote = self._producers.before(info.next_offset, since=info.base_offset)
        await self._metadata.commit(self.key, self.epoch, info, wrote)
        self._settle(info.next_offset)

    def _settle(self, committed: int) -> None:
        self._tail.settle(committed)
        self.committed = committed
        self._advance(committed)
        self._tenure.announce()

    def _advance(self, offset: int) -> None:
        if offset > self.durable:
            self.durable = offset
            self._tenure.announce()
            self._tell_readers()

    def _tell_readers(self) -> None:
        for tell in tuple(self.readers):
            tell()
