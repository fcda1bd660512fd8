"""What members of consumer groups reach: the production requests of groups, with JSON in the place of Kafka's bytes.

Everything behind the decoding of a request is production's `GroupApi`, on the agent's own groups.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, wrappers_pb2
from kio.schema.errors import ErrorCode

from headgate_agent.groups.events import GroupRefused
from headgate_agent.groups.groups import Groups
from headgate_agent.kafka.codec import Values
from headgate_agent.kafka.config import GroupLimits
from headgate_agent.kafka.errors import translate
from headgate_agent.kafka.groups import GroupApi
from headgate_agent.kafka.request import Request
from headgate_agent.kafka.topics import TopicNames
from headgate_agent.log.access import ClusterView
from headgate_common.dispatch import Call, Method, methods
from headgate_common.ids import Ids

# Of JoinGroup: one in which a member without an id is given one and joins again with it.
_VERSION = 7
_METHODS = ("JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "OffsetCommit", "OffsetFetch")


def _descriptor() -> Any:
    file = descriptor_pb2.FileDescriptorProto(
        name="headgate/simulation/group_port.proto",
        package="headgate.simulation",
        syntax="proto3",
        dependency=["google/protobuf/wrappers.proto"],
    )
    service = file.service.add(name="GroupPort")
    for name in _METHODS:
        text = ".google.protobuf.StringValue"
        service.method.add(name=name, input_type=text, output_type=text)
    pool = descriptor_pool.Default()
    pool.AddSerializedFile(file.SerializeToString())
    return pool.FindServiceByName("headgate.simulation.GroupPort")


DESCRIPTOR = _descriptor()
METHODS: dict[str, Method] = methods(DESCRIPTOR)
# Told of every answer, before it is sent: the method, what was asked and what is answered.
Told = Callable[[str, Any, Values], None]


def message(body: dict[str, Any]) -> wrappers_pb2.StringValue:
    return wrappers_pb2.StringValue(value=json.dumps(body))


class GroupPort:
    descriptor = DESCRIPTOR

    def __init__(self, groups: Groups, view: ClusterView, ids: Ids, told: Told) -> None:
        self._api = GroupApi(groups, TopicNames(view), GroupLimits(), ids)
        self._told = told

    async def join_group(self, request: wrappers_pb2.StringValue, call: Call) -> wrappers_pb2.StringValue:
        return await self._handle("JoinGroup", self._api.join_group, request)

    async def sync_group(self, request: wrappers_pb2.StringValue, call: Call) -> wrappers_pb2.StringValue:
        return await self._handle("SyncGroup", self._api.sync_group, request)

    async def heartbeat(self, request: wrappers_pb2.StringValue, call: Call) -> wrappers_pb2.StringValue:
        return await self._handle("Heartbeat", self._api.heartbeat, request)

    async def leave_group(self, request: wrappers_pb2.StringValue, call: Call) -> wrappers_pb2.StringValue:
        return await self._handle("LeaveGroup", self._api.leave_group, request)

    async def offset_commit(self, request: wrappers_pb2.StringValue, call: Call) -> wrappers_pb2.StringValue:
        return await self._handle("OffsetCommit", self._api.offset_commit, request)

    async def offset_fetch(self, request: wrappers_pb2.StringValue, call: Call) -> wrappers_pb2.StringValue:
        return await self._handle("OffsetFetch", self._api.offset_fetch, request)

    async def _handle(
        self, name: str, handler: Callable[[Request], Awaitable[Values]], request: wrappers_pb2.StringValue
    ) -> wrappers_pb2.StringValue:
        body = json.loads(request.value, object_hook=lambda fields: SimpleNamespace(**fields))
        for duration in ("session_timeout", "rebalance_timeout"):
            if hasattr(body, duration):
                setattr(body, duration, timedelta(seconds=getattr(body, duration)))
        for each in (*getattr(body, "protocols", ()), *getattr(body, "assignments", ())):
            vars(each).update({key: value.encode() for key, value in vars(each).items() if key in _BYTES})
        header: Any = SimpleNamespace(client_id="simulated", version=_VERSION)
        answer: dict[str, Any]
        try:
            answer = dict(await handler(Request(header, body, "simulated")))
        except GroupRefused as refused:
            answer = {"error_code": translate(refused).code}
        self._told(name, body, answer)
        return wrappers_pb2.StringValue(value=json.dumps(answer, default=_plain))


_BYTES = ("metadata", "assignment")


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    raise TypeError(type(value))


def error_of(answer: dict[str, Any]) -> str:
    """The name of the error in an answer, `none` without."""
    return str(ErrorCode(answer.get("error_code", 0)).name)
