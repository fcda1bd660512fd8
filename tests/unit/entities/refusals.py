"""What a refusal must be: typed, and without effect."""

from __future__ import annotations

import pytest

from headgate_common.errors import HeadgateError, Reason
from tests.unit.entities.kit import Catalog


async def refused(made: Catalog, request: object, reason: Reason) -> HeadgateError:
    """The operation of the request fails with that reason and changes nothing."""
    before = made.store.database.image()
    with pytest.raises(HeadgateError) as caught:
        await made.apply(request)
    assert caught.value.reason is reason
    assert made.store.database.image() == before
    return caught.value
