"""Every page that a page of the documentation points to is there, and docs/README.md leads to every page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("deploy/**/*.md")]
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def targets(page: Path) -> set[Path]:
    links = LINK.findall(page.read_text())
    return {(page.parent / link).resolve() for link in links if "://" not in link}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_points_only_to_what_is_there(page: Path) -> None:
    assert [str(target) for target in targets(page) if not target.exists()] == []


def test_the_map_of_the_documentation_has_every_page() -> None:
    listed = targets(ROOT / "docs" / "README.md")
    pages = {page.resolve() for page in ROOT.glob("docs/**/*.md")} - {(ROOT / "docs" / "README.md").resolve()}
    assert sorted(str(page.relative_to(ROOT)) for page in pages - listed) == []
