"""The port for Kafka clients: accepts connections, looks after them, closes them."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl

from headgate_agent.kafka.config import KafkaLimits
from headgate_agent.kafka.connection import Budget, Connection, Handler
from headgate_common import descriptors
from headgate_common.clock import Clock
from headgate_common.signals import Signal

log = logging.getLogger(__name__)

# As the setting `sweep_interval` says.
_SWEEPS_PER_LIMIT = 4
# What an accept says where there is nothing to accept any more, and where there is nothing left to accept it with.
_NOTHING_THERE = (BlockingIOError, InterruptedError, ConnectionAbortedError)
_NOTHING_LEFT = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Listener:
    """Contract: after `start` connections are answered by `handler`; `run`, which is to be supervised, cuts off clients
    that are idle or stall; `close` lets requests in flight finish for as long as `limits.drain`, and ends the rest.

    It accepts by itself: asyncio's server tries a thousand times, with a line in the log for each, when there is no
    descriptor, and knows nothing of a connection before its TLS handshake has ended.
    """

    def __init__(self, handler: Handler, limits: KafkaLimits, clock: Clock) -> None:
        self._handler, self._limits, self._clock = handler, limits, clock
        self._budget = Budget(limits.buffered_bytes, bytearray(limits.read_bytes))
        self._context: ssl.SSLContext | None = None
        self._sockets: list[socket.socket] = []
        # From the moment in which they are accepted; TLS handshakes that have not ended are `_arriving` too.
        self._connections: set[Connection] = set()
        self._arriving: set[asyncio.Task[None]] = set()
        self._refused = _Seldom(limits.warn_interval, clock)
        self._exhausted = _Seldom(limits.warn_interval, clock)
        self._empty = Signal()
        self._empty.set()
        # How many connections there may be; fewer than configured where the process has too few descriptors.
        self.most = limits.connections

    @property
    def connections(self) -> int:
        return len(self._connections)

    @property
    def buffered_bytes(self) -> int:
        """Bytes of requests that are held now."""
        return self._budget.used

    async def start(self, host: str, port: int, context: ssl.SSLContext | None = None) -> tuple[str, int]:
        """Answers the address that is bound. With `context`, clients must use TLS."""
        self._context = context
        self.most = self._affordable()
        self._sockets = await _bind(host, port, self._limits.backlog)
        for each in self._sockets:
            self._listen(each)
        bound = self._sockets[0].getsockname()
        log.info("listening for kafka clients", extra={"address": f"{bound[0]}:{bound[1]}", "connections": self.most})
        return bound[0], bound[1]

    async def run(self) -> None:
        """Looks connections over until it is cancelled."""
        limits = self._limits
        pause = min(limits.sweep_interval, limits.idle / _SWEEPS_PER_LIMIT, limits.stalled / _SWEEPS_PER_LIMIT)
        while True:
            await asyncio.sleep(pause)
            now = self._clock.monotonic()
            for connection in tuple(self._connections):
                try:
                    connection.sweep(now)
                except Exception:
                    # The others are looked over all the same.
                    log.exception("kafka connection given up", extra={"client": connection.host})
                    connection.abort()

    async def close(self) -> None:
        loop = asyncio.get_running_loop()
        for each in self._sockets:
            loop.remove_reader(each.fileno())
            each.close()
        self._sockets = []
        for arriving in tuple(self._arriving):
            arriving.cancel()
        for connection in tuple(self._connections):
            connection.drain()
        if not await self._empty.wait(self._limits.drain):
            log.warning("kafka requests cut off", extra={"connections": len(self._connections)})
        for connection in tuple(self._connections):
            connection.abort()

    def _affordable(self) -> int:
        """Files, and calls over gRPC, must not fail because clients have taken all descriptors."""
        limits, there = self._limits, descriptors.limit()
        most = max(1, min(limits.connections, there - limits.descriptors_kept))
        if most < limits.connections:
            log.warning(
                "fewer kafka connections than configured: raise the limit of open files (ulimit -n) or lower "
                "kafka.limits.connections",
                extra={
                    "connections": most,
                    "configured": limits.connections,
                    "descriptors": there,
                    "descriptors_kept": limits.descriptors_kept,
                },
            )
        return most

    def _listen(self, listening: socket.socket) -> None:
        if listening in self._sockets:
            asyncio.get_running_loop().add_reader(listening.fileno(), self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(self._limits.backlog):
            try:
                accepted, _ = listening.accept()
            except _NOTHING_THERE:
                return
            except OSError as error:
                if error.errno not in _NOTHING_LEFT:
                    # It is the client's connection that failed, before it was taken.
                    log.info("kafka connection not accepted", extra={"error": str(error)})
                    return
                loop = asyncio.get_running_loop()
                loop.remove_reader(listening.fileno())
                loop.call_later(self._limits.accept_retry, self._listen, listening)
                self._exhausted.warn(
                    "kafka connections wait to be accepted", error=str(error), connections=self.connections
                )
                return
            if self.connections >= self.most:
                self._refused.warn("kafka connection refused", limit=self.most)
                accepted.close()
                continue
            accepted.setblocking(False)
            connection = Connection(self._handler, self._limits, self._budget, self._clock, self._closed)
            self._connections.add(connection)
            self._empty.clear()
            arriving = asyncio.ensure_future(self._welcome(connection, accepted))
            self._arriving.add(arriving)
            arriving.add_done_callback(self._arriving.discard)

    async def _welcome(self, connection: Connection, accepted: socket.socket) -> None:
        """A client has as long for its TLS handshake as for a request that it has begun."""
        patience = self._limits.stalled if self._context is not None else None
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection, accepted, ssl=self._context, ssl_handshake_timeout=patience
            )
        except OSError as error:
            log.info("kafka connection not opened", extra={"error": str(error)})
            accepted.close()
            self._closed(connection)
        except BaseException:
            accepted.close()
            self._closed(connection)
            raise

    def _closed(self, connection: Connection) -> None:
        self._connections.discard(connection)
        if not self._connections:
            self._empty.set()


class _Seldom:
    """A warning about what can happen many times a second."""

    def __init__(self, interval: float, clock: Clock) -> None:
        self._interval, self._clock = interval, clock
        self._next = clock.monotonic()
        self._withheld = 0

    def warn(self, event: str, **fields: object) -> None:
        now = self._clock.monotonic()
        if now < self._next:
            self._withheld += 1
            return
        log.warning(event, extra={**fields, "not_logged_before": self._withheld})
        self._next, self._withheld = now + self._interval, 0


async def _bind(host: str, port: int, backlog: int) -> list[socket.socket]:
    """Sockets that listen, one for each address of the host."""
    found = await asyncio.get_running_loop().getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            each = socket.socket(family, kind, protocol)
            sockets.append(each)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, True)
            if family == socket.AF_INET6:
                each.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, True)
            each.setblocking(False)
            each.bind(address)
            each.listen(backlog)
    except OSError:
        for each in sockets:
            each.close()
        raise
    return sockets
