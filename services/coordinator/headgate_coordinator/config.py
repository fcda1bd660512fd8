"""Every setting of the coordinator, with its default and what it means. docs/configuration.md is made from it.

Epochs give safety, so short intervals only buy faster take-over. The longer intervals of the reference documents are
the profile `documents`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from headgate_common.config import Bytes, Seconds, section, setting
from headgate_common.settings import ServerConfig

DEFAULT_PORT = 7400
DEFAULT_HTTP_PORT = 7401


@dataclass(frozen=True, slots=True)
class Timings:
    """Intervals and deadlines. All are counted on the monotonic clock of the process that waits."""

    leader_ttl: Seconds = setting(
        3.0, "A standby takes over after it has seen no renewal of the leader for this long.", minimum=0.1
    )
    leader_renew: Seconds = setting(1.0, "How often the leader renews its session.", minimum=0.01)
    leader_margin: Seconds = setting(
        0.5, "The leader stops itself this long before its session could be taken from it.", minimum=0.0
    )
    session_ttl: Seconds = setting(
        6.0,
        "An agent's session ends if it is not renewed for this long; it is told to renew every third of it.",
        minimum=0.1,
    )
    poll_interval: Seconds = setting(
        1.0,
        "How often an ACTIVE agent is asked for news, though it has not said that there is any; every tenth time while "
        "it renews its session in time and says that there is none.",
        minimum=0.01,
    )
    probe_interval: Seconds = setting(2.0, "How often an UNREACHABLE agent is asked whether it is back.", minimum=0.01)
    poll_multiplier: float = setting(
        4.0, "A poll may take its agent's last round trip times this, plus poll_constant.", minimum=1.0
    )
    poll_constant: Seconds = setting(0.5, "See poll_multiplier.", minimum=0.0)
    poll_timeout_min: Seconds = setting(0.5, "A poll may always take this long.", minimum=0.01)
    poll_timeout_max: Seconds = setting(10.0, "A poll may never take longer.", minimum=0.01)
    lost_after: Seconds = setting(
        4.0, "Compute fragments of an agent that is UNREACHABLE for this long are placed elsewhere.", minimum=0.0
    )
    reconcile_interval: Seconds = setting(
        5.0, "How often every query that is not where it should be is looked at, though nothing woke it.", minimum=0.01
    )
    command_timeout: Seconds = setting(5.0, "How long a command to an agent may take.", minimum=0.01)
    retry_min: Seconds = setting(0.1, "Wait after the first vain command to an agent; it doubles.", minimum=0.001)
    retry_max: Seconds = setting(10.0, "Longest wait between vain commands.", minimum=0.001)
    deployment_deadline: Seconds = setting(
        120.0, "A query that is not RUNNING this long after its creation fails, unless it says otherwise.", minimum=0.1
    )
    drain_deadline: Seconds = setting(
        60.0, "A soft stop becomes a hard one after this long, unless the request says otherwise.", minimum=0.1
    )
    lateness: Seconds = setting(0.0, "How late rows may come where neither the window nor the query says.", minimum=0.0)
    idle_timeout: Seconds = setting(
        60.0,
        "A source silent for this long no longer holds back the others, unless the query says otherwise.",
        minimum=0.0,
    )
    request_memory: Seconds = setting(86_400.0, "How long answers to a request_id are remembered.", minimum=1.0)
    story_memory: Seconds = setting(86_400.0, "How long the story of a dropped query is kept.", minimum=1.0)
    partition_story_memory: Seconds = setting(
        86_400.0, "How long it is told what happened to a partition.", minimum=1.0
    )
    replaced_memory: Seconds = setting(
        2_592_000.0,
        "How long a process of an agent that another one has replaced is known, and refused by that.",
        minimum=60.0,
    )
    history_memory: Seconds = setting(3_600.0, "How long changes are kept for watchers that resume.", minimum=1.0)
    housekeeping_interval: Seconds = setting(30.0, "How often what is too old is deleted.", minimum=0.01)
    housekeeping_patience: Seconds = setting(
        3_600.0,
        "What is too old by the catalog's clock is deleted only if the leader has seen it so for this long by its own "
        "monotonic clock, or for the age itself where that is shorter: a clock that jumps deletes nothing at once.",
        minimum=0.0,
    )
    transfer_timeout: Seconds = setting(
        30.0,
        "A hand-over of a partition that is not completed after this long fails, and its leader leads on.",
        minimum=0.1,
    )
    transfer_memory: Seconds = setting(600.0, "How long hand-overs that have ended are kept.", minimum=1.0)
    producer_memory: Seconds = setting(
        86_400.0, "How long a partition remembers an idempotent producer that writes nothing to it.", minimum=60.0
    )
    group_memory: Seconds = setting(
        604_800.0,
        "How long a consumer group that no agent leads, because it has no members, is kept with its offsets.",
        minimum=60.0,
    )
    temporary_memory: Seconds = setting(
        60.0, "How long a temporary query that has ended is kept, so that its reader can learn why.", minimum=0.0
    )
    error_retention: Seconds = setting(
        604_800.0,
        "How long the error rows of a query are kept after it has ended, and after it was dropped.",
        minimum=1.0,
    )
    bookmark_interval: Seconds = setting(
        5.0, "A watcher to whom nothing was sent for this long gets a bookmark.", minimum=0.01
    )

    def __post_init__(self) -> None:
        if self.leader_renew + self.leader_margin >= self.leader_ttl:
            raise ValueError("leader_renew and leader_margin together must be shorter than leader_ttl")
        if self.poll_timeout_min > self.poll_timeout_max:
            raise ValueError("poll_timeout_min must not be longer than poll_timeout_max")
        if self.retry_min > self.retry_max:
            raise ValueError("retry_min must not be longer than retry_max")


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes and numbers."""

    statement_size: Bytes = setting(1 << 20, "Longest text of statements.", minimum=16)
    columns: int = setting(2_000, "Most columns of a schema.", minimum=1, maximum=20_000)
    statements: int = setting(1_000, "Most statements in one text.", minimum=1)
    tokens: int = setting(50_000, "Most words, signs and literals in one text of statements.", minimum=16)
    nesting: int = setting(
        64, "Deepest nesting of brackets, sub-selects and CASE in a statement.", minimum=4, maximum=128
    )
    chain: int = setting(
        400, "Most terms of one chain of AND, OR, +, UNION ALL and the like.", minimum=4, maximum=1_000
    )
    plan_attempts: int = setting(
        16,
        "How often a query or a bundle is planned again because the catalog changed meanwhile; then PLAN_OUTDATED.",
        minimum=1,
    )
    bundle_queries: int = setting(
        100,
        "Most queries in one bundle, which are written in one transaction: every other write waits for it.",
        minimum=1,
    )
    source_slots: int = setting(1, "Slots that a source fragment takes.", minimum=0)
    compute_slots: int = setting(1, "Slots that a compute fragment takes.", minimum=0)
    sink_slots: int = setting(1, "Slots that a sink fragment takes.", minimum=0)
    relations: int = setting(
        200, "Relations in one query, each use of a WITH query counted with all that it reads.", minimum=1
    )
    in_list: int = setting(10_000, "Values in one IN list.", minimum=1)
    expression_parts: int = setting(
        100_000,
        "Parts of all expressions of one query, an alias or * counted at each use with all that it stands for.",
        minimum=100,
        maximum=1_000_000,
    )
    window_overlap: int = setting(
        1_000, "Windows that one row may be in: the SIZE of a SLIDING window over its ADVANCE BY.", minimum=1
    )
    planners: int = setting(2, "Statements that are planned at the same time.", minimum=1)
    history_revisions: int = setting(100_000, "Most revisions kept for watchers that resume.", minimum=100)
    watch_revisions: int = setting(4_096, "Revisions that may wait for one watcher; then WATCHER_TOO_SLOW.", minimum=1)
    watch_bytes: Bytes = setting(32 << 20, "Bytes of changes that may wait for one watcher.", minimum=1024)
    snapshot_part: int = setting(500, "Resources in one part of a watch's snapshot.", minimum=1)
    housekeeping_rows: int = setting(1_000, "Rows that one step of housekeeping deletes at most.", minimum=1)
    reconciling: int = setting(64, "Queries that are worked on at the same time.", minimum=1)
    commands_per_agent: int = setting(8, "Commands in flight to one agent at most.", minimum=1)
    polls: int = setting(128, "Agents that are polled at the same time.", minimum=1)
    progress: int = setting(
        100_000, "Fragments of which it is remembered how they are doing; the oldest reports go first.", minimum=1
    )
    topics: int = setting(10_000, "Topics of users, in all.", minimum=1)
    groups: int = setting(10_000, "Consumer groups, in all.", minimum=1)
    partitions: int = setting(100_000, "Partitions of users' topics, in all.", minimum=1)
    topic_partitions: int = setting(10_000, "Partitions of one topic.", minimum=1, maximum=10_000)
    partition_producers: int = setting(
        10_000,
        "Idempotent producers that one partition remembers; those that have written nothing for longest go first.",
        minimum=1,
        maximum=50_000,
    )
    acquired_bytes: Bytes = setting(
        4 << 20,
        "An agent that takes the lead of many partitions at once is given as many as are told in about so many bytes, "
        "and asks again for the others; never more than half of server.limits.message_size.",
        minimum=1024,
    )


