"""A TCP proxy in front of PostgreSQL that breaks connections at a chosen moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sqlalchemy import make_url

COMMIT = b"COMMIT\x00"


class Proxy:
    """`cut` says when the next connection is broken: at a "commit" before it is passed on, or "after" it was done."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._connections: set[asyncio.StreamWriter] = set()
        self.cut = ""
        self.cuts = 0
        self.refusing = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refusing:
            writer.close()
            return
        up_reader, up_writer = await asyncio.open_connection(*self._target)
        self._connections |= {writer, up_writer}
        swallow = asyncio.Event()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._requests(reader, up_writer, writer, swallow))
                group.create_task(self._replies(up_reader, writer, swallow))
        except* (ConnectionError, OSError):
            pass
        finally:
            writer.close()
            up_writer.close()
            self._connections -= {writer, up_writer}

    async def _requests(
        self,
        reader: asyncio.StreamReader,
        onward: asyncio.StreamWriter,
        back: asyncio.StreamWriter,
        swallow: asyncio.Event,
    ) -> None:
        while data := await reader.read(65536):
            if COMMIT in data and self.cut:
                how, self.cut = self.cut, ""
                self.cuts += 1
                if how == "commit":
                    back.transport.abort()
                    onward.transport.abort()
                    return
                swallow.set()
            onward.write(data)
            await onward.drain()
        onward.close()

    async def _replies(
        self, reader: asyncio.StreamReader, onward: asyncio.StreamWriter, swallow: asyncio.Event
    ) -> None:
        while data := await reader.read(65536):
            if swallow.is_set():
                # The server has answered the commit: it is done. The client will not hear of it.
                onward.transport.abort()
                return
            onward.write(data)
            await onward.drain()
        onward.close()

    def break_all(self) -> None:
        for writer in tuple(self._connections):
            writer.transport.abort()


@asynccontextmanager
async def proxied(url: str) -> AsyncIterator[tuple[Proxy, str]]:
    """A proxy and the URL by which the database is reached through it."""
    parsed = make_url(url)
    assert parsed.host is not None
    assert parsed.port is not None
    proxy = Proxy(parsed.host, parsed.port)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    try:
        port = server.sockets[0].getsockname()[1]
        yield proxy, parsed.set(port=port).render_as_string(hide_password=False)
    finally:
        server.close()
        proxy.break_all()
