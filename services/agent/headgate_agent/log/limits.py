"""How patient the log is with callers over gRPC, and how much it does for one of them at once. Times in seconds."""

from __future__ import annotations

from dataclasses import dataclass, field

from headgate_common.backoff import Backoff

_BACKOFF = Backoff(initial=0.05, cap=1.0)


@dataclass(frozen=True, slots=True)
class ForwardLimits:
    """Reaching the leader of a partition, wherever it is."""

    # For a caller that says nothing of its own patience.
    timeout: float = 20.0
    # Between tries, while agents do not agree on who leads.
    backoff: Backoff = _BACKOFF


@dataclass(frozen=True, slots=True)
class CallLimits:
    forward: ForwardLimits = field(default_factory=ForwardLimits)
    # Bytes of records in one answer: it must stay within the server's message size.
    answer_most: int = 12 << 20
    # Longest that a fetch waits for records.
    fetch_wait: float = 60.0
    # How long the leader of one partition may take to say how far behind a group is.
    lag_timeout: float = 1.0
    # A stream looks at least so often whether its partitions are still led where it reads them.
    stream_wait: float = 10.0
    # How long a stream of records waits for a partition that nobody leads, before it ends.
    tail_patience: float = 30.0
    # Pages of a stream of records that are read ahead of a slow reader, over all partitions, and the bytes and records
    # of one.
    tail_pages: int = 8
    tail_page_bytes: int = 1 << 20
    tail_page_records: int = 10_000
    # Bytes of records in one message of a read of an edge, about.
    edge_page_bytes: int = 4 << 20
    # Requests of one stream that are on their way at once: more are not read, so the sender is held back.
    stream_window: int = 32
    # Bytes of requests of all streams that are on their way at once. Beyond it each stream has one.
    stream_bytes: int = 128 << 20
