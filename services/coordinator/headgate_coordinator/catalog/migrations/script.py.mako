"""${message.capitalize()}."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
# Of the rules in triggers.py that hold from here on.
rules = ${repr(rules)}


def upgrade() -> None:
    ${upgrades}
