from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from headgate_coordinator.catalog.inline import InlineDatabase
from tests.unit.api.kit import Client


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    """A leading coordinator on an empty catalog."""
    database = InlineDatabase()
    made = await Client(database).lead()
    yield made
    await made.close()
    database.close()
