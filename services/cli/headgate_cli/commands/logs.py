"""`logs`: what the processes of a cluster on this machine wrote."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from headgate_cli.failures import ExitCode, Failure
from headgate_cli.log_files import LogFile, find_logs, merged
from headgate_cli.output import printable

_LOOK_SECONDS = 0.25


def _complete(incomplete: str) -> list[str]:
    return [log.process for log in find_logs(_default_data()) if log.process.startswith(incomplete)]


def _default_data() -> Path:
    return Path(os.environ.get("HEADGATE_DATA") or ".headgate")


def logs(
    process: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PROCESS]...",
            help="coordinator, an agent by its name, engine-1, ...; all of them if none.",
            autocompletion=_complete,
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on with what is written, until Ctrl-C.")] = False,
    lines: Annotated[
        int, typer.Option("-n", "--lines", min=0, help="How many lines of each, from the end; 0: all.")
    ] = 100,
    data: Annotated[
        Path | None,
        typer.Option(help="The folder of `headgate dev`. [default: $HEADGATE_DATA, or .headgate]"),
    ] = None,
) -> None:
    """Show the logs of a cluster that `headgate dev` runs or ran.

    Lines of several processes are put in the order of their times, each with the name of its process before it.

    Example: headgate logs coordinator -n 20

    Example: headgate logs -f a b
    """
    folder = data or _default_data()
    chosen = choose(find_logs(folder), process or [], folder)
    named = len(chosen) != 1
    width = max(len(log.process) for log in chosen)
    for log, line in merged({log: log.last(lines) for log in chosen}):
        _write(log, line, width if named else 0)
    if follow:
        asyncio.run(_follow(chosen, width if named else 0))


def choose(found: list[LogFile], names: list[str], folder: Path) -> list[LogFile]:
    """The logs that were asked for; one clear line where one of them is not there."""
    if not found:
        raise Failure(
            ExitCode.USAGE,
            f"there are no logs in {folder / 'logs'}",
            "Say with --data where the folder of `headgate dev` is; it tells it when it starts.",
        )
    chosen: list[LogFile] = []
    for name in names:
        matching = [log for log in found if log.is_named(name)]
        if not matching:
            known = ", ".join(log.process for log in found)
            raise Failure(ExitCode.USAGE, f"there is no log of {name!r}; there are {known}")
        chosen += [log for log in matching if log not in chosen]
    return chosen or found


def _write(log: LogFile, line: str, width: int) -> None:
    if sys.stdout.isatty():
        line = printable(line, lines=True)
    sys.stdout.write(f"{log.process:<{width}} | {line}\n" if width else f"{line}\n")
    sys.stdout.flush()


async def _follow(chosen: list[LogFile], width: int) -> None:
    while True:
        for log, line in merged({log: log.fresh() for log in chosen}):
            _write(log, line, width)
        await asyncio.sleep(_LOOK_SECONDS)
