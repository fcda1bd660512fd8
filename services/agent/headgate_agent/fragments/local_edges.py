"""Edges that this agent leads itself, as its sources and sinks see them.

Both begin by waiting for the lead: a new topic is known here a moment after its query was accepted, and a restarted
agent leads again what its write-ahead log holds. A record of an edge is one Arrow IPC stream. Losing the lead ends the
run with an error that may pass: the next run goes on from what the edge holds.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

import pyarrow as pa

from headgate.cluster import v1 as cluster
from headgate_agent.errors import STALE_EPOCH
from headgate_agent.fragments.appends import Append, GroupedWriter, Packed
from headgate_agent.fragments.edges import Chunk, EdgeBatch, ErrorRow, Stored
from headgate_agent.log.access import FetchPart, UnknownPartition
from headgate_agent.log.broker import Broker
from headgate_agent.log.contract import NotLeader, PartitionKey
from headgate_agent.log.edges import END_KEY, StaleWriter, Writer
from headgate_agent.log.records import PlainRecord, pack_in_place, unpack_batches
from headgate_agent.log.refusals import EXPECTED, refusal
from headgate_agent.work import Work
from headgate_common.clock import Clock
from headgate_common.errors import HeadgateError

T = TypeVar("T")

ERROR_SCHEMA = pa.schema([("raw", pa.string()), ("reason", pa.string()), ("place", pa.string())])
# Begins what is stored of a source where it has had malformed rows: their number follows, then its position.
_COUNTED = b"\0malformed"
_COUNT_BYTES = 8
# Seconds between two looks for something that the event loop does not tell of.
_LOOK = 0.05


class LocalEdge:
    """One partition that this agent leads, or will soon."""

    def __init__(self, broker: Broker, topic: cluster.EdgeTopic, waiting: Callable[[str], None]) -> None:
        """`waiting` is told what keeps it from being led, and the empty text when nothing does any more."""
        self.key = PartitionKey(topic.topic_uid, 0)
        self._broker = broker
        self._name = topic.topic
        self._waiting = waiting

    async def led(self) -> None:
        """Returns when this agent leads it."""
        while True:
            try:
                self._broker.bounds(self.key)
            except (NotLeader, UnknownPartition) as error:
                self._waiting(f"edge {self._name} is not led here yet: {error}")
                await asyncio.sleep(_LOOK)
            else:
                self._waiting("")
                return

    @asynccontextmanager
    async def refusing(self) -> AsyncIterator[None]:
        """The log's own errors become what a run can report."""
        try:
            yield
        except StaleWriter as error:
            raise HeadgateError(STALE_EPOCH, str(error)) from error
        except EXPECTED as error:
            raise refusal(error, self._broker.view, self.key, self._broker.name) from error


