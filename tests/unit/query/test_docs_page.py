"""docs/queries.md says what the code says."""

from __future__ import annotations

import docs_queries

from headgate.catalog import v1 as catalog
from headgate_coordinator.query.transitions import WAITING_REASONS


def test_the_tables_of_the_page_are_up_to_date() -> None:
    page = docs_queries.PAGE.read_text()
    assert docs_queries.made(page) == page, "run tools/docs_queries.py"


def test_every_waiting_reason_of_the_api_is_explained() -> None:
    named = {name.removeprefix("WAITING_REASON_") for name in catalog.WaitingReason.DESCRIPTOR.values_by_name}
    assert named - {"UNSPECIFIED"} == set(WAITING_REASONS)
