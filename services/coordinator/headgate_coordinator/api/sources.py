"""SourceService: logical and physical sources."""

from __future__ import annotations

from headgate.catalog import v1 as catalog
from headgate.catalog.v1 import source_service_pb2
from headgate_common.dispatch import Call
from headgate_coordinator.api.mutations import Mutations
from headgate_coordinator.catalog import sources
from headgate_coordinator.catalog.store import Store


class SourceService:
    descriptor = source_service_pb2.DESCRIPTOR.services_by_name["SourceService"]

    def __init__(self, store: Store, mutations: Mutations) -> None:
        self._store = store
        self._mutations = mutations

    async def create_logical_source(
        self, request: catalog.CreateLogicalSourceRequest, call: Call
    ) -> catalog.CreateLogicalSourceResponse:
        response: catalog.CreateLogicalSourceResponse = await self._mutations.run(request, call)
        return response

    async def get_logical_source(
        self, request: catalog.GetLogicalSourceRequest, call: Call
    ) -> catalog.GetLogicalSourceResponse:
        source = await self._store.read(lambda tx: sources.get_logical_source(tx, request))
        return catalog.GetLogicalSourceResponse(logical_source=source)

    async def list_logical_sources(
        self, request: catalog.ListLogicalSourcesRequest, call: Call
    ) -> catalog.ListLogicalSourcesResponse:
        return await self._store.read(lambda tx: sources.list_logical_sources(tx, request))

    async def drop_logical_source(
        self, request: catalog.DropLogicalSourceRequest, call: Call
    ) -> catalog.DropLogicalSourceResponse:
        response: catalog.DropLogicalSourceResponse = await self._mutations.run(request, call)
        return response

    async def create_physical_source(
        self, request: catalog.CreatePhysicalSourceRequest, call: Call
    ) -> catalog.CreatePhysicalSourceResponse:
        response: catalog.CreatePhysicalSourceResponse = await self._mutations.run(request, call)
        return response

    async def get_physical_source(
        self, request: catalog.GetPhysicalSourceRequest, call: Call
    ) -> catalog.GetPhysicalSourceResponse:
        source = await self._store.read(lambda tx: sources.get_physical_source(tx, request))
        return catalog.GetPhysicalSourceResponse(physical_source=source)

    async def list_physical_sources(
        self, request: catalog.ListPhysicalSourcesRequest, call: Call
    ) -> catalog.ListPhysicalSourcesResponse:
        return await self._store.read(lambda tx: sources.list_physical_sources(tx, request))

    async def drop_physical_source(
        self, request: catalog.DropPhysicalSourceRequest, call: Call
    ) -> catalog.DropPhysicalSourceResponse:
        response: catalog.DropPhysicalSourceResponse = await self._mutations.run(request, call)
        return response
