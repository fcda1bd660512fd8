"""The TOPIC sink: rows as records of a topic of Headgate's own log.

Promises: every row is in the topic exactly once, after any number of crashes of this agent and of those that lead the
topic, and rows of one partition are in the order of the edge. Rows with a key go to the partition that the Java client
would choose for it; without a key all rows of an edge batch go to one partition, each batch to the next.

How a repeated row is known. One edge batch spreads over partitions that are written one by one, so each partition has a
position of its own, stored in the same append as its rows (`topic_places`). On opening it is read back from what the
partition holds, so it does not matter which agent leads the partition, what its producer table has forgotten, or where
a run was killed: what is there is skipped, what is not is sent. Only an append that is still on its way, of a run that
was killed or shut out, cannot be read back; for that the sequence decides. The sink is an idempotent producer whose id
comes from its fragment and never changes, and a row has the same sequence in every run: the leader takes the first copy
of a sequence and refuses the second. What is refused is read back again once it has become visible. So two runs at the
same time do no harm either: they write the same rows, and each row is stored by one of them.

Where to begin reading back is noted as offsets of the consumer group `headgate.<fragment>`, every few seconds and when
the sink is closed. Losing a note costs time, not rows: without one, a topic is read from its start. The one exception
is a sink that has never trimmed its edge: it is taken for new where there is no note, because one is always written
before the first row; notes of a stopped query are forgotten after the coordinator's `group_memory`.

Offsets of the edge must grow by one for each batch, as `EdgeReader` says.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeVar

import grpc
import pyarrow as pa

from headgate.log import v1 as api
from headgate_agent.errors import PLAN_UNSUPPORTED, RECORD_TOO_LARGE, SINK_CHANGED, SINK_MISSING, SINK_UNAVAILABLE
from headgate_agent.fragments.sinks.records import RecordEncoder, RowRecords
from headgate_agent.fragments.sinks.sink import Delivered
from headgate_agent.fragments.sinks.topic_batches import Row, pack_rows, record_size
from headgate_agent.fragments.sinks.topic_places import NOTHING, Known, Place, producer_id, read_back, read_note
from headgate_agent.log.record_batch import HEADER_BYTES, CorruptBatch
from headgate_agent.log.records import partition_of_key
from headgate_agent.work import Work
from headgate_common.backoff import Backoff
from headgate_common.clock import Clock
from headgate_common.errors import HeadgateError

log = logging.getLogger(__name__)

T = TypeVar("T")

_PASSING = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
# Of a partition: another agent leads it by now; a leader that has just started does not know it yet.
_PASSING_REASONS = ("STALE_EPOCH", "UNKNOWN_PARTITION")
_BACKOFF = Backoff(initial=0.05, cap=1.0)
# A leader remembers the last five batches of a producer: more in one call could not all be recognised again.
_BATCHES_AT_ONCE = 5
_BYTES_AT_ONCE = 5 << 20
_LARGEST_BATCH = 1 << 20
# What a record and its batch have beside the value, with the header that says the place.
_ROOM = HEADER_BYTES + 128


class TopicLog(Protocol):
    """The log of the cluster, as a sink needs it. Errors are HeadgateErrors; what is UNAVAILABLE or DEADLINE_EXCEEDED
    may pass, and what was asked may have happened. Each call ends within some seconds. `topic_log` implements it."""

    async def topic(self, name: str) -> api.Topic | None: ...

    async def bounds(self, topic: api.Topic, partition: int) -> tuple[int, int]:
        """The first offset that is still there, and the first that is not acknowledged yet."""
        ...

    async def append(self, topic: api.Topic, partition: int, batches: bytes) -> int:
        """Stores whole batches; answers the offset of the first record when they are as durable as the topic promises.
        SEQUENCE_REFUSED if they do not follow the producer's last one."""
        ...

    async def read(self, topic: api.Topic, partition: int, offset: int) -> bytes:
        """Acknowledged batches from the one that holds the offset on."""
        ...

    async def load(self, group: str) -> Sequence[api.GroupOffset]: ...

    async def store(self, group: str, offsets: Sequence[api.GroupOffset]) -> None: ...

    async def drop(self, group: str) -> None:
        """Forgets a group; that it is not there is fine. GROUP_IN_USE while an agent still leads it."""
        ...


