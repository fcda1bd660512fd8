"""What a partition acknowledges is there afterwards, once, in order; of what it is not sure it says nothing."""

from __future__ import annotations

import asyncio
import errno
import random
import struct
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from crc32c import crc32c

from headgate_agent.log.contract import (
    BadTimestamp,
    Durability,
    NotAccepted,
    NotLeader,
    PartitionKey,
    PartitionSettings,
    SegmentInfo,
    Start,
    Uncertain,
)
from headgate_agent.log.entries import held_in
from headgate_agent.log.objects import ObjectExists, ObjectMissing, ObjectStoreFailed, StoredObject
from headgate_agent.log.partition import Append, Partition
from headgate_agent.log.producers import Producer, SequenceRefused
from headgate_agent.log.record_batch import CorruptBatch, encode, header_at, headers
from headgate_agent.log.segment import Index, batches_from, read_index, stored_range, unpack_block
from headgate_agent.log.tail import Memory
from headgate_agent.log.wal import Wal, WalRefused, WalStopped, WalUncertain
from headgate_common.clock import SystemClock
from headgate_common.ids import RandomIds

KEY = PartitionKey("topic-1", 0)
FAST = PartitionSettings(linger=0.001, segment_age=0.001, reserve_ahead=50)


class Files:
    """Write-ahead files in memory; fail when told to."""

    def __init__(self) -> None:
        self.files: dict[int, bytearray] = {}
        self.fail = 0
        # Nor can what was written be cut back.
        self.stuck = False

    async def numbers(self) -> Sequence[int]:
        return sorted(self.files)

    async def read(self, number: int) -> bytes:
        return bytes(self.files[number])

    async def read_part(self, number: int, position: int, length: int) -> bytes:
        await asyncio.sleep(0)
        if number not in self.files:
            raise FileNotFoundError(f"there is no file {number}")
        return bytes(self.files[number][position : position + length])

    async def create(self, number: int) -> None:
        self.files[number] = bytearray()

    async def write(self, number: int, position: int, buffers: Sequence[bytes]) -> None:
        await asyncio.sleep(0)
        if self.fail:
            self.fail -= 1
            self.files[number][position:] = b"".join(buffers)[:7]
            raise OSError(errno.ENOSPC, "No space left on device")
        self.files[number][position:] = b"".join(buffers)

    async def cut(self, number: int, size: int) -> None:
        if self.stuck:
            raise OSError(errno.EIO, "Input/output error")
        del self.files[number][size:]

    async def remove(self, number: int) -> None:
        del self.files[number]


class Objects:
    """An object store in memory; a failure may come before or after the object is there."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.fail_before = 0
        self.fail_after = 0

    async def create(self, key: str, buffers: Sequence[bytes]) -> None:
        await asyncio.sleep(0)
        if self.fail_before:
            self.fail_before -= 1
            raise ObjectStoreFailed("503 Slow Down")
        if key in self.objects:
            raise ObjectExists(key)
        self.objects[key] = b"".join(buffers)
        if self.fail_after:
            self.fail_after -= 1
            raise ObjectStoreFailed("timed out")

    async def read(self, key: str, start: int, length: int) -> bytes:
        if key not in self.objects:
            raise ObjectMissing(key)
        return self.objects[key][start : start + length]

    async def delete(self, key: str) -> None:
        self.objects.pop(key, None)

    async def find(self, prefix: str) -> AsyncIterator[StoredObject]:
        for key, data in tuple(self.objects.items()):
            if key.startswith(prefix):
                yield StoredObject(key, len(data), datetime.now(UTC))


class Catalog:
    """The catalog's side of one partition, with the rule that fences: this epoch, this next offset."""

    def __init__(self) -> None:
        self.epoch = 0
        self.log_start = 0
        self.committed = 0
        self.reserved = 0
        self.trims: list[int] = []
        self.segments: list[SegmentInfo] = []
        self.producers: dict[int, Producer] = {}
        self.forgotten = -1

    def grant(self) -> Start:
        self.epoch += 1
        known = list(self.producers.values())
        return Start(self.epoch, self.log_start, self.committed, self.reserved, known, self.forgotten)

    async def reserve(self, key: PartitionKey, epoch: int, until: int) -> None:
        await asyncio.sleep(0)
        if epoch != self.epoch:
            raise NotLeader("STALE_EPOCH")
        self.reserved = max(self.reserved, until)

    async def commit(self, key: PartitionKey, epoch: int, segment: SegmentInfo, producers: Sequence[Producer]) -> None:
        await asyncio.sleep(0)
        if epoch != self.epoch or segment.base_offset != self.committed:
            raise NotLeader("STALE_EPOCH")
        self.segments.append(segment)
        self.committed = segment.next_offset
        self.producers |= {producer.producer_id: producer for producer in producers}

    async def trim(self, key: PartitionKey, epoch: int, log_start: int) -> None:
        await asyncio.sleep(0)
        if epoch != self.epoch or log_start > max(self.committed, self.reserved):
            raise NotLeader("STALE_EPOCH")
        self.trims.append(log_start)
        self.log_start = max(self.log_start, log_start)
        self.committed = max(self.committed, log_start)

    def shown(self, key: PartitionKey, segment: SegmentInfo) -> None:
        self.segments.append(segment)


