"""Brings a database to the schema of this version, at start.

Contract: `migrate` runs inside the transaction that the caller has open, which holds the database's lock for
migrations, so that two coordinators that start at once do it one after the other, and a crash leaves the database as it
was. A database that a newer version has made or changed is refused with CATALOG_TOO_NEW and left alone.

A change of `schema.py`, or of the rules in `triggers.py`, comes with a migration: `python -m
headgate_coordinator.catalog.migrations "what changes"` writes it. A migration that was released is never changed.
"""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from headgate_common.errors import HeadgateError
from headgate_coordinator.catalog import schema, triggers
from headgate_coordinator.errors import CATALOG_TOO_NEW

FOLDER = Path(__file__).parent


def migrate(connection: Connection) -> bool:
    """Whether there was anything to do."""
    config = configuration(connection)
    scripts = ScriptDirectory.from_config(config)
    current = MigrationContext.configure(connection).get_current_heads()
    if current == tuple(scripts.get_heads()):
        return False
    known = {script.revision for script in scripts.walk_revisions()}
    unknown = sorted(set(current) - known)
    if unknown:
        raise HeadgateError(
            CATALOG_TOO_NEW,
            f"the database is at schema version {', '.join(unknown)}, and this coordinator knows versions up to "
            f"{scripts.get_current_head()}; start the newer coordinator, or restore a backup made before it ran",
            metadata={"database": ", ".join(unknown), "coordinator": scripts.get_current_head() or ""},
        )
    command.upgrade(config, "head")
    if not current:
        connection.execute(schema.revision.insert(), {"id": 1, "value": 0, "compacted": 0})
    triggers.install(connection)
    return True


def configuration(connection: Connection, folder: Path = FOLDER) -> Config:
    """What Alembic needs to know. `env.py` takes the connection from it."""
    config = Config()
    config.set_main_option("script_location", str(folder))
    config.attributes["connection"] = connection
    return config
