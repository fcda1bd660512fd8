"""Where fragments begin to read topics that they read from their end."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
# Of the rules in triggers.py that hold from here on.
rules = "7f999f969b848586"


def upgrade() -> None:
    op.add_column("fragments", sa.Column("starts", sa.LargeBinary(), nullable=True))
