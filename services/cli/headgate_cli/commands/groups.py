"""`groups`: consumer groups and how far they have read."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer
from rich.text import Text

from headgate.log import v1 as log
from headgate_cli.connection import Connection, run
from headgate_cli.failures import Failure
from headgate_cli.log_agents import on_some_agent
from headgate_cli.options import CoordinatorOption, OutputOption, gather
from headgate_cli.output import Output, plain, print_one, print_table, print_values, say, stdout

groups = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="""Consumer groups of the log.

    Example: headgate groups describe billing
    """,
)


@groups.command("list")
def list_groups(
    context: typer.Context,
    prefix: Annotated[str, typer.Option(help="Only names that begin so.")] = "",
    coordinator: CoordinatorOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """List consumer groups.

    Example: headgate groups list --prefix billing
    """
    request = log.ListGroupsRequest(name_prefix=prefix)
    found = run(
        gather(context, coordinator, output),
        lambda connection: connection.pages("GroupService.ListGroups", request, "groups"),
    )
    if output is not Output.TABLE:
        print_values([plain(each) for each in found], output)
    elif found:
        rows = [[each.name, each.leader, str(each.generation), str(len(each.offsets))] for each in found]
        print_table(["NAME", "LEADER", "GENERATION", "PARTITIONS"], rows)


@groups.command()
def describe(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the group; case counts.")],
    coordinator: CoordinatorOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Tell how far a group has read each partition, and how much is left.

    The end of a partition is known to its leader. Where it has none, the end of its last segment stands for it.

    Example: headgate groups describe billing
    """
    group, ends = run(gather(context, coordinator, output), lambda connection: _described(connection, name))
    rows = [(each, ends.get((each.topic, each.partition), each.offset)) for each in group.offsets]
    if output is not Output.TABLE:
        lags = [plain(each) | {"end": str(end), "lag": str(max(0, end - each.offset))} for each, end in rows]
        print_one(plain(group) | {"offsets": lags}, output)
        return
    console = stdout()
    for title, value in (("Group", group.name), ("Leader", group.leader), ("Generation", str(group.generation))):
        console.print(Text(f"{title + ':':<12}", style="bold"), Text(value), sep="")
    console.print()
    table = [
        [each.topic, str(each.partition), str(each.offset), str(end), str(max(0, end - each.offset)), each.metadata]
        for each, end in rows
    ]
    print_table(["TOPIC", "#", "OFFSET", "END", "LAG", "METADATA"], table)


async def _described(connection: Connection, name: str) -> tuple[Any, dict[tuple[str, int], int]]:
    """The group, and where each partition of its topics ends."""
    group = (await connection.call("GroupService.GetGroup", log.GetGroupRequest(name=name))).group
    ends = await _segment_ends(connection, sorted({each.topic for each in group.offsets}))
    try:
        answer = await on_some_agent(connection, "LogService.GetOffsets", log.GetOffsetsRequest(group=name))
    except Failure as failure:
        say(f"{failure}; ends are those of the last segments")
        return group, ends
    for each in answer.offsets:
        if each.high_watermark >= 0:
            ends[each.offset.topic, each.offset.partition] = each.high_watermark
    return group, ends


async def _segment_ends(connection: Connection, names: list[str]) -> dict[tuple[str, int], int]:
    listed = await asyncio.gather(
        *(
            connection.pages("TopicService.ListPartitions", log.ListPartitionsRequest(topic=each), "partitions")
            for each in names
        )
    )
    return {(each.topic, each.index): each.offsets.committed for found in listed for each in found}
