"""QueryService: queries, their fragments and their story."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from headgate.catalog import v1 as catalog
from headgate.catalog.v1 import query_service_pb2
from headgate_common.dispatch import Call
from headgate_common.errors import INVALID_ARGUMENT, HeadgateError
from headgate_coordinator.api.mutations import Mutations, apply_alone
from headgate_coordinator.api.planning import Planning
from headgate_coordinator.catalog import lists, queries
from headgate_coordinator.catalog.bundles import only_query
from headgate_coordinator.catalog.operations import create_query_operation
from headgate_coordinator.catalog.queries import PlannedQuery
from headgate_coordinator.catalog.store import Store
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.sql.statements import ExplainStatement, QueryStatement


class Reported(Protocol):
    """How runs are doing, as the leader last heard it; None where it heard nothing."""

    def of(self, fragment_uid: str, epoch: int) -> catalog.FragmentProgress | None: ...


class QueryService:
    descriptor = query_service_pb2.DESCRIPTOR.services_by_name["QueryService"]

    def __init__(self, store: Store, mutations: Mutations, planning: Planning, reported: Reported) -> None:
        self._store = store
        self._mutations = mutations
        self._planning = planning
        self._reported = reported

    async def create_query(self, request: catalog.CreateQueryRequest, call: Call) -> catalog.CreateQueryResponse:
        parsed: list[QueryStatement] = []

        async def plan() -> PlannedQuery:
            if not parsed:
                found = only_query(await self._planning.parse(request.statement))
                parsed.append(replace(found, temporary=request.temporary))
            return await self._planning.plan(parsed[0], request.sink)

        def accept(tx: Tx, planned: PlannedQuery) -> catalog.CreateQueryResponse:
            response: catalog.CreateQueryResponse = apply_alone(
                tx, request, create_query_operation(planned), self._mutations.rules
            )
            return response

        return await self._mutations.accept(request, catalog.CreateQueryResponse, plan, accept, call)

    async def get_query(self, request: catalog.GetQueryRequest, call: Call) -> catalog.GetQueryResponse:
        return catalog.GetQueryResponse(query=await self._store.read(lambda tx: queries.get_query(tx, request)))

    async def list_queries(self, request: catalog.ListQueriesRequest, call: Call) -> catalog.ListQueriesResponse:
        return await self._store.read(lambda tx: queries.list_queries(tx, request))

    async def stop_query(self, request: catalog.StopQueryRequest, call: Call) -> catalog.StopQueryResponse:
        response: catalog.StopQueryResponse = await self._mutations.run(request, call)
        return response

    async def drop_query(self, request: catalog.DropQueryRequest, call: Call) -> catalog.DropQueryResponse:
        response: catalog.DropQueryResponse = await self._mutations.run(request, call)
        return response

    async def explain_query(self, request: catalog.ExplainQueryRequest, call: Call) -> catalog.ExplainQueryResponse:
        parsed = await self._planning.parse(request.statement)
        asked = request.format
        if len(parsed) == 1 and isinstance(parsed[0], ExplainStatement):
            asked = asked or parsed[0].format
            query = parsed[0].query
        else:
            query = only_query(parsed)
        return await self._planning.explain(query, request.sink, asked or catalog.EXPLAIN_FORMAT_TEXT)

    async def list_fragments(self, request: catalog.ListFragmentsRequest, call: Call) -> catalog.ListFragmentsResponse:
        response = await self._store.read(lambda tx: lists.list_fragments(tx, request))
        for fragment in response.fragments:
            progress = self._reported.of(fragment.uid, fragment.epoch)
            if progress is not None:
                fragment.progress.CopyFrom(progress)
        return response

    async def get_story(self, request: catalog.GetStoryRequest, call: Call) -> catalog.GetStoryResponse:
        if bool(request.query) == bool(request.uid):
            raise HeadgateError(INVALID_ARGUMENT, "give either `query` or `uid`", metadata={"field": "query"})
        return await self._store.read(lambda tx: lists.get_story(tx, request))
