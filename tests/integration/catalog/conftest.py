"""Every test here runs on an SQLite file, on PostgreSQL, and on the inline store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headgate_coordinator.catalog.store import Store
from tests.integration.catalog.kit import STORES, Databases


@pytest.fixture(params=STORES)
async def databases(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Databases]:
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else ""
    made = Databases(request.param, tmp_path, lambda: url)
    yield made
    await made.close()


@pytest.fixture
async def store(databases: Databases) -> Store:
    return await databases.open()
