"""What the servers in front of the log (gRPC and Kafka) ask of it; `Broker` is the implementation.

Partitions are named by the uid of their topic, so that a re-created topic is never taken for its namesake. A call about
a partition that this agent does not lead raises `NotLeader`. While it is in doubt whether it leads, calls wait; those
that are not coroutines raise `InDoubt`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from headgate.log import v1 as log
from headgate_agent.log.contract import Appended, InDoubt, PartitionKey


class UnknownPartition(Exception):
    """There is no such topic or partition, as far as this agent knows."""


class OffsetOutOfRange(Exception):
    """The offset is before the start of the partition, or after its end."""


@dataclass(frozen=True, slots=True)
class Peer:
    """An agent with the role LOG, as the catalog has it."""

    name: str
    node_id: int
    address: str
    kafka_address: str
    zone: str
    group: str
    # Its session lives.
    present: bool
    # The identity of its object store; empty if it is not known.
    store_id: str = ""


@dataclass(frozen=True, slots=True)
class Leadership:
    """Who leads a partition, as the catalog last said. `leader` is empty while none does; `waiting` then says why."""

    leader: str
    epoch: int
    waiting: str = ""
    # The only volume whose agent may lead it; empty where any may.
    volume_id: str = ""


class ClusterView(Protocol):
    """Topics, leaders and agents, as the catalog's watch last told. Synchronous: it never asks anybody."""

    @property
    def revision(self) -> int:
        """Of what is known: something may have changed when it has. 0 before anything is."""
        ...

    def peers(self) -> Iterable[Peer]: ...

    def peer(self, name: str) -> Peer | None: ...

    def topics(self) -> Iterable[log.Topic]: ...

    def topic(self, name: str) -> log.Topic | None: ...

    def topic_by_uid(self, uid: str) -> log.Topic | None: ...

    def leadership(self, key: PartitionKey) -> Leadership: ...

    async def caught_up(self, revision: int) -> None:
        """Returns when everything up to a revision of the catalog is known here."""
        ...


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where a partition begins and ends; readers stop at the high watermark."""

    log_start: int
    high_watermark: int
    epoch: int


@dataclass(frozen=True, slots=True)
class FetchPart:
    key: PartitionKey
    offset: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class FetchedPart:
    """Whole batches, the first of which may begin before the offset asked for; or why there are none."""

    batches: Sequence[bytes | memoryview]
    bounds: Bounds | None
    error: Exception | None = None


class AnswerRoom(Protocol):
    """The memory that one answer takes, of what all of them may take together. Its owner gives it back."""

    async def take(self, wanted: int, within: float) -> int:
        """Waits for room, and takes more of it: so many bytes may be read now, at most `wanted`. TimeoutError if there
        is none within so many seconds, and the answer has no records; its owner may have it wait for another time, and
        raise what the reader is told instead."""
        ...

    def keep(self, size: int) -> None:
        """The answer has so many bytes; what was taken beyond is given back."""
        ...


@dataclass(frozen=True, slots=True)
class TimedOffset:
    """A record's offset and timestamp, in milliseconds."""

    offset: int
    timestamp: int
    epoch: int


class LogAccess(Protocol):
    @property
    def view(self) -> ClusterView: ...

    async def produce(self, key: PartitionKey, batches: bytes | memoryview) -> Appended:
        """Stores whole record batches; returns when they are as durable as the topic promises. Raises `Uncertain` where
        they may be stored, and anything else where nothing was."""
        ...

    async def fetch(
        self,
        parts: Sequence[FetchPart],
        *,
        max_wait: float,
        min_bytes: int,
        max_bytes: int,
        room: AnswerRoom | None = None,
    ) -> list[FetchedPart]:
        """Reads, and waits up to `max_wait` seconds for `min_bytes`. A part that fails does not fail the others. With
        `room`, no more is read at once than fits in, and the answer may have no records though there are some."""
        ...

    async def confirm(self, key: PartitionKey) -> None:
        """Returns if the partition is certainly led here, at once if that is so now; NotLeader if it is not any more.
        The last thing before an acknowledgement: between it and the write others, or a pause, may have taken long."""
        ...

    def bounds(self, key: PartitionKey) -> Bounds: ...

    async def offset_at(self, key: PartitionKey, timestamp: int) -> TimedOffset | None:
        """The first record at or after a time; None if there is none."""
        ...

    async def largest_timestamp(self, key: PartitionKey) -> TimedOffset | None:
        """The record with the largest timestamp, the first of them where several have it; None if none has one."""
        ...

    def epoch_end(self, key: PartitionKey, epoch: int) -> tuple[int, int]:
        """The largest epoch that is not above `epoch` and has records, and the offset at which it ended. One that is
        older than all of them, because its records are deleted or lost, ended where the first of them begins."""
        ...

    async def delete_records(self, key: PartitionKey, before: int) -> int:
        """Moves the start forward; answers the new start. OffsetOutOfRange beyond the high watermark."""
        ...


async def certain_bounds(access: LogAccess, key: PartitionKey) -> Bounds:
    """`bounds` once it is certain that the partition is led here; without waiting if it is now."""
    while True:
        try:
            return access.bounds(key)
        except InDoubt:
            await access.confirm(key)


class GroupOffsets(Protocol):
    """How far consumer groups have read, for consumers that choose their partitions themselves."""

    async def commit(self, group: str, offsets: Sequence[log.GroupOffset], *, local_only: bool = False) -> None:
        """Refused with GROUP_IN_USE while the group has members. Any agent may be asked: it is passed on to the one
        that leads the group, once, and not at all with `local_only`. NOT_LEADER where that does not lead it."""
        ...

    async def read(self, group: str) -> Sequence[log.GroupOffset]: ...
