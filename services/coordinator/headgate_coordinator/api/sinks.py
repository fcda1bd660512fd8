"""SinkService: where queries write to."""

from __future__ import annotations

from headgate.catalog import v1 as catalog
from headgate.catalog.v1 import sink_service_pb2
from headgate_common.dispatch import Call
from headgate_coordinator.api.mutations import Mutations
from headgate_coordinator.catalog import sinks
from headgate_coordinator.catalog.store import Store


class SinkService:
    descriptor = sink_service_pb2.DESCRIPTOR.services_by_name["SinkService"]

    def __init__(self, store: Store, mutations: Mutations) -> None:
        self._store = store
        self._mutations = mutations

    async def create_sink(self, request: catalog.CreateSinkRequest, call: Call) -> catalog.CreateSinkResponse:
        response: catalog.CreateSinkResponse = await self._mutations.run(request, call)
        return response

    async def get_sink(self, request: catalog.GetSinkRequest, call: Call) -> catalog.GetSinkResponse:
        return catalog.GetSinkResponse(sink=await self._store.read(lambda tx: sinks.get_sink(tx, request)))

    async def list_sinks(self, request: catalog.ListSinksRequest, call: Call) -> catalog.ListSinksResponse:
        return await self._store.read(lambda tx: sinks.list_sinks(tx, request))

    async def drop_sink(self, request: catalog.DropSinkRequest, call: Call) -> catalog.DropSinkResponse:
        response: catalog.DropSinkResponse = await self._mutations.run(request, call)
        return response
