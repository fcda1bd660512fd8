from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.unit.entities.kit import Catalog


@pytest.fixture
async def made() -> AsyncIterator[Catalog]:
    """An empty catalog in memory."""
    catalog = Catalog()
    yield catalog
    await catalog.close()
