"""The HTTP port of a server: `/health`, `/ready` and `/metrics`, and nothing else.

`/health` answers 200 while the process can answer at all. `/ready` answers 200 when it should get work, otherwise 503
with the reasons. `/metrics` is the Prometheus text format. Each request is read within a size and a time, each
connection carries one request, and connections beyond a bound are closed at once: nobody can hold the port.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from headgate_common.config import ConfigError
from headgate_common.tls import join_address, split_address

log = logging.getLogger(__name__)

MAX_REQUEST = 8 * 1024
REQUEST_SECONDS = 5.0
MAX_CONNECTIONS = 64
_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 408: "Request Timeout"}
_REASONS |= {431: "Request Header Fields Too Large", 500: "Internal Server Error", 503: "Service Unavailable"}


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes
    content_type: str = "application/json"


Route = Callable[[], Answer]


def json_answer(status: int, document: object) -> Answer:
    return Answer(status, (json.dumps(document) + "\n").encode())


def standard_routes(registry: CollectorRegistry, unready: Callable[[], Sequence[str]]) -> dict[str, Route]:
    """The three pages. `unready` gives the reasons why the server should get no work; none means ready."""

    def ready() -> Answer:
        reasons = list(unready())
        return json_answer(503 if reasons else 200, {"ready": not reasons, "reasons": reasons})

    return {
        "/health": lambda: json_answer(200, {"alive": True}),
        "/ready": ready,
        "/metrics": lambda: Answer(200, generate_latest(registry), CONTENT_TYPE_LATEST),
    }


class HttpServer:
    """Serves fixed pages that are made without waiting."""

    def __init__(self, routes: Mapping[str, Route]) -> None:
        self._routes = dict(routes)
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self, listen: str, context: ssl.SSLContext | None = None) -> str:
        """Listens, and returns the address with the port that was taken."""
        host, port = split_address(listen)
        try:
            self._server = await asyncio.start_server(
                self._connected, host or None, port, ssl=context, limit=MAX_REQUEST
            )
        except OSError as error:
            reason = error.strerror or str(error)
            raise ConfigError(f"cannot listen on {listen} for HTTP: {reason}; choose with --http-listen") from error
        return join_address(host, self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for connection in tuple(self._connections):
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._connections) >= MAX_CONNECTIONS:
            writer.transport.abort()
            return
        self._connections.add(task)
        try:
            async with asyncio.timeout(2 * REQUEST_SECONDS):
                answer, body = await self._answer(reader)
                writer.write(_head(answer) + (answer.body if body else b""))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (OSError, TimeoutError):
            writer.transport.abort()
        finally:
            self._connections.discard(task)

    async def _answer(self, reader: asyncio.StreamReader) -> tuple[Answer, bool]:
        """The answer, and whether its body is wanted."""
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return json_answer(431, {"error": f"more than {MAX_REQUEST} bytes of headers"}), True
        except asyncio.IncompleteReadError:
            return json_answer(400, {"error": "not an HTTP request"}), True
        except TimeoutError:
            return json_answer(408, {"error": f"no request within {REQUEST_SECONDS:g} s"}), True
        words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return json_answer(400, {"error": "not an HTTP/1 request"}), True
        method, target, _ = words
        if method not in ("GET", "HEAD"):
            return json_answer(405, {"error": "only GET and HEAD"}), True
        route = self._routes.get(target.partition("?")[0])
        if route is None:
            return json_answer(404, {"error": "no such page", "pages": sorted(self._routes)}), method == "GET"
        try:
            return route(), method == "GET"
        except Exception:
            log.exception("page failed", extra={"page": target})
            return json_answer(500, {"error": "this page failed; the log says why"}), method == "GET"


def _head(answer: Answer) -> bytes:
    lines = [
        f"HTTP/1.1 {answer.status} {_REASONS[answer.status]}",
        f"Content-Type: {answer.content_type}",
        f"Content-Length: {len(answer.body)}",
        "Cache-Control: no-store",
        "Connection: close",
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()
