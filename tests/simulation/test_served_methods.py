"""What simulated processes serve is what production's serve: an RPC that is added to one cannot be forgotten in the
other.

Production's side is what a client learns by reflection from a real server around a real `build`; the other is what the
processes of a run listen with.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_reflection.v1alpha import reflection_pb2

from headgate_agent import server as agent_server
from headgate_agent.config import AgentConfig
from headgate_common.clock import SystemClock
from headgate_common.dispatch import Dispatcher
from headgate_common.ids import RandomIds
from headgate_common.metrics import RpcMetrics, new_registry
from headgate_common.reflection import NAMES
from headgate_common.rpc import RpcServer
from headgate_common.server import Runtime
from headgate_common.tracing import Tracing
from headgate_common.transport import GrpcTransport
from headgate_coordinator import server as coordinator_server
from headgate_coordinator.config import CoordinatorConfig
from headgate_simulation.generate import generate
from headgate_simulation.loop import Domain
from headgate_simulation.plan import Plan
from headgate_simulation.world import World
from tests.servers.ports import free_port

# What production serves and the simulation does not, and why. Single methods, so that a new one beside them is seen.
NOT_SIMULATED = {
    "/grpc.health.v1.Health/Check": "asked by whoever places processes; nobody here does",
    "/grpc.health.v1.Health/List": "the same",
    "/grpc.health.v1.Health/Watch": "the same",
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo": "for people and their tools",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": "the same",
    "/headgate.cluster.v1.ResultService/ReadResults": "rows of results come out of runs, which are scripted here",
}
# What only the simulation serves: in the place of Kafka's protocol, which is not gRPC.
ONLY_SIMULATED = "/headgate.simulation.GroupPort/"

WITH_LOG, WITHOUT_LOG = 3, 1

Build = Callable[[Any, Runtime], AbstractAsyncContextManager[Any]]


@asynccontextmanager
async def serving(build: Build, config: Any) -> AsyncIterator[str]:
    """The address of a server of production, in this process: what `headgate_common.server` does, less the process."""
    registry = new_registry("test", "0")
    source = random.Random(1)
    rpc = RpcServer(RpcMetrics(registry))
    async with GrpcTransport() as transport:
        address = rpc.bind("127.0.0.1:0")
        ids = RandomIds(source)
        runtime = Runtime(
            service="test",
            version="0",
            address=address,
            clock=SystemClock(),
            ids=ids,
            source=source,
            registry=registry,
            transport=transport,
            tracing=Tracing(),
        )
        async with build(config, runtime) as app:
            try:
                await rpc.start(app.services, ids)
                yield address
            finally:
                await rpc.stop()
                await runtime.cancel_tasks()


async def found_by_reflection(address: str) -> set[str]:
    """Every method of every service, as a client that knows nothing else finds them."""
    async with grpc.aio.insecure_channel(address) as channel:
        call = channel.stream_stream(
            f"/{NAMES[0]}/ServerReflectionInfo",
            request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
            response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
        )(timeout=20)

        async def ask(**question: str) -> Any:
            await call.write(reflection_pb2.ServerReflectionRequest(**question))
            return await call.read()

        found = set()
        for service in (await ask(list_services="")).list_services_response.service:
            answer = await ask(file_containing_symbol=service.name)
            for raw in answer.file_descriptor_response.file_descriptor_proto:
                file = FileDescriptorProto.FromString(raw)
                for described in file.service:
                    if f"{file.package}.{described.name}" == service.name:
                        found |= {f"/{service.name}/{method.name}" for method in described.method}
        await call.done_writing()
        return found


def simulated(plan: Plan) -> dict[str, set[str]]:
    """What each process of a run without operations and faults listens with."""
    world = World(plan.keep(()))
    served: dict[str, set[str]] = {}
    listen = world.network.listen

    def noting(address: str, name: str, domain: Domain, dispatcher: Dispatcher) -> None:
        served[name] = {method.path for method in dispatcher.methods()}
        listen(address, name, domain, dispatcher)

    world.network.listen = noting  # type: ignore[method-assign]
    result = world.run()
    assert result.failure is None, result.failure
    return served


def coordinator_config(folder: Path) -> CoordinatorConfig:
    config = CoordinatorConfig()
    return replace(config, catalog=replace(config.catalog, url=f"sqlite:///{folder / 'catalog.db'}"))


def agent_config(folder: Path, *roles: Any) -> AgentConfig:
    config = AgentConfig()
    return replace(
        config,
        data=folder / "data",
        roles=roles,
        # Nobody is there: what it serves does not depend on it.
        coordinator=(f"127.0.0.1:{free_port()}",),
        engine=("simulated",),
        log=replace(config.log, object_store=str(folder / "objects")),
        kafka=replace(config.kafka, listen=""),
    )


def production(build: Build, config: Any) -> set[str]:
    async def find() -> set[str]:
        async with serving(build, config) as address:
            return await found_by_reflection(address)

    return asyncio.run(find())


def check(real: set[str], served: set[str], where: str) -> None:
    """Neither serves what the other does not, but for what is said above."""
    missing = real - served - NOT_SIMULATED.keys()
    assert not missing, f"serve these in {where}, or say in NOT_SIMULATED why not"
    assert not {path for path in served - real if not path.startswith(ONLY_SIMULATED)}


@pytest.mark.parametrize("seed", (WITHOUT_LOG, WITH_LOG))
def test_a_coordinator_serves_what_production_serves(seed: int, tmp_path: Path) -> None:
    real = production(coordinator_server.build, coordinator_config(tmp_path))
    check(real, simulated(generate(seed))["c1"], "`coordinators.py`")


def test_an_agent_serves_what_production_serves(tmp_path: Path) -> None:
    real = production(agent_server.build, agent_config(tmp_path, "log", "fragments"))
    served = simulated(generate(WITH_LOG))["a1"]
    check(real, served, "`agents.py` or `log_agent.py`")
    # What is gone from production, or is simulated by now, does not stay on the list.
    assert real >= NOT_SIMULATED.keys()
    assert not served & NOT_SIMULATED.keys()


def test_an_agent_without_a_log_serves_what_production_serves(tmp_path: Path) -> None:
    real = production(agent_server.build, agent_config(tmp_path, "fragments"))
    check(real, simulated(generate(WITHOUT_LOG))["a1"], "`agents.py`")
