"""Topics that outlive their query, and what fragments wait for."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
# Of the rules in triggers.py that hold from here on.
rules = "4ed07cef6806b9ca"

NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    # SQLite makes the tables anew, from the definitions given here; Postgres alters them.
    with op.batch_alter_table("topics", copy_from=topics_of_queries()) as batch:
        batch.drop_constraint(op.f("fk_topics_query_uid"), type_="foreignkey")
        batch.add_column(sa.Column("unused_since", sa.BigInteger(), nullable=True))
        batch.create_index("ix_topics_unused_since", ["unused_since"])

    op.add_column("fragments", sa.Column("waiting", sa.Text(), nullable=True))
    op.get_bind().execute(sa.update(sa.table("fragments", sa.column("waiting"))).values(waiting=""))
    with op.batch_alter_table("fragments", copy_from=waiting_fragments()) as batch:
        batch.alter_column("waiting", existing_type=sa.Text(), nullable=False)


def topics_of_queries() -> sa.Table:
    return sa.Table(
        "topics",
        sa.MetaData(),
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
        sa.Index("ix_topics_query_uid", "query_uid"),
    )


def waiting_fragments() -> sa.Table:
    return sa.Table(
        "fragments",
        sa.MetaData(),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("query_uid", sa.Text(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("node_local", sa.Boolean(), nullable=False),
        sa.Column("agent_uid", sa.Text(), nullable=True),
        sa.Column("agent_name", sa.Text(), nullable=False),
        sa.Column("incarnation", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("slots", sa.Integer(), nullable=False),
        sa.Column("slots_held", sa.Boolean(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("last_error", sa.Text(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("waiting", sa.Text(), nullable=True),
        sa.CheckConstraint("kind IN ('SOURCE', 'COMPUTE', 'SINK')", name=op.f("ck_fragments_kind")),
        sa.CheckConstraint(
            "slots_held OR state IN ('STOPPED', 'TERMINATED', 'FAILED')", name=op.f("ck_fragments_released_when_ended")
        ),
        sa.CheckConstraint(
            "state IN ('PENDING', 'REGISTERED', 'STARTED', 'RUNNING', 'STOPPED', 'TERMINATED', 'FAILED')",
            name=op.f("ck_fragments_state"),
        ),
        sa.CheckConstraint("NOT slots_held OR agent_uid IS NOT NULL", name=op.f("ck_fragments_held_somewhere")),
        sa.CheckConstraint("epoch > 0", name=op.f("ck_fragments_epoch")),
        sa.CheckConstraint("slots >= 0", name=op.f("ck_fragments_slots")),
        sa.ForeignKeyConstraint(
            ["agent_uid"], ["agents.uid"], name=op.f("fk_fragments_agent_uid"), ondelete="RESTRICT"
        ),
        sa.ForeignKeyConstraint(
            ["query_uid"], ["queries.uid"], name=op.f("fk_fragments_query_uid"), ondelete="RESTRICT"
        ),
        sa.PrimaryKeyConstraint("uid", name=op.f("pk_fragments")),
        sa.UniqueConstraint("query_uid", "ordinal", name=op.f("uq_fragments_query_uid_ordinal")),
        sa.Index("ix_fragments_agent_uid", "agent_uid"),
    )
