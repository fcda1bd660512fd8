"""The TCP source: connects to a server and reads rows as they are sent.

Promises: a row that was received whole and stored on the edge is never lost or doubled again. It cannot promise more,
for a connection cannot be read twice: what the server sent while nobody was connected, what was received but not stored
when the agent crashed, and the row that a broken connection cut through are lost. Each broken connection is noted, with
how many bytes of a row were cut off. A connection that the server closed in order ends its last row.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

import pyarrow as pa

from headgate_agent.errors import SOURCE_MISMATCH, SOURCE_UNREACHABLE, TARGET_FORBIDDEN
from headgate_agent.fragments.config import FragmentConfig
from headgate_agent.fragments.formats.rows import Decoded, Decoder, RowFault
from headgate_agent.fragments.sources.file import text_decoder
from headgate_agent.fragments.sources.source import Counters, Emitted, OnError, error_rows, wait_or_stop
from headgate_agent.fragments.sources.targets import Targets
from headgate_agent.fragments.types import Column
from headgate_agent.work import Work
from headgate_common.backoff import Backoff
from headgate_common.durations import parse_duration
from headgate_common.errors import HeadgateError


class Connection(Protocol):
    """`read` gives what has arrived, at most `most` bytes, waiting for the first; nothing at the end that the server
    made in order; an OSError if the connection broke."""

    async def read(self, most: int) -> bytes: ...

    async def close(self) -> None: ...


class Connector(Protocol):
    """`resolve` gives the addresses of a host, `connect` a connection to one of them. An OSError if there is none."""

    async def resolve(self, host: str, port: int) -> Sequence[str]: ...

    async def connect(self, address: str, port: int) -> Connection: ...


class SocketConnector:
    """Real sockets."""

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return list(dict.fromkeys(str(entry[4][0]) for entry in found))

    async def connect(self, address: str, port: int) -> Connection:
        reader, writer = await asyncio.open_connection(address, port)
        return _Stream(reader, writer)


class _Stream:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self, most: int) -> bytes:
        return await self._reader.read(most)

    async def close(self) -> None:
        # Nothing was ever written, so there is nothing to wait for.
        self._writer.transport.abort()


class TcpSource:
    """A `Source` of rows that a server sends."""

    def __init__(
        self,
        options: Mapping[str, str],
        parser: Mapping[str, str],
        columns: Sequence[Column],
        shape: Callable[[pa.RecordBatch], pa.RecordBatch],
        *,
        config: FragmentConfig,
        blocking: Work,
        source: random.Random,
        connector: Connector,
    ) -> None:
        self.counters = Counters()
        self._shape = shape
        self._config = config
        self._blocking = blocking
        self._random = source
        self._connector = connector
        self._host, self._port = options["socket_host"], int(options["socket_port"])
        self._timeout = parse_duration(options.get("connect_timeout", "10 s")) / 1e6
        self._reconnect = options.get("reconnect", "true") == "true"
        self._on_error = OnError(parser.get("on_error", "skip"))
        self._targets = Targets(config.tcp_targets)
        self._backoff = Backoff(initial=config.reconnect_min, cap=config.reconnect_max)
        self._fresh: Decoder = text_decoder(columns, parser)
        self._decoder = self._fresh
        self._connection: Connection | None = None
        self._buffer = b""
        self._ended = False
        self._rows = self._bytes = self._connections = 0

    async def open(self, position: bytes | None) -> None:
        """The position counts what was taken; there is nothing to go back to."""
        if position:
            known = json.loads(position)
            self._rows, self._bytes, self._connections = known["rows"], known["bytes"], known["connections"]
            self.counters.note(f"{self._name()} is connected to anew; what was sent since it was last read is lost")

    async def next(self, stopping: asyncio.Event) -> Emitted | None:
        while not self._ended:
            if stopping.is_set():
                return None
            if self._connection is None and not await self._connect(stopping):
                return None
            received = await self._receive(stopping)
            if received is None:
                return None
            emitted = await self._taken(final=not received)
            if not received:
                await self._disconnected()
            if emitted is not None:
                return emitted
        return Emitted((), self._position(), ended=True)

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()
            self._connection = None

    def _name(self) -> str:
        return f"{self._host}:{self._port}"

    def _position(self) -> bytes:
        return json.dumps({"rows": self._rows, "bytes": self._bytes, "connections": self._connections}).encode()

    async def _connect(self, stopping: asyncio.Event) -> bool:
        """Connects, trying again for as long as it takes; False if `stopping` came first."""
        attempt = 0
        while not stopping.is_set():
            try:
                async with asyncio.timeout(self._timeout):
                    self._connection = await self._connector.connect(await self._address(), self._port)
            except (OSError, TimeoutError) as error:
                what = _told(error) or f"no answer within {self._timeout:g} s"
                if not self._reconnect:
                    raise HeadgateError(SOURCE_UNREACHABLE, f"{self._name()}: {what}") from error
                self.counters.waiting = f"{self._name()} cannot be connected to: {what}"
                if await wait_or_stop(stopping, self._backoff.delay(attempt, self._random)):
                    return False
                attempt += 1
                continue
            self.counters.waiting = ""
            self._connections += 1
            self._decoder, self._buffer = self._fresh, b""
            return True
        return False

    async def _address(self) -> str:
        addresses = await self._connector.resolve(self._host, self._port)
        for address in addresses:
            if self._targets.allows(self._host, self._port, address):
                return address
        raise HeadgateError(
            TARGET_FORBIDDEN, f"{self._name()} ({', '.join(addresses)}) is not one of fragments.tcp_targets"
        )

    async def _receive(self, stopping: asyncio.Event) -> bytes | None:
        """Waits for bytes and keeps them; nothing at the end; None if `stopping` came first."""
        assert self._connection is not None
        reading = asyncio.ensure_future(self._connection.read(self._config.block_bytes))
        stopped = asyncio.ensure_future(stopping.wait())
        try:
            await asyncio.wait(
                (reading, stopped), timeout=self._config.read_timeout, return_when=asyncio.FIRST_COMPLETED
            )
            if reading.done():
                received = reading.result()
                self._buffer += received
                self._bytes += len(received)
                self.counters.bytes_read += len(received)
                return received
            if stopped.done():
                return None
            raise TimeoutError(f"silent for {self._config.read_timeout:g} s")
        except (OSError, TimeoutError) as error:
            await self._broken(error)
            return b""
        finally:
            for task in (reading, stopped):
                task.cancel()
            await asyncio.wait((reading, stopped))

    async def _broken(self, error: Exception) -> None:
        """What came of a row that was cut through is no row."""
        whole = self._decoder.whole(self._buffer, False)
        cut = len(self._buffer) - whole
        self._buffer = self._buffer[:whole]
        self.counters.note(f"{self._name()} broke ({error or type(error).__name__}); {cut} bytes of a row were cut off")
        if not self._reconnect and not whole:
            raise HeadgateError(SOURCE_UNREACHABLE, f"{self._name()} broke: {error}") from error

    async def _disconnected(self) -> None:
        await self.close()
        self._ended = not self._reconnect
        if self._reconnect:
            self.counters.note(f"{self._name()} closed the connection; what it sends until the next one is lost")

    async def _taken(self, final: bool) -> Emitted | None:
        """The whole rows of what was received."""
        if self._decoder.wants_header:
            size = self._decoder.first(self._buffer, final)
            if not size:
                self._check_length()
                return None
            self._decoder = self._decoder.with_header(self._buffer[:size])
            self._buffer = self._buffer[size:]
        whole = self._decoder.whole(self._buffer, final)
        if not whole:
            self._check_length()
            return None
        data, self._buffer = self._buffer[:whole], self._buffer[whole:]
        decoded, kept = await self._blocking.run(partial(self._decoded, data))
        start = self._bytes - len(self._buffer) - whole

        def place(fault: RowFault) -> str:
            return f"{self._name()} at byte {start + fault.offset} received"

        errors = error_rows(decoded.faults, self._on_error, place)
        self.counters.rows_malformed += len(errors)
        self._rows += decoded.batch.num_rows + len(decoded.faults)
        self.counters.rows_read += decoded.batch.num_rows
        self.counters.rows_kept += kept.num_rows
        return Emitted((kept,), self._position(), errors)

    def _decoded(self, data: bytes) -> tuple[Decoded, pa.RecordBatch]:
        decoded = self._decoder.decode(data)
        return decoded, self._shape(decoded.batch)

    def _check_length(self) -> None:
        if len(self._buffer) > self._config.max_row_bytes:
            raise HeadgateError(
                SOURCE_MISMATCH,
                f"{self._name()} sent a row of more than {self._config.max_row_bytes:,} bytes "
                "(fragments.max_row_bytes); is the tuple_delimiter another?",
            )


def _told(error: Exception) -> str:
    """What the system says, where an error has its number: the address is told anyway."""
    number = getattr(error, "errno", None)
    return os.strerror(number) if isinstance(number, int) and number > 0 else str(error)
