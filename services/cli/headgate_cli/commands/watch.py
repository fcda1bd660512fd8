"""`watch`: the stream of changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Annotated, Any, cast

import typer
from rich.text import Text

from headgate.catalog import v1 as catalog
from headgate_cli import kinds
from headgate_cli.connection import Connection, run
from headgate_cli.durations import seconds
from headgate_cli.kinds import Kind, is_internal, of_resource, short
from headgate_cli.options import CoordinatorOption, OutputOption, gather
from headgate_cli.output import Output, plain, print_json_line, say, stdout, styled
from headgate_cli.statements import words_of
from headgate_common.errors import HeadgateError

_SQL = ("WATCH", "SELECT")


def watch(
    context: typer.Context,
    what: Annotated[
        list[str] | None, typer.Argument(metavar="[KIND[/NAME]... | SQL]", help="Kinds to watch; all if none.")
    ] = None,
    where: Annotated[str, typer.Option(help="Only resources that fulfil this condition; needs exactly one kind.")] = "",
    from_revision: Annotated[
        int, typer.Option(min=0, max=2**63 - 1, help="Every change after this revision, without snapshot.")
    ] = 0,
    internal: Annotated[
        bool, typer.Option("--internal", help="Topics that queries made for themselves, too, with their partitions.")
    ] = False,
    duration: Annotated[str | None, typer.Option("--for", metavar="DURATION", help="Stop after this long.")] = None,
    coordinator: CoordinatorOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Follow every change, as it is committed.

    First comes what there is, then what changes, until Ctrl-C. When the connection breaks it goes on from the last
    revision seen, so that no change is missed or shown twice.

    Example: headgate watch queries fragments

    Example: headgate watch "SELECT name, state FROM agents WHERE state = 'ACTIVE'" -o jsonl
    """
    options = gather(context, coordinator, output)
    request = watch_request(what or [], where, from_revision)
    limit = seconds(duration) if duration else None
    run(options, lambda connection: follow(connection, request, output, limit, internal=internal))


def watch_request(what: list[str], where: str, from_revision: int) -> catalog.WatchRequest:
    """The request for what was written: a statement, or kinds, of which one may have a name."""
    first = what[0].split(None, 1)[0].upper() if what and what[0].strip() else ""
    if first in _SQL:
        statement = " ".join(what)
        if where:
            raise typer.BadParameter("a statement has its own WHERE")
        text = statement if first == "WATCH" else f"WATCH {statement}"
        return catalog.WatchRequest(statement=text, from_revision=from_revision)
    references = [kinds.parse_reference(word, None) for word in what]
    names = {name for _, name in references if name is not None}
    if names and len(references) > 1:
        raise typer.BadParameter("a name goes with one kind: headgate watch query/NAME")
    if where and len(references) != 1:
        raise typer.BadParameter("--where needs exactly one kind")
    return catalog.WatchRequest(
        kinds=[cast(Any, kind.number) for kind, _ in references],
        name=names.pop() if names else "",
        where=where,
        from_revision=from_revision,
    )


async def follow(
    connection: Connection,
    request: catalog.WatchRequest,
    output: Output,
    limit: float | None = None,
    *,
    internal: bool = False,
) -> None:
    """Shows messages of a watch until the time is over or the caller is cancelled."""
    everything = internal or _asks_for_internal(request)

    def interrupted(error: HeadgateError) -> None:
        say(f"the stream broke ({error.reason.name}); going on from the last revision seen")

    try:
        async with asyncio.timeout(limit):
            async with aclosing(cast(Any, connection.watch_resumed(request, interrupted))) as messages:
                async for message in messages:
                    show_message(message if everything else _without_internal(message), output)
    except TimeoutError:
        return


def _asks_for_internal(request: catalog.WatchRequest) -> bool:
    """As SHOW: what is named is asked for, and so is what a condition speaks of."""
    return bool(request.name) or "INTERNAL" in words_of(request.statement) + words_of(request.where)


def _without_internal(message: catalog.WatchResponse) -> catalog.WatchResponse:
    """The same message for who did not ask for topics of queries."""
    shown = catalog.WatchResponse()
    shown.CopyFrom(message)
    if shown.HasField("snapshot"):
        _keep(shown.snapshot.resources, lambda resource: not is_internal(resource))
    elif shown.HasField("events"):
        _keep(shown.events.events, lambda e: not is_internal(e.current if e.HasField("current") else e.previous))
    return shown


def _keep(items: Any, wanted: Callable[[Any], bool]) -> None:
    kept = [item for item in items if wanted(item)]
    if len(kept) < len(items):
        del items[:]
        items.extend(kept)


def show_message(message: catalog.WatchResponse, output: Output) -> None:
    kind = message.WhichOneof("message")
    if output is not Output.TABLE:
        if kind == "snapshot" or (kind == "events" and message.events.events):
            print_json_line(plain(message))
        return
    if kind == "snapshot":
        for resource in message.snapshot.resources:
            _show_line(message.snapshot.revision, None, "", resource, None)
    elif kind == "events":
        time = message.events.time.ToDatetime(tzinfo=UTC)
        for event in message.events.events:
            operation = short(catalog.WatchOperation, event.operation)
            current = event.current if event.HasField("current") else None
            previous = event.previous if event.HasField("previous") else None
            _show_line(message.events.revision, time, operation, current, previous)


def _show_line(
    revision: int,
    time: datetime | None,
    operation: str,
    current: catalog.Resource | None,
    previous: catalog.Resource | None,
) -> None:
    shown = current or previous
    assert shown is not None
    kind, resource = of_resource(shown)
    before = of_resource(previous)[1] if current is not None and previous is not None else None
    line = Text.assemble(
        Text(f"{revision:>7} ", style="dim"),
        Text(f"{time.strftime('%H:%M:%S.%f')[:-3] if time else '-':<12} ", style="dim"),
        styled(operation or "IS"),
        " " * (7 - len(operation or "IS")),
        Text(f"{kind.title} {kind.name_of(resource)} ", style="bold"),
        Text(changes(kind, resource, before)),
    )
    stdout().print(line)


def changes(kind: Kind, resource: Any, before: Any | None) -> str:
    """What is worth telling of a resource in one line: every column, or those that differ from before."""
    cells = list(zip(kind.titles, kind.row(resource), strict=True))
    skip = {"NAME", "QUERY", "#", "AGE", "FROM", "TO"}
    if before is None:
        return "  ".join(f"{title.lower()}={value}" for title, value in cells if value and title not in skip)
    old = dict(zip(kind.titles, kind.row(before), strict=True))
    changed = [(title, value) for title, value in cells if value != old[title] and title not in skip]
    return "  ".join(f"{title.lower()}={old[title] or '(none)'} -> {value or '(none)'}" for title, value in changed)