class LocalEdgeWriter(GroupedWriter):
    """`EdgeWriter` for the run of a source."""

    def __init__(
        self,
        broker: Broker,
        topic: cluster.EdgeTopic,
        errors: cluster.EdgeTopic | None,
        *,
        fragment: str,
        epoch: int,
        max_lag: int,
        most_bytes: int,
        clock: Clock,
        work: Work,
        waiting: Callable[[str], None],
    ) -> None:
        super().__init__(keeps_errors=errors is not None, most_bytes=most_bytes, clock=clock, work=work)
        self._edge = LocalEdge(broker, topic, waiting)
        self._errors = LocalEdge(broker, errors, waiting) if errors is not None else None
        self._broker = broker
        self._fragment = fragment
        self._epoch = epoch
        self._max_lag = max_lag
        # What was appended by this run and is still there: the offset after it, and its size.
        self._ahead: deque[tuple[int, int]] = deque()
        self._ahead_bytes = 0
        # What was there when this run began: the offset after it, and about how much of it is left.
        self._earlier = (0, 0)

    async def stored(self) -> Stored | None:
        """Makes this run the writer of its edge, which shuts the earlier ones out."""

        async def look() -> None:
            end = self._broker.bounds(self._edge.key).high_watermark
            self._earlier = end, await self._broker.size(self._edge.key)

        edges = [self._edge, *([self._errors] if self._errors is not None else [])]
        writer = await _open_writer(self._broker, edges, self._fragment, self._epoch, look)
        position, self.malformed = counted(writer.position)
        return Stored(position, writer.ended) if writer.batch_id >= 0 else None

    def _pack(self, batches: Sequence[pa.RecordBatch], errors: Sequence[ErrorRow], now: int) -> Packed:
        """Kafka record batches, one for each batch of rows."""
        return Packed([_record_batch(batch, now) for batch in together(batches)], packed_errors(errors, now))

    async def _write(self, group: Sequence[Append], size: int, malformed: int) -> None:
        parts = [(self._edge.key, data) for one in group for data in one.packed.result().rows]
        if self._errors is not None:
            parts += [(self._errors.key, data) for one in group for data in one.packed.result().errors]
        last = group[-1]
        async with self._edge.refusing():
            await self._broker.edges.append(
                self._fragment,
                self._epoch,
                parts,
                with_count(last.position, malformed),
                ends=[self._edge.key] if last.end else (),
            )
            if size:
                self._ahead.append((self._broker.bounds(self._edge.key).high_watermark, size))
                self._ahead_bytes += size

    async def _room(self) -> None:
        """Waits while the query is too far behind."""
        async with self._edge.refusing():
            while True:
                start = self._broker.bounds(self._edge.key).log_start
                while self._ahead and self._ahead[0][0] <= start:
                    self._ahead_bytes -= self._ahead.popleft()[1]
                behind = self._ahead_bytes + await self._left_of_earlier(start)
                if behind < self._max_lag:
                    self.waiting = ""
                    return
                self.waiting = f"the query is {behind / 2**20:.0f} MiB behind its source, which pauses"
                await asyncio.sleep(_LOOK)

    async def _left_of_earlier(self, start: int) -> int:
        """How much of what earlier runs have appended is still there; asked for only while it matters."""
        end, size = self._earlier
        if start >= end:
            size = 0
        elif self._ahead_bytes + size >= self._max_lag:
            size = min(size, max(0, await self._broker.size(self._edge.key) - self._ahead_bytes))
        self._earlier = end, size
        return size


class LocalErrors:
    """The error topic of a source whose edge is elsewhere."""

    def __init__(
        self, broker: Broker, topic: cluster.EdgeTopic, waiting: Callable[[str], None], *, fragment: str, epoch: int
    ) -> None:
        self._edge = LocalEdge(broker, topic, waiting)
        self._broker = broker
        self._fragment = fragment
        self._epoch = epoch

    async def open(self) -> None:
        """Makes this run its writer, which shuts the earlier ones out."""
        await _open_writer(self._broker, [self._edge], self._fragment, self._epoch)

    async def append(self, packed: Sequence[memoryview]) -> None:
        parts = [(self._edge.key, data) for data in packed]
        async with self._edge.refusing():
            await self._broker.edges.append(self._fragment, self._epoch, parts, b"")


async def _nothing() -> None:
    """What is looked at where there is nothing to look at."""


async def _open_writer(
    broker: Broker,
    edges: Sequence[LocalEdge],
    fragment: str,
    epoch: int,
    look: Callable[[], Awaitable[None]] = _nothing,
) -> Writer:
    """Makes a run the writer of what this agent leads, or will soon, and looks at it as such."""
    while True:
        for edge in edges:
            await edge.led()
        try:
            async with edges[0].refusing():
                writer = await broker.edges.open_writer(fragment, epoch, [edge.key for edge in edges])
                await look()
            return writer
        except HeadgateError as error:
            if error.reason.name not in ("NOT_LEADER", "LEASE_CONFLICT"):
                raise
            await asyncio.sleep(_LOOK)


