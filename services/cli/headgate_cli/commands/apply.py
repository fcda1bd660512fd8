"""`apply` and `export`: bundles in, bundles out."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from headgate.catalog import v1 as catalog
from headgate_cli import bundles
from headgate_cli.connection import Connection, run
from headgate_cli.durations import seconds
from headgate_cli.exports import EXPORTED, REDACTED, as_json, as_sql, needed_agents, ordered
from headgate_cli.failures import ExitCode, Failure, pointing_into
from headgate_cli.inputs import read_text, write_text
from headgate_cli.kinds import QUERY
from headgate_cli.options import CoordinatorOption, OutputOption, TimeoutOption, gather
from headgate_cli.output import Output, plain, print_one, say
from headgate_cli.results import created_queries, show_results
from headgate_cli.waiting import wait_for

_COMPLETE = frozenset({"TERMINATED"})


def apply(
    context: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="SQL, or JSON as `export` writes it; - reads stdin.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check everything, change nothing.")] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Return when every new query is RUNNING, or has run to its end.")
    ] = False,
    timeout: TimeoutOption = "120s",
    coordinator: CoordinatorOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Apply a bundle: all of it or none of it.

    Example: headgate apply traffic.sql --wait --timeout 60s
    """
    options = gather(context, coordinator, output)
    bundle = bundles.read_bundle(read_text(file), "standard input" if file == "-" else file)
    if len(bundle.items) > bundles.MOST_ITEMS:
        raise Failure(
            ExitCode.USAGE, f"{file} has {len(bundle.items)} statements; a bundle has at most {bundles.MOST_ITEMS}"
        )
    deadline = seconds(timeout)

    async def work(connection: Connection) -> None:
        answer = await bundles.apply(connection, bundle, validate_only=dry_run)
        if output is Output.TABLE:
            show_results(answer.results, output)
        else:
            print_one(plain(answer), output)
        say("valid; nothing was changed" if dry_run else f"applied at revision {answer.revision}")
        if wait and not dry_run:
            names = created_queries(answer.results)
            # One whose sources end may have run already.
            waits = (wait_for(connection, QUERY, name, "RUNNING", deadline, also=_COMPLETE) for name in names)
            await asyncio.gather(*waits)

    with pointing_into(file):
        run(options, work)


def export(
    context: typer.Context,
    form: Annotated[str, typer.Option("--format", help="sql, or json: the exact requests.")] = "sql",
    agents: Annotated[
        bool, typer.Option(help="Whether agents are declared, too. They join by themselves when they are started.")
    ] = False,
    target: Annotated[Path | None, typer.Option("--to", metavar="FILE", help="Write to a file.")] = None,
    coordinator: CoordinatorOption = None,
) -> None:
    """Write the catalog as a bundle that apply recreates.

    Everything is of one revision, and in an order in which nothing is named before it is there. Queries that have ended
    are left out. Agents are named, not made: those that sources and sinks are on have to be started first.

    Example: headgate export > catalog.sql && headgate apply catalog.sql --coordinator other:7400
    """
    if form not in ("sql", "json"):
        raise typer.BadParameter(f"--format is sql or json, not {form!r}")
    options = gather(context, coordinator)
    snapshot = run(
        options,
        lambda connection: connection.call("WatchService.GetSnapshot", catalog.GetSnapshotRequest(kinds=EXPORTED)),
    )
    items = ordered(snapshot.resources, with_agents=agents)
    needed = needed_agents(snapshot.resources)
    text = as_json(items) if form == "json" else as_sql(items, snapshot.revision, needed)
    write_text(text, target)
    count = len(items)
    say(f"{count} resource{'' if count == 1 else 's'} at revision {snapshot.revision}")
    if needed:
        say(f"where it is applied, these agents have to be there: {', '.join(needed)}")
    if REDACTED in text:
        say(f"secrets are not answered by the coordinator: replace each {REDACTED!r} before you apply this bundle")
