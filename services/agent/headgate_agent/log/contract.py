"""The words in which a partition talks with its surroundings: what it is given, asks for, and answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from headgate_agent.log.producers import Producer


class Durability(Enum):
    OBJECT = "OBJECT"
    WAL = "WAL"


class NotLeader(Exception):
    """This agent does not lead the partition, or cannot be sure that it still does. Nothing was acknowledged."""


class InDoubt(NotLeader):
    """It may still lead, and will know in a moment. Nothing was done."""

    def __init__(self, key: PartitionKey, message: str) -> None:
        super().__init__(message)
        self.key = key


class StaleEpoch(NotLeader):
    """The catalog says so: another leadership has begun since."""


class Uncertain(NotLeader):
    """It led when it took the records, and lost that before it could acknowledge them: they may be stored."""


class NotAccepted(Exception):
    """The records break a rule; nothing was stored. The message says which."""


class BadTimestamp(NotAccepted):
    """A record is of a time that is too far ahead."""


class TooLarge(NotAccepted):
    """A batch is larger than the topic allows."""


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
    # What stays in the write-ahead log alone while the agent has memory for it, though it would fill segments.
    hold_bytes: int = 0
    # How far ahead of the agent's clock the timestamps of records may be. An agent's clock that is wrong by weeks must
    # not turn producers away whose clocks are right; one that counts microseconds is centuries ahead.
    after_max: float = 365 * 86400.0
    # Idempotent producers that are remembered.
    max_producers: int = 10_000


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
    # The epoch of the leader that wrote its records.
    epoch: int = 0


class Metadata(Protocol):
    """What a leader asks of the catalog. Each call checks session and epoch in its own transaction and raises
    `NotLeader` if they have passed; it is repeated until it is answered, so repeating one must be harmless."""

    async def reserve(self, key: PartitionKey, epoch: int, until: int) -> None: ...

    async def commit(
        self, key: PartitionKey, epoch: int, segment: SegmentInfo, producers: Sequence[Producer]
    ) -> None: ...

    async def trim(self, key: PartitionKey, epoch: int, log_start: int) -> None:
        """Moves the start forward; above the committed offset, that moves with it."""
        ...

    def shown(self, key: PartitionKey, segment: SegmentInfo) -> None:
        """A commit of stages has made a segment visible."""
        ...


class Grant(Protocol):
    """Whether this process may still act, by its own clock. Between the two nobody here knows."""

    def valid(self) -> bool:
        """Certainly."""
        ...

    def ended(self) -> bool:
        """Certainly not, and never again."""
        ...


@dataclass(frozen=True, slots=True)
class Start:
    """Where a leader begins, as the catalog granted it."""

    epoch: int
    log_start: int
    committed: int
    reserved: int
    producers: Sequence[Producer] = ()
    # Ids of producers up to which they may have written before without being known.
    producers_forgotten: int = -1


@dataclass(frozen=True, slots=True)
class Appended:
    """Where records are. `next_offset` is the first one after them, or after their first copy for a retry."""

    base_offset: int
    next_offset: int
    log_start: int


@dataclass(frozen=True, slots=True)
class Held:
    """Batches of a partition that a write-ahead file holds."""

    file: int
    data: bytes
