"""What happened to partitions."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
# Of the rules in triggers.py that hold from here on.
rules = "4ed07cef6806b9ca"


def upgrade() -> None:
    op.create_table(
        "partition_story",
        sa.Column("topic_uid", sa.Text(), nullable=False),
        sa.Column("revision", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("ordinal", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.Column("partition_index", sa.Integer(), nullable=False),
        sa.Column("event", sa.Text(), nullable=False),
        sa.Column("agent", sa.Text(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("from_offset", sa.BigInteger(), nullable=False),
        sa.Column("to_offset", sa.BigInteger(), nullable=False),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("topic_uid", "revision", "ordinal", name=op.f("pk_partition_story")),
    )
    op.create_index("ix_partition_story_time", "partition_story", ["time"])
