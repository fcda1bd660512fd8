"""CreateTopics, DeleteTopics, CreatePartitions and InitProducerId: passed on to the coordinator, one at a time."""

from __future__ import annotations

from collections import Counter
from typing import Any

from kio.schema.errors import ErrorCode

from headgate.log import v1 as log
from headgate_agent.kafka import settings
from headgate_agent.kafka.catalog import TopicCatalog
from headgate_agent.kafka.codec import Values
from headgate_agent.kafka.config import KafkaConfig
from headgate_agent.kafka.errors import KafkaError, translate
from headgate_agent.kafka.request import Request
from headgate_agent.kafka.topics import TopicNames, topic_id, valid_name

_DEFAULT = -1
_CONFIG_SOURCE_TOPIC = 1


class Admin:
    def __init__(self, topics: TopicNames, catalog: TopicCatalog, config: KafkaConfig) -> None:
        self._topics, self._catalog, self._config = topics, catalog, config

    async def create_topics(self, request: Request) -> Values:
        within = request.within(self._config.limits.admin_timeout)
        names = Counter(topic.name for topic in request.body.topics)
        results: list[dict[str, Any]] = []
        for topic in request.body.topics:
            try:
                if names[topic.name] > 1:
                    raise KafkaError(ErrorCode.invalid_request, "the request names this topic more than once")
                made = await self.create(_creation(topic, self._config, request.body.validate_only), within)
            except Exception as error:
                results.append({"name": topic.name, **_failed(error)})
                continue
            results.append(
                {
                    "name": made.name,
                    "topic_id": topic_id(made.uid),
                    "num_partitions": made.partitions,
                    "replication_factor": 1,
                    "configs": _created_configs(made),
                }
            )
        return {"topics": results}

    async def create(self, request: log.CreateTopicRequest, within: float) -> log.Topic:
        if not valid_name(request.name):
            raise KafkaError(
                ErrorCode.invalid_topic_exception, "1 to 249 of letters, digits, '.', '_' and '-' are allowed"
            )
        return await self._catalog.create(request, within)

    async def delete_topics(self, request: Request) -> Values:
        within = request.within(self._config.limits.admin_timeout)
        wanted: list[tuple[str | None, Any]] = [(name, None) for name in request.get("topic_names", ())]
        wanted += [(topic.name, topic.topic_id) for topic in request.get("topics", ())]
        responses: list[dict[str, Any]] = []
        for name, identity in wanted:
            by_id = name is None
            topic = self._topics.find(identity if name is None else name)
            entry: dict[str, Any] = {"name": name, "topic_id": identity}
            try:
                if topic is None:
                    raise KafkaError(ErrorCode.unknown_topic_id if by_id else ErrorCode.unknown_topic_or_partition)
                entry = {"name": topic.name, "topic_id": topic_id(topic.uid)}
                if topic.internal:
                    raise KafkaError(ErrorCode.topic_authorization_failed, "the topic belongs to a query")
                await self._catalog.drop(topic.name, topic.uid, within)
            except Exception as error:
                entry |= _failed(error)
            responses.append(entry)
        return {"responses": responses}

    async def create_partitions(self, request: Request) -> Values:
        results: list[dict[str, Any]] = []
        for topic in request.body.topics:
            found = self._topics.find(topic.name)
            error = (
                KafkaError(ErrorCode.unknown_topic_or_partition, f"there is no topic {topic.name!r}")
                if found is None
                else KafkaError(
                    ErrorCode.invalid_partitions,
                    f"the number of partitions is immutable: {topic.name!r} has {found.partitions}; create another "
                    "topic with more",
                )
            )
            results.append({"name": topic.name, **_failed(error)})
        return {"results": results}

    async def init_producer_id(self, request: Request) -> Values:
        if request.body.transactional_id is not None:
            raise KafkaError(ErrorCode.transactional_id_authorization_failed, "transactions are not supported")
        producer_id = await self._catalog.producer_id(self._config.limits.admin_timeout)
        return {"producer_id": producer_id, "producer_epoch": 0}


def _creation(topic: Any, config: KafkaConfig, validate_only: bool) -> log.CreateTopicRequest:
    if topic.assignments:
        raise KafkaError(ErrorCode.invalid_replica_assignment, "agents choose their partitions themselves")
    if topic.replication_factor not in (_DEFAULT, 1):
        raise KafkaError(
            ErrorCode.invalid_replication_factor,
            "the object store keeps the copies: a replication factor is 1, or -1 for the default",
        )
    count = config.auto_create_partitions if topic.num_partitions == _DEFAULT else topic.num_partitions
    if count < 1:
        raise KafkaError(ErrorCode.invalid_partitions, "a topic has at least one partition")
    wanted, _ = settings.read((one.name, one.value) for one in topic.configs)
    return log.CreateTopicRequest(name=topic.name, partitions=count, settings=wanted, validate_only=validate_only)


def _created_configs(topic: log.Topic) -> list[dict[str, Any]]:
    return [
        {
            "name": setting.name,
            "value": setting.show(topic.settings),
            "read_only": setting.fixed,
            "config_source": _CONFIG_SOURCE_TOPIC,
        }
        for setting in settings.SETTINGS.values()
    ]


def _failed(error: Exception) -> dict[str, Any]:
    refused = translate(error)
    if refused.code is ErrorCode.unknown_server_error:
        raise error
    return {"error_code": refused.code, "error_message": refused.message or None}
