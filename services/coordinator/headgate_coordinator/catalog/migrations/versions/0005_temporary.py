"""Temporary queries."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
# Of the rules in triggers.py that hold from here on.
rules = "4ed07cef6806b9ca"

NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.add_column("queries", sa.Column("temporary", sa.Boolean(), nullable=True))
    op.get_bind().execute(sa.update(sa.table("queries", sa.column("temporary"))).values(temporary=sa.false()))
    # SQLite makes the table anew, from the definition given here; Postgres alters it.
    with op.batch_alter_table("queries", copy_from=queries_with_temporary()) as batch:
        batch.alter_column("temporary", existing_type=sa.Boolean(), nullable=False)


def queries_with_temporary() -> sa.Table:
    return sa.Table(
        "queries",
        sa.MetaData(),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("statement", sa.Text(), nullable=False),
        sa.Column("mode", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("desired_state", sa.Text(), nullable=False),
        sa.Column("stop_mode", sa.Text(), nullable=False),
        sa.Column("waiting", sa.LargeBinary(), nullable=True),
        sa.Column("failure", sa.LargeBinary(), nullable=True),
        sa.Column("has_run", sa.Boolean(), nullable=False),
        sa.Column("plan", sa.LargeBinary(), nullable=False),
        sa.Column("deployment_deadline_us", sa.BigInteger(), nullable=False),
        sa.Column("drain_deadline_us", sa.BigInteger(), nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.Column("state_time", sa.BigInteger(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("temporary", sa.Boolean(), nullable=True),
        sa.CheckConstraint("desired_state IN ('RUNNING', 'STOPPED', 'DROPPED')", name=op.f("ck_queries_desired_state")),
        sa.CheckConstraint("mode IN ('EXACTLY_ONCE', 'REALTIME')", name=op.f("ck_queries_mode")),
        sa.CheckConstraint("state <> 'FAILED' OR failure IS NOT NULL", name=op.f("ck_queries_failed_with_reason")),
        sa.CheckConstraint(
            "state IN ('PENDING', 'DEPLOYING', 'RUNNING', 'STOPPING', 'STOPPED', 'TERMINATED', 'FAILED')",
            name=op.f("ck_queries_state"),
        ),
        sa.CheckConstraint("stop_mode IN ('', 'SOFT', 'HARD')", name=op.f("ck_queries_stop_mode")),
        sa.PrimaryKeyConstraint("uid", name=op.f("pk_queries")),
        sa.UniqueConstraint("name", name=op.f("uq_queries_name")),
        sa.Index("ix_queries_state", "state"),
    )
