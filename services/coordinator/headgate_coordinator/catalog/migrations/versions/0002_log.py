"""The log: topics, partitions, segments, producers, groups and transfers. Agents get numbers and Kafka addresses."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
# Of the rules in triggers.py that hold from here on.
rules = "4ed07cef6806b9ca"

NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "consumer_groups",
        sa.Column("name", NAME, nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("generation >= 0", name=op.f("ck_consumer_groups_generation")),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_consumer_groups")),
    )
    op.create_index("ix_consumer_groups_time", "consumer_groups", ["time"])

    op.create_table(
        "counters",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("value >= 0", name=op.f("ck_counters_value")),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_counters")),
    )
    op.create_table(
        "topics",
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("partitions", sa.Integer(), nullable=False),
        sa.Column("durability", sa.Text(), nullable=False),
        sa.Column("format", sa.Text(), nullable=False),
        sa.Column("retention_us", sa.BigInteger(), nullable=False),
        sa.Column("retention_bytes", sa.BigInteger(), nullable=False),
        sa.Column("segment_bytes", sa.BigInteger(), nullable=False),
        sa.Column("segment_age_us", sa.BigInteger(), nullable=False),
        sa.Column("linger_us", sa.BigInteger(), nullable=False),
        sa.Column("max_message_bytes", sa.BigInteger(), nullable=False),
        sa.Column("group_name", sa.Text(), nullable=False),
        sa.Column("internal", sa.Boolean(), nullable=False),
        sa.Column("query_uid", sa.Text(), nullable=True),
        sa.Column("pinned_agent", sa.Text(), nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("durability IN ('OBJECT', 'WAL')", name=op.f("ck_topics_durability")),
        sa.CheckConstraint("format IN ('ROWS', 'ARROW')", name=op.f("ck_topics_format")),
        sa.CheckConstraint("internal OR query_uid IS NULL", name=op.f("ck_topics_of_query")),
        sa.CheckConstraint("max_message_bytes > 0", name=op.f("ck_topics_messages")),
        sa.CheckConstraint("partitions > 0", name=op.f("ck_topics_partitions")),
        sa.CheckConstraint("retention_us >= 0 AND retention_bytes >= 0", name=op.f("ck_topics_retention")),
        sa.CheckConstraint(
            "segment_bytes > 0 AND segment_age_us > 0 AND linger_us >= 0", name=op.f("ck_topics_segments")
        ),
        sa.ForeignKeyConstraint(["query_uid"], ["queries.uid"], name=op.f("fk_topics_query_uid"), ondelete="RESTRICT"),
        sa.PrimaryKeyConstraint("uid", name=op.f("pk_topics")),
        sa.UniqueConstraint("name", name=op.f("uq_topics_name")),
    )
    op.create_index("ix_topics_query_uid", "topics", ["query_uid"])

    op.create_table(
        "partitions",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("topic_uid", sa.Text(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("log_start", sa.BigInteger(), nullable=False),
        sa.Column("committed", sa.BigInteger(), nullable=False),
        sa.Column("reserved", sa.BigInteger(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("volume_id", sa.Text(), nullable=False),
        sa.Column("waiting", sa.Text(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("reserved <= committed OR volume_id <> ''", name=op.f("ck_partitions_volume")),
        sa.CheckConstraint("bytes >= 0", name=op.f("ck_partitions_bytes")),
        sa.CheckConstraint("log_start >= 0 AND log_start <= committed", name=op.f("ck_partitions_log_start")),
        sa.CheckConstraint("ordinal >= 0", name=op.f("ck_partitions_ordinal")),
        sa.CheckConstraint("reserved = 0 OR committed <= reserved", name=op.f("ck_partitions_reserved")),
        sa.ForeignKeyConstraint(
            ["topic_uid"], ["topics.uid"], name=op.f("fk_partitions_topic_uid"), ondelete="RESTRICT"
        ),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_partitions")),
        sa.UniqueConstraint("topic_uid", "ordinal", name=op.f("uq_partitions_topic_uid_ordinal")),
    )
    op.create_table(
        "group_offsets",
        sa.Column("group_name", NAME, nullable=False),
        sa.Column("partition_key", sa.Text(), nullable=False),
        sa.Column("next_offset", sa.BigInteger(), nullable=False),
        sa.Column("leader_epoch", sa.Integer(), nullable=False),
        sa.Column("metadata", sa.Text(), nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("next_offset >= 0", name=op.f("ck_group_offsets_next_offset")),
        sa.ForeignKeyConstraint(
            ["group_name"], ["consumer_groups.name"], name=op.f("fk_group_offsets_group_name"), ondelete="RESTRICT"
        ),
        sa.ForeignKeyConstraint(
            ["partition_key"], ["partitions.key"], name=op.f("fk_group_offsets_partition_key"), ondelete="RESTRICT"
        ),
        sa.PrimaryKeyConstraint("group_name", "partition_key", name=op.f("pk_group_offsets")),
    )
    op.create_index("ix_group_offsets_partition_key", "group_offsets", ["partition_key"])

    op.create_table(
        "partition_epochs",
        sa.Column("partition_key", sa.Text(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("start_offset", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("epoch > 0 AND start_offset >= 0", name=op.f("ck_partition_epochs_positive")),
        sa.ForeignKeyConstraint(
            ["partition_key"], ["partitions.key"], name=op.f("fk_partition_epochs_partition_key"), ondelete="RESTRICT"
        ),
        sa.PrimaryKeyConstraint("partition_key", "epoch", name=op.f("pk_partition_epochs")),
    )
    op.create_table(
        "partition_holes",
        sa.Column("partition_key", sa.Text(), nullable=False),
        sa.Column("from_offset", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("to_offset", sa.BigInteger(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("from_offset >= 0 AND from_offset < to_offset", name=op.f("ck_partition_holes_ordered")),
        sa.ForeignKeyConstraint(
            ["partition_key"], ["partitions.key"], name=op.f("fk_partition_holes_partition_key"), ondelete="RESTRICT"
        ),
        sa.PrimaryKeyConstraint("partition_key", "from_offset", name=op.f("pk_partition_holes")),
    )
    op.create_table(
        "producers",
        sa.Column("partition_key", sa.Text(), nullable=False),
        sa.Column("producer_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("state", sa.LargeBinary(), nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("producer_id >= 0", name=op.f("ck_producers_producer_id")),
        sa.ForeignKeyConstraint(
            ["partition_key"], ["partitions.key"], name=op.f("fk_producers_partition_key"), ondelete="RESTRICT"
        ),
        sa.PrimaryKeyConstraint("partition_key", "producer_id", name=op.f("pk_producers")),
    )
    op.create_index("ix_producers_time", "producers", ["time"])

    op.create_table(
        "segments",
        sa.Column("partition_key", sa.Text(), nullable=False),
        sa.Column("base_offset", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("next_offset", sa.BigInteger(), nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("object_key", sa.Text(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("min_timestamp", sa.BigInteger(), nullable=False),
        sa.Column("max_timestamp", sa.BigInteger(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("base_offset >= 0 AND base_offset < next_offset", name=op.f("ck_segments_ordered")),
        sa.CheckConstraint("bytes > 0 AND position >= 0", name=op.f("ck_segments_placed")),
        sa.CheckConstraint("epoch > 0", name=op.f("ck_segments_epoch")),
        sa.ForeignKeyConstraint(
            ["partition_key"], ["partitions.key"], name=op.f("fk_segments_partition_key"), ondelete="RESTRICT"
        ),
        sa.PrimaryKeyConstraint("partition_key", "base_offset", name=op.f("pk_segments")),
        sa.UniqueConstraint("uid", name=op.f("uq_segments_uid")),
    )
    op.create_index("ix_segments_object_key", "segments", ["object_key"])

    op.create_table(
        "transfers",
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("partition_key", sa.Text(), nullable=False),
        sa.Column("from_agent", sa.Text(), nullable=False),
        sa.Column("from_session", sa.Text(), nullable=False),
        sa.Column("to_agent", sa.Text(), nullable=False),
        sa.Column("to_session", sa.Text(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.Column("state_time", sa.BigInteger(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(
            "state IN ('PENDING', 'ACCEPTED', 'COMPLETED', 'REJECTED', 'FAILED')", name=op.f("ck_transfers_state")
        ),
        sa.CheckConstraint("epoch > 0", name=op.f("ck_transfers_epoch")),
        sa.CheckConstraint("from_session <> to_session", name=op.f("ck_transfers_not_itself")),
        sa.ForeignKeyConstraint(
            ["partition_key"], ["partitions.key"], name=op.f("fk_transfers_partition_key"), ondelete="RESTRICT"
        ),
        sa.PrimaryKeyConstraint("uid", name=op.f("pk_transfers")),
    )
    op.create_index("ix_transfers_from_session", "transfers", ["from_session"])
    op.create_index(
        "ix_transfers_open",
        "transfers",
        ["partition_key"],
        unique=True,
        sqlite_where=sa.text("state IN ('PENDING', 'ACCEPTED')"),
        postgresql_where=sa.text("state IN ('PENDING', 'ACCEPTED')"),
    )
    op.create_index("ix_transfers_partition_key", "transfers", ["partition_key"])
    op.create_index("ix_transfers_state_time", "transfers", ["state_time"])
    op.create_index("ix_transfers_to_session", "transfers", ["to_session"])

    number_agents()


def number_agents() -> None:
    """Agents that are there get their numbers in the order in which they came."""
    op.add_column("agents", sa.Column("kafka_address", sa.Text(), nullable=True))
    op.add_column("agents", sa.Column("node_id", sa.Integer(), nullable=True))
    connection = op.get_bind()
    agents = sa.table("agents", *(sa.column(name) for name in ("uid", "time", "node_id", "kafka_address")))
    uids = connection.execute(sa.select(agents.c.uid).order_by(agents.c.time, agents.c.uid)).scalars().all()
    for number, uid in enumerate(uids, start=1):
        connection.execute(sa.update(agents).where(agents.c.uid == uid).values(node_id=number, kafka_address=""))
    counters = sa.table("counters", sa.column("name"), sa.column("value"))
    connection.execute(sa.insert(counters).values(name="node_id", value=len(uids)))
    connection.execute(sa.insert(counters).values(name="producer_id", value=0))
    # SQLite makes the table anew, from the definition given here; Postgres alters it.
    with op.batch_alter_table("agents", copy_from=numbered_agents()) as batch:
        batch.alter_column("kafka_address", existing_type=sa.Text(), nullable=False)
        batch.alter_column("node_id", existing_type=sa.Integer(), nullable=False)
        batch.create_unique_constraint(op.f("uq_agents_node_id"), ["node_id"])
        batch.create_unique_constraint(op.f("uq_agents_session_uid"), ["session_uid"])
        batch.create_check_constraint(op.f("ck_agents_node_id"), "node_id > 0")


def numbered_agents() -> sa.Table:
    return sa.Table(
        "agents",
        sa.MetaData(),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("slots", sa.Integer(), nullable=False),
        sa.Column("slots_used", sa.Integer(), nullable=False),
        sa.Column("zone", sa.Text(), nullable=False),
        sa.Column("group_name", sa.Text(), nullable=False),
        sa.Column("labels", sa.Text(), nullable=False),
        sa.Column("roles", sa.Text(), nullable=False),
        sa.Column("has_engine", sa.Boolean(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("state_reason", sa.Text(), nullable=False),
        sa.Column("state_time", sa.BigInteger(), nullable=False),
        sa.Column("incarnation", sa.Text(), nullable=False),
        sa.Column("protocol_version", sa.Integer(), nullable=False),
        sa.Column("volume_id", sa.Text(), nullable=False),
        sa.Column("session_uid", sa.Text(), nullable=True),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("kafka_address", sa.Text(), nullable=True),
        sa.Column("node_id", sa.Integer(), nullable=True),
        sa.CheckConstraint("state IN ('ACTIVE', 'UNREACHABLE')", name=op.f("ck_agents_state")),
        sa.CheckConstraint("slots >= 0", name=op.f("ck_agents_slots")),
        sa.CheckConstraint("slots_used >= 0 AND slots_used <= slots", name=op.f("ck_agents_capacity")),
        sa.ForeignKeyConstraint(
            ["session_uid"], ["sessions.uid"], name=op.f("fk_agents_session_uid"), ondelete="SET NULL"
        ),
        sa.PrimaryKeyConstraint("uid", name=op.f("pk_agents")),
        sa.UniqueConstraint("address", name=op.f("uq_agents_address")),
        sa.UniqueConstraint("name", name=op.f("uq_agents_name")),
    )
