"""`topics produce` and `topics consume`: records of a topic, from and to the terminal.

Records go to and come from agents, not through the coordinator: it only says where the agents are.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Annotated, Any, BinaryIO, cast

import typer

from headgate.log import v1 as log
from headgate_cli.commands.topics import NameArgument
from headgate_cli.connection import Connection, run
from headgate_cli.failures import ExitCode, Failure
from headgate_cli.log_agents import agent_that_answers, log_agents, nobody
from headgate_cli.options import CoordinatorOption, OutputOption, gather
from headgate_cli.output import Output, print_json_line, printable, say
from headgate_common.errors import UNREACHABLE, HeadgateError

# Records sent in one call at most; each call is acknowledged before the next is sent.
_AT_ONCE = 1_000
_BYTES_AT_ONCE = 512 * 1024
# After these nobody knows whether the records of a call are stored.
_MAY_BE_STORED = ("RECORDS_UNCERTAIN", "UNREACHABLE", "DEADLINE_EXCEEDED")


def produce(
    context: typer.Context,
    name: NameArgument,
    value: Annotated[list[str] | None, typer.Argument(metavar="[VALUE]...", help="One record each.")] = None,
    key: Annotated[str | None, typer.Option("-k", "--key", help="Key of every record.")] = None,
    separator: Annotated[
        str, typer.Option("-s", "--separator", help="What is before it in a line is the key: --separator=,")
    ] = "",
    partition: Annotated[
        int | None, typer.Option("-p", "--partition", min=0, max=2**31 - 1, help="Where all of them go.")
    ] = None,
    coordinator: CoordinatorOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Append records to a topic.

    Each VALUE is a record; without any, each line of standard input is. A record with a key goes to the partition of
    its key, as with every Kafka client. It returns when all are as durable as the topic promises.

    Example: headgate topics produce orders '{"id": 1}' --key customer-7

    Example: headgate topics produce orders --separator=: < orders.txt
    """
    if not value and sys.stdin.isatty():
        say("one record a line; Ctrl-D ends")
    lines = [each.encode() for each in value] if value else _lines(sys.stdin.buffer)
    sent = 0

    async def work(connection: Connection) -> int:
        nonlocal sent
        address = await agent_that_answers(connection, name)
        for chunk in _chunks(_records(lines, key, separator)):
            request = log.ProduceRecordsRequest(topic=name, records=chunk)
            if partition is not None:
                request.partition = partition
            answer = await _stored(connection, address, request)
            sent += len(answer.positions)
            if output is not Output.TABLE:
                for position in answer.positions:
                    print_json_line({"partition": position.partition, "offset": position.offset})
        return sent

    try:
        run(gather(context, coordinator, output), work)
    except (HeadgateError, Failure):
        if sent:
            say(f"{sent} records were stored before the failure")
        raise
    if output is Output.TABLE:
        say(f"{sent} record{'' if sent == 1 else 's'} stored in {name}")


async def _stored(
    connection: Connection, address: str, request: log.ProduceRecordsRequest
) -> log.ProduceRecordsResponse:
    """Sends records once: sent again elsewhere, they would be there twice if they are stored."""
    try:
        answer: log.ProduceRecordsResponse = await connection.call_at(address, "LogService.ProduceRecords", request)
    except HeadgateError as error:
        if error.reason.name not in _MAY_BE_STORED:
            raise
        raise Failure(
            ExitCode.UNREACHABLE,
            f"{len(request.records)} records may be stored: {error.message}",
            f"Look at the end of {request.topic} before you send them again.",
        ) from error
    return answer


