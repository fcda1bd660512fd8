"""A SELECT without INTO: a temporary query whose rows are written as they come, and that is dropped when they end, when
the reader has enough, or when this process dies."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from typing import Any, TypeVar, cast

from google.protobuf.message import Message

from headgate.catalog import v1 as catalog
from headgate.cluster import v1 as cluster
from headgate_cli.connection import Connection
from headgate_cli.failures import ExitCode, Failure
from headgate_cli.output import Output, print_json_line, printable, say
from headgate_cli.statements import Piece, words_of
from headgate_common.errors import HeadgateError

T = TypeVar("T")

_LOOK_SECONDS = 0.5
_WAIT_SECONDS = 20
_ENDED = (catalog.QUERY_STATE_STOPPED, catalog.QUERY_STATE_TERMINATED, catalog.QUERY_STATE_FAILED)
# The agent is not there yet, or not any more: the query says whether it is worth asking again.
_AGAIN = ("UNREACHABLE", "SHUTTING_DOWN", "RESULT_NOT_FOUND", "OVERLOADED")
_MOST_WIDTH = 40


def is_select(piece: Piece) -> bool:
    """Whether a statement is a query that names no sink."""
    words = words_of(piece.text)
    return piece.keyword in ("SELECT", "WITH") and "INTO" not in words


class Rows:
    """Writes rows as they come: as lines of a table, of JSON, or gathered for one JSON array."""

    def __init__(self, output: Output, gathered: list[object] | None) -> None:
        self._output = output
        self._gathered = gathered
        self._names: Sequence[str] = ()
        # Whether somebody gives rows, though none may have come yet.
        self.begun = False
        self._widths: list[int] = []

    def begin(self, names: Sequence[str]) -> None:
        """What the columns are called; written above the first row, after all that is said before."""
        self._names = names
        self.begun = True

    def head(self) -> None:
        """Writes the header, once; also where no row comes."""
        if self._output is Output.TABLE and not self._widths:
            self._widths = [max(len(name), 10) for name in self._names]
            self._line([name.upper() for name in self._names])

    def add(self, rows: Sequence[str]) -> None:
        if rows:
            self.head()
        for text in rows:
            row = json.loads(text)
            if self._gathered is not None:
                self._gathered.append(row)
            elif self._output is Output.TABLE:
                self._line([_cell(value) for value in row.values()])
            else:
                print_json_line(row)

    def _line(self, cells: Sequence[str]) -> None:
        cells = [printable(cell) for cell in cells]
        # A column is as wide as its widest value so far, so that what follows a long one is in line again.
        self._widths = [
            max(width, min(len(cell), _MOST_WIDTH)) for width, cell in zip(self._widths, cells, strict=True)
        ]
        padded = (cell.ljust(width) for cell, width in zip(cells, self._widths, strict=True))
        sys.stdout.write("   ".join(padded).rstrip() + "\n")
        sys.stdout.flush()


def _cell(value: Any) -> str:
    if value is None:
        return "NULL"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


class _Looks:
    """Asks the coordinator about the query, which runs on while nobody answers: that is said once, and asked again."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._away = False

    async def call(self, method: str, request: Message) -> Any:
        return await self._insist(lambda: self._connection.call(method, request))

    async def pages(self, method: str, request: Message, field: str) -> list[Any]:
        return await self._insist(lambda: self._connection.pages(method, request, field))

    async def _insist(self, ask: Callable[[], Awaitable[T]]) -> T:
        answer = await self._connection.insist(ask, self._interrupted)
        self._away = False
        return answer

    def _interrupted(self, error: HeadgateError) -> None:
        if not self._away:
            say(f"the coordinator went away ({error.reason.name}); trying again")
        self._away = True


async def select(connection: Connection, piece: Piece, rows: Rows) -> None:
    """Runs the query until its rows end or the caller is cancelled. A coordinator that is away ends it not."""
    request = catalog.CreateQueryRequest(statement=piece.text, temporary=True, request_id=connection.request_id())
    query: catalog.Query = (await connection.call("QueryService.CreateQuery", request)).query
    looks = _Looks(connection)
    reading = asyncio.ensure_future(_read(connection, looks, query, rows))
    watching = asyncio.ensure_future(_watch(looks, query))
    try:
        await asyncio.wait((reading, watching), return_when=asyncio.FIRST_COMPLETED)
        if not reading.done() and (rows.begun or watching.exception() is None):
            # It has ended; what it gave before may still be on its way.
            await asyncio.wait((reading,), timeout=_WAIT_SECONDS)
        for task in (watching, reading):
            if task.done():
                task.result()
    finally:
        for task in (reading, watching):
            task.cancel()
        await asyncio.gather(reading, watching, return_exceptions=True)
        with suppress(HeadgateError, Failure):
            await asyncio.shield(_drop(connection, query))


async def _read(connection: Connection, looks: _Looks, query: catalog.Query, rows: Rows) -> None:
    while True:
        address = await _address(looks, query)
        request = cluster.ReadResultsRequest(query_uid=query.uid)
        request.wait.FromSeconds(_WAIT_SECONDS)
        try:
            answers = connection.stream_at(address, "ResultService.ReadResults", request)
            async with aclosing(cast(Any, answers)) as messages:
                async for message in messages:
                    if message.HasField("schema"):
                        rows.begin([field.name for field in message.schema.fields])
                    rows.add(message.rows)
                    if message.ended:
                        rows.head()
                        return
        except HeadgateError as error:
            if error.reason.name not in _AGAIN:
                raise
        await asyncio.sleep(_LOOK_SECONDS)


async def _address(looks: _Looks, query: catalog.Query) -> str:
    request = catalog.ListFragmentsRequest(query=query.name)
    fragments = await looks.pages("QueryService.ListFragments", request, "fragments")
    agents = [one.agent for one in fragments if one.kind == catalog.FRAGMENT_KIND_SINK]
    if not agents:
        raise Failure(ExitCode.REFUSED, "the query was dropped")
    agent: catalog.Agent = (await looks.call("AgentService.GetAgent", catalog.GetAgentRequest(name=agents[0]))).agent
    return agent.address


async def _watch(looks: _Looks, query: catalog.Query) -> None:
    """Says what the query waits for; returns when it has ended, and raises why it failed."""
    told = ""
    while True:
        found: catalog.Query = (
            await looks.call("QueryService.GetQuery", catalog.GetQueryRequest(name=query.name))
        ).query
        if found.state == catalog.QUERY_STATE_FAILED:
            raise Failure(ExitCode.REFUSED, f"{found.failure.reason}: {found.failure.message}")
        if found.state in _ENDED:
            return
        waiting = found.waiting.message if found.state == catalog.QUERY_STATE_DEPLOYING else ""
        if waiting and waiting != told:
            say(f"waiting: {waiting}")
        told = waiting or told
        await asyncio.sleep(_LOOK_SECONDS)


async def _drop(connection: Connection, query: catalog.Query) -> None:
    request = catalog.DropQueryRequest(
        name=query.name, uid=query.uid, allow_missing=True, request_id=connection.request_id()
    )
    await connection.call("QueryService.DropQuery", request)
