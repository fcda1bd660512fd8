"""What the command line says and exits with when something did not work out. docs/cli.md has the table of codes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path

import typer
from google.rpc import error_details_pb2
from rich.text import Text

from headgate.catalog import v1 as catalog
from headgate_cli.output import stderr
from headgate_common.errors import HeadgateError


class ExitCode(IntEnum):
    """Stable, for scripts."""

    DONE = 0
    REFUSED = 1
    USAGE = 2
    UNREACHABLE = 3
    TIMED_OUT = 4
    ENDED_OTHERWISE = 5
    DEFECT = 70
    UNWRITABLE = 74
    INTERRUPTED = 130


@contextmanager
def pointing_into(file: str | Path | None) -> Iterator[None]:
    """Shows errors of the coordinator with the name of the file before each place, and ends the command."""
    try:
        yield
    except HeadgateError as error:
        where = "" if file is None or str(file) == "-" else str(file)
        raise typer.Exit(int(report(error, where))) from error


class Failure(Exception):
    """Something that the command line itself has to say: one clear line, perhaps with what to do about it."""

    def __init__(self, code: ExitCode, message: str, advice: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.advice = advice


# Reasons under which the coordinator could not be spoken to at all.
_UNREACHABLE = {"UNREACHABLE", "SHUTTING_DOWN", "OVERLOADED", "NOT_LEADER", "CATALOG_UNAVAILABLE"}
_TIMED_OUT = {"DEADLINE_EXCEEDED"}
_DEFECT = {"INTERNAL"}
_MOST_VIOLATIONS = 20


def exit_code(error: HeadgateError) -> ExitCode:
    name = error.reason.name
    if name in _UNREACHABLE:
        return ExitCode.UNREACHABLE
    if name in _TIMED_OUT:
        return ExitCode.TIMED_OUT
    if name in _DEFECT:
        return ExitCode.DEFECT
    return ExitCode.REFUSED


def report(error: HeadgateError, where: str = "") -> ExitCode:
    """Shows an error of the coordinator on standard error, with the places in a statement it points to."""
    console = stderr()
    problems = [detail for detail in error.details if isinstance(detail, catalog.StatementProblem)]
    if problems:
        # The message only repeats the first of them.
        console.print(Text(error.reason.name, style="bold red"))
        show_problems(problems, where)
    else:
        console.print(Text(f"{error.reason.name}: ", style="bold red"), Text(error.message), sep="")
    for item in _violations(error):
        console.print(Text(f"  {item}"))
    if advice := _advice(error):
        console.print(Text(advice, style="dim"))
    return exit_code(error)


def _advice(error: HeadgateError) -> str:
    """What to do, for people: they cannot send a request again under its id, which each command makes anew."""
    if "request_id" not in error.reason.advice:
        return error.reason.advice
    if exit_code(error) is ExitCode.TIMED_OUT:
        return "See whether it was done, with `headgate get`; then try again, with more time: --rpc-timeout."
    return "See whether it was done, with `headgate get`; then try again."


def show_problems(problems: list[catalog.StatementProblem], where: str = "") -> None:
    """The line of the statement with a caret below the place, for each problem."""
    console = stderr()
    for problem in problems:
        place = f"{problem.line}:{problem.column}" if problem.line else ""
        label = ":".join(part for part in (where, place) if part)
        console.print(Text(f"{label + ': ' if label else ''}{problem.message}"))
        for line in problem.excerpt.splitlines():
            style = "bold red" if line.strip() and not line.strip(" ^~") else ""
            console.print(Text(f"  {line}", style=style))
        if problem.suggestion:
            console.print(Text(f"  hint: {problem.suggestion}", style="green"))


def report_failure(failure: Failure) -> ExitCode:
    line = Text("headgate: ", style="bold red")
    line.append(failure.message, style="default")
    stderr().print(line)
    if failure.advice:
        stderr().print(Text(failure.advice, style="dim"))
    return failure.code


def _violations(error: HeadgateError) -> Iterator[str]:
    """Fields that break a rule, and resources that stand in the way."""
    lines: list[str] = []
    for detail in error.details:
        if isinstance(detail, error_details_pb2.BadRequest):
            # The message already tells the first.
            lines += [f"{item.field}: {item.description}" for item in detail.field_violations][1:]
        elif isinstance(detail, error_details_pb2.PreconditionFailure):
            lines += [f"{item.type} {item.subject}: {item.description}" for item in detail.violations]
    yield from lines[:_MOST_VIOLATIONS]
    if len(lines) > _MOST_VIOLATIONS:
        yield f"... and {len(lines) - _MOST_VIOLATIONS} more"
