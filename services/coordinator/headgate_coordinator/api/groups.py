"""GroupService: consumer groups and how far they have read."""

from __future__ import annotations

from headgate.log import v1 as log
from headgate.log.v1 import group_service_pb2
from headgate_common.dispatch import Call
from headgate_coordinator.api.mutations import Mutations
from headgate_coordinator.catalog.log import groups
from headgate_coordinator.catalog.store import Store


class GroupService:
    descriptor = group_service_pb2.DESCRIPTOR.services_by_name["GroupService"]

    def __init__(self, store: Store, mutations: Mutations) -> None:
        self._store = store
        self._mutations = mutations

    async def list_groups(self, request: log.ListGroupsRequest, call: Call) -> log.ListGroupsResponse:
        return await self._store.read(lambda tx: groups.list_groups(tx, request))

    async def get_group(self, request: log.GetGroupRequest, call: Call) -> log.GetGroupResponse:
        return log.GetGroupResponse(group=await self._store.read(lambda tx: groups.get_group(tx, request)))

    async def drop_group(self, request: log.DropGroupRequest, call: Call) -> log.DropGroupResponse:
        response: log.DropGroupResponse = await self._mutations.run(request, call)
        return response
