"""The agent's side of membership: registers with the leading coordinator, renews its session, leaves.

Any coordinator may be asked: a standby names the leader. A coordinator that was restarted is found again by the next
renewal; a session that has ended is opened anew by registering. An agent that was dropped stops everything it has; if
it is still shut out then, this process can never come back, and `run` ends with AGENT_DROPPED.

A refusal that trying again cannot change (a name or label that is not allowed, a protocol that the coordinator does not
speak) ends `run` too. Not so once the process was a member: a coordinator that is being replaced by another version
must not end what runs here. But a coordinator with another catalog than the agent's data is of ends it at any time
(CATALOG_MISMATCH): what that one does not know would be let go here.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, cast

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from grpc import StatusCode

from headgate.catalog import v1 as catalog
from headgate.cluster import v1 as cluster
from headgate.cluster.v1 import membership_service_pb2
from headgate_agent.coordinators import Coordinators
from headgate_agent.fragments.registry import FragmentRegistry
from headgate_common.backoff import Backoff
from headgate_common.clock import Clock
from headgate_common.dispatch import Transport, methods
from headgate_common.errors import HeadgateError
from headgate_common.signals import Signal

log = logging.getLogger(__name__)

PROTOCOL_VERSION = 1
# Shortest time between renewals, in seconds.
NEWS_GAP = 0.1
_METHODS = methods(membership_service_pb2.DESCRIPTOR.services_by_name["MembershipService"])


@dataclass(frozen=True, slots=True)
class Identity:
    """What the agent says of itself."""

    name: str
    address: str
    incarnation: str
    slots: int
    zone: str = ""
    group: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    roles: tuple[str, ...] = ()
    volume_id: str = ""
    has_engine: bool = False
    # Where Kafka clients reach it; empty if it serves none.
    kafka_address: str = ""
    peers: tuple[str, ...] = ()


class Mark(Protocol):
    """Which catalog the agent's data is of; `uid` is empty while it is of none."""

    uid: str

    def keep(self, uid: str) -> None:
        """It is of this one from now on, whatever happens to the process."""
        ...


@dataclass(slots=True)
class Unmarked:
    """For an agent that keeps nothing."""

    uid: str = ""

    def keep(self, uid: str) -> None:
        self.uid = uid


