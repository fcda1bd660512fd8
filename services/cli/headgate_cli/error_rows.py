"""Error rows of a query: records that its fragments could not read, kept in topics of the query's own.

There is one such topic for each fragment, `__headgate.errors.<query uid>.<ordinal>`, led by one agent and read from it
as any edge is. Each record is an Arrow stream with the columns `raw`, `reason` and `place`.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, cast

from headgate.catalog import v1 as catalog
from headgate.log import v1 as log
from headgate_cli.connection import Connection
from headgate_cli.failures import ExitCode, Failure
from headgate_cli.output import printable
from headgate_common.errors import HeadgateError

PREFIX = "__headgate.errors."
# Leadership may be on its way from one agent to another.
_MOVING = {"UNREACHABLE", "NOT_LEADER", "SHUTTING_DOWN"}
_ATTEMPTS = 4
_PAUSE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class ErrorTopic:
    """The error rows of one fragment."""

    topic: log.Topic

    @property
    def fragment(self) -> int:
        last = self.topic.name.rpartition(".")[2]
        return int(last) if last.isdecimal() else 0


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """One record that could not be read."""

    fragment: int
    offset: int
    place: str
    reason: str
    raw: bytes | None

    def as_json(self) -> dict[str, Any]:
        told: dict[str, Any] = {
            "fragment": self.fragment,
            "offset": self.offset,
            "place": self.place,
            "reason": self.reason,
        }
        try:
            return told | {"raw": self.raw.decode() if self.raw is not None else None}
        except UnicodeDecodeError:
            return told | {"raw_base64": base64.b64encode(self.raw or b"").decode()}

    @property
    def text(self) -> str:
        """The record on one line, with what is not text escaped."""
        return printable((self.raw or b"").rstrip(b"\r\n").decode(errors="backslashreplace"))


async def error_topics(connection: Connection, query: str) -> list[ErrorTopic]:
    """The topics with error rows of a query, by its name; of one that was dropped, by its uid."""
    uid = await _uid(connection, query)
    request = log.ListTopicsRequest(name_prefix=f"{PREFIX}{uid or query}.", include_internal=True)
    found = [ErrorTopic(topic) for topic in await connection.pages("TopicService.ListTopics", request, "topics")]
    if not found and uid is None:
        raise Failure(
            ExitCode.REFUSED,
            f"there is no query {query}, nor error rows of a query with that uid",
            "Error rows of a dropped query are kept for a while, under its uid: headgate topics list --internal",
        )
    return sorted(found, key=lambda each: each.fragment)


async def _uid(connection: Connection, query: str) -> str | None:
    try:
        answer = await connection.call("QueryService.GetQuery", catalog.GetQueryRequest(name=query))
    except HeadgateError as error:
        if error.reason.name == "QUERY_NOT_FOUND":
            return None
        raise
    return str(answer.query.uid)


class ErrorReader:
    """Reads one topic of error rows from the agent that leads it, on from where it last stopped."""

    def __init__(self, connection: Connection, topic: ErrorTopic) -> None:
        self._connection = connection
        self._topic = topic
        self._next: int | None = None

    async def rows(self, last: int = 0) -> list[ErrorRow]:
        """Rows that are there now; at first only those of the last so many records, unless that is 0."""
        for attempt in range(1, _ATTEMPTS + 1):
            leader = await self._leader()
            try:
                return await self._rows(leader.address, last)
            except HeadgateError as error:
                if error.reason.name not in _MOVING:
                    raise
                if attempt == _ATTEMPTS:
                    raise Failure(
                        ExitCode.UNREACHABLE,
                        f"agent {leader.name} at {leader.address}, which has the error rows of fragment "
                        f"{self._topic.fragment}, does not answer ({error.reason.name})",
                    ) from error
                await asyncio.sleep(_PAUSE_SECONDS)
        raise AssertionError("the last attempt returns or raises")

    async def _rows(self, address: str, last: int) -> list[ErrorRow]:
        uid = self._topic.topic.uid
        edge = await self._connection.call_at(address, "EdgeService.GetEdge", log.GetEdgeRequest(topic_uid=uid))
        here = edge.partitions[0]
        start = self._next if self._next is not None else max(here.log_start, here.high_watermark - last if last else 0)
        found: list[ErrorRow] = []
        if start < here.high_watermark:
            request = log.ReadEdgeRequest(topic_uid=uid, from_offset=start, until_offset=here.high_watermark)
            async with aclosing(
                cast(Any, self._connection.stream_at(address, "EdgeService.ReadEdge", request))
            ) as parts:
                async for part in parts:
                    for index, record in enumerate(part.batches):
                        found += decode(record, self._topic.fragment, part.offset + index)
        self._next = max(start, here.high_watermark)
        return found[-last:] if last else found

    async def _leader(self) -> catalog.Agent:
        name = self._topic.topic.name
        partitions = await self._connection.pages(
            "TopicService.ListPartitions", log.ListPartitionsRequest(topic=name), "partitions"
        )
        if not partitions or not partitions[0].leader:
            why = partitions[0].waiting if partitions else "it has no partition"
            raise Failure(
                ExitCode.REFUSED, f"error rows of fragment {self._topic.fragment} cannot be read: {why or 'no leader'}"
            )
        request = catalog.GetAgentRequest(name=partitions[0].leader)
        agent: catalog.Agent = (await self._connection.call("AgentService.GetAgent", request)).agent
        return agent


def decode(record: bytes, fragment: int, offset: int) -> Iterator[ErrorRow]:
    """The rows of one record. The end of an edge has no bytes, and so no rows."""
    if not record:
        return
    # Only this command needs it, and it takes as long to import as the rest.
    import pyarrow as pa

    try:
        with pa.ipc.open_stream(pa.BufferReader(record)) as reader:
            rows = reader.read_all().to_pylist()
    except pa.ArrowInvalid as error:
        raise Failure(ExitCode.DEFECT, f"record {offset} of fragment {fragment} is no Arrow stream: {error}") from error
    for row in rows:
        raw = row.get("raw")
        yield ErrorRow(
            fragment,
            offset,
            str(row.get("place") or ""),
            str(row.get("reason") or ""),
            raw.encode() if isinstance(raw, str) else raw,
        )
