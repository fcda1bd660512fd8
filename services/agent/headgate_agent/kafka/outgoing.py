"""Answers on their way to a socket.

A transport copies what the socket does not take at once, and moves the rest with every write: for answers of many
megabytes that is most of the work. So it is given a piece at a time, and the next when it has let go of the last. The
memory that an answer counts for is given back as its pieces go.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headgate_agent.kafka.config import KafkaLimits
from headgate_agent.log.answer_memory import Share

_LENGTH = struct.Struct(">i")
# Buffers below this are joined before they are written. No setting: to copy them takes less than a call of the system,
# here as anywhere.
_JOIN_BYTES = 32 * 1024


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer's buffers without the length, and the memory that they count for, if any."""

    buffers: Sequence[bytes | memoryview]
    share: Share | None = None

    def drop(self) -> None:
        """It will not be sent."""
        if self.share is not None:
            self.share.release()


@dataclass(frozen=True, slots=True)
class _Held:
    """An answer that counts for memory: where it ends, in bytes since the connection began, and when it was given."""

    end: int
    share: Share
    since: float


class Outgoing:
    def __init__(self, transport: asyncio.Transport, limits: KafkaLimits) -> None:
        self._transport, self._piece = transport, limits.write_bytes
        self._pieces: deque[memoryview] = deque()
        self._held: deque[_Held] = deque()
        self._paused = False
        self._given = 0
        # Bytes that the transport has not been given yet.
        self.waiting = 0
        # It pauses above that, and resumes below a quarter of it.
        transport.set_write_buffer_limits(high=limits.held_bytes)

    @property
    def needed_since(self) -> float | None:
        """Since when an answer is on its way whose memory others wait for; None if there is none."""
        return self._held[0].since if self._held and self._held[0].share.contended else None

    def send(self, replies: Iterable[Reply], now: float) -> None:
        joined = bytearray()
        for reply in replies:
            joined += _LENGTH.pack(sum(map(len, reply.buffers)))
            for buffer in reply.buffers:
                if len(buffer) < _JOIN_BYTES:
                    joined += buffer
                    continue
                self._put(joined)
                joined = bytearray()
                self._put(buffer)
            if reply.share is not None:
                self._held.append(_Held(self._given + self.waiting + len(joined), reply.share, now))
        self._put(joined)
        self._write()

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        self._write()

    def drop(self) -> None:
        """The connection is gone, and nothing more is sent."""
        self._pieces.clear()
        self.waiting = 0
        while self._held:
            self._held.popleft().share.release()

    def _put(self, buffer: bytes | bytearray | memoryview) -> None:
        view = memoryview(buffer)
        self._pieces.extend(view[at : at + self._piece] for at in range(0, len(view), self._piece))
        self.waiting += len(view)

    def _write(self) -> None:
        # A write that the socket does not take whole calls `pause`.
        while self._pieces and not self._paused:
            piece = self._pieces.popleft()
            self.waiting -= len(piece)
            self._given += len(piece)
            self._transport.write(piece)
            self._let_go()

    def _let_go(self) -> None:
        while self._held:
            first = self._held[0]
            left = first.end - self._given
            if left > 0:
                if left < first.share.size:
                    first.share.keep(left)
                return
            self._held.popleft()
            first.share.release()
