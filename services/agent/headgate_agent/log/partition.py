"""One partition that this agent leads, from the grant of its leadership to the loss of it.

What an acknowledgement means is the topic's durability. WAL: the records are in the agent's write-ahead log, and
segments are uploaded behind. OBJECT: the object store has the segment and the catalog knows it. Either way the grant is
looked at again after the durable write and before the answer, so a leader that was paused for longer than its session
answers nobody; and what it then tries to publish is refused by the catalog, because its epoch has passed.

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
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from headgate_agent.log.contract import (
    Appended,
    Durability,
    Grant,
    Held,
    Metadata,
    NotAccepted,
    NotLeader,
    PartitionKey,
    PartitionSettings,
    SegmentInfo,
    Start,
    TooLarge,
)
from headgate_agent.log.entries import records_frame
from headgate_agent.log.objects import Objects
from headgate_agent.log.producers import Producers, Undo
from headgate_agent.log.record_batch import BatchHeader, check_crc, header_at, headers, placed
from headgate_agent.log.tail import Memory, Tail, TailBatch
from headgate_agent.log.uploading import DEFAULT_BACKOFF, Uploader
from headgate_agent.log.wal import Frame, Wal
from headgate_agent.work import Inline, Work
from headgate_common.backoff import Backoff
from headgate_common.clock import Clock
from headgate_common.ids import Ids

__all__ = [
    "Appended",
    "Durability",
    "Grant",
    "Held",
    "Metadata",
    "NotAccepted",
    "NotLeader",
    "Partition",
    "PartitionKey",
    "PartitionSettings",
    "SegmentInfo",
    "Start",
    "TooLarge",
]

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Append:
    """Batches of one produce on their way into the log; see `wal.Appendable`."""

    partition: Partition
    data: bytes | memoryview
    found: list[BatchHeader]
    appended: Appended | None = None
    stored: list[TailBatch] = field(default_factory=list)
    undos: list[Undo] = field(default_factory=list)
    # Bytes that count as waiting for their turn to be written, whether or not their producer still waits for them.
    queued: int = 0

    @property
    def offsets(self) -> int:
        """How many offsets it takes, if none of it is a duplicate."""
        return sum(header.last_offset_delta + 1 for header in self.found)

    def build(self) -> Frame | None:
        # The tail counts them from here on.
        self.partition._unqueue(self)
        self.appended = self.partition._take(self)
        if not self.stored:
            return None
        return records_frame(self.partition.key, self.partition.epoch, self.stored)

    def written(self, file: int) -> None:
        for batch in self.stored:
            batch.wal_file = file
        if self.stored:
            self.partition._written(self.stored[-1].header.next_offset)

    def undo(self) -> None:
        self.partition._give_back(self)


class Partition:
    def __init__(
        self,
        key: PartitionKey,
        name: str,
        start: Start,
        settings: PartitionSettings,
        *,
        wal: Wal,
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
        self._reserved = start.reserved
        # Offsets that room was made for and that are not known to be given out: entries take theirs when it is their
        # turn to be written, so those on their way together must fit into what is reserved.
        self._claimed = 0
        self._wal, self._metadata, self._grant, self._clock = wal, metadata, grant, clock
        self._uploader = Uploader(objects, work or Inline(), ids, source, backoff)
        self._memory = memory or Memory()
        self._producers = Producers(settings.max_producers, start.producers_forgotten)
        self._producers.restore(start.producers)
        self._tail = Tail(self._memory)
        self._changed = asyncio.Event()
        self._lost: str | None = None
        self._lost_as: type[NotLeader] = NotLeader
        self._sealed: str | None = None
        self._reserving: asyncio.Task[None] | None = None
        self._flusher: asyncio.Task[None] | None = None
        # What is below this offset is uploaded without waiting for more.
        self._flush_until = 0
        # Produces that wait for room go one behind the other, and those that come later behind them.
        self._turn = asyncio.Lock()
        self._queued = 0
        # Whoever changes where the partition ends or begins in the catalog does so alone.
        self._publishing = asyncio.Lock()
        self._told_start = start.log_start
        self._memory.pressed.add(self.hurry)

    @property
    def lost(self) -> str | None:
        """Why it is no longer led here; None while it is."""
        return self._lost

    @property
    def leads(self) -> bool:
        """Whether it is certainly still led here, by this agent's own clock."""
        return self._lost is None and self._grant.valid()

    def recover(self, held: Iterable[Held]) -> None:
        """Takes back what the write-ahead log holds beyond the committed offset. Before anything else."""
        for one in held:
            for header in headers(one.data):
                if header.next_offset <= self.next:
                    continue
                if header.base_offset != self.next:
                    raise NotLeader(
                        f"{self.name}: the write-ahead log continues at {header.base_offset}, not at {self.next}"
                    )
                self._producers.restore_batch(header)
                data = one.data[header.position : header.position + header.size]
                self._tail.append(TailBatch(header_at(data, 0), data, one.file, self._clock.monotonic()))
                self.next = self.durable = header.next_offset
        self._start_flusher()

    def remains(self) -> list[Held]:
        """What only the write-ahead log holds, for whoever leads next on this volume. After `lose` and a barrier."""
        return [Held(batch.wal_file, batch.data) for batch in self._tail.unsettled() if batch.wal_file]

    async def produce(self, data: bytes | memoryview) -> Appended:
        """Stores whole record batches; answers when they are as durable as the topic promises.

        Calls take their offsets in the order in which they began, so a producer may have several under way.
        """
        append = Append(self, data, self.accept(data))
        if self._queued or not self._has_room_for(append.offsets):
            self._queued += 1
            try:
                async with self._turn:
                    await self._room_for(append.offsets)
                    written = self._begin(append)
            finally:
                self._queued -= 1
        else:
            written = self._begin(append)
        if written is not None:
            # A caller that gives up leaves it to be written.
            await asyncio.shield(written)
        else:
            self._start_flusher()
            if self._tail.unsettled_bytes >= self.settings.segment_bytes:
                self._announce()
        assert append.appended is not None
        await self.acknowledged(append.appended)
        return append.appended

    async def make_room(self, count: int) -> None:
        """Waits until so many more records may be taken, and keeps that room until `give_room_back`; for a commit of
        stages, which takes them itself."""
        async with self._turn:
            await self._room_for(count)
            self._claimed += count

    def give_room_back(self, count: int) -> None:
        """What room was made for has been written, or never will be."""
        self._claimed -= count

    async def acknowledged(self, appended: Appended) -> None:
        """Returns when records that were taken may be answered. A duplicate waits here for its first copy."""
        while self.durable < appended.next_offset:
            await self._wait()
        await self.certain()

    async def certain(self) -> None:
        """Returns when it is certain that it is led here, without waiting if it is now. While that is in doubt nothing
        is answered; what is taken meanwhile counts only if the session turns out to have lived on."""
        self._check_grant()
        while not self._grant.valid():
            await self._wait()
            self._check_grant()

    def renewed(self) -> None:
        """It is certain again, or known to be over: whoever waits for that looks."""
        self._announce()
        self._tell_readers()

    def _begin(self, append: Append) -> asyncio.Future[int] | None:
        """Puts it behind those that began before; what is returned is done when the write-ahead log has it."""
        if self.settings.durability is Durability.WAL:
            written, count = self._wal.submit(append), append.offsets
            self._claimed += count
            append.queued = len(append.data)
            self._memory.waits(append.queued)
            written.add_done_callback(lambda _: self._answered(append, count))
            return written
        append.build()
        return None

    def _answered(self, append: Append, count: int) -> None:
        self._unqueue(append)
        self.give_room_back(count)

    def _unqueue(self, append: Append) -> None:
        size, append.queued = append.queued, 0
        self._memory.waits(-size)

    def _has_room_for(self, count: int) -> bool:
        return (
            self._memory.has_room
            and self._tail.unsettled_bytes <= self.settings.max_unflushed_bytes
            and (self.settings.durability is Durability.OBJECT or self.next + self._claimed + count < self._reserved)
        )

    async def _room_for(self, count: int) -> None:
        """Holds a producer back while too much waits for upload, and until its offsets are ours to acknowledge."""
        await self._memory.room()
        while self._tail.unsettled_bytes > self.settings.max_unflushed_bytes:
            self.hurry()
            await self._wait()
        if self.settings.durability is Durability.WAL:
            await self._reserve_for(count)

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

    def hurry(self) -> None:
        """Uploads what there is without waiting for more."""
        if len(self._tail):
            self._flush_until = self.next
            self._start_flusher()
            self._announce()

    async def flush(self) -> None:
        """Returns when the catalog knows everything that was taken before."""
        target = self.next
        self.hurry()
        while self.committed < min(target, self.next):
            await self._wait()

    def seal(self, reason: str) -> None:
        """Takes no more records, so that a flush is complete; goes on serving readers."""
        self._sealed = reason

    def unseal(self) -> None:
        self._sealed = None

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
        self._check_lost()
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

    @asynccontextmanager
    async def held(self) -> AsyncIterator[int]:
        """Keeps everything else out while stages are put behind what is there: yields the offset where that ends, and
        the catalog knows everything before it. OBJECT partitions only."""
        self._check_open()
        self._queued += 1
        try:
            async with self._turn:
                await self.flush()
                async with self._publishing:
                    self._check_open()
                    yield self.committed
        finally:
            self._queued -= 1

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
        if self._lost is None:
            self._lost, self._lost_as = reason, kind
        for task in (self._flusher, self._reserving):
            if task is not None and task is not asyncio.current_task():
                task.cancel()
        self._memory.pressed.discard(self.hurry)
        self._announce()
        self._tell_readers()

    def close(self) -> None:
        """Gives its memory back. After `lose`, once nothing of it is needed."""
        self._tail.clear()

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

    def accept(self, data: bytes | memoryview) -> list[BatchHeader]:
        """The headers of whole batches that may be stored here now; raises where they may not."""
        self._check_open()
        found: list[BatchHeader] = []
        for header in headers(data):
            if header.size > self.settings.max_message_bytes:
                raise TooLarge(f"a batch of {header.size} bytes; {self.settings.max_message_bytes} are allowed")
            if header.transactional:
                raise NotAccepted("transactional batches are not supported")
            if header.count != header.last_offset_delta + 1:
                # As Kafka refuses it. One record could else take 2^31 offsets, and what is reserved runs out.
                raise NotAccepted(f"a batch of {header.count} records over {header.last_offset_delta + 1} offsets")
            check_crc(data, header)
            found.append(header)
        if not found:
            raise NotAccepted("no record batch")
        return found

    def _take(self, append: Append) -> Appended:
        """Gives each batch its offset, in the order in which they are written; a retry gets its first offset back."""
        self._check_open()
        bases: list[int] = []
        end = 0
        try:
            for header in append.found:
                known = self._producers.duplicate(header) if header.producer_id >= 0 else None
                if known is not None:
                    bases.append(known.base_offset)
                    end = max(end, known.base_offset + header.last_offset_delta + 1)
                    continue
                if header.producer_id >= 0:
                    append.undos.append(self._producers.take(header, self.next))
                bases.append(self.next)
                stored = placed(append.data, header, self.next, self.epoch)
                batch = TailBatch(header_at(stored, 0), stored, 0, self._clock.monotonic())
                append.stored.append(batch)
                self.next = end = batch.header.next_offset
                self._tail.append(batch)
        except Exception:
            # A later batch was refused: those before it were not written either.
            self._give_back(append)
            raise
        return Appended(bases[0], end, self.log_start)

    def _give_back(self, append: Append) -> None:
        for batch in reversed(append.stored):
            last = self._tail.pop()
            assert last is batch, "the last batch taken is the first given back"
            self.next = batch.header.base_offset
        for undo in reversed(append.undos):
            self._producers.forget(undo)

    def _written(self, end: int) -> None:
        """The write-ahead log has everything below `end`."""
        if self._lost is not None:
            return
        self._advance(end)
        self._start_flusher()

    async def _reserve_for(self, count: int) -> None:
        """Makes sure that the offsets to come are ours to acknowledge, whatever happens to this process.

        What is reserved is never used up: while more is reserved than segments hold, it waits for our volume.
        """
        while (end := self.next + self._claimed + count) >= self._reserved:
            if self._reserving is None:
                self._reserving = asyncio.ensure_future(self._reserve(end + self.settings.reserve_ahead))
            await asyncio.wait((self._reserving,))
            self._check_lost()

    async def _reserve(self, until: int) -> None:
        try:
            await self._metadata.reserve(self.key, self.epoch, until)
            self._reserved = until
        except NotLeader as error:
            self.lose(str(error), type(error))
        except Exception as error:
            log.exception("offsets cannot be reserved", extra={"partition": self.name})
            self.lose(f"offsets cannot be reserved: {error}")
        finally:
            self._reserving = None

    def _start_flusher(self) -> None:
        if self._flusher is None and len(self._tail) and self._lost is None:
            self._flusher = asyncio.ensure_future(self._flush_loop())

    async def _flush_loop(self) -> None:
        try:
            while len(self._tail):
                delay = self._due() - self._clock.monotonic()
                if delay > 0 and self.committed >= self._flush_until:
                    await self._sleep(delay)
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
        if self._tail.unsettled_bytes >= self.settings.segment_bytes:
            return 0.0
        wait = self.settings.linger if self.settings.durability is Durability.OBJECT else self.settings.segment_age
        return self._tail.oldest.arrived + wait

    async def _sleep(self, delay: float) -> None:
        try:
            async with asyncio.timeout(delay):
                await self._changed.wait()
        except TimeoutError:
            return

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
            await self._sleep(self.settings.linger)
            return
        info = await self._uploader.upload(self.key, self.epoch, chosen, self._check_grant)
        self._check_grant()
        wrote = self._producers.before(info.next_offset, since=info.base_offset)
        await self._metadata.commit(self.key, self.epoch, info, wrote)
        self._settle(info.next_offset)

    def _settle(self, committed: int) -> None:
        self._tail.settle(committed)
        self.committed = committed
        self._advance(committed)
        self._announce()

    def _advance(self, offset: int) -> None:
        if offset > self.durable:
            self.durable = offset
            self._announce()
            self._tell_readers()

    def _announce(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _tell_readers(self) -> None:
        for tell in tuple(self.readers):
            tell()

    async def _wait(self) -> None:
        self._check_lost()
        await self._changed.wait()
        self._check_lost()

    def _check_lost(self) -> None:
        if self._lost is not None:
            raise self._lost_as(f"{self.name}: {self._lost}")

    def _check_open(self) -> None:
        self._check_grant()
        if self._sealed is not None:
            raise NotLeader(f"{self.name}: {self._sealed}")

    def _check_grant(self) -> None:
        """Raises once it is known not to be led here any more. In doubt it does not: see `certain`."""
        self._check_lost()
        if self._grant.ended():
            self.lose("the session has ended")
            self._check_lost()
