"""Run by Alembic; `migrate` in the package hands over the open connection."""

from __future__ import annotations

from alembic import context

import headgate_coordinator.catalog.log.schema  # noqa: F401 - its tables are in the metadata once it is imported
from headgate_coordinator.catalog import triggers
from headgate_coordinator.catalog.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
    transactional_ddl=False,
    template_args={"rules": triggers.fingerprint()},
)
context.run_migrations()