class Switch:
    def __init__(self) -> None:
        self.on = True
        self.over = False

    def valid(self) -> bool:
        return self.on and not self.over

    def ended(self) -> bool:
        return self.over


class Bench:
    """One agent with a disk, an object store and a catalog; `lead` begins a new leadership, as after a restart."""

    def __init__(self, durability: Durability) -> None:
        self.durability = durability
        self.files, self.objects, self.catalog = Files(), Objects(), Catalog()
        self.grant = Switch()

    async def lead(self, *, memory: Memory | None = None, **settings: Any) -> Partition:
        wal = Wal(self.files)
        entries = await wal.recover()
        self.grant = Switch()
        partition = Partition(
            KEY,
            "orders/0",
            self.catalog.grant(),
            replace(FAST, durability=self.durability, **settings),
            wal=wal,
            objects=self.objects,
            metadata=self.catalog,
            grant=self.grant,
            clock=SystemClock(),
            ids=RandomIds(random.Random(1)),
            source=random.Random(1),
            memory=memory,
        )
        if self.durability is Durability.WAL:
            partition.recover(held_in(entries).get(KEY, ()))
        return partition

    def stored(self) -> list[tuple[int, bytes]]:
        """What the catalog's segments hold: offset and body of each batch."""
        found = []
        for info in self.catalog.segments:
            data = self.objects.objects[info.key]
            index = read_index(data, len(data))
            assert isinstance(index, Index)
            for block in index.blocks:
                start, length = stored_range(block)
                batches = bytes(batches_from(unpack_block(block, data[start : start + length]), 0))
                found += [(h.base_offset, batches[h.position + 61 : h.position + h.size]) for h in headers(batches)]
        return found


def batch(body: bytes, count: int = 1, producer: tuple[int, int, int] = (-1, -1, -1)) -> bytes:
    return bytes(encode(body, count, timestamp=1, producer=producer))


def over_offsets(count: int, offsets: int) -> bytes:
    """A batch that is whole, and says that its records are spread over so many offsets."""
    data = bytearray(batch(b"abc", count))
    struct.pack_into(">i", data, 23, offsets - 1)
    struct.pack_into(">I", data, 17, crc32c(memoryview(data)[21:]))
    return bytes(data)


BOTH = pytest.mark.parametrize("durability", list(Durability))


@BOTH
async def test_offsets_are_dense_and_in_the_order_of_acknowledgement(durability: Durability) -> None:
    bench = Bench(durability)
    partition = await bench.lead()
    answers = await asyncio.gather(*(partition.produce(batch(b"%d" % i, 3)) for i in range(20)))
    assert sorted(answer.base_offset for answer in answers) == list(range(0, 60, 3))
    await partition.flush()
    assert [offset for offset, _ in bench.stored()] == list(range(0, 60, 3))


@BOTH
async def test_readers_never_see_what_is_not_acknowledged(durability: Durability) -> None:
    bench = Bench(durability)
    partition = await bench.lead(linger=60, segment_age=60)
    first = asyncio.ensure_future(partition.produce(batch(b"a")))
    await asyncio.sleep(0)
    assert partition.read(0, 1000) == []
    if durability is Durability.WAL:
        await first
        found = partition.read(0, 1000)
        assert found is not None
        assert header_at(found[0], 0).base_offset == 0
    else:
        await partition.flush()
        await first
        assert partition.read(0, 1000) is not None
    assert partition.durable == 1


