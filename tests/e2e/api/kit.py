"""Real processes of the coordinator and of agents."""

from __future__ import annotations

import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import Message
from grpc_status import rpc_status

from headgate.catalog.v1 import (
    agent_service_pb2,
    query_service_pb2,
    sink_service_pb2,
    source_service_pb2,
    statement_service_pb2,
    watch_service_pb2,
)
from headgate.cluster.v1 import membership_service_pb2
from headgate.log.v1 import group_service_pb2, log_metadata_service_pb2, topic_service_pb2
from headgate_common.dispatch import methods
from headgate_common.errors import from_code, from_status
from headgate_coordinator.errors import REASONS
from tests.servers.ports import free_port
from tests.servers.process import Command, ServerProcess, start_with_retry

START_SECONDS = 60.0
_FILES = (
    agent_service_pb2,
    query_service_pb2,
    sink_service_pb2,
    source_service_pb2,
    statement_service_pb2,
    watch_service_pb2,
    membership_service_pb2,
    topic_service_pb2,
    group_service_pb2,
    log_metadata_service_pb2,
)
_METHODS = {
    method.request.DESCRIPTOR.full_name: method
    for file in _FILES
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in methods(service).values()
}


@dataclass(frozen=True, slots=True)
class Server:
    """A running process of ours."""

    process: ServerProcess
    address: str
    http: str

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://{self.http}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def ready(self) -> bool:
        try:
            return self.get("/ready")[0] == 200
        except OSError:
            return False


def _start(module: str, name: str, folder: Path, options: list[str]) -> Server:
    address = http = ""

    def start() -> ServerProcess:
        nonlocal address, http
        address, http = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
        arguments = [sys.executable, "-m", module, "--listen", address, "--http-listen", http, *options]
        return ServerProcess(Command(name=name, arguments=arguments, log=folder / f"{name}.log"))

    server = Server(start_with_retry(start), address, http)
    server.process.wait_until_ready(server.ready, START_SECONDS)
    return server


@contextmanager
def running_coordinator(folder: Path, url: str = "", *options: str, name: str = "coordinator") -> Iterator[Server]:
    """A coordinator on an SQLite file in the folder, or on the catalog of the URL."""
    catalog_url = url or f"sqlite:///{folder / 'catalog.db'}"
    server = _start("headgate_coordinator.server", name, folder, ["--catalog", catalog_url, *options])
    try:
        yield server
    finally:
        server.process.stop()


@contextmanager
def running_agent(folder: Path, name: str, coordinator: str, *, slots: int = 8) -> Iterator[Server]:
    """An agent that has registered."""
    options = ["--coordinator", coordinator, "--name", name, "--data", str(folder / name), "--slots", str(slots)]
    options += ["--kafka-listen", "127.0.0.1:0", "--object-store", str(folder / "objects"), "--engine", "simulated"]
    server = _start("headgate_agent.server", name, folder, options)
    try:
        yield server
    finally:
        server.process.stop()


class Client:
    """Calls the catalog API of one address; errors come back as `HeadgateError`."""

    def __init__(self, address: str) -> None:
        self.channel = grpc.insecure_channel(address)

    def __call__(self, request: Message, timeout: float = 30.0) -> Any:
        method = _METHODS[request.DESCRIPTOR.full_name]
        call = self.channel.unary_unary(method.path, type(request).SerializeToString, method.response.FromString)
        return self._answer(lambda: call(request, timeout=timeout))

    def raw(self, path: str, body: bytes, timeout: float = 30.0) -> bytes:
        """Sends bytes as they are."""
        call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = self.channel.unary_unary(path)
        answer: bytes = self._answer(lambda: call(body, timeout=timeout))
        return answer

    @staticmethod
    def _answer(call: Callable[[], Any]) -> Any:
        try:
            return call()
        except grpc.RpcError as error:
            status = rpc_status.from_call(error)
            if status is None:
                raise from_code(error.code(), error.details() or "") from error
            raise from_status(status, REASONS) from error

    def close(self) -> None:
        self.channel.close()


def wait_until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Returns once the condition holds; fails if it does not within a time that is generous on purpose."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.05)


def fits(expected: Any, found: Any) -> bool:
    """Whether `found` has all that `expected` asks for; "..." asks for anything, a list for its first elements."""
    if expected == "...":
        return True
    if isinstance(expected, dict):
        return isinstance(found, dict) and all(
            key in found and fits(value, found[key]) for key, value in expected.items()
        )
    if isinstance(expected, list):
        return (
            isinstance(found, list)
            and len(found) >= len(expected)
            and all(fits(one, other) for one, other in zip(expected, found, strict=False))
        )
    return bool(expected == found)