@dataclass(frozen=True, slots=True)
class CatalogConfig:
    """Where the catalog is, and how it is used."""

    url: str = setting(
        "sqlite:///headgate.db",
        "The database: sqlite:///FILE (three slashes for a relative path, four for an absolute one) or postgresql://...",
        secret=False,
    )
    synchronous: Literal["FULL", "NORMAL"] = setting(
        "FULL", "SQLite only: FULL survives a power cut, NORMAL a crash of the process."
    )
    readers: int = setting(4, "Connections for reads.", minimum=1)
    max_waiting: int = setting(1_024, "Reads and writes that may wait for the catalog; then OVERLOADED.", minimum=1)
    max_group: int = setting(64, "Writes that share one commit.", minimum=1)
    change_interval: Seconds = setting(
        0.2, "How often the database is asked for what another coordinator committed.", minimum=0.01
    )
    lock_timeout: Seconds = setting(5.0, "How long a write waits for a lock of another process.", minimum=0.01)
    idle_transaction_timeout: Seconds = setting(
        2.0, "Postgres only: how long it waits for a coordinator that stands still in a transaction.", minimum=0.01
    )
    connect_timeout: Seconds = setting(3.0, "How long a connection to the database may take.", minimum=1.0)
    max_attempts: int = setting(8, "How often a transaction that lost to another is run again.", minimum=1)


