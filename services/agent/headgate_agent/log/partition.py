"""One partition that this agent leads, from the grant of its leadership to the loss of it.

What an acknowledgement means is the topic's durability. WAL: the records are in the agent's write-ahead log, and
segments are uploaded behind. OBJECT: the object store has the segment and the catalog knows it. Either way the grant is
looked at again after the durable write and before the answer, so a leader that was paused for longer than its session
answers nobody; and what it then tries to publish is refused by the catalog, because its epoch has passed.

How records are taken is here; what becomes of them then is in `publishing`, whether it is still led in `tenure`, and
which offsets may be acknowledged in `reservation`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import cast

from headgate_agent.log.contract import (
    Appended,
    BadTimestamp,
    Durability,
    Grant,
    Held,
    Metadata,
    NotAccepted,
    NotLeader,
    PartitionKey,
    PartitionSettings,
    Start,
    TooLarge,
    Uncertain,
)
from headgate_agent.log.entries import records_frame
from headgate_agent.log.objects import Objects
from headgate_agent.log.producers import Undo
from headgate_agent.log.publishing import Publishing
from headgate_agent.log.record_batch import BatchHeader, check_crc, header_at, headers, patch, placed
from headgate_agent.log.tail import Memory, TailBatch
from headgate_agent.log.uploading import DEFAULT_BACKOFF
from headgate_agent.log.wal import Frame, Wal, WalUncertain
from headgate_agent.work import Work
from headgate_common.backoff import Backoff
from headgate_common.clock import Clock
from headgate_common.ids import Ids


@dataclass(slots=True)
class Append:
    """Batches of one produce on their way into the log; see `wal.Appendable`."""

    partition: Partition
    data: bytes | bytearray | memoryview
    found: list[BatchHeader]
    appended: Appended | None = None
    stored: list[TailBatch] = field(default_factory=list)
    undos: list[Undo] = field(default_factory=list)
    # `data` is one batch that nobody else uses: it is stored itself, not a copy.
    own: bool = False
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


class Partition(Publishing):
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
        super().__init__(
            key,
            name,
            start,
            settings,
            objects=objects,
            metadata=metadata,
            grant=grant,
            clock=clock,
            ids=ids,
            source=source,
            backoff=backoff,
            memory=memory,
            work=work,
        )
        self._wal = wal
        # Produces that wait for room go one behind the other, and those that come later behind them.
        self._turn = asyncio.Lock()
        self._queued = 0

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
        """Stores whole record batches; answers when they are as durable as the topic promises. `Uncertain` if it cannot
        be known here whether they are; any other error says that nothing was stored.

        Calls take their offsets in the order in which they began, so a producer may have several under way.
        """
        append = Append(self, data, self._in_time(self.accept(data)))
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
            try:
                # A caller that gives up leaves it to be written.
                await asyncio.shield(written)
            except WalUncertain as error:
                raise Uncertain(f"{self.name}: {error}") from error
        else:
            self._start_flusher()
            if self._tail.unsettled_bytes >= self.settings.segment_bytes:
                self._tenure.announce()
        assert append.appended is not None
        try:
            await self.acknowledged(append.appended)
        except NotLeader as error:
            raise Uncertain(str(error)) from error
        return append.appended

    async def make_room(self, count: int) -> None:
        """Waits until so many more records may be taken, and keeps that room until `give_room_back`; for a commit of
        stages, which takes them itself."""
        async with self._turn:
            await self._room_for(count)
            self._reservation.claim(count)

    def give_room_back(self, count: int) -> None:
        """What room was made for has been written, or never will be."""
        self._reservation.claim(-count)

    async def acknowledged(self, appended: Appended) -> None:
        """Returns when records that were taken may be answered. A duplicate waits here for its first copy."""
        while self.durable < appended.next_offset:
            await self._tenure.wait()
        await self.certain()

    async def certain(self) -> None:
        """Returns when it is certain that it is led here, without waiting if it is now. While that is in doubt nothing
        is answered; what is taken meanwhile counts only if the session turns out to have lived on."""
        await self._tenure.certain()

    def _begin(self, append: Append) -> asyncio.Future[int] | None:
        """Puts it behind those that began before; what is returned is done when the write-ahead log has it."""
        if self.settings.durability is Durability.WAL:
            written, count = self._wal.submit(append), append.offsets
            self._reservation.claim(count)
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
            and (self.settings.durability is Durability.OBJECT or self._reservation.covers(self.next, count))
        )

    async def _room_for(self, count: int) -> None:
        """Holds a producer back while too much waits for upload, and until its offsets are ours to acknowledge."""
        await self._memory.room()
        while self._tail.unsettled_bytes > self.settings.max_unflushed_bytes:
            self.hurry()
            await self._tenure.wait()
        if self.settings.durability is Durability.WAL:
            while not await self._reservation.extend(self.next, count, self.settings.reserve_ahead):
                pass

    def seal(self, reason: str) -> None:
        """Takes no more records, so that a flush is complete; goes on serving readers."""
        self._tenure.seal(reason)

    def unseal(self) -> None:
        self._tenure.unseal()

    @asynccontextmanager
    async def held(self) -> AsyncIterator[int]:
        """Keeps everything else out while stages are put behind what is there: yields the offset where that ends, and
        the catalog knows everything before it. OBJECT partitions only."""
        self._tenure.check_open()
        self._queued += 1
        try:
            async with self._turn:
                await self.flush()
                async with self._publishing:
                    self._tenure.check_open()
                    yield self.committed
        finally:
            self._queued -= 1

    def accept(self, data: bytes | bytearray | memoryview, *, checked: bool = False) -> list[BatchHeader]:
        """The headers of whole batches that may be stored here now; raises where they may not. `checked`: their CRCs
        were found right before, or this process has made them."""
        self._tenure.check_open()
        found: list[BatchHeader] = []
        for header in headers(data):
            if header.size > self.settings.max_message_bytes:
                raise TooLarge(f"a batch of {header.size} bytes; {self.settings.max_message_bytes} are allowed")
            if header.transactional:
                raise NotAccepted("transactional batches are not supported")
            if header.count != header.last_offset_delta + 1:
                # As Kafka refuses it. One record could else take 2^31 offsets, and what is reserved runs out.
                raise NotAccepted(f"a batch of {header.count} records over {header.last_offset_delta + 1} offsets")
            if not checked:
                check_crc(data, header)
            found.append(header)
        if not found:
            raise NotAccepted("no record batch")
        return found

    def _in_time(self, found: list[BatchHeader]) -> list[BatchHeader]:
        """Raises for times of a producer that are too far ahead: a reader by time would never come past them, and
        retention would keep everything behind them. Times below 0 are none."""
        latest = (self._clock.wall().timestamp() + self.settings.after_max) * 1000
        for header in found:
            newest = max(header.base_timestamp, header.max_timestamp)
            if newest > latest:
                raise BadTimestamp(
                    f"a timestamp of {newest} is more than {self.settings.after_max:g} s ahead of this agent's clock; "
                    "timestamps are milliseconds since 1970"
                )
        return found

    def _take(self, append: Append) -> Appended:
        """Gives each batch its offset, in the order in which they are written; a retry gets its first offset back."""
        self._tenure.check_open()
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
                batch = self._placed(append, header)
                append.stored.append(batch)
                self.next = end = batch.header.next_offset
                self._tail.append(batch)
        except Exception:
            # A later batch was refused: those before it were not written either.
            self._give_back(append)
            raise
        return Appended(bases[0], end, self.log_start)

    def _placed(self, append: Append, header: BatchHeader) -> TailBatch:
        if append.own and isinstance(append.data, memoryview) and not append.data.readonly:
            patch(append.data, 0, self.next, self.epoch)
            # From here on it is only read, wherever it goes.
            stored = cast(bytes, append.data)
        else:
            stored = placed(append.data, header, self.next, self.epoch)
        return TailBatch(header_at(stored, 0), stored, 0, self._clock.monotonic())

    def _give_back(self, append: Append) -> None:
        for batch in reversed(append.stored):
            last = self._tail.pop()
            assert last is batch, "the last batch taken is the first given back"
            self.next = batch.header.base_offset
        for undo in reversed(append.undos):
            self._producers.forget(undo)

    def _written(self, end: int) -> None:
        """The write-ahead log has everything below `end`."""
        if self._tenure.lost is not None:
            return
        self._advance(end)
        self._start_flusher()
