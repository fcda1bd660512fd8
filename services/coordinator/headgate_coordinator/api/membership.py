"""MembershipService: what the coordinator serves to agents. Only the leader answers: it alone knows who renews."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from headgate.cluster import v1 as cluster
from headgate.cluster.v1 import membership_service_pb2
from headgate_common.dispatch import Call
from headgate_coordinator.api.mutations import Leading, naming_leader
from headgate_coordinator.catalog import fragments, operations, registration, starts
from headgate_coordinator.catalog.operations import Rules
from headgate_coordinator.catalog.registration import Registered
from headgate_coordinator.catalog.store import Store
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.catalog.wire import duration
from headgate_coordinator.cluster.presence import Renewed


class Renewals(Protocol):
    """Where the renewals of sessions are counted."""

    async def renew(self, uid: str, version: int, reports: Sequence[cluster.FragmentReport]) -> Renewed:
        """SESSION_EXPIRED or NOT_LEADER if it cannot be renewed, and then nothing is kept."""
        ...


class MembershipService:
    descriptor = membership_service_pb2.DESCRIPTOR.services_by_name["MembershipService"]

    def __init__(self, store: Store, leading: Leading, renewals: Renewals, rules: Rules, session_ttl: float) -> None:
        self._store = store
        self._leading = leading
        self._renewals = renewals
        self._rules = rules
        self._session_ttl = session_ttl

    async def register_agent(self, request: cluster.RegisterAgentRequest, call: Call) -> cluster.RegisterAgentResponse:
        def register(tx: Tx) -> Registered:
            registered = registration.register_agent(tx, request, self._session_ttl)
            operations.settle(tx, self._rules)
            return registered

        with naming_leader(call):
            term = self._leading.require_term()
            registered = await self._store.write(register, term)
            if registered.again:
                # The process counts its TTL from this call on, so everybody else must too.
                await self._renewals.renew(registered.session.uid, 0, ())
        return cluster.RegisterAgentResponse(
            agent=registered.agent,
            session_id=registered.session.uid,
            session_ttl=duration(round(registered.session.ttl * 1_000_000)),
            term=term,
            catalog_uid=registered.catalog_uid,
        )

    async def leave_cluster(self, request: cluster.LeaveClusterRequest, call: Call) -> cluster.LeaveClusterResponse:
        with naming_leader(call):
            term = self._leading.require_term()
            await self._store.write(lambda tx: registration.leave_cluster(tx, request), term)
        return cluster.LeaveClusterResponse()

    async def find_fragments(self, request: cluster.FindFragmentsRequest, call: Call) -> cluster.FindFragmentsResponse:
        with naming_leader(call):
            self._leading.require_term()
            found = await self._store.read(lambda tx: fragments.that_may_run(tx, request.uids))
        return cluster.FindFragmentsResponse(uids=found)

    async def keep_starts(self, request: cluster.KeepStartsRequest, call: Call) -> cluster.KeepStartsResponse:
        with naming_leader(call):
            term = self._leading.require_term()
            return await self._store.write(lambda tx: starts.keep_starts(tx, request), term)

    async def renew_session(self, request: cluster.RenewSessionRequest, call: Call) -> cluster.RenewSessionResponse:
        with naming_leader(call):
            term = self._leading.require_term()
            renewed = await self._renewals.renew(request.session_id, request.version, request.reports)
        return cluster.RenewSessionResponse(
            session_ttl=duration(round(renewed.ttl * 1_000_000)),
            term=term,
            renew_after=duration(round(renewed.renew_after * 1_000_000)),
        )
