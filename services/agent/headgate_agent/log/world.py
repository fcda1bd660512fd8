"""What a broker is built on, and how it is set."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Protocol

from headgate_agent.log.contract import PartitionSettings
from headgate_agent.log.fetching import DEFAULT_READS
from headgate_agent.log.led import DEFAULT_SEGMENTS
from headgate_agent.log.metrics import LogMetrics
from headgate_agent.log.object_edges import DEFAULT_STAGES
from headgate_agent.log.objects import Objects
from headgate_agent.log.segment_reader import SegmentReader
from headgate_agent.log.tail import Memory
from headgate_agent.log.unpacking import Unpacking
from headgate_agent.log.uploading import DEFAULT_BACKOFF
from headgate_agent.log.wal import Wal
from headgate_agent.work import Inline, Work
from headgate_common.backoff import Backoff
from headgate_common.clock import Clock
from headgate_common.ids import Ids


class Session(Protocol):
    """The agent's membership: its session while it is certainly alive, and until when that is certain."""

    @property
    def session(self) -> str | None: ...

    @property
    def known(self) -> str:
        """The session until it is known to have ended; then empty, or another."""
        ...

    @property
    def valid_until(self) -> float: ...

    async def news(self, seconds: float) -> bool:
        """Returns when a session begins, ends, or is certain again, and True; False after so many seconds."""
        ...


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """Times in seconds."""

    limits: PartitionSettings = field(default_factory=PartitionSettings)
    # A look at least so often.
    relook: float = 30.0
    # A partition that was refused for a passing reason is asked for again after this long.
    retry: float = 1.0
    # How long partitions wait for a session that could not be renewed in time, before they are given up.
    doubt: float = 4.0
    # How often the session is looked at, at least.
    guard: float = 1.0
    # How long one read of segments may take.
    read_timeout: float = 20.0
    # Partitions whose segments are read at once for one fetch.
    fetch_reads: int = DEFAULT_READS
    # Small segments that are read at once for one fetch of a partition.
    read_segments: int = DEFAULT_SEGMENTS
    # Partitions that are asked for in one call.
    acquire_partitions: int = 500
    # Stages that one commit may name: each is a segment in the one transaction.
    commit_stages: int = DEFAULT_STAGES
    # How long an offered partition may take to be handed over.
    transfer_timeout: float = 10.0
    # How long a graceful stop may take.
    leave_timeout: float = 4.0
    # Memory for stages of OBJECT edges that are not committed yet; for those of WAL edges, see `Memory`.
    staged_bytes: int = 32 << 20
    upload_backoff: Backoff = DEFAULT_BACKOFF


@dataclass(frozen=True, slots=True)
class World:
    """What a broker is built on."""

    wal: Wal
    objects: Objects
    reader: SegmentReader
    clock: Clock
    ids: Ids
    source: random.Random
    memory: Memory
    # For what is written.
    work: Work
    metrics: LogMetrics
    # For what is read.
    unpacking: Unpacking = field(default_factory=lambda: Unpacking(Inline()))
