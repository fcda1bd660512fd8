"""Calls of the coordinator to its agents: each carries the term and names the process it is for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar, cast

from google.protobuf.message import Message

from headgate.catalog import v1 as catalog
from headgate.cluster import v1 as cluster
from headgate.cluster.v1 import fragment_service_pb2
from headgate_common.dispatch import Transport, methods
from headgate_common.errors import HeadgateError
from headgate_coordinator.errors import NOT_LEADER

R = TypeVar("R", bound=Message)

_METHODS = methods(fragment_service_pb2.DESCRIPTOR.services_by_name["FragmentService"])


@dataclass(slots=True)
class _Gate:
    """Commands in flight to one agent, and those that wait."""

    semaphore: asyncio.Semaphore
    users: int = 0


@dataclass(slots=True)
class AgentClient:
    """The agents' fragment service, for one term.

    Contract: as `Transport.call`; in particular UNREACHABLE and DEADLINE_EXCEEDED leave open whether the call happened.
    At most `commands_per_agent` commands are in flight to one agent; status questions do not wait for them.
    """

    transport: Transport
    term: int
    command_timeout: float
    commands_per_agent: int
    # Whether the term may still be acted on: looked at right before each call.
    may_act: Callable[[], bool] = lambda: True
    # Told when an agent says that it obeys a higher term.
    surpassed: Callable[[int], None] = lambda term: None
    _gates: dict[str, _Gate] = field(default_factory=dict)

    async def register(self, address: str, incarnation: str, request: cluster.RegisterFragmentRequest) -> None:
        sent = cluster.RegisterFragmentRequest()
        sent.CopyFrom(request)
        sent.command.CopyFrom(self._command(incarnation))
        await self._send(address, "RegisterFragment", sent)

    async def start(self, address: str, incarnation: str, uid: str, epoch: int) -> None:
        request = cluster.StartFragmentRequest(command=self._command(incarnation), fragment=_ref(uid, epoch))
        await self._send(address, "StartFragment", request)

    async def drain(self, address: str, incarnation: str, uid: str, epoch: int) -> None:
        request = cluster.StopFragmentRequest(
            command=self._command(incarnation), fragment=_ref(uid, epoch), mode=catalog.STOP_MODE_SOFT
        )
        await self._send(address, "StopFragment", request)

    async def unregister(self, address: str, incarnation: str, uid: str, epoch: int, *, for_good: bool) -> None:
        """`for_good` if the fragment will run nowhere any more, so that nothing of it need be kept."""
        request = cluster.UnregisterFragmentRequest(
            command=self._command(incarnation), fragment=_ref(uid, epoch), for_good=for_good
        )
        await self._send(address, "UnregisterFragment", request)

    async def status(self, address: str, incarnation: str, since: int, *, timeout: float) -> cluster.GetStatusResponse:
        self._require_term()
        request = cluster.GetStatusRequest(command=self._command(incarnation), since=since)
        answer = await self._call(address, "GetStatus", request, timeout)
        return cast(cluster.GetStatusResponse, answer)

    def _command(self, incarnation: str) -> cluster.Command:
        return cluster.Command(term=self.term, incarnation=incarnation)

    async def _send(self, address: str, method: str, request: Message) -> None:
        async with self._turn(address):
            self._require_term()
            await self._call(address, method, request, self.command_timeout)

    async def _call(self, address: str, method: str, request: Message, timeout: float) -> Message:
        try:
            return await self.transport.call(address, _METHODS[method], request, timeout=timeout)
        except HeadgateError as error:
            obeyed = error.metadata.get("term", "")
            if error.reason.name == "STALE_TERM" and obeyed.isdecimal():
                self.surpassed(int(obeyed))
            raise

    def _require_term(self) -> None:
        if not self.may_act():
            raise HeadgateError(NOT_LEADER, f"term {self.term} is over, so nothing is sent on its behalf")

    @asynccontextmanager
    async def _turn(self, address: str) -> AsyncIterator[None]:
        gate = self._gates.setdefault(address, _Gate(asyncio.Semaphore(self.commands_per_agent)))
        gate.users += 1
        try:
            async with gate.semaphore:
                yield
        finally:
            gate.users -= 1
            if not gate.users:
                self._gates.pop(address, None)


def _ref(uid: str, epoch: int) -> cluster.FragmentRef:
    return cluster.FragmentRef(uid=uid, epoch=epoch)
