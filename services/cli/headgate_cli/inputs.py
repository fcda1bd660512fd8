"""Reads what a command works on: an argument, a file, or standard input; writes what it makes to a file."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from headgate_cli.failures import ExitCode, Failure

STANDARD_INPUT = "-"


def read_text(path: str | Path) -> str:
    """The text of a file, or of standard input for `-`."""
    if str(path) == STANDARD_INPUT:
        return _standard_input()
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise Failure(ExitCode.USAGE, f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise Failure(ExitCode.USAGE, f"{path} is not UTF-8 text") from error


def _standard_input() -> str:
    try:
        text = sys.stdin.read()
        # Where the locale is C, Python lets bytes through that are no text.
        text.encode()
    except UnicodeError as error:
        raise Failure(ExitCode.USAGE, "standard input is not UTF-8 text") from error
    return text


def write_text(text: str, path: Path | None) -> None:
    """Writes to a file, or to standard output for None."""
    if path is None:
        typer.echo(text, nl=False)
        return
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise Failure(ExitCode.USAGE, f"{path}: {error.strerror}") from error


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