@BOTH
async def test_a_segment_is_closed_by_its_size_long_before_its_age(durability: Durability) -> None:
    bench = Bench(durability)
    partition = await bench.lead(segment_bytes=1000, segment_age=1000.0, linger=1000.0)
    source = random.Random(7)
    made = [batch(source.randbytes(139)) for _ in range(50)]
    assert sum(map(len, made)) == 10_000
    producing = [asyncio.ensure_future(partition.produce(one)) for one in made]
    async with asyncio.timeout(20):
        while bench.catalog.committed < 45:
            await partition._tenure.wait()
    stored = bench.stored()
    sizes = [
        sum(61 + len(body) for offset, body in stored if info.base_offset <= offset < info.next_offset)
        for info in bench.catalog.segments
    ]
    assert len(sizes) >= 8
    assert max(sizes) <= 1000 + len(made[0])
    # What is left is less than a segment, and waits for its age.
    await partition.flush()
    await asyncio.gather(*producing)
    assert [body for _, body in bench.stored()] == [one[61:] for one in made]


async def test_an_object_topic_acknowledges_only_what_the_catalog_knows() -> None:
    bench = Bench(Durability.OBJECT)
    partition = await bench.lead()
    bench.objects.fail_before = 3
    await partition.produce(batch(b"a"))
    assert bench.stored() == [(0, b"a")]


async def test_an_upload_that_timed_out_after_it_happened_is_not_done_twice() -> None:
    bench = Bench(Durability.OBJECT)
    partition = await bench.lead()
    bench.objects.fail_after = 1
    await partition.produce(batch(b"a"))
    assert bench.stored() == [(0, b"a")]
    assert len(bench.objects.objects) == 1


async def test_a_wal_topic_gives_back_after_a_crash_everything_that_was_acknowledged() -> None:
    bench = Bench(Durability.WAL)
    partition = await bench.lead(segment_age=60)
    for number in range(5):
        await partition.produce(batch(b"%d" % number))
    partition.lose("crash")
    again = await bench.lead()
    assert again.durable == 5
    await again.produce(batch(b"5"))
    await again.flush()
    assert bench.stored() == [(number, b"%d" % number) for number in range(6)]


async def test_a_full_disk_refuses_and_leaves_no_gap() -> None:
    bench = Bench(Durability.WAL)
    partition = await bench.lead()
    await partition.produce(batch(b"a"))
    bench.files.fail = 1
    with pytest.raises(WalRefused):
        await partition.produce(batch(b"refused", producer=(7, 0, 0)))
    answer = await partition.produce(batch(b"b", producer=(7, 0, 0)))
    assert answer.base_offset == 1
    await partition.flush()
    assert bench.stored() == [(0, b"a"), (1, b"b")]


async def test_a_write_that_failed_and_cannot_be_undone_is_uncertain_and_what_waits_behind_it_is_not_stored() -> None:
    bench = Bench(Durability.WAL)
    partition = await bench.lead()
    bench.files.fail, bench.files.stuck = 1, True
    first = asyncio.ensure_future(partition.produce(batch(b"a")))
    await asyncio.sleep(0)
    second = asyncio.ensure_future(partition.produce(batch(b"b")))
    with pytest.raises(Uncertain):
        await first
    with pytest.raises(WalStopped) as stopped:
        await second
    assert not isinstance(stopped.value, WalUncertain)


@BOTH
async def test_a_leader_whose_grant_ended_during_the_write_acknowledges_nothing(durability: Durability) -> None:
    bench = Bench(durability)
    partition = await bench.lead()
    producing = asyncio.ensure_future(partition.produce(batch(b"a")))
    await asyncio.sleep(0)
    bench.grant.over = True
    with pytest.raises(NotLeader):
        await producing
    with pytest.raises(NotLeader):
        await partition.produce(batch(b"b"))


