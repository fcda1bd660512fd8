"""CreateTopics, DeleteTopics, CreatePartitions and InitProducerId: passed on to the coordinator, one at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from typing import Any

from kio.schema.errors import ErrorCode

from headgate.log import v1 as log
from headgate_agent.kafka import settings
from headgate_agent.kafka.catalog import TopicCatalog
from headgate_agent.kafka.codec import Values
from headgate_agent.kafka.config import KafkaConfig
from headgate_agent.kafka.errors import KafkaError, translate
from headgate_agent.kafka.lookup import Lookup
from headgate_agent.kafka.request import Deadline, Request
from headgate_agent.kafka.topics import TopicNames, topic_id, valid_name
from headgate_agent.log.access import ClusterView

_DEFAULT = -1
_PASSING = (ErrorCode.request_timed_out, ErrorCode.throttling_quota_exceeded)


class Admin:
    def __init__(
        self,
        agent: str,
        view: ClusterView,
        topics: TopicNames,
        lookup: Lookup,
        catalog: TopicCatalog,
        config: KafkaConfig,
    ) -> None:
        self._agent, self._view, self._lookup = agent, view, lookup
        self._topics, self._catalog, self._config = topics, catalog, config

    async def create_topics(self, request: Request) -> Values:
        deadline = request.deadline(self._config.limits)
        names = Counter(topic.name for topic in request.body.topics)
        results: list[dict[str, Any]] = []
        turns = request.turns()
        for topic in request.body.topics:
            await turns.pass_on()
            try:
                if names[topic.name] > 1:
                    raise KafkaError(ErrorCode.invalid_request, "the request names this topic more than once")
                made = await self.create(_creation(topic, self._config, request.body.validate_only), deadline)
            except Exception as error:
                results.append({"name": topic.name, **_failed(error)})
                continue
            results.append(
                {
                    "name": made.name,
                    "topic_id": topic_id(made.uid),
                    "num_partitions": made.partitions,
                    "replication_factor": 1,
                    "configs": _created_configs(made, {one.name for one in topic.configs}),
                }
            )
        return {"topics": results}

    async def create(self, request: log.CreateTopicRequest, deadline: Deadline) -> log.Topic:
        """In the group of this agent, unless the request names one: where no log agent is, nobody would lead it."""
        if not valid_name(request.name):
            raise KafkaError(
                ErrorCode.invalid_topic_exception, "1 to 249 of letters, digits, '.', '_' and '-' are allowed"
            )
        me = await self._catalog.peer(self._agent, deadline.left())
        if me is None:
            raise KafkaError(
                ErrorCode.request_timed_out,
                "this agent has not heard from the coordinator which group it is of; ask again",
            )
        if request.group:
            self._check_group(request.group)
        request.group = request.group or me.group
        return await self._catalog.create(request, deadline.left())

    def _check_group(self, name: str) -> None:
        known = {peer.group for peer in self._view.peers()}
        if name not in known:
            raise KafkaError(
                ErrorCode.invalid_config,
                f"{settings.GROUP} = {name!r}: no agent with the role log is of that group, so nobody would lead the "
                f"topic; there are {', '.join(sorted(known))}",
            )

    async def delete_topics(self, request: Request) -> Values:
        deadline = request.deadline(self._config.limits)
        wanted: list[tuple[str | None, Any]] = [(name, None) for name in request.get("topic_names", ())]
        wanted += [(topic.name, topic.topic_id) for topic in request.get("topics", ())]
        doubtful = await self._lookup.doubtful(name for name, _ in wanted if name is not None)
        responses: list[dict[str, Any]] = []
        turns = request.turns()
        for name, identity in wanted:
            await turns.pass_on()
            topic = self._topics.find(identity if name is None else name)
            entry: dict[str, Any] = {"name": name, "topic_id": identity}
            try:
                if topic is None:
                    raise KafkaError(ErrorCode.unknown_topic_id) if name is None else missing(name, doubtful)
                entry = {"name": topic.name, "topic_id": topic_id(topic.uid)}
                if topic.internal:
                    raise KafkaError(ErrorCode.topic_authorization_failed, "the topic belongs to a query")
                await self._catalog.drop(topic.name, topic.uid, deadline.left())
            except Exception as error:
                entry |= _failed(error)
            responses.append(entry)
        return {"responses": responses}

    async def create_partitions(self, request: Request) -> Values:
        doubtful = await self._lookup.doubtful(topic.name for topic in request.body.topics)
        results: list[dict[str, Any]] = []
        turns = request.turns()
        for topic in request.body.topics:
            await turns.pass_on()
            found = self._topics.find(topic.name)
            error = (
                missing(topic.name, doubtful)
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
        try:
            producer_id = await self._catalog.producer_id(self._config.limits.admin_timeout)
        except Exception as error:
            refused = translate(error)
            if refused.code not in _PASSING:
                raise
            # Older Java producers take any other code for the end of them, those that pass too (KAFKA-14417).
            raise KafkaError(ErrorCode.coordinator_load_in_progress, refused.message) from error
        return {"producer_id": producer_id, "producer_epoch": 0}


def missing(name: str, doubtful: Container[str]) -> KafkaError:
    """What is said of a topic that this agent does not know."""
    if name in doubtful:
        return KafkaError(
            ErrorCode.request_timed_out, f"nobody can say now whether there is a topic {name!r}; ask again"
        )
    return KafkaError(ErrorCode.unknown_topic_or_partition, f"there is no topic {name!r}")


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
    wanted = settings.read((one.name, one.value) for one in topic.configs)
    wanted.name, wanted.partitions, wanted.validate_only = topic.name, count, validate_only
    return wanted


def _created_configs(topic: log.Topic, named: Container[str]) -> list[dict[str, Any]]:
    return [
        {
            "name": setting.name,
            "value": setting.show(topic),
            "read_only": setting.fixed,
            "config_source": settings.OF_TOPIC if setting.name in named else settings.BY_DEFAULT,
        }
        for setting in settings.SETTINGS.values()
    ]


def _failed(error: Exception) -> dict[str, Any]:
    refused = translate(error)
    if refused.code is ErrorCode.unknown_server_error:
        raise error
    return {"error_code": refused.code, "error_message": refused.message or None}
