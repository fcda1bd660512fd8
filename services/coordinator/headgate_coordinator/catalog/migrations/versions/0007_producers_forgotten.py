"""Up to which id producers may have been forgotten by a partition."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
# Of the rules in triggers.py that hold from here on.
rules = "4ed07cef6806b9ca"


def upgrade() -> None:
    op.add_column(
        "partitions",
        sa.Column("producers_forgotten", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
    )
    # Any producer so far may have been.
    counters = sa.table("counters", sa.column("name"), sa.column("value"))
    last = sa.select(counters.c.value).where(counters.c.name == "producer_id").scalar_subquery()
    partitions = sa.table("partitions", sa.column("producers_forgotten"))
    op.get_bind().execute(sa.update(partitions).values(producers_forgotten=last))