@BOTH
async def test_in_doubt_nothing_is_acknowledged_and_what_was_taken_counts_if_the_session_lived_on(
    durability: Durability,
) -> None:
    bench = Bench(durability)
    partition = await bench.lead()
    first = asyncio.ensure_future(partition.produce(batch(b"a")))
    await asyncio.sleep(0)
    bench.grant.on = False
    second = asyncio.ensure_future(partition.produce(batch(b"b")))
    _, waiting = await asyncio.wait((first, second), timeout=0.3)
    assert waiting == {first, second} and not partition.leads
    bench.grant.on = True
    partition.renewed()
    assert [(await first).base_offset, (await second).base_offset] == [0, 1]
    await partition.flush()
    assert bench.stored() == [(0, b"a"), (1, b"b")]


@BOTH
async def test_in_doubt_nothing_is_acknowledged_if_the_session_had_ended(durability: Durability) -> None:
    bench = Bench(durability)
    partition = await bench.lead()
    bench.grant.on = False
    producing = asyncio.ensure_future(partition.produce(batch(b"a")))
    _, waiting = await asyncio.wait((producing,), timeout=0.2)
    assert waiting
    bench.grant.over = True
    partition.renewed()
    with pytest.raises(Uncertain):
        await producing
    with pytest.raises(NotLeader) as refused:
        await partition.produce(batch(b"b"))
    assert not isinstance(refused.value, Uncertain), "nothing of it was taken"


async def test_a_former_leader_cannot_publish() -> None:
    bench = Bench(Durability.OBJECT)
    old = await bench.lead()
    new = await bench.lead()
    with pytest.raises(NotLeader):
        await old.produce(batch(b"old"))
    await new.produce(batch(b"new"))
    assert bench.stored() == [(0, b"new")]


@BOTH
async def test_a_retried_batch_is_stored_once_also_by_the_next_leader(durability: Durability) -> None:
    bench = Bench(durability)
    partition = await bench.lead()
    first = await partition.produce(batch(b"a", producer=(7, 0, 0)))
    assert await partition.produce(batch(b"a", producer=(7, 0, 0))) == first
    partition.lose("crash")
    again = await bench.lead()
    assert (await again.produce(batch(b"a", producer=(7, 0, 0)))).base_offset == first.base_offset
    await again.produce(batch(b"b", producer=(7, 0, 1)))
    await again.flush()
    assert bench.stored() == [(0, b"a"), (1, b"b")]


async def test_a_successor_does_not_take_for_stored_what_the_catalog_never_knew() -> None:
    bench = Bench(Durability.OBJECT)
    partition = await bench.lead(linger=0.005)
    await partition.produce(batch(b"a", producer=(7, 0, 0)))
    bench.objects.fail_before = 10**6
    waiting = asyncio.ensure_future(partition.produce(batch(b"b", producer=(7, 0, 1))))
    await asyncio.sleep(0.02)
    partition.lose("crash")
    with pytest.raises(Uncertain):
        await waiting
    bench.objects.fail_before = 0
    again = await bench.lead()
    await again.produce(batch(b"b", producer=(7, 0, 1)))
    assert bench.stored() == [(0, b"a"), (1, b"b")]


async def test_a_duplicate_waits_until_its_first_copy_is_durable() -> None:
    bench = Bench(Durability.OBJECT)
    partition = await bench.lead(linger=60)
    first = asyncio.ensure_future(partition.produce(batch(b"a", producer=(7, 0, 0))))
    second = asyncio.ensure_future(partition.produce(batch(b"a", producer=(7, 0, 0))))
    await asyncio.sleep(0.01)
    assert not second.done()
    await partition.flush()
    assert (await first).base_offset == (await second).base_offset


@BOTH
async def test_bad_records_are_refused_and_change_nothing(durability: Durability) -> None:
    bench = Bench(durability)
    partition = await bench.lead(max_message_bytes=200)
    damaged = bytearray(batch(b"abc"))
    damaged[-1] ^= 1
    for data, error in (
        (bytes(damaged), CorruptBatch),
        (batch(b"x" * 500), NotAccepted),
        (b"", NotAccepted),
        (b"junk" * 30, CorruptBatch),
        (over_offsets(1, 2**31 - 1), NotAccepted),
        (over_offsets(2, 3), NotAccepted),
        (over_offsets(0, 1), NotAccepted),
    ):
        with pytest.raises(error):
            await partition.produce(data)
    await partition.produce(batch(b"ok", producer=(7, 0, 0)))
    with pytest.raises(SequenceRefused):
        await partition.produce(batch(b"gap", producer=(7, 0, 5)))
    await partition.flush()
    assert bench.stored() == [(0, b"ok")]


