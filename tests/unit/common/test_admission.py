"""How much a server takes on."""

from __future__ import annotations

import asyncio
import random

import pytest

from headgate_common.admission import Admission, Full


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_the_line_is_bounded_and_the_next_is_turned_away_at_once() -> None:
    admission = Admission(2, 3)
    await admission.enter()
    await admission.enter()
    waiting = [asyncio.ensure_future(admission.enter()) for _ in range(3)]
    await settle()
    assert (admission.running, admission.waiting, admission.full()) == (2, 3, True)
    with pytest.raises(Full):
        await admission.enter()
    for _ in range(3):
        admission.leave()
    await asyncio.gather(*waiting)
    assert (admission.running, admission.waiting) == (2, 0)


async def test_those_in_line_enter_in_the_order_in_which_they_came() -> None:
    admission = Admission(1, 10)
    await admission.enter()
    order: list[int] = []

    async def work(number: int) -> None:
        await admission.enter()
        order.append(number)
        admission.leave()

    tasks = [asyncio.ensure_future(work(number)) for number in range(10)]
    await settle()
    admission.leave()
    await asyncio.gather(*tasks)
    assert order == list(range(10))


async def test_a_newcomer_does_not_overtake_the_line() -> None:
    admission = Admission(1, 1)
    await admission.enter()
    first = asyncio.ensure_future(admission.enter())
    await settle()
    admission.leave()
    # The place is already that of the first in line, though it has not woken yet.
    newcomer = asyncio.ensure_future(admission.enter())
    await settle()
    assert first.done()
    assert not newcomer.done()
    admission.leave()
    await newcomer


async def test_without_a_line_the_limit_is_the_limit() -> None:
    admission = Admission(1, 0)
    await admission.enter()
    with pytest.raises(Full):
        await admission.enter()


async def test_one_that_gives_up_in_line_costs_nothing() -> None:
    admission = Admission(1, 2)
    await admission.enter()
    gone = asyncio.ensure_future(admission.enter())
    stays = asyncio.ensure_future(admission.enter())
    await settle()
    gone.cancel()
    await settle()
    assert admission.waiting == 1
    admission.leave()
    await stays
    assert (admission.running, admission.waiting) == (1, 0)


async def test_a_place_handed_to_one_that_gives_up_in_the_same_moment_is_passed_on() -> None:
    admission = Admission(1, 2)
    await admission.enter()
    gone = asyncio.ensure_future(admission.enter())
    stays = asyncio.ensure_future(admission.enter())
    await settle()
    admission.leave()
    gone.cancel()
    await asyncio.wait_for(stays, 60)
    assert gone.cancelled()
    admission.leave()
    assert (admission.running, admission.waiting) == (0, 0)


@pytest.mark.parametrize("seed", range(20))
async def test_no_place_is_lost_or_made_up_whatever_happens(seed: int) -> None:
    source = random.Random(seed)
    admission = Admission(3, 4)
    inside, most = 0, 0

    async def work() -> None:
        nonlocal inside, most
        await admission.enter()
        inside += 1
        most = max(most, inside)
        try:
            for _ in range(source.randrange(4)):
                await asyncio.sleep(0)
        finally:
            inside -= 1
            admission.leave()

    tasks: list[asyncio.Task[None]] = []
    for _ in range(200):
        tasks.append(asyncio.ensure_future(work()))
        if source.random() < 0.3:
            source.choice(tasks).cancel()
        if source.random() < 0.5:
            await asyncio.sleep(0)
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(result is None or isinstance(result, Full | asyncio.CancelledError) for result in results)
    assert (admission.running, admission.waiting, inside) == (0, 0, 0)
    assert most == 3
