"""A client that speaks any version of any request, by the schemas of kio."""

from __future__ import annotations

import io
import socket
import struct
from types import TracebackType
from typing import Any, Self

from kio.serial import entity_reader, entity_writer

from headgate_agent.kafka.codec import build, schema
from headgate_agent.log.record_batch import encode


def batch(count: int = 1, *, timestamp: int = 1000, producer: tuple[int, int, int] = (-1, -1, -1)) -> bytes:
    """A record batch with `count` small records, whose values are their numbers."""
    body = b"".join(_record(index, b"%d" % index) for index in range(count))
    return bytes(encode(body, count, timestamp=timestamp, producer=producer))


def _record(delta: int, value: bytes) -> bytes:
    inner = b"\0" + _zigzag(0) + _zigzag(delta) + _zigzag(-1) + _zigzag(len(value)) + value + _zigzag(0)
    return _zigzag(len(inner)) + inner


def _zigzag(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value & ~0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def frame(api: int, version: int, values: dict[str, Any], correlation: int = 7, client: str | None = "wire") -> bytes:
    """A whole request with its length."""
    layout = schema(api, version)
    buffer = io.BytesIO()
    buffer.write(struct.pack(">hhi", api, version, correlation))
    name = b"\xff\xff" if client is None else struct.pack(">h", len(client)) + client.encode()
    buffer.write(name)
    if layout.flexible_header:
        buffer.write(b"\0")
    entity_writer(layout.request_type)(buffer, build(layout.request_type, values))
    raw = buffer.getvalue()
    return struct.pack(">i", len(raw)) + raw


def parse(api: int, version: int, raw: bytes) -> tuple[int, Any]:
    """The correlation id and the response."""
    layout = schema(api, version)
    (correlation,) = struct.unpack_from(">i", raw)
    start = 5 if layout.flexible_response_header else 4
    response, size = entity_reader(layout.response_type)(memoryview(raw)[start:], 0)
    assert start + size == len(raw), "the whole answer is read"
    return correlation, response


class Wire:
    def __init__(self, address: str, timeout: float = 60) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=timeout)
        self._correlation = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.socket.close()

    def send(self, api: int, version: int, values: dict[str, Any]) -> int:
        self._correlation += 1
        self.socket.sendall(frame(api, version, values, self._correlation))
        return self._correlation

    def receive(self) -> bytes:
        """The next answer without its length; empty if the connection was closed."""
        head = self._exactly(4)
        return self._exactly(struct.unpack(">i", head)[0]) if head else b""

    def ask(self, api: int, version: int, values: dict[str, Any] | None = None) -> Any:
        correlation = self.send(api, version, values or {})
        answered, response = parse(api, version, self.receive())
        assert answered == correlation
        return response

    def closed(self) -> bool:
        """Whether the other end has closed the connection; waits for it."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def _exactly(self, size: int) -> bytes:
        out = bytearray()
        while len(out) < size:
            try:
                part = self.socket.recv(size - len(out))
            except ConnectionError:
                return b""
            if not part:
                return b""
            out += part
        return bytes(out)