@dataclass(frozen=True, slots=True)
class TopicTimings:
    """In seconds."""

    # How long a partition may refuse or not answer before the run ends with an error that may pass.
    patience: float = 30.0
    # How long a topic that this agent does not know yet is waited for.
    appears: float = 5.0
    # Notes are written at most this often, and refreshed this often where nothing is delivered.
    note: float = 5.0
    refresh: float = 600.0
    note_timeout: float = 5.0


@dataclass(slots=True)
class _Partition:
    """One partition: what it holds, and the rows for it that are to be sent, each with the place after it."""

    index: int
    known: Known
    rows: deque[Row] = field(default_factory=deque)

    def compose(self, producer: int, largest: int, now: int) -> tuple[bytes, list[tuple[Place, int]]]:
        """The next few batches, and of each the place after it and how many records it has. Made of the same rows it is
        the same every time, but for the time in it."""
        batches: list[bytes] = []
        parts: list[tuple[Place, int]] = []
        sequence, size = self.known.sequence, 0
        rows = iter(self.rows)
        row = next(rows, None)
        while row is not None and len(batches) < _BATCHES_AT_ONCE:
            group: list[Row] = []
            filled = _ROOM
            while row is not None and (not group or filled + record_size(row) <= largest):
                filled += record_size(row)
                group.append(row)
                row = next(rows, None)
            if batches and size + filled > _BYTES_AT_ONCE:
                break
            batches.append(pack_rows(group, now, (producer, 0, sequence)))
            parts.append((group[-1][0], len(group)))
            sequence = (sequence + len(group)) & 0x7FFFFFFF
            size += filled
        return b"".join(batches), parts

    def stored(self, parts: Sequence[tuple[Place, int]], base_offset: int) -> None:
        for place, count in parts:
            self.known = self.known.after(place, count, base_offset)
            for _ in range(count):
                self.rows.popleft()

    def found(self, known: Known) -> None:
        """More is there than was known."""
        self.known = known
        while self.rows and self.rows[0][0] <= known.place:
            self.rows.popleft()


