"""docs/cli.md says what the command line does."""

from __future__ import annotations

import re
from pathlib import Path

from typer.main import get_command

from headgate_cli.failures import ExitCode
from headgate_cli.main import app
from headgate_cli.options import DEFAULT_COORDINATOR

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "cli.md").read_text()


def test_every_command_has_a_line_in_the_table_and_no_other_does() -> None:
    listed = re.findall(r"^\| `([a-z]+)` \|", PAGE, re.MULTILINE)
    assert listed == list(get_command(app).commands)  # type: ignore[attr-defined]


def test_every_exit_code_has_a_line_in_the_table_and_no_other_does() -> None:
    assert [int(code) for code in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)] == sorted(ExitCode)


def test_the_default_coordinator_is_the_one_of_the_page() -> None:
    assert f"`{DEFAULT_COORDINATOR}`" in PAGE


def test_every_command_teaches_by_an_example() -> None:
    for name, command in get_command(app).commands.items():  # type: ignore[attr-defined]
        assert f"Example: headgate {name}" in (command.help or ""), name
