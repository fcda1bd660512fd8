"""The tables of the log's metadata, beside those of the catalog and under the same rules.

A partition's `key` is `topic_uid/index`: the key of the grant by which it is led. Its leader and epoch are those of the
grant, and stand nowhere else. Offsets, segments, producers and the offsets of groups are no resources of the watch.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from headgate_coordinator.catalog.log.transitions import TRANSFER_OPEN, TRANSFER_STATES
from headgate_coordinator.catalog.schema import Name, metadata, one_of

DURABILITIES = ("OBJECT", "WAL")
FORMATS = ("ROWS", "ARROW")

# Numbers that only grow: `value` is the last one that was given out, or the highest.
counters = Table(
    "counters",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", BigInteger, nullable=False),
    CheckConstraint("value >= 0", name="value"),
)

topics = Table(
    "topics",
    metadata,
    Column("uid", Text, primary_key=True),
    Column("name", Name, nullable=False, unique=True),
    Column("partitions", Integer, nullable=False),
    Column("durability", Text, nullable=False),
    Column("format", Text, nullable=False),
    Column("retention_us", BigInteger, nullable=False),
    Column("retention_bytes", BigInteger, nullable=False),
    Column("segment_bytes", BigInteger, nullable=False),
    Column("segment_age_us", BigInteger, nullable=False),
    Column("linger_us", BigInteger, nullable=False),
    Column("max_message_bytes", BigInteger, nullable=False),
    Column("group_name", Text, nullable=False),
    Column("internal", Boolean, nullable=False),
    Column("query_uid", Text),  # No foreign key: a topic of error rows outlives its query.
    Column("pinned_agent", Text, nullable=False),
    Column("time", BigInteger, nullable=False),
    Column("revision", BigInteger, nullable=False),
    Column("unused_since", BigInteger),  # Set where its query has ended and it is to be deleted in time.
    one_of("durability", DURABILITIES),
    one_of("format", FORMATS),
    CheckConstraint("partitions > 0", name="partitions"),
    CheckConstraint("internal OR query_uid IS NULL", name="of_query"),
    CheckConstraint("retention_us >= 0 AND retention_bytes >= 0", name="retention"),
    CheckConstraint("segment_bytes > 0 AND segment_age_us > 0 AND linger_us >= 0", name="segments"),
    CheckConstraint("max_message_bytes > 0", name="messages"),
    Index("ix_topics_query_uid", "query_uid"),
    Index("ix_topics_unused_since", "unused_since"),
)

# Records in [log_start, committed) are in segments. A leader of a WAL topic may acknowledge below `reserved`; while
# that is above `committed`, only an agent with the volume may lead. An OBJECT topic reserves nothing: 0. A producer
# with an id above `producers_forgotten` that is not in `producers` has never written here; one up to it may have.
partitions = Table(
    "partitions",
    metadata,
    Column("key", Text, primary_key=True),
    Column("topic_uid", Text, ForeignKey("topics.uid", ondelete="RESTRICT"), nullable=False),
    Column("ordinal", Integer, nullable=False),
    Column("log_start", BigInteger, nullable=False),
    Column("committed", BigInteger, nullable=False),
    Column("reserved", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("volume_id", Text, nullable=False),
    Column("waiting", Text, nullable=False),
    Column("revision", BigInteger, nullable=False),
    Column("producers_forgotten", BigInteger, server_default=text("0"), nullable=False),
    UniqueConstraint("topic_uid", "ordinal"),
    CheckConstraint("ordinal >= 0", name="ordinal"),
    CheckConstraint("bytes >= 0", name="bytes"),
    CheckConstraint("log_start >= 0 AND log_start <= committed", name="log_start"),
    CheckConstraint("reserved = 0 OR committed <= reserved", name="reserved"),
    CheckConstraint("reserved <= committed OR volume_id <> ''", name="volume"),
)

# The first offset that each epoch wrote; kept apart from segments, because a merged one holds those of several epochs.
partition_epochs = Table(
    "partition_epochs",
    metadata,
    Column("partition_key", Text, ForeignKey("partitions.key", ondelete="RESTRICT"), primary_key=True),
    Column("epoch", BigInteger, primary_key=True, autoincrement=False),
    Column("start_offset", BigInteger, nullable=False),
    CheckConstraint("epoch > 0 AND start_offset >= 0", name="positive"),
)

# Offsets that will never hold records.
partition_holes = Table(
    "partition_holes",
    metadata,
    Column("partition_key", Text, ForeignKey("partitions.key", ondelete="RESTRICT"), primary_key=True),
    Column("from_offset", BigInteger, primary_key=True, autoincrement=False),
    Column("to_offset", BigInteger, nullable=False),
    Column("reason", Text, nullable=False),
    Column("time", BigInteger, nullable=False),
    CheckConstraint("from_offset >= 0 AND from_offset < to_offset", name="ordered"),
)

# What is visible. `object_key` is not unique: one object may carry several partitions, each from its `position` on.
segments = Table(
    "segments",
    metadata,
    Column("partition_key", Text, ForeignKey("partitions.key", ondelete="RESTRICT"), primary_key=True),
    Column("base_offset", BigInteger, primary_key=True, autoincrement=False),
    Column("next_offset", BigInteger, nullable=False),
    Column("uid", Text, nullable=False, unique=True),
    Column("object_key", Text, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("position", BigInteger, nullable=False),
    Column("min_timestamp", BigInteger, nullable=False),
    Column("max_timestamp", BigInteger, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("time", BigInteger, nullable=False),
    CheckConstraint("base_offset >= 0 AND base_offset < next_offset", name="ordered"),
    CheckConstraint("bytes > 0 AND position >= 0", name="placed"),
    CheckConstraint("epoch > 0", name="epoch"),
    Index("ix_segments_object_key", "object_key"),
)

# The last batches of idempotent producers, as of the last segment that has records of theirs.
producers = Table(
    "producers",
    metadata,
    Column("partition_key", Text, ForeignKey("partitions.key", ondelete="RESTRICT"), primary_key=True),
    Column("producer_id", BigInteger, primary_key=True, autoincrement=False),
    Column("state", LargeBinary, nullable=False),  # log.v1.ProducerState
    Column("time", BigInteger, nullable=False),
    CheckConstraint("producer_id >= 0", name="producer_id"),
    Index("ix_producers_time", "time"),
)

# The last run of each fragment that writes or reads an edge, beside every partition that it has opened: whoever leads
# one of them next is told, and it is forgotten with the last of them. What is said of a writer stands in all its rows.
edge_runs = Table(
    "edge_runs",
    metadata,
    Column("partition_key", Text, ForeignKey("partitions.key", ondelete="RESTRICT"), primary_key=True),
    Column("fragment_uid", Text, primary_key=True),
    Column("reads", Boolean, primary_key=True),
    Column("epoch", BigInteger, nullable=False),
    Column("batch_id", BigInteger, nullable=False),
    Column("position", LargeBinary, nullable=False),
    Column("ended", Boolean, nullable=False),
    Column("time", BigInteger, nullable=False),
    CheckConstraint("epoch > 0 AND batch_id >= -1", name="positive"),
    Index("ix_edge_runs_fragment_uid", "fragment_uid"),
)

# `time` is when the group was last acquired or committed to; since when nobody leads it, its grant says.
consumer_groups = Table(
    "consumer_groups",
    metadata,
    Column("name", Name, primary_key=True),
    Column("generation", Integer, nullable=False),
    Column("time", BigInteger, nullable=False),
    Column("sequence", BigInteger, server_default=text("0"), nullable=False),
    CheckConstraint("generation >= 0", name="generation"),
    Index("ix_consumer_groups_time", "time"),
)

group_offsets = Table(
    "group_offsets",
    metadata,
    Column("group_name", Name, ForeignKey("consumer_groups.name", ondelete="RESTRICT"), primary_key=True),
    Column("partition_key", Text, ForeignKey("partitions.key", ondelete="RESTRICT"), primary_key=True),
    Column("next_offset", BigInteger, nullable=False),
    Column("leader_epoch", Integer, nullable=False),
    Column("metadata", Text, nullable=False),
    Column("time", BigInteger, nullable=False),
    CheckConstraint("next_offset >= 0", name="next_offset"),
    Index("ix_group_offsets_partition_key", "partition_key"),
)

# What happened to partitions. No foreign key: it is kept for its time, whatever becomes of the topic.
partition_story = Table(
    "partition_story",
    metadata,
    Column("topic_uid", Text, primary_key=True),
    Column("revision", BigInteger, primary_key=True, autoincrement=False),
    Column("ordinal", Integer, primary_key=True, autoincrement=False),
    Column("time", BigInteger, nullable=False),
    Column("partition_index", Integer, nullable=False),
    Column("event", Text, nullable=False),
    Column("agent", Text, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("from_offset", BigInteger, nullable=False),
    Column("to_offset", BigInteger, nullable=False),
    Column("cause", Text, nullable=False),
    Index("ix_partition_story_time", "time"),
)

_OPEN = text("state IN ({})".format(", ".join(f"'{state}'" for state in TRANSFER_OPEN)))

# Hand-overs of partitions. Names and sessions are those of the moment it was offered; no foreign key: it outlives them.
transfers = Table(
    "transfers",
    metadata,
    Column("uid", Text, primary_key=True),
    Column("partition_key", Text, ForeignKey("partitions.key", ondelete="RESTRICT"), nullable=False),
    Column("from_agent", Text, nullable=False),
    Column("from_session", Text, nullable=False),
    Column("to_agent", Text, nullable=False),
    Column("to_session", Text, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("time", BigInteger, nullable=False),
    Column("state_time", BigInteger, nullable=False),
    Column("revision", BigInteger, nullable=False),
    one_of("state", TRANSFER_STATES),
    CheckConstraint("epoch > 0", name="epoch"),
    CheckConstraint("from_session <> to_session", name="not_itself"),
    Index("ix_transfers_open", "partition_key", unique=True, sqlite_where=_OPEN, postgresql_where=_OPEN),
    Index("ix_transfers_partition_key", "partition_key"),
    Index("ix_transfers_from_session", "from_session"),
    Index("ix_transfers_to_session", "to_session"),
    Index("ix_transfers_state_time", "state_time"),
)
