"""Room for what is fetched over gRPC: from when it is read until its caller has been sent it.

A fetch waits for room until its deadline, and is then told FETCH_MEMORY_EXHAUSTED: an answer without records would say
that there are none. A caller that does not take a page of its stream in time is cut off if others wait for its memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from headgate_agent.errors import FETCH_MEMORY_EXHAUSTED
from headgate_agent.log.answer_memory import AnswerMemory, Share
from headgate_common.clock import Clock
from headgate_common.dispatch import Call
from headgate_common.errors import HeadgateError

DEFAULT_STALLED = 30.0
# How often it is looked whether others wait for what a slow caller holds, in parts of the time that it has.
_LOOKS = 4


def time_left(call: Call) -> float | None:
    """How long a wait may be so that its answer still comes in time; None where the caller set no deadline."""
    return None if call.timeout is None else max(0.0, call.timeout * 0.9 - 0.05)


class Answers:
    def __init__(self, memory: AnswerMemory, clock: Clock, stalled: float = DEFAULT_STALLED) -> None:
        """`stalled` is how long a caller may take for one page of a stream while others wait, in seconds."""
        self.memory, self._clock, self._stalled = memory, clock, stalled

    @contextmanager
    def one(self, call: Call) -> Iterator[CallRoom]:
        """For the only answer of a call: given back when that has been sent, or at once if there is none."""
        left = time_left(call)
        share = self.memory.share()
        try:
            yield CallRoom(share, self._clock, None if left is None else self._clock.monotonic() + left)
        except BaseException:
            share.release()
            raise
        call.when_sent(share.release)

    @contextmanager
    def stream(self, call: Call, pages: int) -> Iterator[StreamRoom]:
        """For a stream that holds so many pages at once, given back at its end. After those who read for it have
        ended."""
        share = self.memory.share()
        try:
            yield StreamRoom(share, call, pages, self._stalled)
        finally:
            share.release()


class CallRoom:
    """`access.AnswerRoom` of one answer."""

    def __init__(self, share: Share, clock: Clock, until: float | None) -> None:
        """`until` is the caller's deadline; None: as long as the reader says."""
        self._share, self._clock, self._until = share, clock, until
        self.keep = share.keep

    async def take(self, wanted: int, within: float) -> int:
        seconds = within if self._until is None else max(0.0, self._until - self._clock.monotonic())
        try:
            return await self._share.take(wanted, seconds)
        except TimeoutError:
            raise _exhausted(seconds) from None


class StreamRoom:
    """What one stream holds, over all of its pages."""

    def __init__(self, share: Share, call: Call, pages: int, stalled: float) -> None:
        self.share = share
        self.places = asyncio.Semaphore(pages)
        self._call, self._stalled = call, stalled
        self._timer: asyncio.TimerHandle | None = None

    def page(self) -> PageRoom:
        """For one page; whoever has it gives it back."""
        return PageRoom(self)

    @contextmanager
    def on_its_way(self) -> Iterator[None]:
        """While the caller takes a page."""
        self._look_after(self._stalled)
        try:
            yield
        finally:
            if self._timer is not None:
                self._timer.cancel()

    def _look_after(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        if not self.share.contended:
            self._look_after(self._stalled / _LOOKS)
            return
        self._call.cut_off(
            HeadgateError(
                FETCH_MEMORY_EXHAUSTED,
                f"a part of this stream was not taken within {self._stalled:g} s, and others waited for its memory; "
                "ask again from where it ended",
            )
        )


class PageRoom:
    """`access.AnswerRoom` of one page of a stream. A page waits for those before it for as long as the caller takes
    them; one that nothing of the stream is before is told when it finds no room."""

    def __init__(self, stream: StreamRoom) -> None:
        self._stream = stream
        self._placed = False
        self._size = 0

    async def take(self, wanted: int, within: float) -> int:
        stream = self._stream
        if not self._placed:
            await stream.places.acquire()
            self._placed = True
        while True:
            try:
                granted = await stream.share.take(wanted, within)
                break
            except TimeoutError:
                if not stream.share.size:
                    raise _exhausted(within) from None
        self._size += granted
        return granted

    def keep(self, size: int) -> None:
        share = self._stream.share
        share.keep(share.size - self._size + size)
        self._size = size
        if not size and self._placed:
            self._placed = False
            self._stream.places.release()

    def release(self) -> None:
        self.keep(0)


def _exhausted(seconds: float) -> HeadgateError:
    return HeadgateError(
        FETCH_MEMORY_EXHAUSTED,
        f"what others have fetched and not taken yet left no room for {seconds:.3g} s; ask again",
    )
