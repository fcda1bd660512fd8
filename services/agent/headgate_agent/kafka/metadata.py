"""ApiVersions, Metadata and DescribeCluster: what there is, and who has it."""

from __future__ import annotations

import uuid
from collections.abc import Container, Iterable
from typing import Any

from kio.schema.errors import ErrorCode

from headgate.log import v1 as log
from headgate_agent.kafka.admin import Admin
from headgate_agent.kafka.apis import APIS
from headgate_agent.kafka.brokers import NO_NODE, Brokers
from headgate_agent.kafka.codec import Values
from headgate_agent.kafka.config import KafkaConfig
from headgate_agent.kafka.connection import GiveUp
from headgate_agent.kafka.errors import KafkaError, translate
from headgate_agent.kafka.lookup import Lookup
from headgate_agent.kafka.request import Deadline, Request
from headgate_agent.kafka.topics import TopicNames, topic_id, valid_name
from headgate_agent.log.access import ClusterView, Peer
from headgate_agent.log.contract import PartitionKey
from headgate_common.tls import split_address

# Before, topics are asked for by their names only, though the schemas of 10 and 11 have ids.
_WITH_IDS = 12


def api_versions(error_code: ErrorCode = ErrorCode.none) -> Values:
    keys = [
        {
            "api_key": api.key,
            "min_version": api.first if api.announced_first is None else api.announced_first,
            "max_version": api.last,
        }
        for api in APIS.values()
    ]
    return {"error_code": error_code, "api_keys": keys}


class Metadata:
    def __init__(
        self,
        agent: str,
        view: ClusterView,
        brokers: Brokers,
        topics: TopicNames,
        lookup: Lookup,
        admin: Admin,
        config: KafkaConfig,
    ) -> None:
        self._agent, self._view, self._brokers, self._topics = agent, view, brokers, topics
        self._lookup, self._admin, self._config = lookup, admin, config

    async def api_versions(self, request: Request) -> Values:
        return api_versions()

    async def metadata(self, request: Request) -> Values:
        wanted = request.body.topics
        everything = wanted is None or (request.version == 0 and not wanted)
        turns = request.turns()
        # First, because it may wait: the topics are then those that are known with whoever is there.
        controller = await self._controller()
        found: list[dict[str, Any]] = []
        if everything:
            for topic in tuple(self._view.topics()):
                if not topic.internal:
                    await turns.pass_on(topic.partitions)
                    found.append(self._topic(topic))
        else:
            if request.version < _WITH_IDS:
                _check_named(wanted)
            creates = self._config.auto_create and request.get("allow_auto_topic_creation", True)
            deadline = Deadline.after(self._config.limits.auto_create_timeout) if creates else None
            doubtful = await self._lookup.doubtful(one.name for one in wanted if one.name is not None)
            # Each once, however often it is named, as Kafka does: an answer is many times as long as a name.
            for one in dict.fromkeys(wanted):
                found.append(entry := await self._asked(one, doubtful, deadline))
                await turns.pass_on(1 + len(entry.get("partitions", ())))
        return {
            "brokers": [{"node_id": peer.node_id, **_address(peer)} for peer in self._brokers.listed()],
            "cluster_id": self._config.cluster_id,
            "controller_id": controller,
            "topics": found,
        }

    async def describe_cluster(self, request: Request) -> Values:
        if request.get("endpoint_type", 1) != 1:
            return {"error_code": ErrorCode.unsupported_endpoint_type, "error_message": "there are only brokers"}
        controller = await self._controller()
        return {
            "cluster_id": self._config.cluster_id,
            "controller_id": controller,
            "brokers": [{"broker_id": peer.node_id, **_address(peer)} for peer in self._brokers.listed()],
        }

    async def _controller(self) -> int:
        """GiveUp where no broker is known: to be told of none would cost clients all that they know (`brokers.py`), so
        they are sent to ask another agent, or again."""
        controller = await self._brokers.controller(self._agent, self._config.limits.metadata_wait)
        if controller == NO_NODE:
            raise GiveUp("no broker is known yet")
        return controller

    async def _asked(self, wanted: Any, doubtful: Container[str], creating: Deadline | None) -> dict[str, Any]:
        name = wanted.name
        if name is None:
            return self._by_id(wanted.topic_id)
        topic = self._view.topic(name)
        if topic is not None:
            return self._topic(topic)
        if not valid_name(name):
            return {"error_code": ErrorCode.invalid_topic_exception, "name": name}
        if name in doubtful:
            # To say that it is not there would make clients give up on it.
            return {"error_code": ErrorCode.leader_not_available, "name": name}
        if creating is not None:
            return await self._created(name, creating)
        return {"error_code": ErrorCode.unknown_topic_or_partition, "name": name}

    def _by_id(self, identity: uuid.UUID | None) -> dict[str, Any]:
        topic = self._topics.find(identity) if identity is not None else None
        if topic is None:
            return {"error_code": ErrorCode.unknown_topic_id, "name": None, "topic_id": identity}
        return self._topic(topic)

    async def _created(self, name: str, deadline: Deadline) -> dict[str, Any]:
        request = log.CreateTopicRequest(name=name, partitions=self._config.auto_create_partitions)
        try:
            await self._admin.create(request, deadline)
        except Exception as error:
            code = translate(error).code
            if code is ErrorCode.request_timed_out:
                # Which clients do not expect here.
                code = ErrorCode.leader_not_available
            if code is not ErrorCode.topic_already_exists:
                return {"error_code": code, "name": name}
        # Its partitions get their leaders in a moment: the client asks again.
        topic = self._view.topic(name)
        return {"error_code": ErrorCode.leader_not_available, "name": name} if topic is None else self._topic(topic)

    def _topic(self, topic: log.Topic) -> dict[str, Any]:
        return {
            "name": topic.name,
            "topic_id": topic_id(topic.uid),
            "is_internal": topic.internal,
            "partitions": [self._partition(topic, index) for index in range(topic.partitions)],
        }

    def _partition(self, topic: log.Topic, index: int) -> dict[str, Any]:
        leadership = self._view.leadership(PartitionKey(topic.uid, index))
        leader = self._view.peer(leadership.leader) if leadership.leader else None
        if leader is None or not leader.present:
            return {
                "error_code": ErrorCode.leader_not_available,
                "partition_index": index,
                "leader_id": NO_NODE,
                "leader_epoch": leadership.epoch,
            }
        node = leader.node_id
        return {
            "partition_index": index,
            "leader_id": node,
            "leader_epoch": leadership.epoch,
            "replica_nodes": [node],
            "isr_nodes": [node],
        }


def _check_named(wanted: Iterable[Any]) -> None:
    for one in wanted:
        if one.name is None or getattr(one, "topic_id", None) is not None:
            raise KafkaError(ErrorCode.invalid_request, f"topics are asked for by id from version {_WITH_IDS} on")


def _address(peer: Peer) -> dict[str, Any]:
    host, port = split_address(peer.kafka_address)
    return {"host": host, "port": port, "rack": peer.zone or None}
