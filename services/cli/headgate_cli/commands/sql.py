"""`sql`: statements from the command line, a file, a pipe, or the interactive shell."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from headgate_cli.connection import Connection, run
from headgate_cli.failures import pointing_into
from headgate_cli.inputs import read_text
from headgate_cli.options import CoordinatorOption, OutputOption, gather
from headgate_cli.output import Output
from headgate_cli.session import SqlSession


def sql(
    context: typer.Context,
    command: Annotated[
        list[str] | None, typer.Option("-c", "--command", metavar="SQL", help="Run this and leave; may be repeated.")
    ] = None,
    file: Annotated[Path | None, typer.Option("-f", "--file", help="Run the statements of a file and leave.")] = None,
    coordinator: CoordinatorOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Run statements, or open the SQL shell.

    Statements are separated by ; and run in order; the first that fails ends it with exit code 1. What stands between
    BEGIN and COMMIT is a bundle: all of it happens, or none. WATCH streams until Ctrl-C. A SELECT without INTO is a
    temporary query: its rows are written as they come, until Ctrl-C, LIMIT or the end of its sources; then it is gone.

    Example: headgate sql -c "SHOW QUERIES"

    Example: headgate sql -c "SELECT * FROM cars WHERE speed > 100 LIMIT 10"

    Example: headgate sql < traffic.sql
    """
    options = gather(context, coordinator, output)
    if command and file:
        raise typer.BadParameter("give -c or -f, not both")
    if command or file or not sys.stdin.isatty():
        text = ";\n".join(command) if command else read_text(file or "-")

        async def batch(connection: Connection) -> None:
            await SqlSession(connection, output).run(text)

        with pointing_into(file):
            run(options, batch)
        return

    async def interactive(connection: Connection) -> None:
        # Imported here: the other commands should not wait for what only the shell needs.
        from headgate_cli.shell import Shell

        await Shell(connection, output).run()

    run(options, interactive)
