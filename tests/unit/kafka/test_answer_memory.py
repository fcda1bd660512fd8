"""What answers of fetches take is bounded over all connections, and somebody can always go on."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime
from typing import Any

import pytest

from headgate_agent.kafka.codec import Header
from headgate_agent.kafka.config import KafkaLimits
from headgate_agent.kafka.connection import Budget, Client, Connection
from headgate_agent.kafka.outgoing import Outgoing, Reply
from headgate_agent.log.answer_memory import AnswerMemory, Share
from tests.unit.kafka.wire import frame

MIB = 1 << 20


class Taking:
    """A transport that takes so many writes before it pauses."""

    def __init__(self) -> None:
        self.written = 0
        self.takes = 0
        self.outgoing: Outgoing | None = None

    def set_write_buffer_limits(self, high: int) -> None:
        return

    def write(self, data: memoryview) -> None:
        self.written += len(data)
        self.takes -= 1
        if self.takes <= 0 and self.outgoing is not None:
            self.outgoing.pause()


async def share_of(memory: AnswerMemory, size: int) -> Share:
    share = memory.share()
    assert await share.take(size) >= size
    share.keep(size)
    return share


async def test_a_fetch_gets_all_it_wants_while_there_is_plenty_and_less_when_there_is_little() -> None:
    memory = AnswerMemory(256 * MIB)
    granted = [await memory.share().take(64 * MIB) for _ in range(6)]
    assert granted == [size * MIB for size in (64, 64, 64, 32, 16, 8)]
    assert memory.used == 248 * MIB


async def test_what_is_not_needed_is_given_back_so_fetches_that_wait_for_records_hold_nothing() -> None:
    memory = AnswerMemory(4 * MIB)
    for _ in range(1000):
        share = memory.share()
        await share.take(64 * MIB)
        share.keep(0)
    assert memory.used == 0


async def test_when_all_is_held_fetches_wait_and_go_on_in_their_order() -> None:
    memory = AnswerMemory(2 * MIB)
    held = memory.share()
    held.keep(2 * MIB)
    order: list[int] = []

    async def fetch(number: int) -> None:
        share = memory.share()
        await share.take(MIB)
        order.append(number)
        share.keep(MIB)
        await asyncio.sleep(0)
        share.release()

    waiting = [asyncio.ensure_future(fetch(number)) for number in range(5)]
    await asyncio.sleep(0.01)
    assert order == [] and memory.contended
    held.release()
    await asyncio.gather(*waiting)
    assert order == list(range(5))
    assert (memory.used, memory.contended) == (0, False)


async def test_one_that_is_alone_goes_on_however_much_it_holds_already_and_however_small_the_limit_is() -> None:
    memory = AnswerMemory(MIB)
    share = memory.share()
    assert await share.take(64 * MIB) == MIB
    share.keep(5 * MIB)
    async with asyncio.timeout(60):
        assert await share.take(64 * MIB) > 0


async def test_whoever_gives_up_leaves_the_line_and_what_it_was_just_given_can_be_given_back() -> None:
    memory = AnswerMemory(MIB)
    held = await share_of(memory, MIB)
    first, second = memory.share(), memory.share()
    giving_up = asyncio.ensure_future(first.take(MIB))
    waiting = asyncio.ensure_future(second.take(MIB))
    await asyncio.sleep(0)
    held.release()
    # Granted and cancelled in the same moment.
    giving_up.cancel()
    await asyncio.gather(giving_up, return_exceptions=True)
    first.release()
    assert await asyncio.wait_for(waiting, 60) == MIB
    second.release()
    assert (memory.used, memory.contended) == (0, False)


@pytest.mark.parametrize("seed", range(5))
async def test_at_any_time_the_limit_holds_and_in_the_end_all_had_their_turn(seed: int) -> None:
    source, limit = random.Random(seed), 8 * MIB
    memory = AnswerMemory(limit)
    done = 0

    async def fetch() -> None:
        nonlocal done
        share = memory.share()
        try:
            for _ in range(3):
                if source.random() < 0.2:
                    async with asyncio.timeout(source.random() * 0.002):
                        granted = await share.take(source.randrange(1, 64 * MIB))
                else:
                    granted = await share.take(source.randrange(1, 64 * MIB))
                assert memory.used <= limit
                share.keep(source.randrange(granted + 1))
                await asyncio.sleep(source.random() * 0.002)
                share.release()
        except TimeoutError:
            pass
        finally:
            share.release()
            done += 1

    async with asyncio.timeout(20):
        await asyncio.gather(*(fetch() for _ in range(100)))
    assert (done, memory.used, memory.contended) == (100, 0, False)


async def outgoing() -> tuple[Outgoing, Taking]:
    transport: Any = Taking()
    made = transport.outgoing = Outgoing(transport, KafkaLimits())
    return made, transport


async def test_memory_is_given_back_as_an_answer_is_taken() -> None:
    memory = AnswerMemory(64 * MIB)
    going, transport = await outgoing()
    transport.takes = 1
    share = await share_of(memory, 4 * MIB)
    going.send([Reply([b"small"]), Reply([b"head", bytes(4 * MIB)], share)], now=5.0)
    assert 3 * MIB < memory.used <= 4 * MIB
    transport.takes = 9
    going.resume()
    assert 0 < memory.used <= 2 * MIB
    transport.takes = 100
    going.resume()
    assert (memory.used, going.waiting) == (0, 0)


async def test_memory_of_a_connection_that_is_gone_is_given_back() -> None:
    memory = AnswerMemory(64 * MIB)
    going, _ = await outgoing()
    going.pause()
    for _ in range(3):
        going.send([Reply([bytes(MIB)], await share_of(memory, MIB))], now=5.0)
    assert memory.used == 3 * MIB
    going.drop()
    assert (memory.used, going.waiting) == (0, 0)


async def test_an_answer_is_only_needed_by_others_while_somebody_waits() -> None:
    memory = AnswerMemory(MIB)
    going, _ = await outgoing()
    going.pause()
    going.send([Reply([bytes(MIB)], await share_of(memory, MIB))], now=5.0)
    assert going.needed_since is None
    waiting = asyncio.ensure_future(memory.share().take(MIB))
    await asyncio.sleep(0)
    assert going.needed_since == 5.0
    going.drop()
    assert going.needed_since is None
    await asyncio.wait_for(waiting, 60)


class Slow(asyncio.Transport):
    """A client that takes a piece now and then."""

    def __init__(self) -> None:
        super().__init__()
        self.connection: Connection | None = None
        self.aborted = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        return

    def write(self, data: Any) -> None:
        assert self.connection is not None
        self.connection.pause_writing()

    def is_closing(self) -> bool:
        return self.aborted

    def pause_reading(self) -> None:
        return

    def resume_reading(self) -> None:
        return

    def abort(self) -> None:
        self.aborted = True


class Steps:
    now = 100.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> datetime:
        return datetime(2000, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("others_wait", [True, False])
async def test_a_client_that_takes_its_answer_slowly_is_cut_off_only_when_others_wait_for_its_memory(
    others_wait: bool,
) -> None:
    memory, clock, transport = AnswerMemory(7 * MIB), Steps(), Slow()

    async def answer(frame: memoryview, header: Header, client: Client) -> Reply:
        share = memory.share()
        share.keep(8 * MIB)
        return Reply([bytes(8 * MIB)], share)

    limits = KafkaLimits(stalled=30.0)
    made = Connection(answer, limits, Budget(MIB, bytearray(limits.read_bytes)), clock, lambda _: None)
    transport.connection = made
    made.connection_made(transport)
    request = frame(1, 11, {"replica_id": -1, "max_wait": 0, "min_bytes": 1, "topics": []})
    made.get_buffer(-1)[: len(request)] = request
    made.buffer_updated(len(request))
    while not memory.used or made._outgoing is None or not made._outgoing.waiting:  # noqa: ASYNC110
        await asyncio.sleep(0)
    waiting = asyncio.ensure_future(memory.share().take(2 * MIB)) if others_wait else None
    await asyncio.sleep(0)
    for _ in range(4):
        clock.now += 10
        made.resume_writing()
        assert memory.contended == others_wait
        made.sweep(clock.now)
    assert transport.aborted == others_wait
    made.connection_lost(None)
    if waiting is not None:
        assert await asyncio.wait_for(waiting, 60) == 2 * MIB
    else:
        assert memory.used == 0
