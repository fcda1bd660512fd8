"""The port for Kafka clients: accepts connections, looks after them, closes them."""

from __future__ import annotations

import asyncio
import logging
import ssl

from headgate_agent.kafka.config import KafkaLimits
from headgate_agent.kafka.connection import Budget, Connection, Handler
from headgate_common.clock import Clock

log = logging.getLogger(__name__)

_SWEEPS_PER_LIMIT = 4
_LONGEST_SWEEP = 5.0


class Listener:
    """Contract: after `start` connections are answered by `handler`; `close` lets requests in flight finish for as long
    as `limits.drain`, and ends the rest."""

    def __init__(self, handler: Handler, limits: KafkaLimits, clock: Clock) -> None:
        self._handler, self._limits, self._clock = handler, limits, clock
        self._budget = Budget(limits.buffered_bytes)
        self._connections: set[Connection] = set()
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.Task[None] | None = None
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def connections(self) -> int:
        return len(self._connections)

    @property
    def buffered_bytes(self) -> int:
        """Bytes of requests that are held now."""
        return self._budget.used

    async def start(self, host: str, port: int, context: ssl.SSLContext | None = None) -> tuple[str, int]:
        """Answers the address that is bound. With `context`, clients must use TLS."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._connection, host, port, backlog=self._limits.backlog, ssl=context)
        self._sweeper = asyncio.ensure_future(self._sweep())
        bound = self._server.sockets[0].getsockname()
        log.info("listening for kafka clients", extra={"address": f"{bound[0]}:{bound[1]}"})
        return bound[0], bound[1]

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for connection in tuple(self._connections):
            connection.drain()
        try:
            async with asyncio.timeout(self._limits.drain):
                await self._empty.wait()
        except TimeoutError:
            log.warning("kafka requests cut off", extra={"connections": len(self._connections)})
        for connection in tuple(self._connections):
            connection.abort()
        if self._sweeper is not None:
            self._sweeper.cancel()

    def _connection(self) -> Connection:
        return Connection(self._handler, self._limits, self._budget, self._clock, self._opened, self._closed)

    def _opened(self, connection: Connection) -> bool:
        if len(self._connections) >= self._limits.connections:
            return False
        self._connections.add(connection)
        self._empty.clear()
        return True

    def _closed(self, connection: Connection) -> None:
        self._connections.discard(connection)
        if not self._connections:
            self._empty.set()

    async def _sweep(self) -> None:
        """Ends with `close`."""
        pause = min(_LONGEST_SWEEP, self._limits.idle / _SWEEPS_PER_LIMIT, self._limits.stalled / _SWEEPS_PER_LIMIT)
        while True:
            await asyncio.sleep(pause)
            now = self._clock.monotonic()
            for connection in tuple(self._connections):
                connection.sweep(now)
