"""What producers were promised and consumers were shown, by partition and offset.

A record is told from every other by its value: `producer/number`, numbered from 0 in the order in which its producer
made it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from headgate_agent.log.record_batch import headers
from headgate_agent.log.records import unpack_batch


@dataclass(frozen=True, slots=True)
class Record:
    offset: int
    value: str
    # The epoch of the leader that stored it.
    epoch: int
    idempotent: bool


@dataclass(slots=True)
class PartitionPromises:
    # Values by offset.
    acknowledged: dict[int, str] = field(default_factory=dict)
    shown: dict[int, str] = field(default_factory=dict)
    # The first offset at which each value was acknowledged; after that was given up, the next one.
    offsets: dict[str, int] = field(default_factory=dict)
    # Values of which the first was given up: a retry that came late may be behind what its producer made after it.
    given_up: set[str] = field(default_factory=set)
    # One above the highest offset that was acknowledged or shown.
    end: int = 0


class Promises:
    def __init__(self) -> None:
        self._partitions: dict[str, PartitionPromises] = {}

    def of(self, key: str) -> PartitionPromises:
        found = self._partitions.get(key)
        if found is None:
            found = self._partitions[key] = PartitionPromises()
        return found

    @property
    def keys(self) -> list[str]:
        return list(self._partitions)


def records_of(data: bytes) -> list[Record]:
    """The records of whole batches."""
    stored = memoryview(data)
    return [
        record
        for header in headers(data)
        for record in _records_of_batch(bytes(stored[header.position : header.position + header.size]))
    ]


@lru_cache(maxsize=4096)
def _records_of_batch(batch: bytes) -> tuple[Record, ...]:
    """Remembered, because every reader of a run is shown the same batches, and whoever checks reads them again."""
    (header,) = headers(batch)
    return tuple(
        Record(record.offset, (record.value or b"").decode(), header.leader_epoch, header.producer_id >= 0)
        for record in unpack_batch(batch, header)
    )


def producer_of(value: str) -> str:
    return value.partition("/")[0]


def number_of(value: str) -> int:
    return int(value.partition("/")[2])
