"""Sinks that deliver to topics: how rows become records, and how a TOPIC sink knows what is there already."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from headgate.catalog import v1 as catalog
from headgate.log import v1 as api
from headgate_agent.errors import NOT_LEADER, PLAN_UNSUPPORTED, SEQUENCE_REFUSED, SINK_CHANGED
from headgate_agent.fragments.config import FragmentConfig
from headgate_agent.fragments.edges import Chunk, EdgeBatch
from headgate_agent.fragments.sinks.build import Reach, build_sink
from headgate_agent.fragments.sinks.records import RecordEncoder
from headgate_agent.fragments.sinks.sink import run_sink
from headgate_agent.fragments.sinks.topic import TopicSink, TopicTimings, group_of
from headgate_agent.fragments.sinks.topic_batches import pack_rows, record_size
from headgate_agent.fragments.sinks.topic_places import PLACE_HEADER, Known, producer_id, read_back, read_note
from headgate_agent.log.producers import Producers, SequenceRefused
from headgate_agent.log.record_batch import CorruptBatch, check_crc, header_at, headers, placed
from headgate_agent.log.records import unpack_batches
from headgate_agent.work import Inline
from headgate_common.errors import UNREACHABLE, HeadgateError
from tests.unit.fragments.kit import LoopClock, simulated, sink_fragment

ROWS = pa.RecordBatch.from_arrays(
    [
        pa.array([1, None, 3], pa.int64()),
        pa.array(["a\nb", "", None], pa.string()),
        pa.array([b"\xff", b"", None], pa.binary()),
        pa.array([[1, 2], None, []], pa.list_(pa.int32())),
        pa.array([Decimal("1.50"), None, Decimal("-0.01")], pa.decimal128(5, 2)),
        pa.array([datetime(2026, 1, 2, tzinfo=UTC), None, None], pa.timestamp("us", "UTC")),
    ],
    names=["n", "T", "b", "l", "d", "at"],
)


@pytest.mark.parametrize(
    ("key", "wanted"),
    [
        ("n", [b"1", None, b"3"]),
        ("t", [b"a\nb", b"", None]),
        ("b", [b"\xff", b"", None]),
        ("l", [b"[1,2]", None, b"[]"]),
        ("d", [b"1.50", None, b"-0.01"]),
        ("at", [b"2026-01-02T00:00:00.000000Z", None, None]),
    ],
)
def test_the_key_of_a_record_is_the_text_of_its_column(key: str, wanted: list[bytes | None]) -> None:
    made = RecordEncoder("JSON", key, ()).encode(ROWS, 1 << 20)
    assert list(made.keys or ()) == wanted
    assert [json.loads(value)["n"] for value in made.values] == [1, None, 3]


def test_rows_that_replace_others_have_what_tells_them_apart_as_their_key() -> None:
    one = RecordEncoder("JSON", "", ["n"]).encode(ROWS, 1 << 20)
    assert list(one.keys or ()) == [b"1", None, b"3"]
    several = RecordEncoder("JSON", "", ["T", "n"]).encode(ROWS, 1 << 20)
    assert [json.loads(key or b"") for key in several.keys or ()] == [
        {"T": "a\nb", "n": 1},
        {"T": "", "n": None},
        {"T": None, "n": 3},
    ]
    chosen = RecordEncoder("JSON", "d", ["n"]).encode(ROWS, 1 << 20)
    assert list(chosen.keys or ()) == [b"1.50", None, b"-0.01"]


def test_an_arrow_record_has_no_key() -> None:
    with pytest.raises(HeadgateError) as raised:
        RecordEncoder("ARROW", "", ["n"])
    assert raised.value.reason is PLAN_UNSUPPORTED


def test_an_arrow_batch_is_cut_where_it_is_too_large_and_not_below_a_row() -> None:
    batch = pa.RecordBatch.from_pydict({"t": ["x" * 500] * 20 + ["y" * 5_000]})
    made = RecordEncoder("ARROW", "", ()).encode(batch, 3_000)
    read = [pa.ipc.open_stream(value).read_all() for value in made.values]
    assert [text for table in read for text in table["t"].to_pylist()] == batch.column(0).to_pylist()
    assert made.rows == [table.num_rows for table in read]
    assert all(len(value) <= 3_000 or rows == 1 for value, rows in zip(made.values, made.rows or (), strict=True))
    assert 2 < len(made) < 21


def test_a_batch_without_rows_is_no_record() -> None:
    for kind in ("JSON", "ARROW"):
        assert len(RecordEncoder(kind, "", ()).encode(ROWS.slice(0, 0), 100)) == 0


@pytest.mark.parametrize("kind", [catalog.SINK_TYPE_TOPIC, catalog.SINK_TYPE_KAFKA])
def test_an_agent_that_cannot_reach_the_target_says_so(kind: catalog.SinkType.ValueType) -> None:
    options = {"topic": "t"} if kind == catalog.SINK_TYPE_TOPIC else {"topic": "t", "bootstrap_servers": "h:1"}
    fragment = sink_fragment(kind, options, "n INT64")
    with pytest.raises(HeadgateError) as raised:
        build_sink("f", fragment, state=Path("unused"), config=FragmentConfig(), blocking=Inline())
    assert raised.value.reason is PLAN_UNSUPPORTED


def test_a_note_says_what_it_was_told() -> None:
    known = Known((7, 3), 900, 41)
    note = known.note("t", 2, 5)
    assert (note.topic, note.partition, note.offset) == ("t", 2, 41)
    assert read_note(note) == (known, 5)
    for text in ("", "{}", "[1]", '{"batch":"x","rows":1,"sequence":1,"delivered":1}'):
        with pytest.raises(ValueError, match="no note"):
            read_note(api.GroupOffset(metadata=text))


def test_a_sequence_is_ahead_also_where_it_has_begun_anew() -> None:
    assert Known((7, 3), 900, 41).is_before(901)
    assert Known((7, 3), (1 << 31) - 2, 41).is_before(3)
    assert not Known((7, 3), 900, 41).is_before(900)
    assert not Known((7, 3), 900, 41).is_before(0)
    assert not Known((7, 3), 3, 41).is_before((1 << 31) - 2)


def test_a_batch_is_what_any_reader_of_kafkas_format_understands() -> None:
    sizes = (0, 1, 63, 64, 8_191, 8_192, 300_000)
    rows = [((3, at + 1), key, b"v" * size) for at, size in enumerate(sizes) for key in (None, b"", b"k" * size)]
    data = pack_rows(rows, 1_700_000_000_000, (7, 0, 5))
    (header,) = headers(data)
    check_crc(data, header)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.count) == (7, 0, 5, len(rows))
    found = list(unpack_batches(data))
    assert [(record.key, record.value) for record in found] == [(key, value) for _, key, value in rows]
    assert [record.offset for record in found] == list(range(len(rows)))
    assert {record.timestamp for record in found} == {1_700_000_000_000}
    assert found[0].headers == ((PLACE_HEADER, b"3:7"),)
    assert not any(record.headers for record in found[1:])
    assert len(data) <= sum(map(record_size, rows)) + 128


async def test_the_last_batch_of_the_producer_says_how_far_it_is() -> None:
    ours, theirs = producer_id("f"), producer_id("g")

    def batch(producer: int, offset: int, sequence: int, count: int, place: tuple[int, int]) -> bytes:
        data = pack_rows([(place, None, b"v")] * count, 0, (producer, 0, sequence))
        return placed(data, header_at(data, 0), offset, 1)

    stored = [
        batch(ours, 0, 0, 3, (1, 3)),
        batch(theirs, 3, 0, 2, (9, 9)),
        batch(ours, 5, (1 << 31) - 2, 4, (4, 1)),
        batch(-1, 9, -1, 1, (8, 8)),
    ]

    async def read(offset: int) -> bytes:
        return next(data for data in stored if header_at(data, 0).next_offset > offset)

    assert await read_back(Known((0, 0), 0, 0), ours, 0, 10, read) == Known((4, 1), 2, 10)
    assert await read_back(Known((1, 3), 3, 0), ours, 0, 5, read) == Known((1, 3), 3, 5)
    assert await read_back(Known((4, 1), 2, 9), ours, 0, 10, read) == Known((4, 1), 2, 10)
    # What is before the start is gone, and what was known of it stays.
    assert await read_back(Known((4, 1), 2, 0), ours, 9, 10, read) == Known((4, 1), 2, 10)
    assert await read_back(Known((4, 1), 2, 12), ours, 9, 10, read) == Known((4, 1), 2, 12)

    async def nothing(offset: int) -> bytes:
        return b""

    with pytest.raises(CorruptBatch):
        await read_back(Known((0, 0), 0, 0), ours, 0, 10, nothing)


@dataclass
class Part:
    stored: list[bytes] = field(default_factory=list)
    # How many of them readers see.
    visible: int = 0
    next: int = 0
    producers: Producers = field(default_factory=Producers)
    epoch: int = 1
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class HostileLog:
    """A `TopicLog` in virtual time in which everything takes its time: what was asked for happens although nobody waits
    for it any more, answers are lost, leaders change and with them what was not durable, notes come late."""

    def __init__(self, partitions: int, source: random.Random) -> None:
        self.random = source
        self.known = api.Topic(name="t", uid="uid", partitions=partitions)
        self.known.settings.max_message_bytes = 600
        self.parts = [Part() for _ in range(partitions)]
        self.notes: dict[int, api.GroupOffset] = {}
        self.tasks: set[asyncio.Task[object]] = set()
        self.refusals = 0

    async def topic(self, name: str) -> api.Topic | None:
        await self._pause()
        return self.known

    async def bounds(self, topic: api.Topic, partition: int) -> tuple[int, int]:
        await self._pause()
        part = self.parts[partition]
        end = header_at(part.stored[part.visible - 1], 0).next_offset if part.visible else 0
        await self._pause()
        return 0, end

    async def read(self, topic: api.Topic, partition: int, offset: int) -> bytes:
        await self._pause()
        part = self.parts[partition]
        found = [data for data in part.stored[: part.visible] if header_at(data, 0).next_offset > offset]
        return b"".join(found[: self.random.randint(1, 3)])

    async def append(self, topic: api.Topic, partition: int, batches: bytes) -> int:
        return await self._happens(lambda: self._append(self.parts[partition], batches))

    async def load(self, group: str) -> Sequence[api.GroupOffset]:
        await self._pause()
        return list(self.notes.values())

    async def store(self, group: str, offsets: Sequence[api.GroupOffset]) -> None:
        async def put() -> int:
            self.notes.update((note.partition, note) for note in offsets)
            return 0

        await self._happens(put)

    async def drop(self, group: str) -> None:
        self.notes.clear()

    def change_leader(self) -> None:
        part = self.random.choice(self.parts)
        part.stored = part.stored[: part.visible]
        part.next = header_at(part.stored[-1], 0).next_offset if part.stored else 0
        part.producers = Producers()
        for data in part.stored:
            part.producers.restore_batch(header_at(data, 0))
        part.epoch += 1
        part.changed.set()

    async def _append(self, part: Part, batches: bytes) -> int:
        epoch = part.epoch
        bases: list[int] = []
        taken = []
        try:
            for header in headers(batches):
                again = part.producers.duplicate(header)
                if again is not None:
                    bases.append(again.base_offset)
                    continue
                taken.append(part.producers.take(header, part.next))
                bases.append(part.next)
                part.stored.append(placed(batches, header, part.next, epoch))
                part.next = header_at(part.stored[-1], 0).next_offset
        except SequenceRefused as error:
            self.refusals += 1
            for undo in reversed(taken):
                part.producers.forget(undo)
                part.next = header_at(part.stored.pop(), 0).base_offset
            raise HeadgateError(SEQUENCE_REFUSED, str(error)) from error
        end = part.next
        await self._pause(0.3)
        if part.epoch != epoch:
            raise HeadgateError(NOT_LEADER, "another agent leads")
        while part.visible < len(part.stored) and header_at(part.stored[part.visible], 0).next_offset <= end:
            part.visible += 1
        return bases[0]

    async def _happens(self, what: Callable[[], Awaitable[int]]) -> int:
        async def later() -> int:
            await self._pause(0.05 if self.random.random() < 0.9 else 1.0)
            return await what()

        task = asyncio.ensure_future(later())
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        # Nobody may be there to hear of it.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        if self.random.random() < 0.1:
            await self._pause(0.2)
            raise HeadgateError(UNREACHABLE, "the connection broke")
        answer = await asyncio.shield(task)
        if self.random.random() < 0.1:
            raise HeadgateError(UNREACHABLE, "the answer was lost")
        return answer

    async def _pause(self, most: float = 0.02) -> None:
        await asyncio.sleep(self.random.uniform(0.0, most))


@dataclass
class Rows:
    """An `EdgeReader` of batches of 0 to 6 rows."""

    batches: list[pa.RecordBatch]
    source: random.Random
    trimmed: int = 0

    async def start(self) -> int:
        return self.trimmed

    async def read(self, offset: int, *, max_bytes: int, wait: float) -> Chunk:
        assert offset >= self.trimmed
        await asyncio.sleep(self.source.uniform(0.0, 0.05))
        end = min(len(self.batches), offset + self.source.randint(1, 6))
        found = [EdgeBatch(self.batches[at], at + 1) for at in range(offset, end)]
        return Chunk(found, ended=end == len(self.batches))

    async def trim(self, offset: int) -> None:
        if self.source.random() < 0.7:
            self.trimmed = max(self.trimmed, offset)


def edge_of(count: int, source: random.Random) -> Rows:
    batches = []
    at = 0
    for _ in range(count):
        size = source.choice((0, 1, 2, 6))
        keys = [source.choice("abcdefg") for _ in range(size)]
        batches.append(
            pa.RecordBatch.from_pydict(
                {"n": pa.array(range(at, at + size), pa.int64()), "k": pa.array(keys, pa.string())}
            )
        )
        at += size
    return Rows(batches, source)


@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("seed", range(40))
@pytest.mark.slow
def test_whatever_is_killed_lost_or_late_every_row_is_stored_once_and_in_order(seed: int, keyed: bool) -> None:
    source = random.Random(seed)
    config = FragmentConfig(flush_interval=0.1, flush_bytes=source.choice((50, 500)))
    options = {"topic": "t", **({"key_column": "k"} if keyed else {})}
    timings = TopicTimings(patience=30.0, note=source.choice((0.2, 1.0)), refresh=source.choice((0.5, 600.0)))

    async def main() -> None:
        log = HostileLog(3, source)
        edge = edge_of(60, source)
        running: list[asyncio.Task[None]] = []
        for _ in range(12):
            sink = TopicSink(
                "f", options, (), topics=log, clock=LoopClock(), source=source, blocking=Inline(), timings=timings
            )
            running.append(asyncio.create_task(run_sink(sink, edge, config, LoopClock())))
            await asyncio.wait(running, timeout=source.uniform(0.0, 3.0))
            if source.random() < 0.5:
                log.change_leader()
            # Killed; or not at all, and two run at the same time for a while.
            if source.random() < 0.8:
                for task in running:
                    task.cancel()
                await asyncio.gather(*running, return_exceptions=True)
                running.clear()
        last = TopicSink(
            "f", options, (), topics=log, clock=LoopClock(), source=source, blocking=Inline(), timings=timings
        )
        await asyncio.gather(*running, run_sink(last, edge, config, LoopClock()))
        while log.tasks:
            await asyncio.wait(log.tasks)
        found = [
            [json.loads(record.value or b"")["n"] for record in unpack_batches(b"".join(part.stored))]
            for part in log.parts
        ]
        assert all(part == sorted(part) for part in found)
        assert sorted(n for part in found for n in part) == list(range(sum(b.num_rows for b in edge.batches)))

    simulated(main())


def test_rows_that_another_run_stores_while_this_one_opens_are_not_overlooked() -> None:
    """Both runs find no notes; the other one delivers everything before this one has heard that there are none."""

    async def main() -> None:
        source = random.Random(7)
        config = FragmentConfig(flush_interval=0.1)
        log, edge = HostileLog(2, source), edge_of(20, source)
        load, calls = log.load, 0

        def sink() -> TopicSink:
            return TopicSink("f", {"topic": "t"}, (), topics=log, clock=LoopClock(), source=source, blocking=Inline())

        async def late(group: str) -> Sequence[api.GroupOffset]:
            nonlocal calls
            calls += 1
            found = await load(group)
            if calls == 1:
                await run_sink(sink(), Rows(edge.batches, source), config, LoopClock())
            return found

        log.load = late  # type: ignore[method-assign]
        await run_sink(sink(), edge, config, LoopClock())
        assert calls == 2
        records = [record for part in log.parts for record in unpack_batches(b"".join(part.stored))]
        assert len(records) == sum(batch.num_rows for batch in edge.batches)

    simulated(main())


def test_a_group_that_someone_else_uses_is_not_taken_for_notes() -> None:
    async def main() -> None:
        log = HostileLog(1, random.Random(1))
        log.notes[0] = api.GroupOffset(topic="t", partition=0, offset=3)
        sink = TopicSink(
            "f", {"topic": "t"}, (), topics=log, clock=LoopClock(), source=random.Random(1), blocking=Inline()
        )
        with pytest.raises(HeadgateError) as raised:
            await sink.open(0)
        await sink.close()
        assert raised.value.reason is SINK_CHANGED
        assert group_of("f") in raised.value.message

    simulated(main())


def test_what_a_reach_gives_is_what_a_sink_gets() -> None:
    log = HostileLog(1, random.Random(1))
    fragment = sink_fragment(catalog.SINK_TYPE_TOPIC, {"topic": "t"}, "n INT64")
    reach = Reach(LoopClock(), random.Random(1), log)
    sink = build_sink("f", fragment, state=Path("unused"), config=FragmentConfig(), blocking=Inline(), reach=reach)
    assert isinstance(sink, TopicSink)
