"""The gRPC transport against the contract of every transport."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

import pytest

from headgate_common.dispatch import Service
from headgate_common.transport import GrpcTransport
from tests.integration.common.serving import serving
from tests.servers.ports import free_port
from tests.unit.common.transport_contract import CASES, CONVERSATIONS, REASONS, TalkingWorld, World


@dataclass(frozen=True, slots=True)
class GrpcWorld:
    transport: GrpcTransport
    stack: AsyncExitStack

    async def start(self, services: Sequence[Service]) -> str:
        return (await self.stack.enter_async_context(serving(services))).address

    async def nowhere(self) -> str:
        return f"127.0.0.1:{free_port()}"


@pytest.fixture
async def world() -> AsyncIterator[GrpcWorld]:
    async with AsyncExitStack() as stack, GrpcTransport(reasons=REASONS) as transport:
        yield GrpcWorld(transport, stack)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
async def test_grpc_transport_keeps_the_contract(case: Callable[[World], Awaitable[None]], world: GrpcWorld) -> None:
    await case(world)


@pytest.mark.parametrize("case", CONVERSATIONS, ids=lambda case: case.__name__)
async def test_grpc_transport_carries_conversations(
    case: Callable[[TalkingWorld], Awaitable[None]], world: GrpcWorld
) -> None:
    await case(world)
