"""`topics`: create, list, describe, alter, delete and recover topics."""

from __future__ import annotations

import asyncio
from datetime import UTC
from typing import Annotated, Any

import typer
from rich.text import Text

from headgate.log import v1 as log
from headgate_cli import topic_settings
from headgate_cli.commands.read import get_one
from headgate_cli.connection import Connection, run
from headgate_cli.failures import Failure
from headgate_cli.kinds import PARTITION, TOPIC, short
from headgate_cli.log_agents import on_some_agent
from headgate_cli.options import CoordinatorOption, OutputOption, gather
from headgate_cli.output import Output, plain, print_one, print_table, print_values, say, stdout
from headgate_common.errors import HeadgateError

topics = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="""Topics of the log.

    Example: headgate topics create orders --partitions 6 --set durability=WAL --set retention=24h
    """,
)
# How long leaders may take to say where their partitions end.
LEADERS_SECONDS = 3.0
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the topic; case counts.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Check everything, change nothing.")]


@topics.command()
def create(
    context: typer.Context,
    name: NameArgument,
    partitions: Annotated[
        int | None,
        typer.Option(
            "-p",
            "--partitions",
            help="How many; fixed for good. Otherwise as the coordinator is set.",
            min=1,
            max=2**31 - 1,
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting; may be repeated: --set retention=24h"),
    ] = None,
    group: Annotated[str, typer.Option(help="The group of agents that lead it.")] = "",
    missing_only: Annotated[bool, typer.Option("--if-not-exists", help="One that is there is fine.")] = False,
    dry_run: DryRunOption = False,
    coordinator: CoordinatorOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Create a topic with all its partitions.

    Example: headgate topics create orders --partitions 6 --set durability=WAL
    """
    options = gather(context, coordinator, output)
    request = log.CreateTopicRequest(
        name=name,
        partitions=partitions or 0,
        settings=topic_settings.read(settings or []),
        group=group,
        validate_only=dry_run,
    )

    async def work(connection: Connection) -> log.Topic | None:
        if not dry_run:
            request.request_id = connection.request_id()
        try:
            made: log.Topic = (await connection.call("TopicService.CreateTopic", request)).topic
        except HeadgateError as error:
            if missing_only and error.reason.name == "ALREADY_EXISTS":
                return None
            raise
        return made

    made = run(options, work)
    if made is None:
        say(f"there is a topic {name} already")
    elif output is Output.TABLE:
        stdout().print(f"topic {name}: {'would be created' if dry_run else 'created'}")
    else:
        print_one(plain(made), output)


async def _list(connection: Connection, prefix: str, *, internal: bool) -> list[log.Topic]:
    request = log.ListTopicsRequest(name_prefix=prefix, include_internal=internal)
    return await connection.pages("TopicService.ListTopics", request, "topics")


@topics.command("list")
def list_topics(
    context: typer.Context,
    prefix: Annotated[str, typer.Option(help="Only names that begin so.")] = "",
    internal: Annotated[bool, typer.Option("--internal", help="Topics that queries made for themselves, too.")] = False,
    coordinator: CoordinatorOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """List topics.

    Example: headgate topics list --prefix orders
    """
    found = run(gather(context, coordinator, output), lambda connection: _list(connection, prefix, internal=internal))
    if output is not Output.TABLE:
        print_values([plain(each) for each in found], output)
    elif found:
        print_table(TOPIC.titles, [TOPIC.row(each) for each in found])


@topics.command()
def describe(
    context: typer.Context,
    name: NameArgument,
    only: Annotated[
        list[int] | None, typer.Option("-p", "--partition", help="Tell the story of this one only; may be repeated.")
    ] = None,
    events: Annotated[
        int, typer.Option("--events", help="How much of the story to tell, from its end; 0 for none.", min=0)
    ] = 20,
    coordinator: CoordinatorOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Tell the settings of a topic, who leads each partition, what is in it, and what happened to them of late.

    Example: headgate topics describe orders --partition 3 --events 100
    """

    async def work(connection: Connection) -> tuple[Any, list[Any], list[Any], dict[int, int]]:
        asked = log.GetPartitionStoryRequest(topic=name, partitions=only or [])
        topic, partitions, story = await asyncio.gather(
            get_one(connection, TOPIC, name),
            connection.pages("TopicService.ListPartitions", log.ListPartitionsRequest(topic=name), "partitions"),
            connection.pages("TopicService.GetPartitionStory", asked, "entries"),
        )
        return topic, partitions, story, await _ends(connection, name, partitions)

    topic, partitions, story, ends = run(gather(context, coordinator, output), work)
    told = story[max(0, len(story) - events) :]
    if output is not Output.TABLE:
        whole = {
            "topic": plain(topic),
            "partitions": [
                {**plain(each), **({"highWatermark": str(ends[each.index])} if each.index in ends else {})}
                for each in partitions
            ],
            "story": [plain(each) for each in told],
        }
        print_one(whole, output)
        return
    console = stdout()
    lines = [("Topic", topic.name), ("Uid", topic.uid), ("Group", topic.group), *topic_settings.texts(topic.settings)]
    for title, value in lines:
        console.print(Text(f"{title.replace('_', ' ').capitalize() + ':':<20}", style="bold"), Text(value), sep="")
    console.print(Text("\nPartitions", style="bold"))
    print_table(
        [*PARTITION.titles[1:], "HIGH WATERMARK"],
        [[*PARTITION.row(each)[1:], str(ends.get(each.index, "?"))] for each in partitions],
    )
    if told:
        console.print(Text("\nStory", style="bold"))
        _print_story(told)
        if len(told) < len(story):
            say(f"{len(story) - len(told)} earlier entries: --events {len(story)}")


async def _ends(connection: Connection, name: str, partitions: list[Any]) -> dict[int, int]:
    """Where the records of partitions end, as their leaders know, which is ahead of what is in segments; those whose
    leader does not say so soon are left out."""
    led = [each.index for each in partitions if each.leader]
    if not led:
        return {}
    try:
        async with asyncio.timeout(LEADERS_SECONDS):
            request = log.ListOffsetsRequest(topic=name, partitions=led)
            answer = await on_some_agent(connection, "LogService.ListOffsets", request)
    except (TimeoutError, HeadgateError, Failure):
        return {}
    return {each.partition: each.high_watermark for each in answer.offsets}


def _print_story(entries: list[log.PartitionStoryEntry]) -> None:
    rows = [
        [
            entry.time.ToDatetime(tzinfo=UTC).isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00"),
            str(entry.revision),
            str(entry.partition),
            short(log.PartitionEvent, entry.event),
            entry.agent,
            str(entry.epoch or ""),
            f"{entry.from_offset} to {entry.to_offset}: {entry.cause}" if entry.to_offset else entry.cause,
        ]
        for entry in entries
    ]
    print_table(["TIME", "REVISION", "PARTITION", "WHAT", "AGENT", "EPOCH", "CAUSE"], rows)


@topics.command()
def alter(
    context: typer.Context,
    name: NameArgument,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting; may be repeated: --set retention=24h"),
    ] = None,
    reset: Annotated[
        list[str] | None, typer.Option("--reset", metavar="NAME", help="Back to its default; may be repeated.")
    ] = None,
    dry_run: DryRunOption = False,
    coordinator: CoordinatorOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Change settings of a topic; what is not named stays.

    Durability, format and the number of partitions are fixed at creation.

    Example: headgate topics alter orders --set retention=24h --reset linger
    """
    options = gather(context, coordinator, output)
    named = [topic_settings.name_of(each.partition("=")[0]) for each in (*(settings or ()), *(reset or ()))]
    if not named or len(set(named)) < len(named):
        raise typer.BadParameter("name each setting once, with --set NAME=VALUE or --reset NAME")
    request = log.AlterTopicRequest(
        name=name, settings=topic_settings.read(settings or []), fields=named, validate_only=dry_run
    )

    async def work(connection: Connection) -> log.Topic:
        if not dry_run:
            request.request_id = connection.request_id()
        altered: log.Topic = (await connection.call("TopicService.AlterTopic", request)).topic
        return altered

    altered = run(options, work)
    if output is Output.TABLE:
        stdout().print(f"topic {name}: {'would be altered' if dry_run else 'altered'}")
    else:
        print_one(plain(altered), output)


@topics.command()
def delete(
    context: typer.Context,
    name: NameArgument,
    missing_ok: Annotated[bool, typer.Option("--if-exists", help="A missing one is fine.")] = False,
    dry_run: DryRunOption = False,
    coordinator: CoordinatorOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Delete a topic and its records.

    Refused while a source, sink or query uses it; the message lists them.

    Example: headgate topics delete orders
    """
    request = log.DropTopicRequest(name=name, allow_missing=missing_ok, validate_only=dry_run)

    async def work(connection: Connection) -> Any:
        if not dry_run:
            request.request_id = connection.request_id()
        return await connection.call("TopicService.DropTopic", request)

    answer = run(gather(context, coordinator, output), work)
    if not answer.HasField("topic"):
        say(f"there is no topic {name}")
    elif output is Output.TABLE:
        stdout().print(f"topic {name}: {'would be deleted' if dry_run else 'deleted'}")
    else:
        print_one(plain(answer.topic), output)


@topics.command()
def recover(
    context: typer.Context,
    name: NameArgument,
    partitions: Annotated[
        list[int] | None, typer.Option("-p", "--partition", help="Which one; may be repeated. All that wait otherwise.")
    ] = None,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="What the lost leader acknowledged and did not upload is lost.")
    ] = False,
    dry_run: DryRunOption = False,
    coordinator: CoordinatorOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Let partitions go on whose leader is lost with its disk.

    Without --accept-loss it is refused, and says how many records would be lost at most. Lost offsets are never used
    again: they stay as a hole, which `headgate topics describe` shows.

    Example: headgate topics recover orders --accept-loss
    """
    request = log.RecoverPartitionsRequest(
        topic=name, partitions=partitions or [], accept_loss=accept_loss, validate_only=dry_run
    )

    async def work(connection: Connection) -> Any:
        if not dry_run:
            request.request_id = connection.request_id()
        return await connection.call("TopicService.RecoverPartitions", request)

    answer = run(gather(context, coordinator, output), work)
    if output is not Output.TABLE:
        print_values([plain(each) for each in answer.partitions], output)
    elif answer.partitions:
        print_table(PARTITION.titles, [PARTITION.row(each) for each in answer.partitions])
    else:
        say(f"no partition of topic {name} waits for a volume")