class Member:
    def __init__(
        self,
        identity: Identity,
        registry: FragmentRegistry,
        *,
        transport: Transport,
        coordinators: Sequence[str],
        clock: Clock,
        source: random.Random,
        timeout: float,
        backoff: Backoff,
        mark: Mark | None = None,
    ) -> None:
        """`coordinators` are addresses, tried in turn; `timeout` is for one call, in seconds."""
        self._identity = identity
        self._registry = registry
        # Shared with whatever else of this process asks the coordinator.
        self.coordinators = Coordinators(transport, coordinators, timeout=timeout)
        self._clock = clock
        self._source = source
        self._backoff = backoff
        self._session = ""
        self._valid_until = 0.0
        self._was_member = False
        # The process whose place this one takes, as far as it was told.
        self._replaces = ""
        self._mark = mark or Unmarked()
        self._joined = asyncio.Event()
        self._news = Signal()
        # Why it is not a member now; empty if it is.
        self.trouble = "it has not registered yet"

    @property
    def session(self) -> str | None:
        """The session while it is certainly alive, counted from before the last renewal was sent; else None."""
        return self._session if self._session and self._clock.monotonic() < self._valid_until else None

    @property
    def known(self) -> str:
        """The session, also while nobody here can be certain of it; empty once it is known to have ended."""
        return self._session

    @property
    def valid_until(self) -> float:
        """When the session can no longer be relied upon, on the monotonic clock, unless it is renewed before."""
        return self._valid_until

    async def joined(self) -> str:
        """Waits for the first registration; answers which catalog it was with, which the data is of from then on.
        Empty if the coordinator does not say."""
        await self._joined.wait()
        return self._mark.uid

    async def news(self, seconds: float) -> bool:
        """Returns when a session has begun or ended from now on, or is certain again after a time in which it was not,
        and True; False after so many seconds. That nobody can be certain of it any more is for whoever waits to see:
        that comes with `valid_until`."""
        return await self._news.wait(seconds)

    def _tell(self) -> None:
        told, self._news = self._news, Signal()
        told.set()

    async def run(self) -> None:
        """Stays a member until it is cancelled, or raises AGENT_DROPPED, or the reason why it is refused for good."""
        while True:
            ttl = await self._register()
            await self._renew_until_lost(ttl)

    async def leave(self) -> None:
        """Says goodbye, as well as it can: silence says the same, later."""
        request = cluster.LeaveClusterRequest(name=self._identity.name, incarnation=self._identity.incarnation)
        try:
            await self._call("LeaveCluster", request)
        except HeadgateError as error:
            log.info("left without a word", extra={"error": str(error)})

    async def _register(self) -> float:
        """Tries until it is registered; the session's TTL is the answer."""
        attempt, told_to_stop = 0, False
        while True:
            started = self._clock.monotonic()
            try:
                answer = cast(cluster.RegisterAgentResponse, await self._call("RegisterAgent", self._request()))
            except HeadgateError as error:
                self.trouble = str(error)
                predecessor = error.metadata.get("incarnation", "")
                if error.reason.name == "REPLACES_MISMATCH" and predecessor != self._replaces:
                    self._replaces = predecessor
                    continue
                if error.reason.name == "AGENT_DROPPED":
                    if told_to_stop:
                        raise
                    log.warning("dropped: everything here is stopped", extra={"error": str(error)})
                    await self._registry.forget_everything()
                    told_to_stop = True
                    continue
                if error.reason.name == "CATALOG_MISMATCH" or (not self._was_member and _for_good(error)):
                    raise HeadgateError(
                        error.reason,
                        f"the coordinator refuses agent {self._identity.name} for good: {error.message}",
                        metadata=error.metadata,
                        details=error.details,
                    ) from error
                log.warning("not registered", extra={"error": str(error)})
                await asyncio.sleep(self._backoff.delay(attempt, self._source))
                attempt += 1
                continue
            if answer.catalog_uid:
                self._mark.keep(answer.catalog_uid)
                self.coordinators.catalog_uid = answer.catalog_uid
            ttl = _seconds(answer.session_ttl)
            self._session, self._valid_until = answer.session_id, started + ttl * 0.9
            self.trouble, self._was_member = "", True
            self._tell()
            self._joined.set()
            self._registry.tell_again()
            await self._registry.saw_term(answer.term)
            log.info(
                "registered",
                extra={"agent": self._identity.name, "term": answer.term, "coordinator": self.coordinators.leader},
            )
            return ttl

    async def _renew_until_lost(self, ttl: float) -> None:
        """Renews until the session has ended."""
        attempt, pause = 0, ttl / 3
        while True:
            if attempt == 0:
                await self._until_due(pause)
            else:
                # Soon: while it is not renewed, whatever depends on it waits.
                await asyncio.sleep(min(ttl / 12, self._backoff.delay(attempt - 1, self._source)))
            started = self._clock.monotonic()
            self._registry.changed.clear()
            reports = self._registry.reports()
            try:
                request = cluster.RenewSessionRequest(
                    session_id=self._session, version=self._registry.version, reports=reports
                )
                answer = cast(cluster.RenewSessionResponse, await self._call("RenewSession", request))
            except HeadgateError as error:
                if error.reason.name == "SESSION_EXPIRED":
                    self.trouble, self._session = str(error), ""
                    self._tell()
                    return
                if self.session is None:
                    self.trouble = f"its session could not be renewed: {error}"
                attempt += 1
                continue
            attempt = 0
            if answer.term == self._registry.term:
                self._registry.told(reports)
            else:
                self._registry.tell_again()
            ttl = _seconds(answer.session_ttl)
            pause = min(_seconds(answer.renew_after), ttl / 2) if answer.HasField("renew_after") else ttl / 3
            in_doubt = self.session is None
            self._valid_until = started + ttl * 0.9
            self.trouble = ""
            if in_doubt:
                self._tell()
            await self._registry.saw_term(answer.term)

    async def _until_due(self, pause: float) -> None:
        """Until the next renewal: earlier than planned if there is news, but not all the time."""
        await asyncio.sleep(min(pause, NEWS_GAP))
        await self._registry.changed.wait(max(0.0, pause - NEWS_GAP))

    async def _call(self, method: str, request: Message) -> Message:
        return cast(Message, await self.coordinators.call(_METHODS[method], request))

    def _request(self) -> cluster.RegisterAgentRequest:
        identity = self._identity
        return cluster.RegisterAgentRequest(
            name=identity.name,
            address=identity.address,
            incarnation=identity.incarnation,
            protocol_version=PROTOCOL_VERSION,
            slots=identity.slots,
            zone=identity.zone,
            group=identity.group,
            labels=identity.labels,
            roles=[catalog.AgentRole.Value(f"AGENT_ROLE_{role.upper()}") for role in identity.roles],
            volume_id=identity.volume_id,
            has_engine=identity.has_engine,
            kafka_address=identity.kafka_address,
            peers=identity.peers,
            fragments=self._registry.fragments,
            catalog_uid=self._mark.uid,
            replaces=self._replaces,
        )


def _for_good(error: HeadgateError) -> bool:
    """Whether another attempt of the same process can only be refused again."""
    return error.reason.code is StatusCode.INVALID_ARGUMENT or error.reason.name == "PROTOCOL_VERSION_UNSUPPORTED"


def _seconds(duration: Duration) -> float:
    return duration.ToNanoseconds() / 1e9
