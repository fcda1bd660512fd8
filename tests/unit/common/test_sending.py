"""A stream that is cut off is told why, though its headers are half sent."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from headgate_common.calls import Context, begin


class HalfSent:
    """The context of a call whose headers are sent when `taken` is set."""

    def __init__(self) -> None:
        self.taken = asyncio.Event()
        self.sending = False
        self.gone = False

    async def send_initial_metadata(self, headers: object) -> None:
        self.sending = True
        try:
            await self.taken.wait()
        finally:
            self.sending = False

    def cancelled(self) -> bool:
        return self.gone


async def begun(context: HalfSent) -> asyncio.Task[Any]:
    sending = asyncio.create_task(begin(cast(Context, context)))
    await asyncio.sleep(0.01)
    assert context.sending
    return sending


async def test_headers_are_sent_to_their_end_before_the_call_is_cut_off() -> None:
    context = HalfSent()
    sending = await begun(context)
    sending.cancel()
    await asyncio.sleep(0.01)
    assert not sending.done() and context.sending
    context.taken.set()
    with pytest.raises(asyncio.CancelledError):
        await sending
    assert not context.sending


@pytest.mark.parametrize("gone", [True, False])
async def test_a_caller_that_is_gone_is_not_waited_for_nor_anything_for_ever(gone: bool) -> None:
    context = HalfSent()
    sending = await begun(context)
    context.gone = gone
    sending.cancel()
    await asyncio.sleep(0.01)
    if not gone:
        sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    await asyncio.sleep(0.01)
    assert not context.sending


async def test_an_error_comes_back() -> None:
    context = HalfSent()
    sending = await begun(context)
    context.taken.set()
    await sending

    async def broken(headers: object) -> None:
        raise OSError("broken")

    context.send_initial_metadata = broken  # type: ignore[method-assign]
    with pytest.raises(OSError, match="broken"):
        await begin(cast(Context, context))
