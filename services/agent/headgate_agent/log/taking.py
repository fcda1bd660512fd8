"""From a grant of the catalog to a partition that is led here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headgate.log import v1 as api
from headgate_agent.log.contract import Held, PartitionKey, SegmentInfo, Start
from headgate_agent.log.led import Led, settings_of
from headgate_agent.log.metadata import LogCatalog, SessionMetadata, key_of, producer_of
from headgate_agent.log.partition import Partition
from headgate_agent.log.producers import Producer
from headgate_agent.log.segments import Segments
from headgate_agent.log.world import BrokerSettings, Session, World


@dataclass(frozen=True, slots=True)
class _Grant:
    """Leadership under one session, by this agent's own clock."""

    member: Session
    session: str

    def valid(self) -> bool:
        return self.member.session == self.session

    def ended(self) -> bool:
        return self.member.known != self.session


@dataclass(frozen=True, slots=True)
class _LedMetadata:
    """`contract.Metadata` that tells the partition's list of segments what was committed."""

    inner: SessionMetadata
    segments: Segments

    async def reserve(self, key: PartitionKey, epoch: int, until: int) -> None:
        await self.inner.reserve(key, epoch, until)

    async def commit(self, key: PartitionKey, epoch: int, segment: SegmentInfo, producers: Sequence[Producer]) -> None:
        await self.inner.commit(key, epoch, segment, producers)
        self.segments.add(segment)

    async def trim(self, key: PartitionKey, epoch: int, log_start: int) -> None:
        await self.inner.trim(key, epoch, log_start)

    def shown(self, key: PartitionKey, segment: SegmentInfo) -> None:
        self.segments.add(segment)


def begin(
    acquired: api.AcquiredPartition,
    topic: api.Topic,
    held: Iterable[Held],
    *,
    world: World,
    settings: BrokerSettings,
    catalog: LogCatalog,
    metadata: SessionMetadata,
    member: Session,
) -> Led:
    """Takes back what the write-ahead log holds, and leads. `NotLeader` or `CorruptBatch` if that does not fit."""
    key, offsets = key_of(acquired.partition), acquired.state.offsets
    segments = Segments(catalog, key, offsets.log_start, offsets.committed)
    partition = Partition(
        key,
        f"{topic.name}/{key.index}",
        Start(
            acquired.epoch,
            offsets.log_start,
            offsets.committed,
            offsets.reserved,
            [producer_of(state) for state in acquired.producers],
            acquired.producers_forgotten,
        ),
        settings_of(topic, settings.limits),
        wal=world.wal,
        objects=world.objects,
        metadata=_LedMetadata(metadata, segments),
        grant=_Grant(member, metadata.session_id),
        clock=world.clock,
        ids=world.ids,
        source=world.source,
        backoff=settings.upload_backoff,
        memory=world.memory,
        work=world.work,
    )
    try:
        partition.recover(held)
    except Exception as error:
        partition.lose(str(error))
        partition.close()
        raise
    epochs = [(one.epoch, one.offset) for one in acquired.epochs]
    led = Led(
        topic,
        partition,
        segments,
        epochs,
        reader=world.reader,
        unpacking=world.unpacking,
        segments_at_once=settings.read_segments,
    )
    led.session = metadata.session_id
    return led
