"""Work off the event loop is never left behind."""

from __future__ import annotations

import asyncio
import gc
import threading

import pytest

from headgate_agent.work import Inline, Threads


async def test_a_cancelled_run_waits_for_its_work() -> None:
    threads = Threads(1)
    begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        may_end.wait(10)
        ended.set()

    task = asyncio.create_task(threads.run(work))
    await asyncio.to_thread(begun.wait, 10)
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0.01)
        assert not task.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()
    threads.close()


async def test_an_error_of_work_that_nobody_waits_for_any_more_is_not_reported_as_lost() -> None:
    threads = Threads(1)
    begun, may_end = threading.Event(), threading.Event()
    reported: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))

    def work() -> None:
        begun.set()
        may_end.wait(10)
        raise OSError("broken")

    task = asyncio.create_task(threads.run(work))
    await asyncio.to_thread(begun.wait, 10)
    task.cancel()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    del task
    await asyncio.sleep(0.05)
    gc.collect()
    assert reported == []
    threads.close()


@pytest.mark.parametrize("blocking", [Inline(), Threads(1)])
async def test_an_error_of_the_work_comes_back(blocking: Inline | Threads) -> None:
    def work() -> int:
        raise OSError("broken")

    with pytest.raises(OSError, match="broken"):
        await blocking.run(work)
    assert await blocking.run(lambda: 5) == 5
