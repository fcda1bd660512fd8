"""Answers on their way to a socket.

A transport copies what the socket does not take at once, and moves the rest with every write: for answers of many
megabytes that is most of the work. So it is given a piece at a time, and the next when it has let go of the last.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable

# Buffers below this are joined before they are written.
_JOIN_BYTES = 32 * 1024
_PIECE_BYTES = 256 * 1024
# What a transport may hold back; it pauses above, and resumes below a quarter of it.
_HELD_BYTES = 64 * 1024


class Outgoing:
    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._pieces: deque[memoryview] = deque()
        self._paused = False
        # Bytes that the transport has not been given yet.
        self.waiting = 0
        transport.set_write_buffer_limits(high=_HELD_BYTES)

    def send(self, buffers: Iterable[bytes | memoryview]) -> None:
        joined = bytearray()
        for buffer in buffers:
            if len(buffer) < _JOIN_BYTES:
                joined += buffer
                continue
            if joined:
                self._put(joined)
                joined = bytearray()
            self._put(buffer)
        if joined:
            self._put(joined)
        self._write()

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        self._write()

    def _put(self, buffer: bytes | bytearray | memoryview) -> None:
        view = memoryview(buffer)
        self._pieces.extend(view[at : at + _PIECE_BYTES] for at in range(0, len(view), _PIECE_BYTES))
        self.waiting += len(view)

    def _write(self) -> None:
        # A write that the socket does not take whole calls `pause`.
        while self._pieces and not self._paused:
            piece = self._pieces.popleft()
            self.waiting -= len(piece)
            self._transport.write(piece)
