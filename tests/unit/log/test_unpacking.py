"""A batch that unpacks to millions of records is its own reader's trouble, and nobody else's."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate_agent.log import unpacking as module
from headgate_agent.log.access import TimedOffset
from headgate_agent.log.record_batch import HEADER_BYTES, BatchHeader, CorruptBatch, encode, patch
from headgate_agent.log.records import PlainRecord, Walk, pack
from headgate_agent.log.unpacking import Unpacking, UnpackLimits
from headgate_agent.work import Inline, Threads
from tests.examples import examples

T = TypeVar("T")

# The smallest record there is: no key, no value, no headers. It says of itself that it is the first of its batch.
SMALLEST = bytes([12, 0, 0, 0, 1, 1, 0])
EPOCH = 3
LIMITS = UnpackLimits(batch_bytes=1 << 20, small_bytes=4096, slice_records=100)


def bomb(records: int, *, base: int = 0, latest: int = 5000) -> bytes:
    """A few bytes of records from the time 1000, though the header says that one is later."""
    packed = bytes(cramjam.zstd.compress(SMALLEST * records))
    data = encode(packed, records, timestamp=1000, max_timestamp=latest, attributes=4)
    patch(data, 0, base, EPOCH)
    return bytes(data)


def usual(times: Sequence[int], *, base: int = 0, packed: bool = False) -> bytes:
    (made,) = pack([PlainRecord(None, b"v%d" % time, time) for time in times], 1 << 20)
    data = bytearray(made)
    if packed:
        body = bytes(cramjam.zstd.compress(bytes(made[HEADER_BYTES:])))
        data = encode(body, len(times), timestamp=times[0], max_timestamp=max(times), attributes=4)
    patch(data, 0, base, EPOCH)
    return bytes(data)


class Steps:
    """`Work` on the event loop, where others come in between jobs."""

    def __init__(self) -> None:
        self.jobs = 0

    async def run(self, job: Callable[[], T]) -> T:
        self.jobs += 1
        await asyncio.sleep(0)
        return job()


class Opened:
    """Notes which batches are unpacked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.large: list[int] = []
        real = module.open_batch

        def noted(data: bytes, header: BatchHeader, limit: int) -> Walk:
            walk = real(data, header, limit)
            if limit > LIMITS.small_bytes:
                self.large.append(header.base_offset)
            return walk

        monkeypatch.setattr(module, "open_batch", noted)


@contextmanager
def threads(count: int) -> Iterator[Threads]:
    made = Threads(count)
    try:
        yield made
    finally:
        made.close()


async def test_a_usual_batch_never_waits_for_one_that_unpacks_to_much() -> None:
    with threads(1) as work:
        looking = Unpacking(work, LIMITS)
        slow = [asyncio.ensure_future(looking.first_at(bomb(140_000, base=n), 4000, 0)) for n in range(4)]
        await asyncio.sleep(0)
        for _ in range(5):
            found = await looking.first_at(usual([1, 2, 9], base=50), 5, 0)
            assert found == TimedOffset(52, 9, EPOCH)
            await work.run(lambda: None)
        assert not any(one.done() for one in slow), "each has a thousand slices before it"
        assert await asyncio.gather(*slow) == [None] * 4


async def test_what_unpacks_to_much_takes_the_memory_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    opened, looking = Opened(monkeypatch), Unpacking(Steps(), LIMITS)

    async def look(base: int) -> None:
        await looking.first_at(bomb(10_000, base=base), 4000, 0)
        opened.large.append(-base)

    await asyncio.gather(look(1), look(2))
    assert opened.large == [1, -1, 2, -2], "one is opened after another has ended"


async def test_one_who_gives_up_is_let_go_after_the_slice_under_way() -> None:
    work = Steps()
    looking = Unpacking(work, LIMITS)
    for data in (bomb(10_000), bomb(500)):
        begun = work.jobs
        task = asyncio.ensure_future(looking.first_at(data, 4000, 0))
        while work.jobs < begun + 4:  # noqa: ASYNC110
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait((task,))
        assert task.cancelled() and work.jobs == begun + 4
    assert await looking.first_at(bomb(10_000), 4000, 0) is None, "the next one has its turn"


async def test_a_job_that_has_not_begun_is_not_waited_for() -> None:
    with threads(1) as work:
        go, done = threading.Event(), []
        first = asyncio.ensure_future(work.run(lambda: go.wait(60)))
        queued = asyncio.ensure_future(work.run(lambda: done.append("queued")))
        await asyncio.sleep(0)
        queued.cancel()
        await asyncio.wait((queued,), timeout=60)
        assert queued.cancelled() and not first.done()
        first.cancel()
        await asyncio.sleep(0)
        assert not first.done(), "what has begun is waited for"
        go.set()
        await asyncio.wait((first,), timeout=60)
        assert first.cancelled()
        await work.run(lambda: None)
        assert done == []


