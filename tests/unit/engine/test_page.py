"""docs/engine.md says what the code says."""

from __future__ import annotations

from pathlib import Path

from headgate_common.configdoc import refresh
from headgate_common.errors import COMMON
from headgate_engine.errors import REASONS

PAGE = Path(__file__).parents[3] / "docs" / "engine.md"


def test_the_settings_on_the_page_are_those_of_the_code() -> None:
    page = PAGE.read_text()
    assert refresh(page) == page, "run python -m headgate_common.configdoc docs/engine.md"


def test_every_reason_of_the_engine_is_on_the_page() -> None:
    page = PAGE.read_text()
    common = {reason.name for reason in COMMON}
    assert [one.name for one in REASONS if one.name not in common and f"`{one.name}`" not in page] == []
