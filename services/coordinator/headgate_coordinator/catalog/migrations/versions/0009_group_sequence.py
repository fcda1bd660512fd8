"""The last offset commit of each consumer group, so that one that comes late undoes nothing."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
# Of the rules in triggers.py that hold from here on.
rules = "69e3a17f8a3c1ca3"


def upgrade() -> None:
    op.add_column(
        "consumer_groups", sa.Column("sequence", sa.BigInteger(), server_default=sa.text("0"), nullable=False)
    )
