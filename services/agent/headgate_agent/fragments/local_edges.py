"""Edges that this agent leads itself, as its sources and sinks see them.

Both begin by waiting for the lead: a new topic is known here a moment after its query was accepted, and a restarted
agent leads again what its write-ahead log holds. A record of an edge is one Arrow IPC stream. Losing the lead ends the
run with an error that may pass: the next run goes on from what the edge holds.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

import pyarrow as pa

from headgate.cluster import v1 as cluster
from headgate_agent.errors import STALE_EPOCH
from headgate_agent.fragments.edges import Chunk, EdgeBatch, ErrorRow, Stored
from headgate_agent.log.access import FetchPart, UnknownPartition
from headgate_agent.log.broker import Broker
from headgate_agent.log.contract import NotLeader, PartitionKey
from headgate_agent.log.edges import END_KEY, StaleWriter
from headgate_agent.log.records import PlainRecord, pack, unpack_batches
from headgate_agent.log.refusals import EXPECTED, refusal
from headgate_agent.work import Work
from headgate_common.clock import Clock
from headgate_common.errors import HeadgateError

T = TypeVar("T")

ERROR_SCHEMA = pa.schema([("raw", pa.string()), ("reason", pa.string()), ("place", pa.string())])
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


class LocalEdgeWriter:
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
        clock: Clock,
        work: Work,
        waiting: Callable[[str], None],
    ) -> None:
        self.waiting = ""
        self._edge = LocalEdge(broker, topic, waiting)
        self._errors = LocalEdge(broker, errors, waiting) if errors is not None else None
        self._broker = broker
        self._fragment = fragment
        self._epoch = epoch
        self._max_lag = max_lag
        self._clock = clock
        self._work = work
        # What was appended by this run and is still there: the offset after it, and its size.
        self._ahead: deque[tuple[int, int]] = deque()
        self._ahead_bytes = 0

    async def stored(self) -> Stored | None:
        """Makes this run the writer of its edge, which shuts the earlier ones out."""
        edges = [self._edge, *([self._errors] if self._errors is not None else [])]
        while True:
            for edge in edges:
                await edge.led()
            try:
                async with self._edge.refusing():
                    writer = await self._broker.edges.open_writer(
                        self._fragment, self._epoch, [edge.key for edge in edges]
                    )
                break
            except HeadgateError as error:
                if error.reason.name not in ("NOT_LEADER", "LEASE_CONFLICT"):
                    raise
                await asyncio.sleep(_LOOK)
        return Stored(writer.position, writer.ended) if writer.batch_id >= 0 else None

    async def append(
        self,
        batches: Sequence[pa.RecordBatch],
        position: bytes,
        *,
        errors: Sequence[ErrorRow] = (),
        end: bool = False,
    ) -> None:
        await self._room()
        now = int(self._clock.wall().timestamp() * 1000)
        data = await self._work.run(partial(_packed, batches, now)) if batches else b""
        parts = [(self._edge.key, data)]
        if errors and self._errors is not None:
            parts.append((self._errors.key, _packed([_error_batch(errors)], now)))
        async with self._edge.refusing():
            await self._broker.edges.append(
                self._fragment, self._epoch, parts, position, ends=[self._edge.key] if end else ()
            )
            if data:
                self._ahead.append((self._broker.bounds(self._edge.key).high_watermark, len(data)))
                self._ahead_bytes += len(data)

    async def _room(self) -> None:
        """Waits while the query is too far behind."""
        async with self._edge.refusing():
            while True:
                start = self._broker.bounds(self._edge.key).log_start
                while self._ahead and self._ahead[0][0] <= start:
                    self._ahead_bytes -= self._ahead.popleft()[1]
                if self._ahead_bytes < self._max_lag:
                    self.waiting = ""
                    return
                self.waiting = f"the query is {self._ahead_bytes / 2**20:.0f} MiB behind its source, which pauses"
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


def _chunk(records: Iterable[PlainRecord], offset: int) -> Chunk:
    batches: list[EdgeBatch] = []
    for record in records:
        if record.offset < offset:
            continue
        if record.key == END_KEY:
            return Chunk(batches, ended=True)
        batches.append(EdgeBatch(read_record(record.value or b""), record.offset + 1))
    return Chunk(batches)


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


def _packed(batches: Sequence[pa.RecordBatch], now: int) -> bytes:
    packed = [one for batch in batches for one in pack([PlainRecord(None, write_record(batch), now)], 1)]
    return packed[0] if len(packed) == 1 else b"".join(packed)


def _error_batch(errors: Sequence[ErrorRow]) -> pa.RecordBatch:
    rows = [{"raw": one.raw, "reason": one.reason, "place": one.place} for one in errors]
    return pa.RecordBatch.from_pylist(rows, schema=ERROR_SCHEMA)
