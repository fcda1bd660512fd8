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
"""

from __future__ import annotations

import asyncio
import random
import struct
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from headgate_agent.log.objects import ObjectExists, Objects, ObjectStoreFailed
from headgate_agent.log.producers import Producer, Producers, Undo
from headgate_agent.log.record_batch import BatchHeader, check_crc, header_at, headers, patch
from headgate_agent.log.segment import SegmentWriter
from headgate_agent.log.wal import Entry, Frame, Wal
from headgate_common.backoff import Backoff
from headgate_common.clock import Clock
from headgate_common.ids import Ids

KIND_RECORDS = 1
DEFAULT_BACKOFF = Backoff(initial=0.05, cap=2.0)
_HEAD = struct.Struct(">iqqq")


class Durability(Enum):
    OBJECT = "OBJECT"
    WAL = "WAL"


class NotLeader(Exception):
    """This agent does not lead the partition, or cannot be sure that it still does. Nothing was acknowledged."""


class NotAccepted(Exception):
    """The records break a rule; nothing was stored. The message says which."""


@dataclass(frozen=True, slots=True)
class PartitionKey:
    """A partition by the uid of its topic, so that a re-created topic is never taken for its namesake."""

    topic_uid: str
    index: int


@dataclass(frozen=True, slots=True)
class PartitionSettings:
    """Times in seconds."""

    durability: Durability = Durability.OBJECT
    linger: float = 0.1
    segment_bytes: int = 8 << 20
    segment_age: float = 60.0
    max_message_bytes: int = 1 << 20
    # Offsets asked for ahead, so that a produce seldom waits for the catalog.
    reserve_ahead: int = 1_000_000
    # What may wait for upload before producers are held back.
    max_unflushed_bytes: int = 64 << 20


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """A segment as the catalog is told of it."""

    uid: str
    key: str
    base_offset: int
    next_offset: int
    size: int
    min_timestamp: int
    max_timestamp: int


class Metadata(Protocol):
    """What a leader asks of the catalog. Each call checks session and epoch in its own transaction and raises
    `NotLeader` if they have passed; it is repeated until it is answered, so repeating one must be harmless."""

    async def reserve(self, key: PartitionKey, epoch: int, until: int) -> None: ...

    async def commit(
        self, key: PartitionKey, epoch: int, segment: SegmentInfo, producers: Sequence[Producer]
    ) -> None: ...


class Grant(Protocol):
    """Whether this process may still act, by its own clock."""

    def valid(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Start:
    """Where a leader begins, as the catalog granted it."""

    epoch: int
    log_start: int
    committed: int
    reserved: int
    producers: Sequence[Producer] = ()


@dataclass(frozen=True, slots=True)
class Appended:
    """Where records are. `next_offset` is the first one after them, or after their first copy for a retry."""

    base_offset: int
    next_offset: int
    log_start: int


@dataclass(slots=True)
class _Batch:
    """Records in memory until a segment in the catalog holds them."""

    header: BatchHeader
    data: bytes
    wal_file: int
    arrived: float


@dataclass(slots=True)
class _Append:
    """Batches of one produce on their way into the log; see `wal.Appendable`."""

    partition: Partition
    data: bytearray
    found: list[BatchHeader]
    appended: Appended | None = None
    stored: list[_Batch] = field(default_factory=list)
    undos: list[Undo] = field(default_factory=list)

    def build(self) -> Frame | None:
        self.appended = self.partition._take(self)
        if not self.stored:
            return None
        first, last = self.stored[0].header, self.stored[-1].header
        key = self.partition.key
        head = _HEAD.pack(key.index, self.partition.epoch, first.base_offset, last.next_offset)
        return Frame(KIND_RECORDS, head + key.topic_uid.encode(), [batch.data for batch in self.stored])

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
    ) -> None:
        self.key = key
        self.epoch = start.epoch
        self.settings = settings
        self.log_start = start.log_start
        self.committed = start.committed
        self.durable = start.committed
        self.next = start.committed
        self._name = name
        self._reserved = start.reserved
        self._wal, self._objects, self._metadata, self._grant = wal, objects, metadata, grant
        self._clock, self._ids, self._random, self._backoff = clock, ids, source, backoff
        self._producers = Producers()
        self._producers.restore(start.producers)
        self._tail: deque[_Batch] = deque()
        self._tail_bytes = 0
        self._changed = asyncio.Event()
        self._lost: str | None = None
        self._reserving: asyncio.Task[None] | None = None
        self._flusher: asyncio.Task[None] | None = None
        self._flush_now = False

    def recover(self, entries: Sequence[Entry]) -> None:
        """Takes back what the write-ahead log holds beyond the committed offset. Before anything else."""
        for entry in entries:
            if entry.kind != KIND_RECORDS:
                continue
            index, _, base, following = _HEAD.unpack_from(entry.head)
            if PartitionKey(entry.head[_HEAD.size :].decode(), index) != self.key or following <= self.next:
                continue
            if base != self.next:
                raise NotLeader(f"{self._name}: the write-ahead log continues at {base}, not at {self.next}")
            for header in headers(entry.body):
                self._producers.restore_batch(header)
                data = entry.body[header.position : header.position + header.size]
                self._keep(_Batch(header_at(data, 0), data, entry.file, self._clock.monotonic()))
            self.next = self.durable = following

    async def produce(self, data: bytes | memoryview) -> Appended:
        """Stores whole record batches; answers when they are as durable as the topic promises."""
        append = _Append(self, bytearray(data), self._accept(data))
        while self._tail_bytes > self.settings.max_unflushed_bytes:
            await self._wait()
        if self.settings.durability is Durability.WAL:
            await self._reserve_for(sum(header.last_offset_delta + 1 for header in append.found))
            file = await self._wal.append(append)
            for batch in append.stored:
                batch.wal_file = file
        else:
            append.build()
        assert append.appended is not None
        end = append.appended.next_offset
        if self.settings.durability is Durability.WAL:
            self._check_grant()
            self._advance(end)
            self._start_flusher()
        else:
            self._start_flusher()
            if self._tail_bytes >= self.settings.segment_bytes:
                self._announce()
            while self.durable < end:
                await self._wait()
            self._check_grant()
        return append.appended

    def read(self, offset: int, max_bytes: int) -> list[bytes] | None:
        """Acknowledged batches in memory from the one that holds `offset` on; None where a segment holds it."""
        if offset < self.committed:
            return None
        found: list[bytes] = []
        size = 0
        for batch in self._tail:
            if batch.header.next_offset <= offset:
                continue
            if batch.header.next_offset > self.durable or (found and size + len(batch.data) > max_bytes):
                break
            found.append(batch.data)
            size += len(batch.data)
        return found

    async def wait_beyond(self, offset: int) -> None:
        """Returns when there is something to read from `offset` on."""
        while self.durable <= offset:
            await self._wait()

    async def flush(self) -> None:
        """Returns when the catalog knows everything that was acknowledged."""
        target = self.next
        self._flush_now = True
        self._start_flusher()
        self._announce()
        while self.committed < target:
            await self._wait()

    def lose(self, reason: str) -> None:
        """Ends leadership: everyone who waits is told, nothing more is answered."""
        if self._lost is None:
            self._lost = reason
        for task in (self._flusher, self._reserving):
            if task is not None:
                task.cancel()
        self._announce()

    @property
    def oldest_wal_file(self) -> int | None:
        """The first write-ahead file that still holds something of this partition that no segment does."""
        return min((batch.wal_file for batch in self._tail if batch.wal_file), default=None)

    def _accept(self, data: bytes | memoryview) -> list[BatchHeader]:
        self._check_grant()
        found: list[BatchHeader] = []
        for header in headers(data):
            if header.size > self.settings.max_message_bytes:
                raise NotAccepted(f"a batch of {header.size} bytes; {self.settings.max_message_bytes} are allowed")
            if header.transactional:
                raise NotAccepted("transactional batches are not supported")
            check_crc(data, header)
            found.append(header)
        if not found:
            raise NotAccepted("no record batch")
        return found

    def _take(self, append: _Append) -> Appended:
        """Gives each batch its offset, in the order in which they are written; a retry gets its first offset back."""
        self._check_grant()
        bases: list[int] = []
        end = 0
        for header in append.found:
            known = self._producers.duplicate(header) if header.producer_id >= 0 else None
            if known is not None:
                bases.append(known.base_offset)
                end = max(end, known.base_offset + header.last_offset_delta + 1)
                continue
            if header.producer_id >= 0:
                append.undos.append(self._producers.take(header, self.next))
            bases.append(self.next)
            patch(append.data, header.position, self.next, self.epoch)
            stored = bytes(append.data[header.position : header.position + header.size])
            batch = _Batch(header_at(stored, 0), stored, 0, self._clock.monotonic())
            append.stored.append(batch)
            self.next = end = batch.header.next_offset
            self._keep(batch)
        return Appended(bases[0], end, self.log_start)

    def _give_back(self, append: _Append) -> None:
        for batch in reversed(append.stored):
            last = self._tail.pop()
            assert last is batch, "the last batch taken is the first given back"
            self._tail_bytes -= len(batch.data)
            self.next = batch.header.base_offset
        for undo in reversed(append.undos):
            self._producers.forget(undo)

    def _keep(self, batch: _Batch) -> None:
        self._tail.append(batch)
        self._tail_bytes += len(batch.data)

    async def _reserve_for(self, count: int) -> None:
        """Makes sure that the offsets to come are ours to acknowledge, whatever happens to this process."""
        while self.next + count > self._reserved:
            if self._reserving is None:
                self._reserving = asyncio.ensure_future(self._reserve(self.next + count + self.settings.reserve_ahead))
            await asyncio.shield(self._reserving)

    async def _reserve(self, until: int) -> None:
        try:
            await self._metadata.reserve(self.key, self.epoch, until)
            self._reserved = until
        except NotLeader as error:
            self._reserving = None
            self.lose(str(error))
            raise
        finally:
            self._reserving = None

    def _start_flusher(self) -> None:
        if self._flusher is None and self._tail and self._lost is None:
            self._flusher = asyncio.ensure_future(self._flush_loop())

    async def _flush_loop(self) -> None:
        try:
            while self._tail:
                delay = self._due() - self._clock.monotonic()
                if delay > 0 and not self._flush_now:
                    await self._sleep(delay)
                    continue
                await self._upload()
            self._flush_now = False
        except NotLeader as error:
            self._flusher = None
            self.lose(str(error))
        finally:
            self._flusher = None

    def _due(self) -> float:
        """When the tail must be uploaded."""
        if self._tail_bytes >= self.settings.segment_bytes:
            return 0.0
        wait = self.settings.linger if self.settings.durability is Durability.OBJECT else self.settings.segment_age
        return self._tail[0].arrived + wait

    async def _sleep(self, delay: float) -> None:
        try:
            async with asyncio.timeout(delay):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _upload(self) -> None:
        """Puts what is in memory into one segment, and tells the catalog."""
        limit = self.next if self.settings.durability is Durability.OBJECT else self.durable
        writer = SegmentWriter()
        for batch in self._tail:
            if batch.header.next_offset > limit or (
                writer.base_offset is not None and writer.size > self.settings.segment_bytes
            ):
                break
            writer.add(batch.data, batch.header)
        if writer.base_offset is None:
            await self._sleep(self.settings.linger)
            return
        buffers = writer.finish()
        uid = self._ids.uid("segment")
        key = f"{self.key.topic_uid}/{self.key.index}/{self.epoch:016d}/{writer.base_offset:020d}-{uid}"
        await self._create(key, buffers)
        info = SegmentInfo(
            uid,
            key,
            writer.base_offset,
            writer.next_offset,
            sum(len(part) for part in buffers),
            writer.min_timestamp or 0,
            writer.max_timestamp,
        )
        self._check_grant()
        await self._metadata.commit(self.key, self.epoch, info, self._producers.before(writer.next_offset))
        self._settle(writer.next_offset)

    async def _create(self, key: str, buffers: Sequence[bytes]) -> None:
        attempt = 0
        while True:
            self._check_grant()
            try:
                await self._objects.create(key, buffers)
            except ObjectExists:
                # The key is unique to this attempt, so the object is what an earlier, unanswered try has put there.
                return
            except ObjectStoreFailed:
                await asyncio.sleep(self._backoff.delay(attempt, self._random))
                attempt += 1
                continue
            return

    def _settle(self, committed: int) -> None:
        while self._tail and self._tail[0].header.next_offset <= committed:
            self._tail_bytes -= len(self._tail.popleft().data)
        self.committed = committed
        self._advance(committed)
        self._announce()

    def _advance(self, offset: int) -> None:
        if offset > self.durable:
            self.durable = offset
            self._announce()

    def _announce(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _wait(self) -> None:
        self._check_lost()
        await self._changed.wait()
        self._check_lost()

    def _check_lost(self) -> None:
        if self._lost is not None:
            raise NotLeader(f"{self._name}: {self._lost}")

    def _check_grant(self) -> None:
        self._check_lost()
        if not self._grant.valid():
            self.lose("the grant may have passed on")
            self._check_lost()
