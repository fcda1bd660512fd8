"""A flag that is waited for, for ever or for a while."""

from __future__ import annotations

import asyncio

import pytest

from headgate_common.signals import Signal

LONG = 3600.0


async def test_who_waits_is_told_when_it_is_set() -> None:
    signal = Signal()
    waiting = [asyncio.ensure_future(signal.wait()), asyncio.ensure_future(signal.wait(LONG))]
    await asyncio.sleep(0)
    signal.set()
    signal.clear()
    assert await asyncio.gather(*waiting) == [True, True]
    assert not signal.is_set()


async def test_what_is_set_is_not_waited_for() -> None:
    signal = Signal()
    signal.set()
    assert await signal.wait()
    assert await signal.wait(0.0)


async def test_after_its_time_nobody_waits() -> None:
    signal = Signal()
    assert not await signal.wait(0.001)
    signal.set()
    assert await signal.wait(0.001)


async def test_who_is_cancelled_is_not_told_and_leaves_nothing_behind() -> None:
    signal = Signal()
    waiting = asyncio.ensure_future(signal.wait(LONG))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not signal._waiting
    signal.set()


async def test_set_and_cancelled_at_once_is_cancelled() -> None:
    """As `asyncio.Event`: the signal stays set for others."""
    signal = Signal()
    waiting = asyncio.ensure_future(signal.wait())
    await asyncio.sleep(0)
    signal.set()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert signal.is_set()
