"""One client's connection: frames in, answers out in the order of their requests.

A request begins when all before it are answered, except that produces follow each other without waiting: the log keeps
their order, and one disk sync then serves many. What a client may hold of the agent is bounded: so many requests, so
many bytes of them over all connections, so many bytes of answers that it does not take. Beyond that nothing more is
read from it. Bytes of fetched records are counted over all connections too (`answer_memory.py`). A frame that cannot be
one closes the connection, and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from headgate_agent.kafka.apis import PRODUCE
from headgate_agent.kafka.codec import Header, read_header
from headgate_agent.kafka.config import KafkaLimits
from headgate_agent.kafka.outgoing import Outgoing, Reply
from headgate_agent.kafka.walk import Malformed
from headgate_common.clock import Clock

log = logging.getLogger(__name__)

_LENGTH = struct.Struct(">i")
# Where memory is short a frame begins with a page, which is what the system hands out at least.
_LEAST_BYTES = 4096

# None where the protocol has no answer.
Answer = Reply | None


class GiveUp(Exception):
    """The connection must be closed, because the protocol has no other way to say that something is wrong."""


@dataclass(frozen=True, slots=True, eq=False)
class Client:
    """Who is at the other end of a connection."""

    host: str
    # Held while the parts of a produce are begun: those of a client keep their order, and it makes nobody else wait.
    beginning: asyncio.Lock = field(default_factory=asyncio.Lock)


class Handler(Protocol):
    """Answers one request. What goes wrong inside is an answer too; `Malformed` and `GiveUp` close the connection."""

    def __call__(self, frame: memoryview, header: Header, client: Client) -> Awaitable[Answer]: ...


@dataclass(slots=True)
class Budget:
    """Bytes of requests held for all connections; and the buffer that each socket is read into, which is free again
    when the read has been looked at.

    When it is exhausted no request is begun to be received; those whose memory is there already are received on, and of
    those that need more one at a time goes beyond the limit. So something is always finished, and gives memory back.
    """

    limit: int
    scratch: bytearray
    used: int = 0
    overdrawn_by: Connection | None = None
    waiting: dict[Connection, None] = field(default_factory=dict)

    @property
    def exhausted(self) -> bool:
        return self.used >= self.limit

    def give_back(self, size: int) -> None:
        self.used -= size
        self._wake()

    def overdraw(self, connection: Connection) -> bool:
        if self.overdrawn_by is None:
            self.overdrawn_by = connection
        return self.overdrawn_by is connection

    def received(self, connection: Connection) -> None:
        """The connection is no longer in the middle of a request."""
        if self.overdrawn_by is connection:
            self.overdrawn_by = None
            self._wake()

    def _wake(self) -> None:
        """Each that waits looks once: what there is now may not be enough for all."""
        for _ in range(len(self.waiting)):
            if self.exhausted and self.overdrawn_by is not None:
                return
            connection = next(iter(self.waiting))
            del self.waiting[connection]
            connection.look()


@dataclass(slots=True, eq=False)
class _Pending:
    """A request from its arrival to its answer."""

    frame: bytearray | bytes
    header: Header
    size: int
    task: asyncio.Task[None] | None = None
    done: bool = False
    answer: Answer = None


class Connection(asyncio.BufferedProtocol):
    def __init__(
        self,
        handler: Handler,
        limits: KafkaLimits,
        budget: Budget,
        clock: Clock,
        closed: Callable[[Connection], None],
    ) -> None:
        self._handler, self._limits, self._budget, self._clock = handler, limits, budget, clock
        self._closed = closed
        self._transport: asyncio.Transport | None = None
        self._outgoing: Outgoing | None = None
        self._client = Client("")
        self.client_id: str | None = None
        # The beginning of a length that has not arrived whole.
        self._rest = b""
        self._frame: bytearray | None = None
        self._filled = 0
        self._declared = 0
        self._view: memoryview | None = None
        self._pending: deque[_Pending] = deque()
        self._reading = True
        # Whether reading pauses because of what this connection has not been answered yet.
        self._held_back = False
        self._draining = False
        self._flushing = False
        now = clock.monotonic()
        # When the last request was whole, when the one being received began, since when answers are not taken.
        self.last_active = now
        self._frame_since: float | None = None
        self._blocked_since: float | None = None

    @property
    def host(self) -> str:
        return self._client.host

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        peer: Any = transport.get_extra_info("peername")
        self._client = Client(str(peer[0]) if peer else "")
        self._outgoing = Outgoing(transport, self._limits)
        if self._draining:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        for pending in self._pending:
            # A produce that has begun goes on: its records may be on their way to the disk.
            if pending.task is not None and pending.header.api_key != PRODUCE.key:
                pending.task.cancel()
            if pending.task is None:
                self._budget.give_back(pending.size)
        self._pending = deque(one for one in self._pending if one.task is not None)
        self._drop_frame()
        self._budget.waiting.pop(self, None)
        self._transport = None
        if self._outgoing is not None:
            self._outgoing.drop()
        self._closed(self)

    def eof_received(self) -> bool:
        return False

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._frame is None:
            scratch, rest = self._budget.scratch, len(self._rest)
            scratch[:rest] = self._rest
            self._view = memoryview(scratch)[rest:]
            return self._view
        if self._filled == len(self._frame):
            more = min(self._declared, max(_LEAST_BYTES, 2 * self._filled)) - self._filled
            self._budget.used += more
            self._frame.extend(bytes(more))
        self._view = memoryview(self._frame)[self._filled :]
        return self._view

    def buffer_updated(self, nbytes: int) -> None:
        assert self._view is not None
        self._view.release()
        if self._frame is not None:
            self._filled += nbytes
            if self._filled == self._declared:
                frame, self._frame = self._frame, None
                self._frame_since = None
                self._arrived(frame)
                self._budget.received(self)
        else:
            self._split(len(self._rest) + nbytes)
        self.look()

    def _split(self, there: int) -> None:
        """Takes the whole frames out of what was read, and the beginning of the next."""
        scratch, position = self._budget.scratch, 0
        self._frame_since = None
        while there - position >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(scratch, position)
            if length <= 0 or length > self._limits.frame_bytes:
                self._hang_up("kafka frame refused", length=length, limit=self._limits.frame_bytes)
                return
            position += _LENGTH.size
            if position + length > there:
                self._begin_frame(length, bytes(memoryview(scratch)[position:there]))
                position = there
                break
            self._budget.used += length
            self._arrived(bytes(memoryview(scratch)[position : position + length]))
            if self._transport is None or self._transport.is_closing():
                return
            position += length
        self._rest = bytes(scratch[position:there])
        if self._rest:
            self._frame_since = self._clock.monotonic()

    def _begin_frame(self, length: int, begun: bytes) -> None:
        size = _LEAST_BYTES if self._budget.exhausted else self._limits.eager_bytes
        self._frame = bytearray(min(length, max(size, len(begun))))
        self._frame[: len(begun)] = begun
        self._filled, self._declared = len(begun), length
        self._budget.used += len(self._frame)
        self._frame_since = self._clock.monotonic()

    def _drop_frame(self) -> None:
        if self._frame is not None:
            size = len(self._frame)
            self._frame = None
            self._budget.give_back(size)
            self._budget.received(self)

    def _arrived(self, frame: bytearray | bytes) -> None:
        self.last_active = self._clock.monotonic()
        try:
            header = read_header(memoryview(frame))
        except Malformed as error:
            self._budget.give_back(len(frame))
            self._hang_up("kafka request malformed", error=str(error))
            return
        self.client_id = header.client_id
        if self._draining:
            self._budget.give_back(len(frame))
            return
        self._pending.append(_Pending(frame, header, len(frame)))

    def look(self) -> None:
        """Begins what may begin, writes what is answered, reads on if there is room."""
        self._begin()
        if self._transport is None:
            return
        held_back = len(self._pending) >= self._limits.in_flight or not self._writable
        room = not held_back and self._may_receive()
        if self._held_back and not held_back and self._frame_since is not None:
            # The time that we made it wait is not the client's.
            self._frame_since = self._clock.monotonic()
        self._held_back = held_back
        if room and not self._reading:
            self._reading = True
            self._transport.resume_reading()
        elif not room and self._reading:
            self._reading = False
            self._transport.pause_reading()
        if self._budget.exhausted and not self._reading:
            self._budget.waiting[self] = None

    def _may_receive(self) -> bool:
        if not self._budget.exhausted:
            return True
        if self._frame is None:
            return False
        return self._filled < len(self._frame) or self._budget.overdraw(self)

    def _begin(self) -> None:
        if not self._writable:
            return
        for position, pending in enumerate(self._pending):
            if pending.task is not None:
                if pending.header.api_key != PRODUCE.key:
                    return
                continue
            if position and pending.header.api_key != PRODUCE.key:
                return
            pending.task = asyncio.ensure_future(self._answer(pending))
            if pending.header.api_key != PRODUCE.key:
                return

    async def _answer(self, pending: _Pending) -> None:
        try:
            pending.answer = await self._handler(memoryview(pending.frame), pending.header, self._client)
        except Malformed as error:
            header = pending.header
            self._hang_up("kafka request malformed", error=str(error), api=header.api_key, version=header.version)
        except GiveUp as error:
            self._hang_up("kafka connection closed", error=str(error), api=pending.header.api_key)
        except Exception:
            log.exception("kafka request failed", extra={"client": self.host, "api": pending.header.api_key})
            self._hang_up("kafka connection given up", api=pending.header.api_key)
        finally:
            pending.done = True
            pending.frame = b""
            self._budget.give_back(pending.size)
            if not self._flushing:
                # Requests that become durable together are answered together, with one write.
                self._flushing = True
                asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        self._write()
        self.look()

    def _write(self) -> None:
        replies: list[Reply] = []
        while self._pending and self._pending[0].done:
            reply = self._pending.popleft().answer
            if reply is not None:
                replies.append(reply)
        if self._outgoing is None or self._transport is None or self._transport.is_closing():
            for reply in replies:
                reply.drop()
        elif replies:
            self._outgoing.send(replies, self._clock.monotonic())
        self._close_if_drained()

    def pause_writing(self) -> None:
        assert self._outgoing is not None
        self._outgoing.pause()
        self._blocked_since = self._clock.monotonic()
        self.look()

    def resume_writing(self) -> None:
        assert self._outgoing is not None
        self._blocked_since = None
        self._outgoing.resume()
        self._close_if_drained()
        self.look()

    @property
    def _writable(self) -> bool:
        """Whether the client takes its answers quickly enough to be given more."""
        return self._outgoing is None or self._outgoing.waiting < self._limits.write_buffer

    def _close_if_drained(self) -> None:
        if self._draining and not self._pending and self._transport is not None:
            assert self._outgoing is not None
            if not self._outgoing.waiting:
                self._transport.close()

    def sweep(self, now: float) -> None:
        """Closes the connection if its client is idle for too long, stalls in the middle of a frame, or takes an answer
        slowly whose memory others wait for."""
        stalled = self._limits.stalled
        needed_since = self._outgoing.needed_since if self._outgoing is not None else None
        if self._blocked_since is not None and now - self._blocked_since > stalled:
            self._hang_up("kafka client takes no answers", seconds=now - self._blocked_since)
        elif needed_since is not None and now - needed_since > stalled:
            self._hang_up("kafka client takes its answer too slowly", seconds=now - needed_since)
        elif not self._held_back and self._frame_since is not None and now - self._frame_since > stalled:
            # Also one that waits for memory: else those that hold it and send nothing would be waited for in turn.
            self._hang_up("kafka request not finished", seconds=now - self._frame_since)
        elif not self._pending and now - self.last_active > self._limits.idle:
            log.info("kafka connection idle", extra={"client": self.host, "client_id": self.client_id})
            self.abort()

    def drain(self) -> None:
        """Takes no more requests, and closes when those begun are answered."""
        self._draining = True
        kept: deque[_Pending] = deque()
        for pending in self._pending:
            if pending.task is None:
                self._budget.give_back(pending.size)
            else:
                kept.append(pending)
        self._pending = kept
        self._write()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _hang_up(self, event: str, **fields: Any) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        log.warning(event, extra={"client": self.host, "client_id": self.client_id, **fields})
        self._transport.abort()
