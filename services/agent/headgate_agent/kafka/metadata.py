"""ApiVersions, Metadata and DescribeCluster: what there is, and who has it."""

from __future__ import annotations

import uuid
from typing import Any

from kio.schema.errors import ErrorCode

from headgate.log import v1 as log
from headgate_agent.kafka.admin import Admin
from headgate_agent.kafka.apis import APIS
from headgate_agent.kafka.brokers import NO_NODE, Brokers
from headgate_agent.kafka.catalog import TopicCatalog
from headgate_agent.kafka.codec import Values
from headgate_agent.kafka.config import KafkaConfig
from headgate_agent.kafka.errors import translate
from headgate_agent.kafka.request import Request
from headgate_agent.kafka.topics import TopicNames, topic_id, valid_name
from headgate_agent.log.access import ClusterView, Peer
from headgate_agent.log.contract import PartitionKey
from headgate_common.tls import split_address


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
        admin: Admin,
        catalog: TopicCatalog,
        config: KafkaConfig,
    ) -> None:
        self._agent, self._view, self._brokers, self._topics = agent, view, brokers, topics
        self._admin, self._catalog, self._config = admin, catalog, config

    async def api_versions(self, request: Request) -> Values:
        return api_versions()

    async def metadata(self, request: Request) -> Values:
        wanted = request.body.topics
        everything = wanted is None or (request.version == 0 and not wanted)
        if everything:
            found = [self._topic(topic) for topic in self._view.topics() if not topic.internal]
        else:
            creates = self._config.auto_create and request.get("allow_auto_topic_creation", True)
            found = [await self._asked(one, creates) for one in wanted]
        controller = await self._controller()
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
        return await self._brokers.controller(self._agent, self._config.limits.metadata_wait)

    async def _asked(self, wanted: Any, creates: bool) -> dict[str, Any]:
        name = wanted.name
        if name is None:
            return self._by_id(wanted.topic_id)
        if not valid_name(name):
            return {"error_code": ErrorCode.invalid_topic_exception, "name": name}
        topic = self._view.topic(name)
        if topic is None:
            certain = await self._catalog.catch_up(name)
            topic = self._view.topic(name)
            if topic is None and not certain:
                # To say that it is not there would make clients give up on it.
                return {"error_code": ErrorCode.leader_not_available, "name": name}
        if topic is None and creates:
            return await self._created(name)
        if topic is None:
            return {"error_code": ErrorCode.unknown_topic_or_partition, "name": name}
        return self._topic(topic)

    def _by_id(self, identity: uuid.UUID | None) -> dict[str, Any]:
        topic = self._topics.find(identity) if identity is not None else None
        if topic is None:
            return {"error_code": ErrorCode.unknown_topic_id, "name": None, "topic_id": identity}
        return self._topic(topic)

    async def _created(self, name: str) -> dict[str, Any]:
        request = log.CreateTopicRequest(name=name, partitions=self._config.auto_create_partitions)
        try:
            await self._admin.create(request, self._config.limits.auto_create_timeout)
        except Exception as error:
            refused = translate(error)
            if refused.code is not ErrorCode.topic_already_exists:
                return {"error_code": refused.code, "name": name}
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


def _address(peer: Peer) -> dict[str, Any]:
    host, port = split_address(peer.kafka_address)
    return {"host": host, "port": port, "rack": peer.zone or None}
