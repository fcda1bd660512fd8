"""FragmentService: what the coordinator calls."""

from __future__ import annotations

from collections.abc import Callable

from headgate.catalog import v1 as catalog
from headgate.cluster import v1 as cluster
from headgate.cluster.v1 import fragment_service_pb2
from headgate_agent.fragments.registry import FragmentRegistry
from headgate_common.dispatch import Call
from headgate_common.errors import SHUTTING_DOWN, HeadgateError


class FragmentService:
    descriptor = fragment_service_pb2.DESCRIPTOR.services_by_name["FragmentService"]

    def __init__(self, registry: FragmentRegistry, name: str, resources: Callable[[], catalog.AgentResources]) -> None:
        """`resources` says how the process is."""
        self._registry = registry
        self._name = name
        self._resources = resources
        # Set when the agent has left: it answers no more, so that it is not taken for one that is back.
        self.left = False

    async def register_fragment(
        self, request: cluster.RegisterFragmentRequest, call: Call
    ) -> cluster.RegisterFragmentResponse:
        self._require_present()
        await self._registry.register(request)
        return cluster.RegisterFragmentResponse()

    async def start_fragment(self, request: cluster.StartFragmentRequest, call: Call) -> cluster.StartFragmentResponse:
        self._require_present()
        await self._registry.start(request)
        return cluster.StartFragmentResponse()

    async def stop_fragment(self, request: cluster.StopFragmentRequest, call: Call) -> cluster.StopFragmentResponse:
        self._require_present()
        await self._registry.stop(request)
        return cluster.StopFragmentResponse()

    async def unregister_fragment(
        self, request: cluster.UnregisterFragmentRequest, call: Call
    ) -> cluster.UnregisterFragmentResponse:
        self._require_present()
        await self._registry.unregister(request)
        return cluster.UnregisterFragmentResponse()

    async def get_status(self, request: cluster.GetStatusRequest, call: Call) -> cluster.GetStatusResponse:
        self._require_present()
        status = await self._registry.status(request, self._resources())
        status.agent = self._name
        return status

    def _require_present(self) -> None:
        if self.left:
            raise HeadgateError(SHUTTING_DOWN, f"agent {self._name} has left and is about to end")
