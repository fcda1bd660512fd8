"""Runs that write and read edges."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
# Of the rules in triggers.py that hold from here on.
rules = "4ed07cef6806b9ca"


def upgrade() -> None:
    op.create_table(
        "edge_runs",
        sa.Column("partition_key", sa.Text(), nullable=False),
        sa.Column("fragment_uid", sa.Text(), nullable=False),
        sa.Column("reads", sa.Boolean(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("batch_id", sa.BigInteger(), nullable=False),
        sa.Column("position", sa.LargeBinary(), nullable=False),
        sa.Column("ended", sa.Boolean(), nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("epoch > 0 AND batch_id >= -1", name=op.f("ck_edge_runs_positive")),
        sa.ForeignKeyConstraint(
            ["partition_key"], ["partitions.key"], name=op.f("fk_edge_runs_partition_key"), ondelete="RESTRICT"
        ),
        sa.PrimaryKeyConstraint("partition_key", "fragment_uid", "reads", name=op.f("pk_edge_runs")),
    )
    op.create_index("ix_edge_runs_fragment_uid", "edge_runs", ["fragment_uid"])