def consume(
    context: typer.Context,
    name: NameArgument,
    partitions: Annotated[
        list[int] | None,
        typer.Option("-p", "--partition", min=0, max=2**31 - 1, help="Which one; may be repeated. All otherwise."),
    ] = None,
    offset: Annotated[
        int | None, typer.Option("--offset", min=0, max=2**63 - 1, help="The first one of each partition.")
    ] = None,
    latest: Annotated[bool, typer.Option("--latest", help="Only what is produced from now on.")] = False,
    limit: Annotated[int, typer.Option("-n", "--limit", min=0, help="Stop after so many records; 0: never.")] = 0,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Wait for more until Ctrl-C.")] = False,
    keys: Annotated[bool, typer.Option("--keys", help="The key before each value, with a tab between.")] = False,
    coordinator: CoordinatorOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Print the records of a topic.

    What is there now, from the first record on; with --follow also what comes. Nothing is committed: no group's offsets
    change. With -o jsonl each record has its partition, offset, time, key and headers; bytes that are no text come as
    base64, marked as such.

    Example: headgate topics consume orders -n 10

    Example: headgate topics consume orders --latest --follow -o jsonl
    """
    if latest and offset is not None:
        raise typer.BadParameter("--latest and --offset exclude each other")
    start = log.StartPosition(offset=offset) if offset is not None else log.StartPosition(earliest=True)
    if latest:
        start = log.StartPosition(latest=True)
    request = log.TailRecordsRequest(
        topic=name, partitions=partitions or [], limit=limit, until_end=not follow and not latest, **{"from": start}
    )

    async def work(connection: Connection) -> None:
        async with aclosing(cast(Any, _tail(connection, request))) as records:
            async for record in records:
                _show(record, output, keys=keys)

    run(gather(context, coordinator, output), work)


async def _tail(connection: Connection, request: log.TailRecordsRequest) -> AsyncIterator[log.Record]:
    addresses = await log_agents(connection)
    shown = False
    for address in addresses:
        try:
            async with aclosing(cast(Any, connection.stream_at(address, "LogService.TailRecords", request))) as answers:
                async for answer in answers:
                    for record in answer.records:
                        shown = True
                        yield record
            return
        except HeadgateError as error:
            # Another agent would begin from the start again.
            if error.reason is not UNREACHABLE or shown:
                raise
    raise nobody(addresses)


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    for line in stream:
        yield line.rstrip(b"\r\n")


def _records(lines: Any, key: str | None, separator: str) -> Iterator[log.Record]:
    mark = separator.encode()
    for line in lines:
        own, value = key.encode() if key is not None else None, line
        if mark and mark in line:
            own, _, value = line.partition(mark)
        record = log.Record(value=value)
        if own is not None:
            record.key = own
        yield record


def _chunks(records: Iterator[log.Record]) -> Iterator[list[log.Record]]:
    chunk: list[log.Record] = []
    size = 0
    for record in records:
        chunk.append(record)
        size += len(record.value) + len(record.key)
        if len(chunk) >= _AT_ONCE or size >= _BYTES_AT_ONCE:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _show(record: log.Record, output: Output, *, keys: bool) -> None:
    if output is not Output.TABLE:
        print_json_line(_as_json(record))
        return
    line = (record.key + b"\t" if keys else b"") + record.value + b"\n"
    # A file gets what was produced; a terminal would obey it.
    sys.stdout.buffer.write(_for_terminal(line) if sys.stdout.isatty() else line)
    sys.stdout.flush()


def _for_terminal(data: bytes) -> bytes:
    return printable(data.decode(errors="backslashreplace"), lines=True).encode()


def _as_json(record: log.Record) -> dict[str, Any]:
    told: dict[str, Any] = {"partition": record.partition, "offset": record.offset}
    if record.HasField("timestamp"):
        told["timestamp"] = record.timestamp.ToJsonString()
    told |= _text("key", record.key if record.HasField("key") else None)
    told |= _text("value", record.value if record.HasField("value") else None)
    if record.headers:
        told["headers"] = [
            {"key": header.key} | _text("value", header.value if header.HasField("value") else None)
            for header in record.headers
        ]
    return told


def _text(name: str, data: bytes | None) -> dict[str, Any]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}
