"""Edges on Kafka: topics of a query's own in a Kafka cluster, as its sources and sinks see them.

A record without a key is rows, one Arrow IPC stream. A source writes in transactions, whose id is the fragment's,
whatever the epoch: opening shuts the runs before out. The last record of each is a *note*: under `headgate.position`
how much was appended in all, how many rows were malformed and the source's position; under `headgate.end` the same, and
nothing follows. So rows and position are there together or not at all, and the last note says where to go on. Error
rows are in the query's own topic in the log, and come first: after a crash in between they come again.

Spark writes the edge of a sink outside of transactions. There an end has no position.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from headgate.cluster import v1 as cluster
from headgate_agent.errors import EDGE_MISSING, EDGE_UNAVAILABLE
from headgate_agent.fragments.appends import Append, GroupedWriter, Packed
from headgate_agent.fragments.edges import Chunk, EdgeBatch, ErrorRow, Stored
from headgate_agent.fragments.kafka_edge_topics import KafkaEdgeTopic, Reach
from headgate_agent.fragments.local_edges import (
    LocalErrors,
    counted,
    packed_errors,
    read_record,
    together,
    with_count,
)
from headgate_agent.fragments.sinks.kafka_client import producer_settings
from headgate_agent.fragments.sinks.records import streams
from headgate_agent.log.edges import END_KEY
from headgate_agent.work import Work
from headgate_common.errors import HeadgateError

log = logging.getLogger(__name__)

POSITION_KEY = b"headgate.position"
_TOTAL_BYTES = 8
# What the value of a record may have, where it holds more than one row: brokers take 1 MB by default.
_LARGEST_STREAM = 900_000
# Seconds between two looks at how far the reader of an edge has come.
_LOOK = 0.1
# How many records before the end the last note is looked for at first; aborted transactions may come behind it.
_FIRST_BACK = 16


@dataclass(frozen=True, slots=True)
class Note:
    """The last record of a transaction of a source."""

    offset: int
    # Bytes of rows that were appended by all runs.
    total: int
    malformed: int
    position: bytes
    ended: bool


def note_value(total: int, malformed: int, position: bytes) -> bytes:
    return total.to_bytes(_TOTAL_BYTES, "big") + with_count(position, malformed)


def note_of(offset: int, key: bytes, value: bytes) -> Note:
    position, malformed = counted(value[_TOTAL_BYTES:])
    return Note(offset, int.from_bytes(value[:_TOTAL_BYTES], "big"), malformed, position, key == END_KEY)


def behind(note: int, low: int, total: int) -> int:
    """About how many bytes the reader of an edge has not read: its share of all records up to the last note, of all
    bytes. The reader deletes what is before the note, never the note."""
    return total * max(0, note - low) // max(1, note)


class KafkaEdgeWriter(GroupedWriter):
    """`EdgeWriter` for the run of a source. `errors` is where its error rows go, if anywhere."""

    def __init__(
        self,
        topic: cluster.EdgeTopic,
        errors: LocalErrors | None,
        reach: Reach,
        *,
        fragment: str,
        max_lag: int,
        most_bytes: int,
        work: Work,
        waiting: Callable[[str], None],
    ) -> None:
        super().__init__(keeps_errors=errors is not None, most_bytes=most_bytes, clock=reach.clock, work=work)
        self._errors = errors
        self._max_lag = max_lag
        self._started = waiting
        self._topic = KafkaEdgeTopic(topic, reach, self._waits)
        self._calls = self._topic.calls
        self._name = f"headgate.{fragment}"
        self._producer: Producer | None = None
        # Where the last note is, what was appended up to it, and where the topic began at the last look.
        self._note = 0
        self._total = 0
        self._low = 0

    async def stored(self) -> Stored | None:
        """Makes this run the writer of its edge, which shuts the earlier ones out."""
        calls = self._calls
        if self._errors is not None:
            await self._errors.open()
        await self._topic.open()
        producer = self._producer = await calls.once(self._make_producer)
        await calls.repeated(partial(producer.init_transactions, calls.timings.step))
        note, high = await calls.repeated(self._last_note)
        if note is None:
            if self._low > 0:
                raise HeadgateError(EDGE_MISSING, f"{calls.where}: records of it were deleted, and its position too")
            return None
        self._note, self._total, self.malformed = note.offset, note.total, note.malformed
        if high > note.offset + 2:
            # What was aborted comes behind it. Whoever reads the edge looks for the note right before the end.
            await self._commit((), note_value(note.total, note.malformed, note.position), end=note.ended)
        return Stored(note.position, note.ended)

    async def close(self) -> None:
        await self._calls.blocking.run(self._abort)
        await self._topic.close()

    def _waits(self, what: str) -> None:
        self.waiting = what
        self._started(what)

    def _make_producer(self) -> Producer:
        settings = {
            **producer_settings(self._topic.options, self._name, self._calls.timings.transaction),
            "delivery.report.only.error": False,
            "on_delivery": self._delivered,
        }
        return Producer(settings, error_cb=self._calls.reported, logger=log)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        self._calls.delivered(error, message)
        offset = message.offset()
        if error is None and message.key() is not None and offset is not None:
            self._note = offset

    def _last_note(self) -> tuple[Note | None, int]:
        """The last note, if there is one, and the end of the topic. Blocks."""
        low, high = self._topic.bounds()
        self._low = low
        back, found = _FIRST_BACK, None
        try:
            while found is None and high > low:
                start = max(low, high - back)
                for message in self._between(start, high):
                    key = message.key()
                    if key is not None:
                        found = note_of(message.offset() or 0, _bytes(key), _bytes(message.value()))
                if start == low:
                    break
                back *= _FIRST_BACK
        finally:
            # It would read on, ahead of anybody who wants it.
            self._topic.consumer.unassign()
        return found, high

    def _between(self, start: int, until: int) -> Iterable[Message]:
        """What is there from an offset on and was not aborted, to the end. Blocks."""
        consumer, step = self._topic.consumer, self._calls.timings.step
        # Assigned anew without this, its position is that of before until it has read something.
        consumer.unassign()
        consumer.assign([self._topic.partition(start)])
        last = time.monotonic() + step
        while (at := consumer.position([self._topic.partition(0)])[0].offset) < until:
            message = consumer.poll(step / 4)
            if message is None:
                if time.monotonic() > last:
                    raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"offset {at} is not answered"))
                continue
            last = time.monotonic() + step
            problem = message.error()
            if problem is None:
                yield message
            elif problem.code() == KafkaError._PARTITION_EOF:
                return
            else:
                raise KafkaException(problem)

    def _pack(self, batches: Sequence[pa.RecordBatch], errors: Sequence[ErrorRow], now: int) -> Packed:
        values = [value for batch in together(batches) for value, _ in streams(batch, _LARGEST_STREAM)]
        return Packed(values, packed_errors(errors, now))

    async def _room(self) -> None:
        while behind(self._note, self._low, self._total) >= self._max_lag:
            self._low, _ = await self._calls.repeated(self._topic.bounds)
            waits = behind(self._note, self._low, self._total)
            if waits < self._max_lag:
                break
            self.waiting = f"the query is {waits / 2**20:.0f} MiB behind its source, which pauses"
            await asyncio.sleep(_LOOK)
        self.waiting = ""

    async def _write(self, group: Sequence[Append], size: int, malformed: int) -> None:
        told = [data for one in group for data in one.packed.result().errors]
        if told and self._errors is not None:
            await self._errors.append(told)
        rows = [value for one in group for value in one.packed.result().rows]
        last = group[-1]
        total = self._total + size
        await self._commit(rows, note_value(total, malformed, last.position), end=last.end)
        self._total = total

    async def _commit(self, rows: Sequence[bytes | memoryview], note: bytes, *, end: bool) -> None:
        """One transaction."""
        calls, producer = self._calls, self._producer
        if producer is None:
            raise HeadgateError(EDGE_UNAVAILABLE, f"{calls.where} failed before and must be opened again")
        calls.begun = calls.clock.monotonic()
        await calls.once(producer.begin_transaction)
        await calls.once(partial(self._produce, producer, rows, END_KEY if end else POSITION_KEY, note))
        await calls.drain(producer)
        await calls.repeated(partial(producer.commit_transaction, calls.timings.step))
        calls.begun = calls.cause = None

    def _produce(self, producer: Producer, rows: Sequence[bytes | memoryview], key: bytes, note: bytes) -> None:
        until = time.monotonic() + self._calls.timings.patience
        for value, of in (*((bytes(row), None) for row in rows), (note, key)):
            while True:
                try:
                    producer.produce(self._topic.name, value, of, 0)
                    break
                except BufferError:
                    if time.monotonic() > until:
                        raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from None
                    producer.poll(self._calls.timings.step / 4)

    def _abort(self) -> None:
        """The next run, or the cluster itself, ends what cannot be aborted now."""
        producer, self._producer = self._producer, None
        if producer is None:
            return
        try:
            producer.purge()
            if self._calls.begun is not None:
                producer.abort_transaction(self._calls.timings.closing)
        except KafkaException as error:
            log.info("transaction not aborted", extra={"topic": self._topic.name, "error": str(error.args[0])})


class KafkaEdgeReader:
    """`EdgeReader` for the run of a sink."""

    def __init__(self, topic: cluster.EdgeTopic, reach: Reach, waiting: Callable[[str], None]) -> None:
        # Batches that are there and were not read yet, as of the last look.
        self.lag = 0
        self._topic = KafkaEdgeTopic(topic, reach, waiting)
        self._calls = self._topic.calls
        # After the last batch that was given.
        self._next = -1

    async def start(self) -> int:
        await self._topic.open()
        low, _ = await self._calls.repeated(self._topic.bounds)
        return int(low)

    async def read(self, offset: int, *, max_bytes: int, wait: float) -> Chunk:
        if offset != self._next:
            await self._require(offset)
        if self._calls.cause is not None:
            # A client whose brokers are away says nothing: so they are asked.
            await self._calls.repeated(self._topic.bounds)
        chunk: Chunk = await self._calls.once(partial(self._read, offset, max_bytes, wait))
        return chunk

    async def _require(self, offset: int) -> None:
        """Refuses to go on where records are gone, or the topic is another one."""
        low, high = await self._calls.repeated(self._topic.bounds)
        if not low <= offset <= high:
            text = f"{self._calls.where}: it has {low} to {high}, and the sink goes on at {offset}"
            raise HeadgateError(EDGE_MISSING, text)

    def _read(self, offset: int, max_bytes: int, wait: float) -> Chunk:
        consumer = self._topic.consumer
        if offset != self._next:
            consumer.assign([self._topic.partition(offset)])
            self._next = offset
        batches: list[EdgeBatch] = []
        size = 0
        while size < max_bytes:
            message = consumer.poll(0 if batches else wait)
            if message is None:
                break
            problem = message.error()
            if problem is not None and problem.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(problem)
            if problem is None and message.key() == END_KEY:
                # Left to be read again.
                consumer.assign([self._topic.partition(self._next)])
                return Chunk(batches, ended=True)
            if problem is None and message.key() is None:
                value = _bytes(message.value())
                self._next = (message.offset() or 0) + 1
                batches.append(EdgeBatch(read_record(value), self._next))
                size += len(value)
            elif problem is not None and batches:
                break
        low, high = consumer.get_watermark_offsets(self._topic.partition(0), cached=True)
        self.lag = max(0, high - max(low, self._next))
        return Chunk(batches)

    async def trim(self, offset: int) -> None:
        await self._calls.repeated(partial(self._topic.delete_before, offset))

    async def close(self) -> None:
        await self._topic.close()


def _bytes(value: bytes | str | None) -> bytes:
    return value.encode() if isinstance(value, str) else value or b""