@pytest.mark.parametrize(("start", "attributes"), [(0, 0), (2, 8)])
async def test_a_batch_whose_header_says_it_is_not_looked_into(start: int, attributes: int) -> None:
    data = bytes(encode(b"no records", 5, timestamp=700, max_timestamp=900, attributes=attributes))
    looking = Unpacking(Inline(), LIMITS)
    time = 700 if not attributes else 900
    assert await looking.first_at(data, 700, start) == TimedOffset(start, time, -1)
    assert await looking.first_at(data, 901, start) is None
    if attributes:
        assert await looking.largest(data, start) == TimedOffset(start, 900, -1)
    else:
        with pytest.raises(CorruptBatch):
            await looking.first_at(data, 701, start)


async def test_a_batch_of_more_records_than_its_bytes_can_hold_is_corrupt() -> None:
    data = bytes(encode(SMALLEST * 10, 11, timestamp=1, max_timestamp=9))
    with pytest.raises(CorruptBatch, match="11 records in 70 bytes"):
        await Unpacking(Inline(), LIMITS).first_at(data, 5, 0)


async def test_what_unpacks_to_more_than_is_allowed_is_not_looked_into() -> None:
    looking = Unpacking(Inline(), LIMITS)
    with pytest.raises(CorruptBatch, match="more than 1048576 bytes"):
        await looking.first_at(bomb(200_000), 4000, 0)
    with pytest.raises(CorruptBatch, match="more than 1048576 bytes"):
        await looking.records("t", bomb(200_000), 0, most=1, most_bytes=1 << 20)


async def test_a_reader_comes_through_in_pages_whatever_records_say_of_themselves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened, looking = Opened(monkeypatch), Unpacking(Steps(), LIMITS)
    data = bomb(5000, base=40)
    offset, pages = 50, 0
    while offset < 5040:
        page = await looking.records("t", data, offset, most=700, most_bytes=1 << 20)
        assert [one.offset for one in page] == list(range(offset, min(offset + 700, 5040)))
        offset, pages = page[-1].offset + 1, pages + 1
    assert pages == 8 and opened.large == [40], "it is unpacked once for the one who goes on"
    assert await looking.records("t", data, 5040, most=700, most_bytes=1 << 20) == []


async def test_what_is_kept_for_one_reader_is_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    opened, looking = Opened(monkeypatch), Unpacking(Steps(), LIMITS)
    data = bomb(5000, base=40)
    for of, offset in (("t", 40), ("u", 40), ("t", 50), ("t", 45)):
        page = await looking.records(of, data, offset, most=10, most_bytes=1 << 20)
        assert page[0].offset == offset
    assert opened.large == [40] * 4, "of another partition, replaced by it, and behind what is asked for"


async def test_a_page_has_no_more_bytes_than_asked_for_but_one_record_always() -> None:
    looking = Unpacking(Inline(), LIMITS)
    (data,) = pack([PlainRecord(b"k", b"v" * 500, 7) for _ in range(9)], 1 << 20)
    assert len(await looking.records("t", data, 0, most=100, most_bytes=1700)) == 3
    assert len(await looking.records("t", data, 0, most=100, most_bytes=1)) == 1
    assert [one.offset for one in await looking.records("t", data, 3, until=5, most=100, most_bytes=1 << 20)] == [3, 4]


TIMES = st.lists(st.lists(st.integers(-1, 300), min_size=1, max_size=9), min_size=1, max_size=5)


@settings(max_examples=examples(150), deadline=None)
@given(TIMES, st.booleans(), st.integers(0, 20), st.integers(1, 4), st.sampled_from([32, 1 << 20]))
@pytest.mark.slow
async def test_slices_of_any_size_find_what_a_look_at_all_records_finds(
    batches: list[list[int]], packed: bool, start: int, records: int, small: int
) -> None:
    looking = Unpacking(Inline(), UnpackLimits(small_bytes=small, slice_records=records))
    times, data = [time for one in batches for time in one], b""
    for one in batches:
        data += usual(one, base=data_end(data), packed=packed)
    later = list(enumerate(times))[start:]
    for wanted in (0, 1, 64, 150, 300):
        expected = next(((at, time) for at, time in later if time >= wanted), None)
        found = await looking.first_at(data, wanted, start)
        assert (None if found is None else (found.offset, found.timestamp)) == expected
    largest = max((time for _, time in later), default=-1)
    found = await looking.largest(data, start)
    assert (-1 if found is None else found.timestamp) == largest
    if found is not None:
        assert found.offset == next(at for at, time in later if time == largest)
    read: list[PlainRecord] = []
    while start + len(read) < len(times):
        read += await looking.records("t", data, start + len(read), most=3, most_bytes=1 << 20)
    assert [(one.offset, one.timestamp) for one in read] == later


def data_end(data: bytes) -> int:
    return max((header.next_offset for header in module.headers(data)), default=0)
