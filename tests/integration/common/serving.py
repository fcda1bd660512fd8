"""A server in this process, on a real socket, for the tests here."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry

from headgate_common.dispatch import Service
from headgate_common.metrics import RpcMetrics
from headgate_common.rpc import RpcServer
from headgate_common.settings import LimitsConfig, TlsConfig
from headgate_common.tls import server_credentials


@dataclass(frozen=True, slots=True)
class Served:
    server: RpcServer
    address: str
    registry: CollectorRegistry

    def sample(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(name, labels) or 0.0


@asynccontextmanager
async def serving(
    services: Sequence[Service], *, limits: LimitsConfig | None = None, tls: TlsConfig | None = None, **options: Any
) -> AsyncIterator[Served]:
    registry = CollectorRegistry()
    server = RpcServer(RpcMetrics(registry), limits=limits, **options)
    address = server.bind("127.0.0.1:0", server_credentials(tls) if tls else None)
    await server.start(services)
    try:
        yield Served(server, address, registry)
    finally:
        await server.stop()
