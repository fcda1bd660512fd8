"""A client that knows nothing but reflection finds everything and can read the errors."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
import pytest
from grpc_reflection.v1alpha import reflection_pb2

from headgate_common.reflection import NAMES
from tests.integration.common.serving import serving
from tests.servers.grpcurl import Grpcurl
from tests.unit.common.transport_contract import FRAGMENTS, WATCH, ToyFragments, ToyWatch


@pytest.fixture
async def address() -> AsyncIterator[str]:
    async with serving([ToyFragments(), ToyWatch()]) as served:
        yield served.address


async def run(grpcurl: Grpcurl, *arguments: str) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(grpcurl.run, "-plaintext", *arguments)


async def test_every_service_is_listed(grpcurl: Grpcurl, address: str) -> None:
    listed = await run(grpcurl, address, "list")
    assert listed.stdout.splitlines() == sorted([FRAGMENTS.full_name, WATCH.full_name, "grpc.health.v1.Health", *NAMES])


@pytest.mark.parametrize(
    ("symbol", "expected"),
    [
        ("headgate.cluster.v1.FragmentService", "rpc GetStatus ( .headgate.cluster.v1.GetStatusRequest )"),
        ("headgate.cluster.v1.GetStatusRequest", "uint64 since = 2;"),
        ("headgate.catalog.v1.StatementProblem", "string suggestion = 6;"),
        ("google.rpc.ErrorInfo", "map<string, string> metadata = 3;"),
        ("google.rpc.BadRequest", "field_violations"),
        ("google.rpc.RetryInfo", "retry_delay"),
        ("grpc.reflection.v1.ServerReflection", "rpc ServerReflectionInfo"),
        ("grpc.reflection.v1alpha.ServerReflection", "rpc ServerReflectionInfo"),
        ("grpc.health.v1.Health", "rpc Watch"),
    ],
)
async def test_every_symbol_can_be_described(grpcurl: Grpcurl, address: str, symbol: str, expected: str) -> None:
    described = await run(grpcurl, address, "describe", symbol)
    assert expected in described.stdout, described.stderr


async def test_a_call_is_made_from_json(grpcurl: Grpcurl, address: str) -> None:
    answer = await asyncio.to_thread(
        grpcurl.call,
        address,
        "headgate.cluster.v1.FragmentService/GetStatus",
        {"command": {"incarnation": "me"}, "since": "7"},
    )
    assert '"incarnation": "me"' in answer.stdout
    assert '"version": "7"' in answer.stdout


async def test_errors_are_printed_with_reason_metadata_position_and_delay(grpcurl: Grpcurl, address: str) -> None:
    answer = await asyncio.to_thread(
        grpcurl.call,
        address,
        "headgate.cluster.v1.FragmentService/StartFragment",
        {"command": {}, "fragment": {"uid": "refused"}},
    )
    assert answer.returncode != 0
    for expected in (
        "Code: FailedPrecondition",
        "Message: not today: ä",
        '"reason": "REFUSED"',
        '"why": "because"',
        '"line": 2',
        '"column": 7',
        '"suggestion": "id"',
        '"retry_delay": "1.500s"',
    ):
        assert expected in answer.stderr, answer.stderr


async def test_broken_rules_are_printed_field_by_field(grpcurl: Grpcurl, address: str) -> None:
    answer = await asyncio.to_thread(
        grpcurl.call, address, "headgate.cluster.v1.FragmentService/StartFragment", {"fragment": {}}
    )
    assert '"reason": "INVALID_ARGUMENT"' in answer.stderr
    assert '"field": "command"' in answer.stderr
    assert '"field": "fragment.uid"' in answer.stderr


async def test_a_stream_is_printed_as_it_comes(grpcurl: Grpcurl, address: str) -> None:
    answer = await asyncio.to_thread(grpcurl.call, address, "headgate.catalog.v1.WatchService/Watch", {"name": "3"})
    assert answer.stdout.count('"bookmark"') == 3


async def test_health_is_asked_by_service_name(grpcurl: Grpcurl, address: str) -> None:
    answer = await asyncio.to_thread(
        grpcurl.call, address, "grpc.health.v1.Health/Check", {"service": FRAGMENTS.full_name}
    )
    assert '"status": "SERVING"' in answer.stdout


@pytest.mark.parametrize("name", NAMES)
async def test_reflection_answers_under_both_names(address: str, name: str) -> None:
    async with grpc.aio.insecure_channel(address) as channel:
        call = channel.stream_stream(
            f"/{name}/ServerReflectionInfo",
            request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
            response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
        )(timeout=20)
        await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
        answer: Any = await call.read()
        await call.done_writing()
    assert FRAGMENTS.full_name in [service.name for service in answer.list_services_response.service]
