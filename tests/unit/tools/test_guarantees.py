"""Every test that docs/guarantees.md and docs/modes.md name exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("page", ["guarantees.md", "modes.md"])
def test_every_guarantee_names_a_test_that_exists(page: str) -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / "docs" / page).read_text())
    assert len(named) > 30
    missing = [
        f"{path}::{test}"
        for path, test in named
        if not (ROOT / path).exists() or not re.search(rf"^(async )?def {test}\(", (ROOT / path).read_text(), re.M)
    ]
    assert missing == []