async def test_offsets_are_reserved_before_they_are_acknowledged() -> None:
    bench = Bench(Durability.WAL)
    partition = await bench.lead(reserve_ahead=3, segment_age=60)
    for number in range(20):
        await partition.produce(batch(b"%d" % number))
        assert bench.catalog.reserved > partition.durable


async def test_records_that_are_on_their_way_together_stay_within_what_is_reserved() -> None:
    bench = Bench(Durability.WAL)
    partition = await bench.lead(reserve_ahead=3, segment_age=60)
    for _ in range(5):
        answers = await asyncio.gather(*(partition.produce(batch(b"x", 2)) for _ in range(4)))
        assert bench.catalog.reserved > max(answer.next_offset for answer in answers)


async def test_producers_are_held_back_while_nothing_can_be_uploaded() -> None:
    bench = Bench(Durability.WAL)
    partition = await bench.lead(max_unflushed_bytes=500)
    bench.objects.fail_before = 10**6
    for _ in range(4):
        await partition.produce(batch(b"x" * 100))
    late = asyncio.ensure_future(partition.produce(batch(b"late")))
    await asyncio.sleep(0.05)
    assert not late.done()
    bench.objects.fail_before = 0
    assert (await asyncio.wait_for(late, 20)).base_offset == 4


@BOTH
async def test_produces_keep_the_order_in_which_they_began_also_while_offsets_are_reserved(
    durability: Durability,
) -> None:
    bench = Bench(durability)
    partition = await bench.lead(reserve_ahead=1)
    began: list[asyncio.Future[Any]] = []
    for number in range(50):
        began.append(asyncio.ensure_future(partition.produce(batch(b"%d" % number, producer=(7, 0, number)))))
        for _ in range(number % 4):
            await asyncio.sleep(0)
    assert [answer.base_offset for answer in await asyncio.gather(*began)] == list(range(50))


async def test_a_caller_that_gives_up_leaves_nothing_that_could_not_be_flushed() -> None:
    bench = Bench(Durability.WAL)
    partition = await bench.lead(segment_age=60)
    giving_up = asyncio.ensure_future(partition.produce(batch(b"a")))
    await asyncio.sleep(0)
    giving_up.cancel()
    await asyncio.gather(giving_up, return_exceptions=True)
    await asyncio.wait_for(partition.flush(), 60)
    await partition.produce(batch(b"b"))
    await asyncio.wait_for(partition.flush(), 60)
    assert bench.stored()[-1][1] == b"b"
    assert partition.oldest_wal_file is None


@BOTH
async def test_callers_that_give_up_while_they_wait_for_room_leave_nothing_behind(durability: Durability) -> None:
    bench = Bench(durability)
    partition = await bench.lead(max_unflushed_bytes=-1)
    before = asyncio.all_tasks()
    for _ in range(50):
        waiting = asyncio.ensure_future(partition.produce(batch(b"x")))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    assert (partition._queued, partition._reservation._claimed, partition.next) == (0, 0, 0)
    assert asyncio.all_tasks() - before <= {partition._reservation._asking, partition._flusher}
    partition.settings = replace(partition.settings, max_unflushed_bytes=1 << 20)
    assert (await asyncio.wait_for(partition.produce(batch(b"y")), 60)).base_offset == 0


