"""Writes the next migration: `python -m headgate_coordinator.catalog.migrations "what changes"`.

Compares the schema of the code with that of the last migration and writes the difference to `versions/`, to be read and
corrected by hand. Triggers need nothing but the fingerprint of their rules in it: `migrate` makes them anew.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

from alembic import command
from sqlalchemy import create_engine

from headgate_coordinator.catalog.migrations import FOLDER, configuration


def write(message: str, folder: Path) -> Path:
    """Writes the next migration into `folder`, which holds those before it."""
    with tempfile.TemporaryDirectory() as scratch:
        versions = Path(scratch) / "versions"
        shutil.copytree(folder, versions, ignore=shutil.ignore_patterns("__pycache__"))
        number = f"{len(list(versions.glob('[0-9]*.py'))) + 1:04}"
        for name in ("env.py", "script.py.mako"):
            shutil.copy(FOLDER / name, scratch)
        with create_engine("sqlite://").connect() as connection:
            config = configuration(connection, Path(scratch))
            command.upgrade(config, "head")
            command.revision(config, message, autogenerate=True, rev_id=number)
        (made,) = versions.glob(f"{number}_*.py")
        return Path(shutil.copy(made, folder / made.name))


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the next migration of the catalog.")
    parser.add_argument("message", help="what changes, in a few words")
    print(write(parser.parse_args().message, FOLDER / "versions"))  # noqa: T201


if __name__ == "__main__":
    main()
