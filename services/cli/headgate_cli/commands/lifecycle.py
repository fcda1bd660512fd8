"""`wait`, `stop` and `drop`."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

from headgate.catalog import v1 as catalog
from headgate_cli import kinds
from headgate_cli.commands.read import KindArgument, NameArgument
from headgate_cli.connection import Connection, run
from headgate_cli.durations import seconds
from headgate_cli.kinds import QUERY, Kind, short
from headgate_cli.options import CoordinatorOption, OutputOption, TimeoutOption, gather
from headgate_cli.output import Output, plain, print_one, stdout
from headgate_cli.waiting import check_state, wait_for

SoftOption = Annotated[bool, typer.Option("--soft", help="Stop the sources and emit what is in flight first.")]
HardOption = Annotated[bool, typer.Option("--hard", help="Stop everything at once.")]
DrainOption = Annotated[
    str | None, typer.Option("--drain", metavar="DURATION", help="After this long a soft stop becomes a hard one.")
]


def wait(
    context: typer.Context,
    references: Annotated[list[str], typer.Argument(metavar="KIND/NAME...", help="Such as query/x or agent/a.")],
    state: Annotated[str, typer.Option("--for", metavar="STATE", help="RUNNING, STOPPED, ..., or DROPPED.")],
    timeout: TimeoutOption = "120s",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing while waiting.")] = False,
    coordinator: CoordinatorOption = None,
) -> None:
    """Wait until queries or agents are in a state.

    Exit code 4 if the time runs out, 5 if a query ends otherwise and cannot get there any more.

    Example: headgate wait query/slow_highways --for RUNNING --timeout 60s
    """
    options = gather(context, coordinator)
    wanted = [named(reference, None) for reference in references]
    for kind, _ in wanted:
        check_state(kind, state)
    deadline = seconds(timeout)

    async def work(connection: Connection) -> None:
        await asyncio.gather(*(wait_for(connection, kind, name, state, deadline, quiet=quiet) for kind, name in wanted))

    run(options, work)


def named(word: str, name: str | None) -> tuple[Kind, str]:
    """`query/x` or `query x` as a kind and a name; a usage error where there is no name."""
    kind, found = kinds.parse_reference(word, name)
    if not found:
        raise typer.BadParameter(f"which {kind.title}? Write {kind.name}/NAME")
    return kind, found


def stop_mode(soft: bool, hard: bool) -> Any:
    if soft and hard:
        raise typer.BadParameter("--soft and --hard exclude each other")
    if soft:
        return catalog.STOP_MODE_SOFT
    return catalog.STOP_MODE_HARD if hard else catalog.STOP_MODE_UNSPECIFIED


def stop(
    context: typer.Context,
    reference: Annotated[str, typer.Argument(metavar="query/NAME", help="The query; just its name will do.")],
    soft: SoftOption = False,
    hard: HardOption = False,
    drain: DrainOption = None,
    wait_until_stopped: Annotated[bool, typer.Option("--wait", help="Return when it has stopped.")] = False,
    timeout: TimeoutOption = "120s",
    coordinator: CoordinatorOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Stop a query.

    Softly unless told otherwise. Its row and story are kept; it is never started again.

    Example: headgate stop query/slow_highways --wait
    """
    options = gather(context, coordinator, output)
    kind, name = named(reference, None) if "/" in reference else (QUERY, reference)
    if kind is not QUERY:
        raise typer.BadParameter(f"only queries can be stopped; `headgate drop {reference}` drops")
    request = catalog.StopQueryRequest(name=name, mode=stop_mode(soft, hard))
    if drain:
        request.drain_deadline.FromNanoseconds(int(seconds(drain) * 1e9))
    deadline = seconds(timeout)

    async def work(connection: Connection) -> None:
        request.request_id = connection.request_id()
        answer = await connection.call("QueryService.StopQuery", request)
        _show(QUERY, answer.query, output)
        if wait_until_stopped:
            await wait_for(connection, QUERY, name, "STOPPED", deadline)

    run(options, work)


def drop(
    context: typer.Context,
    kind: KindArgument,
    name: NameArgument = None,
    missing_ok: Annotated[bool, typer.Option("--if-exists", help="A missing one is fine.")] = False,
    soft: SoftOption = False,
    hard: HardOption = False,
    drain: DrainOption = None,
    force: Annotated[bool, typer.Option("--force", help="Agents only: declare the agent gone for good.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check everything, change nothing.")] = False,
    wait_until_gone: Annotated[bool, typer.Option("--wait", help="Queries: return when the name is free.")] = False,
    timeout: TimeoutOption = "120s",
    coordinator: CoordinatorOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Drop a resource.

    Refused while something refers to it; the message lists what does. Queries are stopped hard unless told otherwise.

    Example: headgate drop query slow_highways --wait
    """
    options = gather(context, coordinator, output)
    found_kind, found_name = named(kind, name)
    if not found_kind.addressable:
        owner = "query" if found_kind is kinds.FRAGMENT else "topic"
        raise typer.BadParameter(f"a {found_kind.title} goes with its {owner}")
    request = kind_request(found_kind, found_name, missing_ok=missing_ok, dry_run=dry_run)
    if found_kind is QUERY:
        request.mode = stop_mode(soft, hard)
        if drain:
            request.drain_deadline.FromNanoseconds(int(seconds(drain) * 1e9))
    elif soft or hard or drain or wait_until_gone:
        raise typer.BadParameter("--soft, --hard, --drain and --wait are for queries")
    if force:
        if found_kind is not kinds.AGENT:
            raise typer.BadParameter("--force is for agents")
        request.force = True
    deadline = seconds(timeout)

    async def work(connection: Connection) -> None:
        if not dry_run:
            request.request_id = connection.request_id()
        answer = await connection.call(f"{found_kind.service}.Drop{found_kind.camel}", request)
        if not answer.HasField(found_kind.name):
            if output is Output.TABLE:
                stdout().print(f"there is no {found_kind.title} {found_name}")
            return
        _show(found_kind, getattr(answer, found_kind.name), output, "would be dropped" if dry_run else "dropped")
        if wait_until_gone and not dry_run:
            await wait_for(connection, QUERY, found_name, "DROPPED", deadline)

    run(options, work)


def kind_request(kind: Kind, name: str, *, missing_ok: bool, dry_run: bool) -> Any:
    return kind.message(f"Drop{kind.camel}Request")(
        **kind.reference(name), allow_missing=missing_ok, validate_only=dry_run
    )


def _show(kind: Kind, resource: Any, output: Output, done: str = "") -> None:
    if output is not Output.TABLE:
        print_one(plain(resource), output)
        return
    if kind is QUERY:
        done = (
            f"{short(catalog.QueryState, resource.state)}, wanted {short(catalog.DesiredState, resource.desired_state)}"
        )
    stdout().print(f"{kind.title} {kind.name_of(resource)}: {done}")
