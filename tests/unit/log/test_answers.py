"""What is fetched over gRPC is bounded until callers have taken it: a fetch waits for room, is told when there is none,
and is never answered as if there were no records."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from headgate.log import v1 as api
from headgate_agent.errors import FETCH_MEMORY_EXHAUSTED
from headgate_agent.log.access import Bounds, Leadership
from headgate_agent.log.answer_memory import AnswerMemory
from headgate_agent.log.answers import Answers
from headgate_agent.log.contract import PartitionKey
from headgate_agent.log.edge_service import EdgeService
from headgate_agent.log.fetching import Fetching
from headgate_agent.log.metrics import LogMetrics
from headgate_agent.log.record_batch import headers, placed
from headgate_agent.log.records import PlainRecord, pack
from headgate_agent.log.service import LogService
from headgate_agent.log.world import BrokerSettings
from headgate_common.clock import SystemClock
from headgate_common.dispatch import Call
from headgate_common.errors import HeadgateError

MIB = 1 << 20
TOPIC = api.Topic(uid="t", name="orders", partitions=1)


class Led:
    """A partition of which only segments hold something: batches of one record and so many bytes, without an end."""

    def __init__(self, batch: int) -> None:
        self.batch = batch
        self.partition: Any = self
        self.readers: set[Callable[[], None]] = set()
        self.reads = 0

    @property
    def bounds(self) -> Bounds:
        return Bounds(0, 1 << 40, 1)

    def in_memory(self, offset: int, max_bytes: int) -> list[bytes] | None:
        return None

    def check(self, offset: int) -> None:
        return

    async def read(self, offset: int, max_bytes: int) -> list[bytes]:
        self.reads += 1
        await asyncio.sleep(0)
        (made,) = pack([PlainRecord(None, bytes(self.batch), 0)], 1 << 30)
        (header,) = headers(made)
        return [placed(made, header, offset + number, 1) for number in range(max(1, max_bytes // len(made)))]


class Access:
    """One agent that leads everything; as much of `LogAccess` and `Broker` as reading needs."""

    def __init__(self, led: Led) -> None:
        self.led = led
        self.name = "a"
        self.view: Any = self
        self.edges: Any = None
        self.settings = BrokerSettings(read_timeout=0.2)
        self._fetching = Fetching(lambda key: led, LogMetrics(CollectorRegistry()), self.settings.read_timeout)  # type: ignore[arg-type, return-value]
        self.fetch = self._fetching.fetch

    async def confirm(self, key: PartitionKey) -> None:
        return

    async def records(self, key: PartitionKey, offset: int, max_bytes: int) -> bytes:
        return b"".join(await self.led.read(offset, max_bytes))

    def topic_by_uid(self, uid: str) -> api.Topic:
        return TOPIC

    def topic(self, name: str) -> api.Topic:
        return TOPIC

    def leadership(self, key: PartitionKey) -> Leadership:
        return Leadership("", 1)

    def peer(self, name: str) -> None:
        return None

    def bounds(self, key: PartitionKey) -> Bounds:
        return self.led.bounds


class Slow:
    """Calls whose answers wait for their caller until it takes them; streams of which one can be cut off."""

    def __init__(self) -> None:
        self.untaken: list[Callable[[], None]] = []
        self.cut: list[HeadgateError] = []

    def call(self, timeout: float | None = 10.0) -> Call:
        return Call(timeout=timeout, on_sent=self.untaken.append, on_cut_off=self.cut.append)

    def take(self) -> None:
        self.untaken.pop(0)()


class Services(LogService):
    """Both services of an agent whose callers share the memory."""

    edges: EdgeService


def bench(limit: int, *, batch: int = 100_000, stalled: float = 30.0) -> tuple[Services, AnswerMemory, Led]:
    clock, memory, led = SystemClock(), AnswerMemory(limit), Led(batch)
    access: Any = Access(led)
    nowhere: Any = None
    answers = Answers(memory, clock, stalled)
    made = Services(access, transport=nowhere, clock=clock, source=random.Random(1), name="a", answers=answers)
    made.edges = EdgeService(access, clock, answers)
    return made, memory, led


def request(size: int = 4 * MIB) -> api.FetchRequest:
    return api.FetchRequest(parts=[api.FetchPart(topic_uid="t", max_bytes=size)], max_bytes=size)


def plain(size: int = 4 * MIB) -> api.FetchRecordsRequest:
    made = api.FetchRecordsRequest(topic="orders", max_bytes=size, max_records=1000)
    getattr(made, "from").offset = 0
    return made


async def settled() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


@pytest.mark.parametrize("kind", ["batches", "records"])
async def test_many_large_fetches_at_once_stay_within_the_limit_and_all_are_answered(kind: str) -> None:
    limit, batch = 8 * MIB, 100_000
    service, memory, _ = bench(limit, batch=batch)
    slow = Slow()

    async def fetch() -> int:
        if kind == "batches":
            return len((await service.fetch(request(), slow.call())).parts[0].batches)
        return sum(len(one.value) for one in (await service.fetch_records(plain(), slow.call())).records)

    fetches = [asyncio.ensure_future(fetch()) for _ in range(100)]
    await settled()
    assert memory.contended and not all(one.done() for one in fetches)
    while not all(one.done() for one in fetches):
        assert memory.used <= limit + len(slow.untaken) * batch, "no more than the rest of a batch each"
        slow.take()
        await settled()
    assert all(one.result() >= batch for one in fetches), "none was answered as if there were no records"
    while slow.untaken:
        slow.take()
    assert (memory.used, memory.contended) == (0, False)


@pytest.mark.parametrize("timeout", [0.3, None])
async def test_a_fetch_waits_for_room_until_its_deadline_and_is_then_told_so(timeout: float | None) -> None:
    service, memory, led = bench(MIB)
    slow = Slow()
    await service.fetch(request(), slow.call())
    used = memory.used
    for ask in (service.fetch(request(), slow.call(timeout)), service.fetch_records(plain(), slow.call(timeout))):
        with pytest.raises(HeadgateError) as refused:
            async with asyncio.timeout(60):
                await ask
        assert refused.value.reason is FETCH_MEMORY_EXHAUSTED
    assert (memory.used, led.reads, len(slow.untaken)) == (used, 1, 1), "nothing was read, and nothing is held"
    # With a deadline it outlasts `read_timeout`: what comes free meanwhile is its own.
    waiting = asyncio.ensure_future(service.fetch(request(), slow.call(10.0)))
    await asyncio.sleep(0.5)
    assert not waiting.done()
    slow.take()
    assert (await waiting).parts[0].batches


async def test_an_answer_that_is_larger_than_all_of_the_memory_is_served_alone() -> None:
    service, memory, _ = bench(MIB, batch=5 * MIB)
    slow = Slow()
    answer = await service.fetch(request(), slow.call())
    assert len(answer.parts[0].batches) > 5 * MIB
    second = asyncio.ensure_future(service.fetch(request(), slow.call()))
    await settled()
    assert not second.done() and memory.used > 5 * MIB
    slow.take()
    assert len((await second).parts[0].batches) > 5 * MIB
    slow.take()
    assert memory.used == 0


async def test_a_caller_of_records_gets_no_more_at_once_than_an_answer_may_have() -> None:
    service, memory, _ = bench(64 * MIB)
    slow = Slow()
    answer = await service.fetch_records(plain(2**31 - 1), slow.call())
    assert answer.ByteSize() < 13 * MIB and memory.used < 13 * MIB


async def test_a_call_that_fails_or_is_given_up_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    service, memory, led = bench(8 * MIB)
    given_up = asyncio.ensure_future(service.fetch(request(), Slow().call()))
    while not led.reads:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert memory.used
    given_up.cancel()
    await asyncio.gather(given_up, return_exceptions=True)
    assert memory.used == 0

    async def broken(*_: object, **__: object) -> Any:
        assert memory.used
        raise RuntimeError("a defect")

    monkeypatch.setattr(service, "_unpacked", broken)
    with pytest.raises(RuntimeError):
        await service.fetch_records(plain(), Slow().call())
    assert memory.used == 0


async def test_where_nothing_lies_between_a_service_and_its_caller_nothing_is_held() -> None:
    service, memory, _ = bench(8 * MIB)
    await service.fetch(request(), Call())
    assert memory.used == 0


STREAMS = pytest.mark.parametrize("kind", ["batches", "records", "edge"])


def streams(service: Services, call: Call) -> dict[str, Any]:
    part = api.FetchPart(topic_uid="t", max_bytes=MIB)
    tail = api.TailRecordsRequest(topic="orders")
    getattr(tail, "from").offset = 0
    return {
        "batches": service.stream_fetch(api.StreamFetchRequest(parts=[part]), call),
        "records": service.tail_records(tail, call),
        "edge": service.edges.read_edge(api.ReadEdgeRequest(topic_uid="t", until_offset=1 << 40), call),
    }


@STREAMS
async def test_a_stream_holds_what_its_reader_has_not_taken_and_gives_it_back_at_the_end(kind: str) -> None:
    service, memory, led = bench(64 * MIB)
    async with aclosing(streams(service, Slow().call(None))[kind]) as stream:
        for _ in range(20):
            await anext(stream)
        await settled()
        ahead = 8 if kind == "records" else 1
        assert 0 < memory.used <= ahead * (4 if kind == "edge" else 1.1) * MIB
        assert led.reads < 20 + ahead + 1, "it is not read far ahead of its reader"
    assert memory.used == 0


@STREAMS
@pytest.mark.parametrize("others_wait", [True, False])
async def test_a_reader_that_takes_nothing_is_cut_off_only_when_others_wait_for_its_memory(
    kind: str, others_wait: bool
) -> None:
    service, _, _ = bench(MIB, stalled=0.1)
    slow, other = Slow(), Slow()
    async with aclosing(streams(service, slow.call(None))[kind]) as stream:
        await anext(stream)
        waiting = asyncio.ensure_future(service.fetch(request(), other.call())) if others_wait else None
        await asyncio.sleep(0.4)
        assert [error.reason for error in slow.cut] == [FETCH_MEMORY_EXHAUSTED] * others_wait
        assert waiting is None or not waiting.done()
        if not others_wait:
            await anext(stream)
    if waiting is not None:
        assert (await waiting).parts[0].batches, "it is served once the reader is gone"


@pytest.mark.slow
async def test_a_stream_that_finds_no_room_for_its_first_page_is_told_and_others_wait_for_their_reader() -> None:
    service, _, _ = bench(MIB)
    slow = Slow()
    await service.fetch(request(), slow.call())
    for stream in streams(service, Slow().call(None)).values():
        with pytest.raises(HeadgateError) as refused:
            await anext(stream)
        assert refused.value.reason is FETCH_MEMORY_EXHAUSTED
    slow.take()
    async with aclosing(streams(service, Slow().call(None))["records"]) as stream:
        await anext(stream)
        # The pages behind it wait longer than `read_timeout`, behind somebody else too.
        waiting = asyncio.ensure_future(service.fetch(request(), Call(timeout=10.0)))
        await asyncio.sleep(0.5)
        for _ in range(10):
            await anext(stream)
    await waiting
