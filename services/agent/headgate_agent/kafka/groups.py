"""FindCoordinator, and everything that members and operators of consumer groups ask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from headgate.log import v1 as log
from headgate_agent.groups.events import (
    Beat,
    Beaten,
    GroupRefused,
    GroupState,
    Join,
    Joined,
    Leave,
    Left,
    Refusal,
    Sync,
    Synced,
)
from headgate_agent.groups.groups import Groups, GroupView
from headgate_agent.groups.machine import Member
from headgate_agent.kafka.codec import Values, milliseconds
from headgate_agent.kafka.config import GroupLimits
from headgate_agent.kafka.errors import translate
from headgate_agent.kafka.request import Request
from headgate_agent.kafka.topics import TopicNames
from headgate_agent.kafka.turns import Turns
from headgate_common.ids import Ids
from headgate_common.tls import split_address

_GROUP_KEY = 0
_NEEDS_ID_FROM = 4
_SKIPS_ASSIGNMENT_FROM = 9
_MANY_LEAVE_FROM = 3
_MANY_GROUPS_FROM = 8
_SAYS_NOT_FOUND_FROM = 6
_CLASSIC = "classic"
# To look at a group takes about as long as so many other items.
_GROUP_ITEMS = 20


def code_of(refusal: Refusal | None) -> ErrorCode:
    return ErrorCode.none if refusal is None else translate(GroupRefused(refusal)).code


class GroupApi:
    def __init__(self, groups: Groups, topics: TopicNames, limits: GroupLimits, ids: Ids) -> None:
        self._groups, self._topics, self._limits, self._ids = groups, topics, limits, ids

    async def find_coordinator(self, request: Request) -> Values:
        single = request.get("key", None)
        keys: Sequence[str] = request.get("coordinator_keys", ()) if single is None else (single,)
        found: list[dict[str, Any]] = []
        turns = request.turns()
        for key in keys:
            await turns.pass_on()
            found.append(self._coordinator(key, request.get("key_type", _GROUP_KEY)))
        return {"coordinators": found, **(found[0] if single is not None else {})}

    def _coordinator(self, key: str, key_type: int) -> dict[str, Any]:
        answer: dict[str, Any] = {"key": key, "node_id": -1, "host": "", "port": -1}
        if key_type != _GROUP_KEY:
            code, why = ErrorCode.transactional_id_authorization_failed, "transactions are not supported"
            return {**answer, "error_code": code, "error_message": why}
        owner = self._groups.owner(key)
        if owner is None:
            return {**answer, "error_code": ErrorCode.coordinator_not_available, "error_message": "no agent is there"}
        host, port = split_address(owner.kafka_address)
        return {**answer, "node_id": owner.node_id, "host": host, "port": port, "error_message": None}

    async def join_group(self, request: Request) -> Values:
        body = request.body
        led = await self._groups.led(body.group_id)
        client_id = request.header.client_id or ""
        instance_id = request.get("group_instance_id", None)
        session = milliseconds(body.session_timeout) / 1000
        rebalance = request.get("rebalance_timeout", None)
        join = Join(
            led.next_request(),
            body.member_id,
            instance_id,
            client_id,
            f"/{request.host}",
            session,
            session if rebalance is None else milliseconds(rebalance) / 1000,
            body.protocol_type,
            tuple((protocol.name, bytes(protocol.metadata)) for protocol in body.protocols),
            new_id=self._ids.uid(instance_id or client_id or "member"),
            needs_id=request.version >= _NEEDS_ID_FROM,
            skips_assignment=request.version >= _SKIPS_ASSIGNMENT_FROM,
        )
        answer = await led.ask(join, Joined)
        return {
            "error_code": code_of(answer.refusal),
            "generation_id": answer.generation,
            "protocol_type": answer.protocol_type,
            # Null only where the schema allows it.
            "protocol_name": answer.protocol if answer.protocol or request.version >= 7 else "",
            "leader": answer.leader,
            "skip_assignment": answer.skip_assignment,
            "member_id": answer.member_id,
            "members": [
                {"member_id": member, "group_instance_id": instance, "metadata": metadata}
                for member, instance, metadata in answer.members
            ],
        }

    async def sync_group(self, request: Request) -> Values:
        body = request.body
        led = await self._groups.known(body.group_id)
        sync = Sync(
            led.next_request(),
            body.member_id,
            request.get("group_instance_id", None),
            body.generation_id,
            request.get("protocol_type", None),
            request.get("protocol_name", None),
            {one.member_id: bytes(one.assignment) for one in body.assignments},
        )
        answer = await led.ask(sync, Synced)
        return {
            "error_code": code_of(answer.refusal),
            "protocol_type": answer.protocol_type,
            "protocol_name": answer.protocol,
            "assignment": answer.assignment,
        }

    async def heartbeat(self, request: Request) -> Values:
        body = request.body
        led = await self._groups.known(body.group_id)
        beat = Beat(led.next_request(), body.member_id, request.get("group_instance_id", None), body.generation_id)
        answer = await led.ask(beat, Beaten)
        return {"error_code": code_of(answer.refusal)}

    async def leave_group(self, request: Request) -> Values:
        led = await self._groups.known(request.body.group_id)
        if request.version >= _MANY_LEAVE_FROM:
            members = [(one.member_id, one.group_instance_id) for one in request.body.members]
        else:
            members = [(request.body.member_id, None)]
        answer = await led.ask(Leave(led.next_request(), members), Left)
        single = answer.refusals[0] if request.version < _MANY_LEAVE_FROM else None
        return {
            "error_code": code_of(single),
            "members": [
                {"member_id": member, "group_instance_id": instance, "error_code": code_of(refusal)}
                for (member, instance), refusal in zip(members, answer.refusals, strict=True)
            ],
        }

    async def offset_commit(self, request: Request) -> Values:
        body = request.body
        offsets: list[log.GroupOffset] = []
        answers: list[dict[str, Any]] = []
        entries: dict[tuple[str, int], dict[str, Any]] = {}
        turns = request.turns()
        for topic in body.topics:
            await turns.pass_on()
            partitions: list[dict[str, Any]] = []
            for one in topic.partitions:
                await turns.pass_on()
                code = self._check_offset(topic.name, one)
                entry: dict[str, Any] = {"partition_index": one.partition_index, "error_code": code}
                partitions.append(entry)
                if code is ErrorCode.none:
                    entries[topic.name, one.partition_index] = entry
                    offsets.append(
                        log.GroupOffset(
                            topic=topic.name,
                            partition=one.partition_index,
                            offset=one.committed_offset,
                            leader_epoch=getattr(one, "committed_leader_epoch", -1),
                            metadata=one.committed_metadata or "",
                        )
                    )
            answers.append({"name": topic.name, "partitions": partitions})
        generation = body.generation_id_or_member_epoch
        unknown = await self._groups.commit(
            body.group_id, body.member_id, request.get("group_instance_id", None), generation, offsets
        )
        for key in unknown:
            entries[key]["error_code"] = ErrorCode.unknown_topic_or_partition
        return {"topics": answers}

    def _check_offset(self, topic: str, one: Any) -> ErrorCode:
        if self._topics.partition(topic, one.partition_index) is None:
            return ErrorCode.unknown_topic_or_partition
        if len((one.committed_metadata or "").encode()) > self._limits.metadata_bytes:
            return ErrorCode.offset_metadata_too_large
        return ErrorCode.none if one.committed_offset >= 0 else ErrorCode.offset_out_of_range

    async def offset_fetch(self, request: Request) -> Values:
        if request.version < _MANY_GROUPS_FROM:
            return await self._offsets(request.body.group_id, request.body.topics, request.turns())
        turns = request.turns()
        return {"groups": [await self._offsets(one.group_id, one.topics, turns) for one in request.body.groups]}

    async def _offsets(self, group: str, topics: Any, turns: Turns) -> dict[str, Any]:
        answer: dict[str, Any] = {"group_id": group, "topics": []}
        try:
            stored = {(one.topic, one.partition): one for one in await self._groups.read_offsets(group)}
            code = ErrorCode.none
        except GroupRefused as refused:
            stored, code = {}, translate(refused).code
        answer["error_code"] = code
        wanted: dict[str, list[int]] = {}
        if topics is None:
            for topic, partition in sorted(stored):
                wanted.setdefault(topic, []).append(partition)
        else:
            for one in topics:
                wanted.setdefault(one.name, []).extend(one.partition_indexes)
        for topic, indexes in wanted.items():
            partitions: list[dict[str, Any]] = []
            for index in indexes:
                await turns.pass_on()
                partitions.append(_offset(stored.get((topic, index)), index, code))
            answer["topics"].append({"name": topic, "partitions": partitions})
        return answer

    async def describe_groups(self, request: Request) -> Values:
        turns = request.turns()
        groups: list[dict[str, Any]] = []
        for group in request.body.groups:
            await turns.pass_on(_GROUP_ITEMS)
            groups.append(await self._described(group, request.version))
        return {"groups": groups}

    async def _described(self, group: str, version: int) -> dict[str, Any]:
        try:
            view = await self._groups.describe(group)
        except GroupRefused as refused:
            error = translate(refused)
            return {"group_id": group, "error_code": error.code, "error_message": error.message}
        if view is None:
            missing = ErrorCode.group_id_not_found if version >= _SAYS_NOT_FOUND_FROM else ErrorCode.none
            return {"group_id": group, "group_state": GroupState.DEAD.value, "error_code": missing}
        return {
            "group_id": group,
            "group_state": view.state.value,
            "protocol_type": view.protocol_type,
            "protocol_data": view.protocol,
            "members": [_member(member, view) for member in view.members],
        }

    async def list_groups(self, request: Request) -> Values:
        states = {one.lower() for one in request.get("states_filter", ())}
        types = {one.lower() for one in request.get("types_filter", ())}
        if types and _CLASSIC not in types:
            return {"groups": []}
        return {
            "groups": [
                {
                    "group_id": view.name,
                    "protocol_type": view.protocol_type,
                    "group_state": view.state.value,
                    "group_type": _CLASSIC,
                }
                for view in await self._groups.list()
                if not states or view.state.value.lower() in states
            ]
        }

    async def delete_groups(self, request: Request) -> Values:
        results: list[dict[str, Any]] = []
        turns = request.turns()
        for group in request.body.groups_names:
            await turns.pass_on(_GROUP_ITEMS)
            code = ErrorCode.none
            try:
                await self._groups.delete(group)
            except GroupRefused as refused:
                code = translate(refused).code
            results.append({"group_id": group, "error_code": code})
        return {"results": results}


def _offset(stored: log.GroupOffset | None, index: int, code: ErrorCode) -> dict[str, Any]:
    return {
        "partition_index": index,
        "committed_offset": -1 if stored is None else stored.offset,
        "committed_leader_epoch": -1 if stored is None else stored.leader_epoch,
        "metadata": "" if stored is None else stored.metadata,
        "error_code": code,
    }


def _member(member: Member, view: GroupView) -> dict[str, Any]:
    return {
        "member_id": member.id,
        "group_instance_id": member.instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "member_metadata": member.metadata(view.protocol),
        "member_assignment": member.assignment,
    }