class HangingFiles(Files):
    """A disk that does not answer until it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.go = asyncio.Event()

    async def write(self, number: int, position: int, buffers: Sequence[bytes]) -> None:
        await self.go.wait()
        await super().write(number, position, buffers)


async def test_what_waits_for_a_disk_that_hangs_is_bounded_however_often_callers_give_up() -> None:
    bench = Bench(Durability.WAL)
    bench.files = files = HangingFiles()
    memory = Memory(unsettled=2000)
    partition = await bench.lead(memory=memory, segment_age=60)
    data = batch(b"x" * 100)
    for _ in range(100):
        waiting = asyncio.ensure_future(partition.produce(data))
        for _ in range(5):
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    held = sum(len(one.item.data) for one in partition._wal._waiting if isinstance(one.item, Append))
    assert held <= memory.unsettled <= 2000 + len(data)
    files.go.set()
    await asyncio.wait_for(partition.produce(data), 20)
    await asyncio.wait_for(partition.flush(), 20)
    assert memory.unsettled == 0
    assert [offset for offset, _ in bench.stored()] == list(range(partition.next)), "what had begun is stored"


@BOTH
async def test_a_producer_older_than_an_accepted_loss_goes_on_where_it_is(durability: Durability) -> None:
    bench = Bench(durability)
    partition = await bench.lead()
    await partition.produce(batch(b"a", producer=(7, 0, 0)))
    await partition.flush()
    partition.lose("its disk is lost, with batches 1 to 4")
    # What the catalog grants after the loss was accepted: nobody is known, and all of before may have been forgotten.
    bench.catalog.producers, bench.catalog.forgotten = {}, 7
    bench.files = Files()
    again = await bench.lead()
    answer = await again.produce(batch(b"b", producer=(7, 0, 5)))
    assert await again.produce(batch(b"b", producer=(7, 0, 5))) == answer
    with pytest.raises(SequenceRefused):
        await again.produce(batch(b"gap", producer=(7, 0, 7)))
    await again.produce(batch(b"c", producer=(7, 0, 6)))
    with pytest.raises(SequenceRefused):
        await again.produce(batch(b"younger", producer=(8, 0, 1)))
    await again.flush()
    assert [body for _, body in bench.stored()] == [b"a", b"b", b"c"]


async def test_an_entry_of_which_segments_hold_only_a_part_is_recovered_for_the_rest() -> None:
    bench = Bench(Durability.WAL)
    partition = await bench.lead(segment_age=60)
    await partition.produce(batch(b"a") + batch(b"b") + batch(b"c"))
    partition.lose("crash")
    # As if the first batch had been uploaded in a segment of its own.
    bench.catalog.committed = 1
    again = await bench.lead()
    assert (again.next, again.durable) == (3, 3)
    await again.flush()
    assert [body for _, body in bench.stored()] == [b"b", b"c"]


async def test_a_sealed_partition_takes_nothing_more_and_is_flushed_whole() -> None:
    bench = Bench(Durability.WAL)
    partition = await bench.lead(segment_age=60)
    producing = [asyncio.ensure_future(partition.produce(batch(b"%d" % number))) for number in range(5)]
    await asyncio.sleep(0)
    partition.seal("it is being handed over")
    with pytest.raises(NotLeader, match="handed over"):
        await partition.produce(batch(b"late"))
    await asyncio.wait_for(partition.flush(), 60)
    answers = await asyncio.gather(*producing, return_exceptions=True)
    kept = sum(not isinstance(answer, BaseException) for answer in answers)
    assert partition.committed == partition.next == kept
    partition.unseal()
    await partition.produce(batch(b"again"))


async def test_a_flush_does_not_make_small_segments_of_what_comes_after_it() -> None:
    bench = Bench(Durability.WAL)
    partition = await bench.lead(segment_age=60)
    await partition.produce(batch(b"a"))
    flushing = asyncio.ensure_future(partition.flush())
    for number in range(50):
        await partition.produce(batch(b"%d" % number))
    await flushing
    await asyncio.sleep(0.05)
    assert len(bench.catalog.segments) < 5
    assert partition.committed < partition.durable


async def test_what_was_trimmed_before_it_was_uploaded_never_is_and_the_catalog_is_told_once() -> None:
    bench = Bench(Durability.WAL)
    partition = await bench.lead(segment_age=1000.0)
    for number in range(10):
        await partition.produce(batch(b"%d" % number))
        partition.trim(number)
    assert bench.catalog.trims == [] and partition.trim_untold
    assert partition.read(9, 1 << 20)
    await partition.tell_trim()
    assert bench.catalog.trims == [9] and bench.catalog.committed == 9
    await partition.flush()
    assert bench.stored() == [(9, b"9")] and len(bench.objects.objects) == 1
    await partition.tell_trim()
    assert bench.catalog.trims == [9]


async def test_a_start_within_a_batch_leaves_the_batch_whole_for_the_next_leader() -> None:
    bench = Bench(Durability.WAL)
    partition = await bench.lead(segment_age=1000.0)
    await partition.produce(batch(b"a"))
    await partition.produce(batch(b"bc", 2))
    partition.trim(2)
    assert (partition.log_start, partition.unread_bytes) == (2, len(batch(b"bc", 2)))
    await partition.tell_trim()
    assert bench.catalog.trims == [1]
    again = await bench.lead(segment_age=1000.0)
    assert (again.log_start, again.durable) == (1, 3)
    await again.flush()
    assert [offset for offset, _ in bench.stored()] == [1]


async def test_a_crash_before_the_catalog_was_told_of_a_trim_loses_nothing_that_is_needed() -> None:
    bench = Bench(Durability.WAL)
    partition = await bench.lead(segment_age=1000.0)
    for number in range(5):
        await partition.produce(batch(b"%d" % number))
    partition.trim(3)
    again = await bench.lead(segment_age=1000.0)
    assert (again.log_start, again.durable) == (0, 5)
    again.trim(3)
    await again.flush()
    assert bench.stored() == [(3, b"3"), (4, b"4")]


class SlowObjects(Objects):
    """Uploads wait until they may go on."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting, self.go = asyncio.Event(), asyncio.Event()

    async def create(self, key: str, buffers: Sequence[bytes]) -> None:
        self.waiting.set()
        await self.go.wait()
        await super().create(key, buffers)


