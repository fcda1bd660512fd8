"""`errors`: the records that a query could not read."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from headgate_cli.connection import Connection, run
from headgate_cli.error_rows import ErrorReader, ErrorRow, error_topics
from headgate_cli.options import CoordinatorOption, OutputOption, gather
from headgate_cli.output import Output, print_json_line, print_table, print_values, say, stdout

_LOOK_SECONDS = 1.0
_TITLES = ("FRAGMENT", "PLACE", "REASON", "RECORD")


def errors(
    context: typer.Context,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="Its name; of one that was dropped, its uid.")],
    limit: Annotated[int, typer.Option("-n", "--limit", min=0, help="How many rows, the last of them; 0: all.")] = 100,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on with those that come, until Ctrl-C.")] = False,
    coordinator: CoordinatorOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show the records that a query could not read, and why.

    One bad record does not stop a query: it is counted and kept with its reason and its place. Bytes that are no text
    come as base64 with -o json.

    Example: headgate errors slow_highways -n 20

    Example: headgate errors slow_highways --follow -o jsonl
    """
    name = query.removeprefix("query/")

    async def work(connection: Connection) -> None:
        readers = [ErrorReader(connection, topic) for topic in await error_topics(connection, name)]
        found = [row for reader in readers for row in await reader.rows(limit)]
        _show(found[-limit:] if limit else found, output)
        if not found and output is Output.TABLE:
            say(f"query {name} has no error rows")
        while follow:
            await asyncio.sleep(_LOOK_SECONDS)
            for reader in readers:
                for row in await reader.rows():
                    _show_fresh(row, output)

    run(gather(context, coordinator, output), work)


def _cells(row: ErrorRow) -> list[str]:
    return [str(row.fragment), row.place, row.reason, row.text]


def _show(rows: list[ErrorRow], output: Output) -> None:
    if output is not Output.TABLE:
        print_values([row.as_json() for row in rows], output)
    elif rows:
        print_table(_TITLES, [_cells(row) for row in rows])


def _show_fresh(row: ErrorRow, output: Output) -> None:
    if output is Output.TABLE:
        stdout().print("   ".join(_cells(row)))
    else:
        print_json_line(row.as_json())
