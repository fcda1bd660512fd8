"""`top`: what runs, how fast, how far behind, and how busy the agents are."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.live import Live

from headgate.catalog import v1 as catalog
from headgate_cli.connection import Connection, run
from headgate_cli.durations import seconds
from headgate_cli.options import CoordinatorOption, OutputOption, gather
from headgate_cli.output import Output, print_json_line, print_one, print_text, stdout
from headgate_cli.topview import View, render, view
from headgate_common.errors import HeadgateError

_SHORTEST = 0.1


def top(
    context: typer.Context,
    interval: Annotated[str, typer.Option("-i", "--interval", metavar="DURATION", help="Time between looks.")] = "2s",
    once: Annotated[bool, typer.Option("--once", help="One look, as where the output is no terminal.")] = False,
    everything: Annotated[bool, typer.Option("-a", "--all", help="Queries that have ended, too.")] = False,
    coordinator: CoordinatorOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show queries with their rates, lag, watermark and state, and agents with their load.

    On a terminal it is redrawn until Ctrl-C; in a pipe it is one look. With -o jsonl it goes on, a look a line, unless
    --once is said. Rates and lag are what agents last told the coordinator; a dash is what none has told yet.

    Example: headgate top

    Example: headgate top --once -o json | jq '.queries[] | select(.bad_records > 0) | .name'
    """
    options = gather(context, coordinator, output)
    pause = max(_SHORTEST, seconds(interval))
    if output is Output.JSONL and not once:
        run(options, lambda connection: _lines(connection, pause, everything=everything))
    elif output is Output.TABLE and sys.stdout.isatty() and not once:
        run(options, lambda connection: _live(connection, pause, everything=everything))
    else:
        shown = run(options, lambda connection: look(connection, everything=everything))
        if output is Output.TABLE:
            print_text(render(shown, stdout().size.width if sys.stdout.isatty() else None))
        else:
            print_one(shown.as_json(), output)


async def look(connection: Connection, *, everything: bool) -> View:
    queries, fragments, agents = await asyncio.gather(
        connection.pages("QueryService.ListQueries", catalog.ListQueriesRequest(), "queries"),
        connection.pages("QueryService.ListFragments", catalog.ListFragmentsRequest(), "fragments"),
        connection.pages("AgentService.ListAgents", catalog.ListAgentsRequest(), "agents"),
    )
    return view(connection.address, datetime.now(UTC), queries, fragments, agents, everything=everything)


async def _lines(connection: Connection, pause: float, *, everything: bool) -> None:
    while True:
        print_json_line((await look(connection, everything=everything)).as_json())
        await asyncio.sleep(pause)


async def _live(connection: Connection, pause: float, *, everything: bool) -> None:
    """Redraws until Ctrl-C. A coordinator that goes away is told, and looked for; one that never answered is not."""
    shown = await look(connection, everything=everything)
    console = stdout()
    with Live(console=console, screen=True, auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            live.update(render(shown, console.size.width, console.size.height), refresh=True)
            await asyncio.sleep(pause)
            try:
                shown = await look(connection, everything=everything)
            except HeadgateError as error:
                trouble = f"no answer ({error.reason.name}); this is from {shown.time:%H:%M:%S}"
                shown = View(shown.coordinator, shown.time, shown.queries, shown.agents, shown.ended, trouble)
