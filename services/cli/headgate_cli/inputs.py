"""Reads what a command works on: an argument, a file, or standard input."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from headgate_cli.failures import ExitCode, Failure

STANDARD_INPUT = "-"


def read_text(path: str | Path) -> str:
    """The text of a file, or of standard input for `-`."""
    if str(path) == STANDARD_INPUT:
        return sys.stdin.read()
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise Failure(ExitCode.USAGE, f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise Failure(ExitCode.USAGE, f"{path} is not UTF-8 text") from error


def read_statement(statement: str | None, file: Path | None) -> str:
    """The one statement that a command was given: as an argument, in a file, or on standard input."""
    if statement is not None and file is not None:
        raise typer.BadParameter("give a statement or -f FILE, not both")
    if file is not None:
        text = read_text(file)
    elif statement in (None, STANDARD_INPUT):
        if statement is None and sys.stdin.isatty():
            raise typer.BadParameter("give a statement, -f FILE, or - for standard input")
        text = read_text(STANDARD_INPUT)
    else:
        text = str(statement)
    if not text.strip():
        raise Failure(ExitCode.USAGE, "there is no statement")
    return text
