"""Every query of the corpus gets the plan, or the exact error, that its golden file has."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.unit.planner.kit import Case, cases, corpus_files, outcome, plan

CASES = [(path, case) for path in corpus_files() for case in cases(path)]


def _golden(path: Path) -> Path:
    return path.with_suffix(".golden")


def _recorded(path: Path) -> dict[str, str]:
    golden = _golden(path)
    if not golden.exists():
        return {}
    blocks = re.split(r"^--- ", golden.read_text(), flags=re.MULTILINE)[1:]
    return {name.strip(): text.rstrip("\n") for name, _, text in (block.partition("\n") for block in blocks)}


@pytest.mark.parametrize("path", corpus_files(), ids=lambda path: path.stem)
def test_golden_file_has_exactly_the_cases_of_its_queries(path: Path) -> None:
    found = cases(path)
    names = [case.name for case in found]
    assert len(set(names)) == len(names), "a case comes twice"
    if os.environ.get("UPDATE_GOLDEN"):
        text = "".join(f"--- {case.name}\n{outcome(case)}\n" for case in found)
        _golden(path).write_text(text)
    assert list(_recorded(path)) == names


@pytest.mark.parametrize(("path", "case"), CASES, ids=[f"{path.stem}-{case.name}" for path, case in CASES])
@pytest.mark.slow
def test_query_gets_its_recorded_plan_or_error(path: Path, case: Case) -> None:
    if os.environ.get("UPDATE_GOLDEN"):
        pytest.skip("golden files are being written")
    assert outcome(case) == _recorded(path)[case.name]


def test_corpus_is_large_enough_to_matter() -> None:
    refused = [case for path, case in CASES if _recorded(path)[case.name].startswith("refused: ")]
    assert len(CASES) >= 250
    assert len(refused) >= 100


@pytest.mark.parametrize(("path", "case"), CASES, ids=[f"{path.stem}-{case.name}" for path, case in CASES])
def test_refusals_are_announced_by_the_name_of_the_case_or_file(path: Path, case: Case) -> None:
    announced = path.stem.startswith("refused") or case.name.startswith("refused")
    assert _recorded(path)[case.name].startswith("refused: ") == announced


@pytest.mark.parametrize(("path", "case"), CASES[::7], ids=[f"{path.stem}-{case.name}" for path, case in CASES[::7]])
def test_same_catalog_and_statement_give_the_same_bytes(path: Path, case: Case) -> None:
    if _recorded(path)[case.name].startswith("refused: "):
        assert outcome(case) == outcome(case)
        return
    first, second = (plan(case.query, case.view()).SerializeToString(deterministic=True) for _ in range(2))
    assert first == second
