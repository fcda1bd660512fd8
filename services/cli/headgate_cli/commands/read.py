"""`get`, `describe` and `explain`."""

from __future__ import annotations

import asyncio
from datetime import UTC
from pathlib import Path
from typing import Annotated, Any

import typer
from google.protobuf.descriptor import FieldDescriptor
from rich.text import Text

from headgate.catalog import v1 as catalog
from headgate_cli import fields, kinds, progress
from headgate_cli.connection import Connection, run
from headgate_cli.failures import ExitCode, Failure, pointing_into
from headgate_cli.inputs import read_statement
from headgate_cli.kinds import FRAGMENT, QUERY, Kind, short
from headgate_cli.options import CoordinatorOption, Options, OutputOption, gather
from headgate_cli.output import Output, plain, print_one, print_table, print_values, say, stdout, styled

KindArgument = Annotated[
    str,
    typer.Argument(
        metavar="KIND",
        help="agent, network-link, logical-source, physical-source, sink, query, fragment, topic, partition or "
        "transfer; or KIND/NAME.",
        autocompletion=kinds.complete_kind,
    ),
]
NameArgument = Annotated[str | None, typer.Argument(metavar="[NAME]", help="Its name; a link's is FROM:TO.")]


def get(
    context: typer.Context,
    kind: KindArgument,
    name: NameArgument = None,
    filters: Annotated[
        list[str] | None,
        typer.Option("--filter", "-l", metavar="FIELD=VALUE", help="Only those; may be repeated: -l state=RUNNING"),
    ] = None,
    coordinator: CoordinatorOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """List resources of a kind, or show one.

    Example: headgate get queries -l state=RUNNING -o json
    """
    options = gather(context, coordinator, output)
    found_kind, found_name = kinds.parse_reference(kind, name)
    if found_name is None:
        request = list_request(found_kind, filters or [])
        found = run(options, lambda connection: _list(connection, found_kind, request))
    else:
        if filters:
            raise typer.BadParameter("--filter goes with a list, not with a name")
        found = [run(options, lambda connection: get_one(connection, found_kind, found_name))]
    if output is Output.TABLE:
        if found:
            print_table(found_kind.titles, [found_kind.row(resource) for resource in found])
        else:
            say(f"there are no {found_kind.plural.replace('_', ' ')}{' like that' if filters else ''}")
    elif found_name is not None:
        print_one(plain(found[0]), output)
    else:
        print_values([plain(resource) for resource in found], output)


def list_request(kind: Kind, filters: list[str]) -> Any:
    """The list call's request with the filters in it; a usage error for one that the kind does not have."""
    request = kind.message(f"{kind.list_method}Request")()
    known: dict[str, FieldDescriptor] = {
        field.name: field for field in request.DESCRIPTOR.fields if field.name not in ("page_size", "page_token")
    }
    for text in filters:
        key, separator, value = text.partition("=")
        field = known.get(key.strip().replace("-", "_"))
        if not separator or field is None:
            names = ", ".join(known) or "nothing"
            raise typer.BadParameter(f"--filter {text}: expected FIELD=VALUE; {kind.plural} are filtered by {names}")
        setattr(request, field.name, _filter_value(field, value.strip()))
    return request


def _filter_value(field: FieldDescriptor, value: str) -> Any:
    if field.enum_type is not None:
        enum = kinds.of_api(field.enum_type.name)
        return enum.Value(kinds.long(enum, value))
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return value
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return value.lower() in ("true", "yes", "1")
    if not value.isdecimal():
        raise typer.BadParameter(f"{field.name} is a number; {value!r} is none")
    return int(value)


async def _list(connection: Connection, kind: Kind, request: Any) -> list[Any]:
    return await connection.pages(f"{kind.service}.{kind.list_method}", request, kind.plural)


async def get_one(connection: Connection, kind: Kind, name: str) -> Any:
    if not kind.addressable:
        owner = "query" if kind is FRAGMENT else "topic"
        raise typer.BadParameter(f"a {kind.title} has no name; use `headgate get {kind.plural} -l {owner}=NAME`")
    request = kind.message(f"Get{kind.camel}Request")(**kind.reference(name))
    answer = await connection.call(f"{kind.service}.Get{kind.camel}", request)
    return getattr(answer, kind.name)


def describe(
    context: typer.Context,
    kind: KindArgument,
    name: NameArgument = None,
    coordinator: CoordinatorOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Tell everything about one resource.

    Of a query also its fragments, its story and why it waits.

    Example: headgate describe query/slow_highways
    """
    options = gather(context, coordinator, output)
    found_kind, found_name = kinds.parse_reference(kind, name)
    if found_name is None:
        raise typer.BadParameter(f"which {found_kind.title}? Write {found_kind.name}/NAME")
    if found_kind is QUERY:
        run(options, lambda connection: _describe_query(connection, found_name, output))
        return
    resource = run(options, lambda connection: get_one(connection, found_kind, found_name))
    if output is Output.TABLE:
        for title, value in fields.lines(resource):
            stdout().print(Text(f"{title}: ", style="bold"), styled(value), sep="")
    else:
        print_one(plain(resource), output)


async def _describe_query(connection: Connection, name: str, output: Output) -> None:
    query, fragments, story = await asyncio.gather(
        get_one(connection, QUERY, name),
        connection.pages("QueryService.ListFragments", catalog.ListFragmentsRequest(query=name), "fragments"),
        connection.pages("QueryService.GetStory", catalog.GetStoryRequest(query=name), "entries"),
    )
    if output is not Output.TABLE:
        whole = {
            "query": plain(query),
            "fragments": [plain(fragment) for fragment in fragments],
            "story": [plain(entry) for entry in story],
        }
        print_one(whole, output)
        return
    console = stdout()
    for title, value in _query_lines(query):
        console.print(Text(f"{title + ':':<16}", style="bold"), styled(value), sep="", end="\n")
    console.print(Text("\nStatement", style="bold"))
    console.print(Text("".join(f"  {line}\n" for line in query.statement.splitlines()).rstrip("\n")))
    console.print(Text("\nFragments", style="bold"))
    print_table(FRAGMENT.titles[1:], [FRAGMENT.row(fragment)[1:] for fragment in fragments])
    _print_progress([fragment for fragment in fragments if fragment.HasField("progress")])
    console.print(Text("\nStory", style="bold"))
    print_story(story)


def _print_progress(fragments: list[catalog.Fragment]) -> None:
    """What runs have told of their work, and what slows each of them down."""
    if not fragments:
        return
    console = stdout()
    console.print(Text("\nProgress", style="bold"))
    print_table(progress.FRAGMENT_TITLES, [progress.fragment_row(fragment) for fragment in fragments])
    for fragment in fragments:
        if fragment.progress.waiting:
            console.print(Text(f"fragment {fragment.ordinal} waits: {fragment.progress.waiting}"))
    if any(fragment.progress.bad_records for fragment in fragments):
        console.print(Text(f"records that could not be read: headgate errors {fragments[0].query}"))


def _query_lines(query: catalog.Query) -> list[tuple[str, str]]:
    lines = [
        ("Query", query.name),
        ("State", short(catalog.QueryState, query.state)),
        ("Wanted", short(catalog.DesiredState, query.desired_state)),
        ("Mode", short(catalog.QueryMode, query.mode)),
        ("Sinks", ", ".join(query.sinks)),
        ("Sources", ", ".join(query.physical_sources)),
        ("Created", query.create_time.ToDatetime(tzinfo=UTC).isoformat(timespec="milliseconds")),
        ("In state since", query.state_time.ToDatetime(tzinfo=UTC).isoformat(timespec="milliseconds")),
        ("Uid", query.uid),
    ]
    if query.HasField("waiting"):
        lines.insert(2, ("Waiting", kinds.waiting_text(query)))
    if query.HasField("failure"):
        failure = query.failure
        place = f" on {failure.agent}, fragment {failure.fragment}" if failure.fragment else ""
        lines.insert(2, ("Failure", f"{failure.reason}{place}: {failure.message}"))
        if failure.last_error:
            lines.insert(3, ("Last error", f"{failure.last_error} (attempt {failure.attempts})"))
    return lines


def print_story(entries: list[catalog.StoryEntry]) -> None:
    rows = [
        [
            entry.time.ToDatetime(tzinfo=UTC).strftime("%H:%M:%S.%f")[:-3],
            str(entry.revision),
            f"fragment {entry.fragment}" if entry.fragment else "query",
            entry.from_state,
            entry.to_state,
            entry.agent,
            str(entry.epoch or ""),
            entry.cause,
        ]
        for entry in entries
    ]
    print_table(["TIME", "REVISION", "WHAT", "FROM", "TO", "AGENT", "EPOCH", "CAUSE"], rows)


def explain(
    context: typer.Context,
    statement: Annotated[str | None, typer.Argument(help="A SELECT, or - for standard input.")] = None,
    file: Annotated[Path | None, typer.Option("-f", "--file", help="Read the statement from a file.")] = None,
    sink: Annotated[str, typer.Option(help="Where it would write to, if the statement has no INTO.")] = "",
    plan_format: Annotated[str, typer.Option("--format", help="text, or dot for Graphviz.")] = "text",
    coordinator: CoordinatorOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show how a query would run, without creating it.

    The logical plan, what was pushed down where, the fragments with their agents and the Spark SQL of each.

    Example: headgate explain "SELECT * FROM readings WHERE value > 3 INTO alarms"
    """
    options: Options = gather(context, coordinator, output)
    chosen = kinds.long(catalog.ExplainFormat, plan_format)
    request = catalog.ExplainQueryRequest(
        statement=read_statement(statement, file), sink=sink, format=catalog.ExplainFormat.Value(chosen)
    )
    with pointing_into(file):
        answer = run(options, lambda connection: connection.call("QueryService.ExplainQuery", request))
    if not answer.text and output is Output.TABLE:
        raise Failure(ExitCode.DEFECT, "the coordinator answered no plan")
    if output is Output.TABLE:
        stdout().print(answer.text.rstrip("\n"))
    else:
        print_one(plain(answer), output)
