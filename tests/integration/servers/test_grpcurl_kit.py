"""The grpcurl command of the test-server kit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from grpc_health.v1 import health, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from tests.servers.grpcurl import Grpcurl


@pytest.fixture
def address() -> Iterator[str]:
    """A gRPC server that grpcurl knows nothing about."""
    server = grpc.server(ThreadPoolExecutor(2))
    health_pb2_grpc.add_HealthServicer_to_server(health.HealthServicer(), server)
    reflection.enable_server_reflection(["grpc.health.v1.Health", reflection.SERVICE_NAME], server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait(5)


def test_it_lists_and_calls_by_reflection_alone(grpcurl: Grpcurl, address: str) -> None:
    listed = grpcurl.run("-plaintext", address, "list")
    assert "grpc.health.v1.Health" in listed.stdout.split()
    answer = grpcurl.call(address, "grpc.health.v1.Health/Check", {"service": ""})
    assert json.loads(answer.stdout) == {"status": "SERVING"}


def test_a_refusal_is_told_by_code_and_output(grpcurl: Grpcurl, address: str) -> None:
    answer = grpcurl.call(address, "grpc.health.v1.Health/Check", {"service": "nobody"})
    assert answer.returncode != 0
    assert "NotFound" in answer.stderr