class LocalEdgeReader:
    """`EdgeReader` for the run of a sink."""

    def __init__(self, broker: Broker, topic: cluster.EdgeTopic, waiting: Callable[[str], None]) -> None:
        self._edge = LocalEdge(broker, topic, waiting)
        self._broker = broker

    async def start(self) -> int:
        await self._edge.led()
        async with self._edge.refusing():
            return self._broker.bounds(self._edge.key).log_start

    @property
    def lag(self) -> int:
        """Batches that are there and not delivered for good."""
        try:
            bounds = self._broker.bounds(self._edge.key)
        except (NotLeader, UnknownPartition):
            return 0
        return bounds.high_watermark - bounds.log_start

    async def read(self, offset: int, *, max_bytes: int, wait: float) -> Chunk:
        async with self._edge.refusing():
            part = FetchPart(self._edge.key, offset, max_bytes)
            (found,) = await self._broker.fetch([part], max_wait=wait, min_bytes=1, max_bytes=max_bytes)
            if found.error is not None:
                raise found.error
        return _chunk((record for data in found.batches for record in unpack_batches(data)), offset)

    async def trim(self, offset: int) -> None:
        async with self._edge.refusing():
            await self._broker.delete_records(self._edge.key, offset)

    async def close(self) -> None:
        """It has nothing open."""


def _chunk(records: Iterable[PlainRecord], offset: int) -> Chunk:
    batches: list[EdgeBatch] = []
    for record in records:
        if record.offset < offset:
            continue
        if record.key == END_KEY:
            return Chunk(batches, ended=True)
        batches.append(EdgeBatch(read_record(record.value or b""), record.offset + 1))
    return Chunk(batches)


def with_count(position: bytes, malformed: int) -> bytes:
    """What an append stores of a source: both in one place, so that the number is that of the rows."""
    return _COUNTED + malformed.to_bytes(_COUNT_BYTES, "big") + position if malformed else position


def counted(stored: bytes) -> tuple[bytes, int]:
    """The position of a source and its number of malformed rows."""
    if not stored.startswith(_COUNTED):
        return stored, 0
    end = len(_COUNTED) + _COUNT_BYTES
    return stored[end:], int.from_bytes(stored[len(_COUNTED) : end], "big")


def read_record(value: bytes) -> pa.RecordBatch:
    """The rows of one record of an edge."""
    with pa.ipc.open_stream(pa.py_buffer(value)) as stream:
        batches = list(stream)
        if len(batches) == 1:
            return batches[0]
        table = pa.Table.from_batches(batches, stream.schema).combine_chunks()
    return pa.RecordBatch.from_arrays(
        [column.chunk(0) if column.num_chunks else pa.array([], column.type) for column in table.columns],
        schema=table.schema,
    )


def write_record(batch: pa.RecordBatch) -> bytes:
    """One record of an edge: rows as a whole Arrow IPC stream."""
    buffer = pa.BufferOutputStream()
    with pa.ipc.new_stream(buffer, batch.schema) as stream:
        stream.write_batch(batch)
    return bytes(buffer.getvalue())


def packed_errors(errors: Sequence[ErrorRow], now: int) -> list[memoryview]:
    """Error rows as record batches of their topic."""
    return [_record_batch(_error_batch(errors), now)] if errors else []


def _record_batch(batch: pa.RecordBatch, now: int) -> memoryview:
    """A Kafka record batch with the rows as its one record, of which each byte is written once."""
    sized = pa.MockOutputStream()
    _write_stream(sized, batch)

    def write(target: memoryview) -> None:
        _write_stream(pa.FixedSizeBufferWriter(pa.py_buffer(target)), batch)

    return pack_in_place(sized.size(), write, now)


def _write_stream(sink: pa.NativeFile, batch: pa.RecordBatch) -> None:
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)


def together(batches: Sequence[pa.RecordBatch]) -> Sequence[pa.RecordBatch]:
    """Small batches as one: each costs everybody on its way the same."""
    if len(batches) < 2:
        return batches
    return list(pa.Table.from_batches(batches).combine_chunks().to_batches())


def _error_batch(errors: Sequence[ErrorRow]) -> pa.RecordBatch:
    rows = [{"raw": one.raw, "reason": one.reason, "place": one.place} for one in errors]
    return pa.RecordBatch.from_pylist(rows, schema=ERROR_SCHEMA)
