"""Fields of log events do not collide with those that a LogRecord has of itself: `logging` raises where they do."""

from __future__ import annotations

import ast
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

RESERVED = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}
SERVICES = Path(__file__).parents[3] / "services"


def fields(path: Path) -> Iterator[tuple[int, str]]:
    """The names in every dictionary that is passed as `extra`, or to a function that makes one of its keywords."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        for keyword in node.keywords:
            if keyword.arg != "extra":
                continue
            for part in ast.walk(keyword.value):
                if isinstance(part, ast.Dict):
                    yield from (
                        (key.lineno, key.value)
                        for key in part.keys
                        if isinstance(key, ast.Constant) and isinstance(key.value, str)
                    )
                elif isinstance(part, ast.keyword) and part.arg:
                    yield part.lineno, part.arg


@pytest.mark.slow
def test_no_log_field_has_a_name_that_logging_refuses() -> None:
    paths = [path for path in SERVICES.rglob("*.py") if ".venv" not in path.parts]
    assert sum(len(list(fields(path))) for path in paths) > 100
    bad = [
        f"{path.relative_to(SERVICES)}:{line}: {name}"
        for path in paths
        for line, name in fields(path)
        if name in RESERVED
    ]
    assert bad == []