async def test_a_start_that_moves_during_an_upload_is_told_after_it() -> None:
    bench = Bench(Durability.WAL)
    bench.objects = slow = SlowObjects()
    partition = await bench.lead(segment_age=1000.0)
    for number in range(5):
        await partition.produce(batch(b"%d" % number))
    flushing = asyncio.ensure_future(partition.flush())
    await slow.waiting.wait()
    partition.trim(3)
    telling = asyncio.ensure_future(partition.tell_trim())
    await asyncio.sleep(0.01)
    slow.go.set()
    await asyncio.gather(flushing, telling)
    assert partition.lost is None
    assert (bench.catalog.log_start, bench.catalog.committed) == (3, 5)


async def test_a_trim_and_an_upload_at_the_same_time_do_not_disturb_each_other() -> None:
    bench = Bench(Durability.WAL)
    partition = await bench.lead(segment_age=1000.0)
    for number in range(200):
        await partition.produce(batch(b"%d" % number))
        partition.trim(max(0, number - 3))
        if number % 7 == 0:
            await asyncio.gather(partition.tell_trim(), partition.flush(), partition.tell_trim())
    await partition.flush()
    assert partition.lost is None
    offsets = [offset for offset, _ in bench.stored() if offset >= partition.log_start]
    assert offsets == list(range(partition.log_start, 200))


@BOTH
async def test_times_that_are_too_far_ahead_are_refused_and_others_are_not(durability: Durability) -> None:
    bench = Bench(durability)
    partition = await bench.lead(after_max=3600.0)
    now = int(datetime.now(UTC).timestamp() * 1000)
    for first, last in ((now, now * 1000), (now * 1000, now), (now, now + 3_700_000), (now, 2**63 - 1)):
        with pytest.raises(BadTimestamp, match="more than 3600 s ahead"):
            await partition.produce(bytes(encode(b"late", 1, timestamp=first, max_timestamp=last)))
    # None, none that Kafka knows, long ago, and ahead by no more than clocks may differ.
    for offset, time in enumerate((-1, -5, 0, now + 3_500_000)):
        assert (await partition.produce(bytes(encode(b"ok", 1, timestamp=time)))).base_offset == offset


async def test_a_wrong_clock_of_an_agent_turns_nobody_away_unless_it_is_told_to() -> None:
    partition = await Bench(Durability.WAL).lead()
    ahead = int(datetime.now(UTC).timestamp() * 1000)
    await partition.produce(bytes(encode(b"ok", 1, timestamp=ahead + 30 * 86_400_000)))
    with pytest.raises(BadTimestamp):
        await partition.produce(bytes(encode(b"microseconds", 1, timestamp=ahead * 1000)))
