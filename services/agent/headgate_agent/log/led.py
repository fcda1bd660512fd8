"""A partition that this agent leads, with its segments: everything that can be read of it."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import aclosing

from headgate.log import v1 as api
from headgate_agent.log.access import Bounds, OffsetOutOfRange, TimedOffset
from headgate_agent.log.contract import Durability, PartitionSettings, SegmentInfo
from headgate_agent.log.partition import Partition
from headgate_agent.log.record_batch import headers
from headgate_agent.log.segment_reader import SegmentReader
from headgate_agent.log.segments import Segments, ref_of
from headgate_agent.log.unpacking import Unpacking

# Small segments that are read at once for one fetch.
DEFAULT_SEGMENTS = 16

# What Kafka answers of an epoch that is still to come.
_NO_EPOCH = (-1, -1)


class Led:
    def __init__(
        self,
        topic: api.Topic,
        partition: Partition,
        segments: Segments,
        epochs: Sequence[tuple[int, int]],
        *,
        reader: SegmentReader,
        unpacking: Unpacking,
        segments_at_once: int = DEFAULT_SEGMENTS,
    ) -> None:
        """`epochs` are those with records and where each began, oldest first, before this leadership."""
        self.topic = topic
        self.partition = partition
        self.segments = segments
        segments.wanted = lambda: partition.lost is None
        self.session = ""
        # How many segments had been added when small ones were last looked for in vain.
        self.looked_at = 0
        self._reader = reader
        self._unpacking = unpacking
        self._segments_at_once = segments_at_once
        self._epochs = list(epochs)
        for header, _ in partition.tail_headers():
            # What was taken back from the write-ahead log.
            if not self._epochs or header.leader_epoch > self._epochs[-1][0]:
                self._epochs.append((header.leader_epoch, header.base_offset))
        self._epochs = [one for one in self._epochs if one[0] < partition.epoch]
        self._began = partition.next

    @property
    def bounds(self) -> Bounds:
        part = self.partition
        return Bounds(part.log_start, part.durable, part.epoch)

    @property
    def bound_to_volume(self) -> bool:
        """Whether only its write-ahead log says what was committed to it: a new disk would let it in again."""
        wal = self.partition.settings.durability is Durability.WAL
        return wal and bool(self.topic.pinned_agent) and self.partition.next > 0

    def retune(self, topic: api.Topic, limits: PartitionSettings) -> None:
        """Takes over settings that have changed."""
        self.topic = topic
        self.partition.settings = settings_of(topic, limits)

    def trim(self, log_start: int) -> int:
        """Moves the start forward, here and for now; how many known segments went with it is the answer."""
        self.partition.trim(log_start)
        return self.segments.trim(log_start)

    async def size(self) -> int:
        """Bytes from the start to the high watermark, as they are stored: whole segments, and what none holds yet."""
        return await self.segments.size() + self.partition.unread_bytes

    async def read(self, offset: int, max_bytes: int) -> Sequence[bytes | memoryview]:
        """Acknowledged batches from the one that holds `offset` on; none at the end."""
        found = self.in_memory(offset, max_bytes)
        if found is not None:
            return found
        infos = await self._enough(offset, max_bytes)
        if not infos:
            # Nothing is stored from here to the tail: offsets that will never hold records.
            return self.partition.read(self.partition.committed, max_bytes) or []
        parts = await asyncio.gather(*(self._reader.read(ref_of(info), offset, max_bytes) for info in infos))
        batches: list[memoryview] = []
        size = 0
        for info, part in zip(infos, parts, strict=True):
            if batches and size >= max_bytes:
                break
            batches += part
            size += sum(map(len, part))
            if part and [header.next_offset for header in headers(part[-1])][-1] < info.next_offset:
                # `max_bytes` cut it short: what follows in the next segment would leave a gap.
                break
        return batches

    def in_memory(self, offset: int, max_bytes: int) -> list[bytes] | None:
        """As `read`, without waiting; None where only segments hold it."""
        self.check(offset)
        return self.partition.read(offset, max_bytes)

    def check(self, offset: int) -> None:
        bounds = self.bounds
        if not bounds.log_start <= offset <= bounds.high_watermark:
            raise OffsetOutOfRange(
                f"{self.partition.name} has offsets {bounds.log_start} to {bounds.high_watermark}, not {offset}"
            )

    async def offset_at(self, timestamp: int) -> TimedOffset | None:
        """The first record at or after the start that is not older than `timestamp`.

        What may hold one need not: the start may have passed it. So the search goes on, block by block, to the end.
        """
        start = self.partition.log_start
        at = start
        while (info := await self.segments.since(timestamp, at)) is not None:
            found = await self._first_in(info, timestamp, start)
            if found is not None:
                return found
            at = info.next_offset
        # Taken before anything is waited for: what becomes a segment meanwhile is not overlooked.
        tail = [data for header, data in self.partition.tail_headers() if header.max_timestamp >= timestamp]
        for data in tail:
            found = await self._unpacking.first_at(data, timestamp, start)
            if found is not None:
                return found
        return None

    async def _first_in(self, info: SegmentInfo, timestamp: int, start: int) -> TimedOffset | None:
        async with aclosing(self._reader.batches_since(ref_of(info), timestamp, start)) as blocks:
            async for data in blocks:
                found = await self._unpacking.first_at(data, timestamp, start)
                if found is not None:
                    return found
        return None

    async def largest_timestamp(self) -> TimedOffset | None:
        """The first of the records that have the largest timestamp; None if none has one."""
        start = self.partition.log_start
        # Looked at before the segments: what becomes one meanwhile is seen twice, and not overlooked.
        tail = sorted(self.partition.tail_headers(), key=lambda one: (-one[0].max_timestamp, one[0].base_offset))
        best: TimedOffset | None = None
        for info in sorted(await self.segments.all(), key=lambda one: (-one.max_timestamp, one.base_offset)):
            if info.max_timestamp < _above(best):
                break
            best = await self._largest_in(info, start, best)
        for header, data in tail:
            if header.max_timestamp < _above(best):
                break
            best = await self._unpacking.largest(data, start, best)
        return best

    async def _largest_in(self, info: SegmentInfo, start: int, best: TimedOffset | None) -> TimedOffset | None:
        found = await self._first_in(info, info.max_timestamp, start)
        if found is not None:
            return found
        # The start has passed the record that the segment's largest timestamp is of.
        async with aclosing(self._reader.batches_since(ref_of(info), _above(best), start)) as blocks:
            async for data in blocks:
                best = await self._unpacking.largest(data, start, best)
        return best

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        if epoch > self.partition.epoch:
            return _NO_EPOCH
        if epoch == self.partition.epoch:
            return self.partition.epoch, self.partition.durable
        at = bisect_right([one for one, _ in self._epochs], epoch)
        end = self._epochs[at][1] if at < len(self._epochs) else self._began
        if at == 0:
            # As Kafka answers. A reader that has come to there has nothing to do again: its offsets hold nothing else.
            return (epoch, end) if epoch >= 0 else (-1, -1)
        return self._epochs[at - 1][0], end

    async def _enough(self, offset: int, max_bytes: int) -> list[SegmentInfo]:
        chosen: list[SegmentInfo] = []
        size = 0
        for info in await self.segments.from_offset(offset, self._segments_at_once):
            if chosen and size + info.size > max_bytes:
                break
            chosen.append(info)
            size += info.size
        return chosen


def settings_of(topic: api.Topic, limits: PartitionSettings) -> PartitionSettings:
    """The settings of a topic, over those of the agent."""
    given = topic.settings
    wal = given.durability == api.DURABILITY_WAL
    # Whoever reads an edge trims it: what is read soon need not go into a segment at all.
    hold = limits.hold_bytes if wal and topic.internal else 0
    return PartitionSettings(
        durability=Durability.WAL if wal else Durability.OBJECT,
        linger=_seconds(given, "linger", limits.linger),
        segment_bytes=given.segment_bytes or limits.segment_bytes,
        segment_age=_seconds(given, "segment_age", limits.segment_age),
        max_message_bytes=given.max_message_bytes or limits.max_message_bytes,
        reserve_ahead=limits.reserve_ahead,
        max_unflushed_bytes=limits.max_unflushed_bytes + hold,
        hold_bytes=hold,
        max_producers=limits.max_producers,
        after_max=limits.after_max,
    )


def _above(best: TimedOffset | None) -> int:
    """What a timestamp must be at least to be larger; one below 0 is none."""
    return 0 if best is None else best.timestamp + 1


def _seconds(settings: api.TopicSettings, name: str, default: float) -> float:
    return getattr(settings, name).ToNanoseconds() / 1e9 if settings.HasField(name) else default  # type: ignore[arg-type]
