"""Many agents in one process, each with its own address, for benchmarks: real services over real gRPC, no disk.

Run as `python benchmarks/agent_host.py COUNT COORDINATOR`; without a coordinator (`-`) they only answer. The first line
of its output is a JSON list of [name, address]; it ends with its standard input.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys

from headgate.catalog import v1 as catalog
from headgate_agent.fragments.journal import MemoryJournal
from headgate_agent.fragments.registry import FragmentRegistry
from headgate_agent.fragments.runner import SimulatedRunner
from headgate_agent.fragments.service import FragmentService
from headgate_agent.member import Identity, Member
from headgate_common.backoff import Backoff
from headgate_common.clock import SystemClock
from headgate_common.ids import RandomIds
from headgate_common.metrics import RpcMetrics, new_registry
from headgate_common.rpc import RpcServer
from headgate_common.settings import LimitsConfig
from headgate_common.tracing import Tracing
from headgate_common.transport import GrpcTransport

SLOTS = 10_000


async def host(count: int, coordinator: str) -> None:
    clock, ids, source = SystemClock(), RandomIds(), random.SystemRandom()
    found, members, servers = [], [], []
    transport = GrpcTransport()
    for number in range(count):
        name = f"agent{number}"
        registry = FragmentRegistry(
            incarnation=ids.uid("process"), runner=SimulatedRunner(), journal=MemoryJournal(), clock=clock
        )
        await registry.open()
        server = RpcServer(
            RpcMetrics(new_registry("agent", "0")), limits=LimitsConfig(), tracing=Tracing(), clock=clock, source=source
        )
        address = server.bind("127.0.0.1:0")
        await server.start([FragmentService(registry, name, catalog.AgentResources)], ids)
        servers.append(server)
        found.append((name, address))
        if coordinator != "-":
            member = Member(
                Identity(name, address, registry.incarnation, slots=SLOTS, roles=("log", "fragments"), has_engine=True),
                registry,
                transport=transport,
                coordinators=[coordinator],
                clock=clock,
                source=source,
                timeout=5.0,
                backoff=Backoff(),
            )
            members.append(asyncio.create_task(member.run()))
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    for member_task in members:
        member_task.cancel()
    for server in servers:
        await server.stop()
    await transport.close()


if __name__ == "__main__":
    asyncio.run(host(int(sys.argv[1]), sys.argv[2]))
