"""The SQL reference is true: its examples are read, its tables are those of the code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from headgate_common.durations import show_duration
from headgate_coordinator.catalog.log import settings
from headgate_coordinator.sql.limits import StatementLimits
from headgate_coordinator.sql.parse import parse_statements

ROOT = Path(__file__).parents[3]
STATEMENTS = (ROOT / "docs" / "sql" / "statements.md").read_text()
EXAMPLES = re.findall(r"```sql\n(.*?)```", STATEMENTS, re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda text: text.split("\n")[0][:40])
def test_examples_are_statements(example: str) -> None:
    assert parse_statements(example)


def test_every_section_about_statements_has_examples() -> None:
    assert len(EXAMPLES) >= 10


def test_types_and_options_are_up_to_date() -> None:
    run = subprocess.run(
        [sys.executable, "tools/docs_sql.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_limits_of_the_page_are_those_of_the_code() -> None:
    limits = StatementLimits()
    assert limits.max_length == 1 << 20
    for number in (
        limits.max_tokens,
        limits.max_statements,
        limits.max_depth,
        limits.max_chain,
        limits.schema.max_columns,
    ):
        assert f"{number:,}" in STATEMENTS


def test_settings_of_topics_are_those_of_the_code() -> None:
    rows = re.findall(r"^\| `(\w+)` \| `?([\w.]*)`? ?\| `?([\w ]+)`? \| (.+?) \| (.+) \|$", STATEMENTS, re.MULTILINE)
    documented = {name: rest for name, *rest in rows}
    assert list(documented) == [*settings.FIXED, *settings.SETTINGS]
    defaults = settings.TopicRules()
    for name, setting in settings.SETTINGS.items():
        show = show_duration if setting.is_duration else settings.show_size
        limits = f"{show(setting.least)} to {show(setting.most)}"
        if setting.most == settings.MAX_INT64:
            limits = "0 and more"
        default = show(getattr(defaults, setting.column))
        assert documented[name] == [setting.kafka_name, default, limits, setting.meaning]