class TopicSink:
    """A `Sink`. `identity` is the fragment's uid, whatever the epoch."""

    def __init__(
        self,
        identity: str,
        options: Mapping[str, str],
        update_keys: Sequence[str],
        *,
        topics: TopicLog,
        clock: Clock,
        source: random.Random,
        blocking: Work,
        timings: TopicTimings | None = None,
    ) -> None:
        self.delivered = Delivered()
        self._name = options["topic"]
        self._encoder = RecordEncoder(
            options.get("input_format", "JSON"), options.get("key_column", ""), tuple(update_keys)
        )
        self._group = group_of(identity)
        self._producer = producer_id(identity)
        self._log, self._clock, self._random, self._blocking = topics, clock, source, blocking
        self._timings = timings or TopicTimings()
        self._topic: api.Topic | None = None
        self._partitions: list[_Partition] = []
        self._largest = 0
        # The edge offset after what was delivered, and after what is durable.
        self._next = 0
        self._flushed = 0
        self._noted: tuple[Known, ...] = ()
        self._noting: asyncio.Task[None] | None = None

    async def open(self, first: int) -> int:
        self._topic = topic = await self._find()
        self._largest = min(topic.settings.max_message_bytes or _LARGEST_BATCH, _LARGEST_BATCH)
        # In this order: were the notes read first, rows that another run writes between the two could be overlooked.
        bounds = [await self._ask(partial(self._log.bounds, topic, index)) for index in range(topic.partitions)]
        delivered, known = await self._notes(topic, bounds, first)
        self._partitions = [
            _Partition(index, await self._read_back(topic, index, one)) for index, one in enumerate(known)
        ]
        self._next = self._flushed = max(first, delivered)
        self._noting = asyncio.create_task(self._keep_noting())
        return self._flushed

    async def deliver(self, batches: Sequence[pa.RecordBatch], next_offset: int) -> None:
        self._opened()
        for number, batch in enumerate(batches, start=next_offset - len(batches)):
            records = await self._blocking.run(partial(self._encoder.encode, batch, self._largest - _ROOM))
            self._sort(number, records)
        self._next = next_offset
        self.delivered.rows += sum(batch.num_rows for batch in batches)

    async def flush(self) -> int:
        topic = self._opened()
        waiting = [self._send(topic, one) for one in self._partitions if one.rows]
        results = await asyncio.gather(*waiting, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                self._topic = None
                raise result
        self._flushed = self._next
        self.delivered.flushes += 1
        return self._flushed

    async def close(self) -> None:
        noting, self._noting = self._noting, None
        if noting is not None:
            noting.cancel()
            await asyncio.gather(noting, return_exceptions=True)
        topic, self._topic = self._topic, None
        if topic is not None:
            await self._note(topic)

    async def _find(self) -> api.Topic:
        """The topic, which this agent may have to hear of first."""
        until: float | None = None
        attempt = 0
        while True:
            topic = await self._ask(partial(self._log.topic, self._name))
            if topic is not None:
                break
            # Until the first answer, which may take long after a start, nothing is known to be missing.
            until = until or self._clock.monotonic() + self._timings.appears
            pause = _BACKOFF.delay(attempt, self._random)
            if self._clock.monotonic() + pause > until:
                raise HeadgateError(SINK_MISSING, f"there is no topic {self._name!r}", metadata={"topic": self._name})
            await asyncio.sleep(pause)
            attempt += 1
        if topic.internal:
            raise HeadgateError(PLAN_UNSUPPORTED, f"topic {self._name} belongs to a query, which alone writes to it")
        return topic

    async def _notes(
        self, topic: api.Topic, bounds: Sequence[tuple[int, int]], first: int
    ) -> tuple[int, Sequence[Known]]:
        """What the notes say, and of everything before which edge batch they say that it is delivered."""
        delivered = 0
        known: dict[int, Known] = {}
        for note in await self._ask(partial(self._log.load, self._group)):
            if note.topic != topic.name or not 0 <= note.partition < topic.partitions:
                continue
            try:
                known[note.partition], before = read_note(note)
            except ValueError as error:
                raise HeadgateError(
                    SINK_CHANGED, f"another consumer uses the group {self._group}, which is this sink's: {error}"
                ) from error
            delivered = max(delivered, before)
        if not known and first == 0:
            # Nothing was ever sent: what is there now is of others. To be noted before that changes.
            fresh = [Known(NOTHING, 0, end) for _, end in bounds]
            notes = [one.note(topic.name, index, 0) for index, one in enumerate(fresh)]
            await self._ask(partial(self._log.store, self._group, notes))
            return 0, fresh
        return delivered, [known.get(index, Known(NOTHING, 0, bounds[index][0])) for index in range(topic.partitions)]

    async def _read_back(self, topic: api.Topic, index: int, known: Known) -> Known:
        start, end = await self._ask(partial(self._log.bounds, topic, index))
        if known.offset > end:
            raise HeadgateError(
                SINK_CHANGED,
                f"partition {index} of topic {topic.name} ends at {end:,}, and rows were delivered after that",
            )

        async def read(offset: int) -> bytes:
            return await self._ask(partial(self._log.read, topic, index, offset))

        try:
            return await read_back(known, self._producer, start, end, read)
        except CorruptBatch as error:
            raise HeadgateError(
                SINK_CHANGED, f"what partition {index} of topic {topic.name} holds cannot be read back: {error}"
            ) from error

    def _sort(self, number: int, records: RowRecords) -> None:
        """Puts the records of an edge batch where they are to be sent, but for those that are there already."""
        count = len(self._partitions)
        done = [0] * count
        whole = number % count
        chosen: dict[bytes, int] = {}
        for at, value in enumerate(records.values):
            index, key = whole, None
            if records.keys is not None:
                key = records.keys[at]
                if key is not None:
                    found = chosen.get(key)
                    index = chosen[key] = partition_of_key(key, count) if found is None else found
            done[index] += 1 if records.rows is None else records.rows[at]
            place = (number, done[index])
            target = self._partitions[index]
            if place > target.known.place:
                row = (place, key, value)
                self._check_size(row)
                target.rows.append(row)
                self.delivered.bytes += len(value)

    def _check_size(self, row: Row) -> None:
        size = record_size(row) + _ROOM
        if size > self._largest and size > self._allowed():
            raise HeadgateError(
                RECORD_TOO_LARGE,
                f"a row makes a record of {size:,} bytes; topic {self._name} takes up to {self._allowed():,}",
                metadata={"topic": self._name},
            )

    def _allowed(self) -> int:
        topic = self._opened()
        return topic.settings.max_message_bytes or _LARGEST_BATCH

    async def _send(self, topic: api.Topic, target: _Partition) -> None:
        """Sends what waits for a partition, few batches at a time, and the same again until their fate is known."""
        until = self._clock.monotonic() + self._timings.patience
        attempt = 0
        while target.rows:
            now = int(self._clock.wall().timestamp() * 1000)
            data, parts = await self._blocking.run(partial(target.compose, self._producer, self._largest, now))
            while True:
                refused = False
                try:
                    target.stored(parts, await self._log.append(topic, target.index, data))
                    until, attempt = self._clock.monotonic() + self._timings.patience, 0
                    break
                except HeadgateError as error:
                    problem = error
                    refused = error.reason.name == "SEQUENCE_REFUSED"
                    if not refused and not _passing(error):
                        raise
                if refused and await self._advanced(topic, target):
                    break
                pause = _BACKOFF.delay(attempt, self._random)
                if self._clock.monotonic() + pause > until:
                    raise self._given_up(target, problem, refused)
                await asyncio.sleep(pause)
                attempt += 1

    async def _advanced(self, topic: api.Topic, target: _Partition) -> bool:
        """Whether rows that were to be sent have appeared in the partition: another run has sent them. What that run
        sent and is not durable yet appears a little later."""
        known = await self._read_back(topic, target.index, target.known)
        if known.sequence == target.known.sequence:
            return False
        target.found(known)
        return True

    def _given_up(self, target: _Partition, problem: HeadgateError, refused: bool) -> HeadgateError:
        where = f"partition {target.index} of topic {self._name}"
        if refused and target.known.is_before(int(problem.metadata["expected"])):
            text = f"{where} has rows of an earlier run that it does not show yet: {problem.message}"
            return HeadgateError(SINK_UNAVAILABLE, text)
        if refused:
            return HeadgateError(
                SINK_CHANGED, f"{where} has lost rows that were delivered to it, or got others: {problem.message}"
            )
        return HeadgateError(SINK_UNAVAILABLE, f"{where} cannot be written: {problem.message}")

    async def _ask(self, call: Callable[[], Awaitable[T]]) -> T:
        """Repeats what may be repeated while the cluster sorts itself out."""
        until = self._clock.monotonic() + self._timings.patience
        attempt = 0
        while True:
            try:
                return await call()
            except HeadgateError as error:
                pause = _BACKOFF.delay(attempt, self._random)
                if not _passing(error):
                    raise
                if self._clock.monotonic() + pause > until:
                    raise HeadgateError(
                        SINK_UNAVAILABLE, f"topic {self._name} cannot be reached: {error.message}"
                    ) from error
            await asyncio.sleep(pause)
            attempt += 1

    async def _keep_noting(self) -> None:
        """Until it is cancelled."""
        refreshed = self._clock.monotonic()
        while True:
            await asyncio.sleep(self._timings.note)
            topic = self._topic
            if topic is None:
                return
            if self._clock.monotonic() - refreshed >= self._timings.refresh:
                refreshed = self._clock.monotonic()
                await self._move_on(topic)
            await self._note(topic)

    async def _note(self, topic: api.Topic) -> None:
        """A note that cannot be written is written the next time: without it, reading back takes longer."""
        known = tuple(one.known for one in self._partitions)
        if known == self._noted:
            return
        notes = [one.note(topic.name, index, self._flushed) for index, one in enumerate(known)]
        try:
            async with asyncio.timeout(self._timings.note_timeout):
                await self._log.store(self._group, notes)
            self._noted = known
        except (HeadgateError, TimeoutError) as error:
            log.info("position not noted", extra={"group": self._group, "error": str(error)})

    async def _move_on(self, topic: api.Topic) -> None:
        """Where this run has nothing to send, what others write meanwhile is looked through now, not when the sink is
        opened again. It may have rows of this sink, by a run that was shut out."""
        for target in self._partitions:
            before = target.known
            with suppress(HeadgateError):
                known = await self._read_back(topic, target.index, before)
                if target.known is before and not target.rows:
                    target.known = known

    def _opened(self) -> api.Topic:
        if self._topic is None:
            raise HeadgateError(SINK_UNAVAILABLE, f"topic {self._name} failed before and must be opened again")
        return self._topic


def _passing(error: HeadgateError) -> bool:
    return error.reason.code in _PASSING or error.reason.name in _PASSING_REASONS


def group_of(identity: str) -> str:
    """The consumer group whose offsets are a sink's notes; to be dropped when the fragment is gone for good."""
    return f"headgate.{identity}"


async def discard_notes(topics: TopicLog, identity: str) -> None:
    """After the fragment is gone for good. A group that an agent still leads is left to the coordinator, which forgets
    it after `group_memory`: nothing of a fragment is ever taken for another's."""
    try:
        await topics.drop(group_of(identity))
    except HeadgateError as error:
        if error.reason.name != "GROUP_IN_USE":
            raise
