"""The standard gRPC health service, as a service like any other.

Health is told for every service by its full name, and for the server as a whole under the empty name. A server that
drains or is not ready is NOT_SERVING; `Watch` tells of every change.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from grpc_health.v1 import health_pb2

from headgate_common.dispatch import Call
from headgate_common.errors import COMMON, HeadgateError

SERVICE_UNKNOWN = COMMON.declare(
    "SERVICE_UNKNOWN", grpc.StatusCode.NOT_FOUND, "The health of a service was asked for that the server does not have."
)


class Health:
    """Answers with one state for the whole server: its services stand and fall together."""

    descriptor: ServiceDescriptor = health_pb2.DESCRIPTOR.services_by_name["Health"]

    def __init__(self) -> None:
        self._names: frozenset[str] = frozenset({""})
        self._serving = False
        self._changed = asyncio.Event()

    def cover(self, services: Iterable[str]) -> None:
        self._names = frozenset({"", *services})

    @property
    def serving(self) -> bool:
        return self._serving

    def set(self, *, serving: bool) -> None:
        if serving == self._serving:
            return
        self._serving = serving
        # Each change has its own event: those who wait hold the old one.
        self._changed.set()
        self._changed = asyncio.Event()

    async def check(self, request: health_pb2.HealthCheckRequest, call: Call) -> health_pb2.HealthCheckResponse:
        if request.service not in self._names:
            raise HeadgateError(SERVICE_UNKNOWN, f"there is no service {request.service}")
        return self._state(request.service)

    async def list(self, request: health_pb2.HealthListRequest, call: Call) -> health_pb2.HealthListResponse:
        return health_pb2.HealthListResponse(statuses={name: self._state(name) for name in self._names})

    async def watch(
        self, request: health_pb2.HealthCheckRequest, call: Call
    ) -> AsyncGenerator[health_pb2.HealthCheckResponse, None]:
        while True:
            changed = self._changed
            yield self._state(request.service)
            await changed.wait()

    def _state(self, name: str) -> health_pb2.HealthCheckResponse:
        states = health_pb2.HealthCheckResponse
        if name not in self._names:
            return states(status=states.SERVICE_UNKNOWN)
        return states(status=states.SERVING if self._serving else states.NOT_SERVING)
