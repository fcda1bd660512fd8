"""The HTTP port over a real socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from prometheus_client import CollectorRegistry, Counter

from headgate_common import http
from headgate_common.config import ConfigError
from headgate_common.http import Answer, HttpServer, standard_routes


@pytest.fixture
def reasons() -> list[str]:
    return []


@pytest.fixture
async def port(reasons: list[str]) -> AsyncIterator[int]:
    registry = CollectorRegistry()
    Counter("toy", "A toy.", registry=registry).inc(3)

    def broken() -> Answer:
        raise ValueError("the secret of the house")

    server = HttpServer({**standard_routes(registry, lambda: reasons), "/broken": broken})
    address = await server.start("127.0.0.1:0")
    yield int(address.rpartition(":")[2])
    await server.close()


async def ask(port: int, request: bytes) -> tuple[int, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    async with asyncio.timeout(20):
        answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]), body


async def get(port: int, path: str) -> tuple[int, bytes]:
    return await ask(port, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())


async def test_health_says_that_the_process_lives(port: int) -> None:
    assert await get(port, "/health") == (200, b'{"alive": true}\n')


async def test_ready_says_why_not(port: int, reasons: list[str]) -> None:
    assert (await get(port, "/ready"))[0] == 200
    reasons.append("the catalog cannot be reached")
    status, body = await get(port, "/ready")
    assert status == 503
    assert json.loads(body) == {"ready": False, "reasons": ["the catalog cannot be reached"]}


async def test_metrics_are_in_the_prometheus_format(port: int) -> None:
    status, body = await get(port, "/metrics?name=x")
    assert status == 200
    assert b"toy_total 3.0" in body


async def test_head_has_no_body(port: int) -> None:
    assert await ask(port, b"HEAD /health HTTP/1.1\r\n\r\n") == (200, b"")


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /nothing HTTP/1.1\r\n\r\n", 404),
        (b"POST /health HTTP/1.1\r\n\r\n", 405),
        (b"nonsense\r\n\r\n", 400),
        (b"GET /health HTTP/2.0\r\n\r\n", 400),
        (b"\xff\xfe\x00\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nX: " + b"y" * 100_000 + b"\r\n\r\n", 431),
    ],
)
async def test_other_requests_are_refused(port: int, request_bytes: bytes, status: int) -> None:
    assert (await ask(port, request_bytes))[0] == status


async def test_a_page_that_fails_is_500_and_tells_nothing(port: int) -> None:
    status, body = await get(port, "/broken")
    assert status == 500
    assert b"secret" not in body
    assert (await get(port, "/health"))[0] == 200


async def test_a_request_that_does_not_come_is_not_waited_for(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "REQUEST_SECONDS", 0.1)
    assert (await ask(port, b"GET /health HT"))[0] == 408


async def test_connections_beyond_the_bound_are_closed_and_the_others_go_on(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "MAX_CONNECTIONS", 3)
    held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
    await asyncio.sleep(0.1)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with pytest.raises(ConnectionError):
        writer.write(b"GET /health HTTP/1.1\r\n\r\n")
        if await reader.read() == b"":
            raise ConnectionResetError
    for one, other in held:
        other.write(b"GET /health HTTP/1.1\r\n\r\n")
        assert b"200 OK" in await one.read()
        other.close()
    assert (await get(port, "/health"))[0] == 200


async def test_a_port_in_use_is_one_clear_line(port: int) -> None:
    with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port} for HTTP"):
        await HttpServer({}).start(f"127.0.0.1:{port}")