@dataclass(frozen=True, slots=True)
class TopicsConfig:
    """Settings of a topic where its creation does not say."""

    partitions: int = setting(1, "How many partitions.", minimum=1, maximum=10_000)
    durability: Literal["OBJECT", "WAL"] = setting(
        "OBJECT",
        "What an acknowledged record survives: OBJECT the loss of the agent with its disk, WAL a crash of the process.",
    )
    retention: Seconds = setting(
        604_800.0, "Records older than this may be deleted; 0 keeps them for good.", minimum=0.0
    )
    retention_bytes: Bytes = setting(
        0, "Above this many bytes a partition's oldest segments may be deleted; 0 means no limit.", minimum=0
    )
    segment_bytes: Bytes = setting(
        8 << 20, "A segment is closed when it has this many bytes.", minimum=1 << 10, maximum=1 << 30
    )
    edge_segment_bytes: Bytes = setting(
        32 << 20,
        "The same for edges of queries. Those in a write-ahead log are held back for longer, see the agents' "
        "log.edge_hold_bytes: what their readers have read before is never uploaded. Less than the agents' "
        "log.partition_unflushed_bytes.",
        minimum=1 << 10,
        maximum=1 << 30,
    )
    segment_age: Seconds = setting(60.0, "A segment is closed when its first record is this old.", minimum=0.001)
    linger: Seconds = setting(0.1, "An OBJECT topic uploads what it has after this long.", minimum=0.0, maximum=60.0)
    max_message_bytes: Bytes = setting(1 << 20, "Larger record batches are refused.", minimum=1 << 10, maximum=64 << 20)


@dataclass(frozen=True, slots=True)
class CoordinatorConfig:
    """The coordinator's configuration."""

    server: ServerConfig = section(
        ServerConfig,
        "How it listens.",
        listen=f"127.0.0.1:{DEFAULT_PORT}",
        http_listen=f"127.0.0.1:{DEFAULT_HTTP_PORT}",
    )
    catalog: CatalogConfig = section(CatalogConfig, "The database.")
    timings: Timings = section(Timings, "Every interval and deadline.")
    limits: Limits = section(Limits, "Every size and number.")
    topics: TopicsConfig = section(TopicsConfig, "Defaults of topics.")
    refuse_cycles: bool = setting(False, "Refuse network links that form a directed cycle.")
    kafka_brokers: str = setting(
        "", "Brokers of KAFKA sources and sinks that name none, as host:port,host:port. Empty: each names its own."
    )


PROFILES: Mapping[str, Mapping[str, Any]] = {
    # The intervals of the reference documents: sessions of 30 s renewed every 10 s, probing every 10 s.
    "documents": {
        "timings.leader_ttl": "30s",
        "timings.leader_renew": "10s",
        "timings.leader_margin": "2s",
        "timings.session_ttl": "30s",
        "timings.probe_interval": "10s",
        "timings.lost_after": "30s",
    },
}
