"""AgentService: agents and the links between them."""

from __future__ import annotations

from typing import Protocol

from headgate.catalog import v1 as catalog
from headgate.catalog.v1 import agent_service_pb2
from headgate_common.dispatch import Call
from headgate_coordinator.api.mutations import Mutations
from headgate_coordinator.catalog import agents, links
from headgate_coordinator.catalog.store import Store


class Reported(Protocol):
    """What agents last reported about themselves, as the leader heard it; None where it heard nothing."""

    def resources_of(self, agent_uid: str) -> catalog.AgentResources | None: ...


class AgentService:
    descriptor = agent_service_pb2.DESCRIPTOR.services_by_name["AgentService"]

    def __init__(self, store: Store, mutations: Mutations, reported: Reported) -> None:
        self._store = store
        self._mutations = mutations
        self._reported = reported

    async def create_agent(self, request: catalog.CreateAgentRequest, call: Call) -> catalog.CreateAgentResponse:
        response: catalog.CreateAgentResponse = await self._mutations.run(request, call)
        return response

    async def get_agent(self, request: catalog.GetAgentRequest, call: Call) -> catalog.GetAgentResponse:
        agent = await self._store.read(lambda tx: agents.get_agent(tx, request))
        self._report(agent)
        return catalog.GetAgentResponse(agent=agent)

    async def list_agents(self, request: catalog.ListAgentsRequest, call: Call) -> catalog.ListAgentsResponse:
        response = await self._store.read(lambda tx: agents.list_agents(tx, request))
        for agent in response.agents:
            self._report(agent)
        return response

    async def drop_agent(self, request: catalog.DropAgentRequest, call: Call) -> catalog.DropAgentResponse:
        response: catalog.DropAgentResponse = await self._mutations.run(request, call)
        return response

    async def create_network_link(
        self, request: catalog.CreateNetworkLinkRequest, call: Call
    ) -> catalog.CreateNetworkLinkResponse:
        response: catalog.CreateNetworkLinkResponse = await self._mutations.run(request, call)
        return response

    async def get_network_link(
        self, request: catalog.GetNetworkLinkRequest, call: Call
    ) -> catalog.GetNetworkLinkResponse:
        link = await self._store.read(lambda tx: links.get_network_link(tx, request))
        return catalog.GetNetworkLinkResponse(network_link=link)

    async def list_network_links(
        self, request: catalog.ListNetworkLinksRequest, call: Call
    ) -> catalog.ListNetworkLinksResponse:
        return await self._store.read(lambda tx: links.list_network_links(tx, request))

    async def drop_network_link(
        self, request: catalog.DropNetworkLinkRequest, call: Call
    ) -> catalog.DropNetworkLinkResponse:
        response: catalog.DropNetworkLinkResponse = await self._mutations.run(request, call)
        return response

    def _report(self, agent: catalog.Agent) -> None:
        resources = self._reported.resources_of(agent.uid)
        if resources is not None:
            agent.resources.CopyFrom(resources)
