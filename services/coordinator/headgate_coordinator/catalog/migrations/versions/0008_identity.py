"""Which catalog it is, and the highest epoch of a consumer group that was forgotten."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
# Of the rules in triggers.py that hold from here on.
rules = "69e3a17f8a3c1ca3"


def upgrade() -> None:
    op.create_table(
        "catalog_identity",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("ck_catalog_identity_single_row")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_catalog_identity")),
    )
    # What was forgotten so far is not known: those that are there are the best guess.
    grants = sa.table("grants", sa.column("kind"), sa.column("epoch"))
    highest = sa.select(sa.func.coalesce(sa.func.max(grants.c.epoch), 0)).where(grants.c.kind == "group")
    counters = sa.table("counters", sa.column("name"), sa.column("value"))
    op.get_bind().execute(sa.insert(counters).values(name="group_epoch", value=highest.scalar_subquery()))
