"""Clients: they do what the plan says, try again as a client should, and write down what they were told.

Also watchers, which follow the catalog, lose their connection, resume, and must in the end have seen exactly its
history.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from headgate.catalog import v1 as catalog
from headgate.catalog.v1 import (
    agent_service_pb2,
    query_service_pb2,
    sink_service_pb2,
    source_service_pb2,
    statement_service_pb2,
    watch_service_pb2,
)
from headgate.log import v1 as log
from headgate.log.v1 import topic_service_pb2
from headgate_common.dispatch import Method, methods
from headgate_common.errors import HeadgateError
from headgate_simulation.calls import CAUSE
from headgate_simulation.history import LATER, PERHAPS
from headgate_simulation.invariants import Told
from headgate_simulation.loop import Domain
from headgate_simulation.plan import Operation
from headgate_simulation.streams import stream
from headgate_simulation.violation import fail

if TYPE_CHECKING:
    from headgate_simulation.world import World

METHODS: dict[type[Message], Method] = {
    method.request: method
    for module in (
        agent_service_pb2,
        query_service_pb2,
        sink_service_pb2,
        source_service_pb2,
        statement_service_pb2,
        topic_service_pb2,
        watch_service_pb2,
    )
    for service in module.DESCRIPTOR.services_by_name.values()
    for method in methods(service).values()
}
SCHEMA = catalog.Schema(fields=[catalog.Field(name="id", type="INT64"), catalog.Field(name="amount", type="FLOAT64")])
MODES = {"": catalog.STOP_MODE_UNSPECIFIED, "SOFT": catalog.STOP_MODE_SOFT, "HARD": catalog.STOP_MODE_HARD}


def request_for(kind: str, arguments: Mapping[str, Any]) -> Any:
    """The request of one operation, without its request_id."""
    name = arguments.get("name", "")
    match kind:
        case "create_logical_source":
            return catalog.CreateLogicalSourceRequest(name=name, schema=SCHEMA)
        case "create_physical_source":
            return catalog.CreatePhysicalSourceRequest(
                name=name,
                logical_source=arguments["logical_source"],
                agent=arguments["agent"],
                type=catalog.SOURCE_TYPE_GENERATOR,
            )
        case "create_sink":
            if not arguments["agent"]:
                options = {"topic": f"of_{name}"}
                return catalog.CreateSinkRequest(
                    name=name, schema=SCHEMA, type=catalog.SINK_TYPE_TOPIC, options=options
                )
            return catalog.CreateSinkRequest(
                name=name, schema=SCHEMA, agent=arguments["agent"], type=catalog.SINK_TYPE_PRINT
            )
        case "create_query":
            request = catalog.CreateQueryRequest(name=name, statement=arguments["statement"])
            if arguments.get("deadline"):
                request.deployment_deadline.CopyFrom(_duration(arguments["deadline"]))
            return request
        case "drop_query" | "stop_query":
            kind_of = catalog.DropQueryRequest if kind == "drop_query" else catalog.StopQueryRequest
            asked: Any = kind_of(name=name, mode=MODES[arguments.get("mode") or ""])
            if arguments.get("drain"):
                asked.drain_deadline.CopyFrom(_duration(arguments["drain"]))
            if arguments.get("allow_missing"):
                asked.allow_missing = True
            return asked
        case "drop_sink":
            return catalog.DropSinkRequest(name=name)
        case "drop_logical_source":
            return catalog.DropLogicalSourceRequest(name=name)
        case "drop_physical_source":
            return catalog.DropPhysicalSourceRequest(name=name)
        case "drop_agent":
            return catalog.DropAgentRequest(name=name, force=bool(arguments.get("force")))
        case "declare_topic":
            return log.CreateTopicRequest(name=name, partitions=1)
        case "drop_topic":
            return log.DropTopicRequest(name=name)
        case "create_link" | "create_network_link":
            return catalog.CreateNetworkLinkRequest(from_agent=arguments["from_agent"], to_agent=arguments["to_agent"])
        case "drop_link":
            return catalog.DropNetworkLinkRequest(from_agent=arguments["from_agent"], to_agent=arguments["to_agent"])
        case "get_query":
            return catalog.GetQueryRequest(name=name)
        case "list_queries":
            return catalog.ListQueriesRequest()
        case "snapshot":
            return catalog.GetSnapshotRequest()
    raise ValueError(kind)


def _duration(seconds: Any) -> Duration:
    duration = Duration()
    duration.FromNanoseconds(round(float(seconds) * 1e9))
    return duration


class Client:
    """One client process. It knows every coordinator and asks the one that last answered."""

    def __init__(self, world: World, number: int) -> None:
        self.name = f"client-{number}"
        self.domain = Domain(self.name)
        self._world = world
        self._transport = world.network.transport(self.name, self.domain)
        self._coordinators = world.coordinator_addresses()
        self._preferred = number % len(self._coordinators)

    async def perform(self, operation: Operation) -> None:
        """Does one operation of the plan, and tells the history."""
        if operation.kind in ("join", "leave"):
            await self._world.cluster_operation(operation)
            return
        CAUSE.set(operation.id)
        asked = self._world.history.began(operation)
        request = self._request(operation)
        source = stream(self._world.plan.seed, f"client/{operation.id}")
        self._world.trace.note(self.name, operation.kind, operation.id, str(operation.get("name", "")))
        error: HeadgateError | None = None
        for attempt in range(operation.attempts):
            if attempt:
                await asyncio.sleep(source.uniform(0.05, min(3.0, 0.3 * 2**attempt)))
            try:
                response = await self._call(request, operation.timeout)
            except HeadgateError as told:
                error = told
                reason = told.reason.name
                if reason in PERHAPS:
                    asked.perhaps = True
                early = operation.kind == "setup" and reason == "AGENT_NOT_FOUND"
                if reason in PERHAPS or reason in LATER or early:
                    self._turn_to(told.metadata.get("leader", ""))
                    continue
                self._told(operation, str(told))
                self._world.history.ended(asked, None, told)
                return
            self._told(operation, "OK")
            self._world.history.ended(asked, response, None)
            return
        self._told(operation, f"gives up after {error.reason.name if error else 'nothing'}")
        self._world.history.ended(asked, None, None if asked.perhaps else error)

    def _told(self, operation: Operation, outcome: str) -> None:
        self._world.trace.note(self.name, "answered", operation.id, str(operation.get("name", "")), detail=outcome)

    def _request(self, operation: Operation) -> Any:
        request: Any
        if operation.kind in ("bundle", "setup"):
            request = catalog.ApplyBundleRequest()
            items: Any = operation["items"]
            for kind, arguments in items:
                item = request_for(kind, dict(arguments))
                getattr(request.items.add(), kind).CopyFrom(item)
        elif operation.kind == "create_agent":
            spec = self._world.spec(str(operation["name"]))
            request = catalog.CreateAgentRequest(
                name=spec.name,
                address=spec.address,
                slots=spec.slots,
                zone=spec.zone,
                without_engine=not spec.engine,
                peers=spec.peers,
                roles=[catalog.AGENT_ROLE_FRAGMENTS, *([catalog.AGENT_ROLE_LOG] if spec.log else [])],
            )
        else:
            request = request_for(operation.kind, dict(operation.arguments))
        if operation.with_request_id and "request_id" in request.DESCRIPTOR.fields_by_name:
            request.request_id = f"{self._world.plan.seed}-{operation.id}"
        return request

    async def _call(self, request: Any, timeout: float) -> Any:
        address = self._coordinators[self._preferred]
        return await self._transport.call(address, METHODS[type(request)], request, timeout=timeout)

    def _turn_to(self, leader: str) -> None:
        if leader in self._coordinators:
            self._preferred = self._coordinators.index(leader)
        else:
            self._preferred = (self._preferred + 1) % len(self._coordinators)


class Watcher:
    """Follows everything. Resumes where it was after every loss; keeps what it saw, revision by revision."""

    def __init__(self, world: World, number: int) -> None:
        self.name = f"client-watcher-{number}"
        self.domain = Domain(self.name)
        self._world = world
        self._transport = world.network.transport(self.name, self.domain)
        self._coordinators = world.coordinator_addresses()
        self._source = stream(world.plan.seed, f"watcher/{number}")
        self._turn = number
        # The last revision that it has seen; 0 before the first snapshot.
        self.position = 0
        self.events = 0
        # Serialised resources by kind and uid, as snapshot and events tell.
        self.resources: dict[tuple[str, str], bytes] = {}
        self._parts: dict[tuple[str, str], bytes] = {}
        self.resumed = 0

    async def follow(self) -> None:
        while True:
            address = self._coordinators[self._turn % len(self._coordinators)]
            request = catalog.WatchRequest(from_revision=self.position)
            lasts = self._source.choice((2.0, 6.0, 60.0))
            try:
                messages = self._transport.stream(address, METHODS[catalog.WatchRequest], request, timeout=lasts)
                async with aclosing(messages) as responses:
                    async for response in responses:
                        self._take(response)
            except HeadgateError as error:
                if error.reason.name == "INTERNAL":
                    fail("no defects", f"{self.name}: {error}")
                if error.reason.name in ("REVISION_COMPACTED", "REVISION_IN_FUTURE"):
                    fail("watches resume", f"{self.name} at {self.position}: {error}")
            self._turn += 1
            self.resumed += 1
            await asyncio.sleep(self._source.uniform(0.01, 1.0))

    def _take(self, response: Any) -> None:
        which = response.WhichOneof("message")
        revision = getattr(response, which).revision
        if revision > self._world.checker.revision:
            fail(
                "watched after the commit",
                f"{self.name} saw {revision}, the catalog is at {self._world.checker.revision}",
            )
        if which == "snapshot":
            for resource in response.snapshot.resources:
                self._put(self._parts, resource)
            if response.snapshot.complete:
                if self.position:
                    fail("watches resume", f"{self.name} resumed after {self.position} and got a snapshot")
                self.resources, self._parts = self._parts, {}
                self.position = revision
        elif which == "events":
            if revision <= self.position:
                fail("watches are ordered", f"{self.name} saw {revision} after {self.position}")
            if revision != self.position + 1:
                fail("watches are complete", f"{self.name} saw {revision} right after {self.position}")
            self.position = revision
            self.events += 1
            self._check_content(revision, response.events.events)
            for event in response.events.events:
                if event.operation == catalog.WATCH_OPERATION_DROP:
                    self.resources.pop(_key(event.previous))
                else:
                    self._put(self.resources, event.current)
        elif revision > self.position:
            # It watches everything, so each revision has an event for it.
            fail("watches are complete", f"{self.name} got a bookmark of {revision} right after {self.position}")

    def _check_content(self, revision: int, events: Any) -> None:
        """Each event tells of one change what was committed: how it was before, and how it has been since."""
        told = [_change(event) for event in events]
        committed = self._world.checker.told[revision]
        if told != committed:
            wrong = next((each for each in zip(told, committed, strict=False) if each[0] != each[1]), (told, committed))
            fail(
                "watches tell what was committed",
                f"of revision {revision} {self.name} was told {wrong[0]}, and {wrong[1]} was committed",
            )

    def _put(self, into: dict[tuple[str, str], bytes], resource: Any) -> None:
        kind, uid = _key(resource)
        into[kind, uid] = getattr(resource, kind).SerializeToString(deterministic=True)


def _change(event: Any) -> Told:
    """What an event says, as the checker keeps changes."""
    drop, create = catalog.WATCH_OPERATION_DROP, catalog.WATCH_OPERATION_CREATE
    kind = (event.previous if event.operation == drop else event.current).WhichOneof("resource")
    before = after = None
    if event.operation != create or event.HasField("previous"):
        before = getattr(event.previous, kind).SerializeToString(deterministic=True)
    if event.operation != drop or event.HasField("current"):
        after = getattr(event.current, kind).SerializeToString(deterministic=True)
    return kind, before, after


def _key(resource: Any) -> tuple[str, str]:
    kind = resource.WhichOneof("resource")
    message = getattr(resource, kind)
    return kind, f"{message.topic_uid}/{message.index}" if kind == "partition" else message.uid
