"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from headgate.log import v1 as log
from headgate_agent.kafka import settings
from headgate_agent.kafka.admin import missing
from headgate_agent.kafka.catalog import TopicCatalog
from headgate_agent.kafka.codec import Values
from headgate_agent.kafka.config import KafkaConfig
from headgate_agent.kafka.errors import KafkaError, translate
from headgate_agent.kafka.lookup import Lookup
from headgate_agent.kafka.request import Deadline, Request
from headgate_agent.log.access import ClusterView

TOPIC, BROKER = 2, 4
SET, DELETE = 0, 1
# The name of what stands for all brokers.
_EVERY_BROKER = ""
_BOOLEAN, _STRING, _INT, _LONG = 1, 2, 3, 5


class Configs:
    def __init__(
        self, agent: str, view: ClusterView, lookup: Lookup, catalog: TopicCatalog, config: KafkaConfig, *, tls: bool
    ) -> None:
        """`tls` says whether clients use it."""
        self._agent, self._view, self._lookup = agent, view, lookup
        self._catalog, self._config, self._tls = catalog, config, tls

    async def describe_configs(self, request: Request) -> Values:
        documented = request.get("include_documentation", False)
        synonyms = request.get("include_synonyms", False)
        doubtful = await self._lookup.doubtful(_topics(request))
        results: list[dict[str, Any]] = []
        turns = request.turns()
        # Each once, however often it is named: an answer is many times as long as a name.
        for resource in {(one.resource_type, one.resource_name): one for one in request.body.resources}.values():
            await turns.pass_on(len(settings.SETTINGS))
            entry = {"resource_type": resource.resource_type, "resource_name": resource.resource_name}
            try:
                wanted = resource.configuration_keys
                described = await self._describe(resource, doubtful)
                found = [one for one in described if wanted is None or one["name"] in wanted]
            except KafkaError as error:
                results.append({**entry, "error_code": error.code, "error_message": error.message or None})
                continue
            for one in found:
                if not documented:
                    one["documentation"] = None
                if synonyms:
                    one["synonyms"] = [{"name": one["name"], "value": one["value"], "source": one["config_source"]}]
            results.append({**entry, "configs": found})
        return {"results": results}

    async def _describe(self, resource: Any, doubtful: Container[str]) -> list[dict[str, Any]]:
        me = self._view.peer(self._agent)
        if resource.resource_type == TOPIC:
            topic = self._topic(resource.resource_name, doubtful)
            usual = await self._catalog.defaults(topic.name, settings.CHANGEABLE)
            return _topic_entries(topic, usual, me.group if me is not None else "")
        if resource.resource_type == BROKER:
            if resource.resource_name == _EVERY_BROKER:
                # What was set for all of them while they run: there is no such setting.
                return []
            if me is None or resource.resource_name != str(me.node_id):
                raise KafkaError(ErrorCode.invalid_request, "an agent describes itself only")
            return _broker_entries(self._config, f"{'SSL' if self._tls else 'PLAINTEXT'}://{me.kafka_address}")
        raise KafkaError(ErrorCode.invalid_request, f"there are no settings of type {resource.resource_type}")

    async def incremental_alter_configs(self, request: Request) -> Values:
        return await self._alter(request, lambda resource, topic: _changes(resource.configs))

    async def alter_configs(self, request: Request) -> Values:
        return await self._alter(request, lambda resource, topic: _replacement(resource.configs, topic))

    async def _alter(
        self, request: Request, changes: Callable[[Any, log.Topic], tuple[log.TopicSettings, list[str]]]
    ) -> Values:
        doubtful = await self._lookup.doubtful(_topics(request))
        deadline = Deadline.after(self._config.limits.admin_timeout)
        responses: list[dict[str, Any]] = []
        turns = request.turns()
        for resource in request.body.resources:
            await turns.pass_on()
            entry = {"resource_type": resource.resource_type, "resource_name": resource.resource_name}
            try:
                if resource.resource_type != TOPIC:
                    raise KafkaError(ErrorCode.invalid_request, "only settings of topics can be changed here")
                topic = self._topic(resource.resource_name, doubtful)
                wanted, fields = changes(resource, topic)
                if fields:
                    change = log.AlterTopicRequest(
                        name=topic.name, settings=wanted, fields=fields, validate_only=request.body.validate_only
                    )
                    await self._catalog.alter(change, deadline.left())
            except Exception as error:
                refused = translate(error)
                if refused.code is ErrorCode.unknown_server_error:
                    raise
                entry |= {"error_code": refused.code, "error_message": refused.message or None}
            responses.append(entry)
        return {"responses": responses}

    def _topic(self, name: str, doubtful: Container[str]) -> log.Topic:
        topic = self._view.topic(name)
        if topic is None:
            raise missing(name, doubtful)
        if topic.internal:
            raise KafkaError(ErrorCode.topic_authorization_failed, "the topic belongs to a query")
        return topic


def _topics(request: Request) -> Iterator[str]:
    """The names of the topics that a request is about."""
    return (one.resource_name for one in request.body.resources if one.resource_type == TOPIC)


def _value(config: Any) -> str:
    if config.value is None:
        raise KafkaError(ErrorCode.invalid_request, f"{config.name} has no value")
    return str(config.value)


def _changes(configs: Sequence[Any]) -> tuple[log.TopicSettings, list[str]]:
    """What IncrementalAlterConfigs asks for: what is not named stays."""
    given: list[tuple[str, str]] = []
    fields: list[str] = []
    for config in configs:
        if config.config_operation not in (SET, DELETE):
            raise KafkaError(ErrorCode.invalid_config, f"{config.name}: only SET and DELETE are supported")
        field = settings.field_of(config.name)
        if field in fields:
            raise KafkaError(ErrorCode.invalid_request, f"{config.name} is named twice")
        if config.config_operation == SET:
            given.append((config.name, _value(config)))
        if field is not None:
            fields.append(field)
    return settings.read(given).settings, fields


def _replacement(configs: Sequence[Any], topic: log.Topic) -> tuple[log.TopicSettings, list[str]]:
    """What AlterConfigs asks for: what is not named goes to its default."""
    changeable: list[tuple[str, str]] = []
    for config in configs:
        if config.name in settings.SETTINGS and settings.SETTINGS[config.name].fixed:
            # Tools send back what they were told, fixed ones included.
            settings.check_kept(topic, config.name, _value(config))
        else:
            changeable.append((config.name, _value(config)))
    return settings.read(changeable).settings, list(settings.CHANGEABLE)


def _topic_entries(topic: log.Topic, usual: log.TopicSettings | None, group: str) -> list[dict[str, Any]]:
    """`usual` are the defaults of what may change, if anybody can say; a topic without a name of a group gets `group`.
    The catalog keeps values, not whether somebody chose them: one that is as the default would be is taken for it."""
    plain = log.Topic(group=group, settings=usual)
    plain.settings.durability = log.DURABILITY_OBJECT
    entries = [
        _entry(
            setting.name,
            setting.show(topic),
            setting.kafka_type,
            setting.documentation,
            read_only=setting.fixed,
            source=settings.BY_DEFAULT
            if (setting.fixed or usual is not None) and setting.show(topic) == setting.show(plain)
            else settings.OF_TOPIC,
        )
        for setting in settings.SETTINGS.values()
    ]
    entries += [
        _entry(fixed.name, fixed.value, _STRING, fixed.documentation, read_only=True, source=settings.BY_DEFAULT)
        for fixed in settings.FIXED.values()
    ]
    return sorted(entries, key=lambda entry: str(entry["name"]))


def _broker_entries(config: KafkaConfig, told: str) -> list[dict[str, Any]]:
    def milliseconds(seconds: float) -> str:
        return str(round(seconds * 1000))

    values = (
        ("advertised.listeners", told, _STRING),
        ("auto.create.topics.enable", str(config.auto_create).lower(), _BOOLEAN),
        ("num.partitions", str(config.auto_create_partitions), _INT),
        ("socket.request.max.bytes", str(config.limits.frame_bytes), _INT),
        ("connections.max.idle.ms", milliseconds(config.limits.idle), _LONG),
        ("group.min.session.timeout.ms", milliseconds(config.groups.session_timeout_min), _INT),
        ("group.max.session.timeout.ms", milliseconds(config.groups.session_timeout_max), _INT),
        ("group.max.size", str(config.groups.max_size), _INT),
        ("group.initial.rebalance.delay.ms", milliseconds(config.groups.initial_rebalance_delay), _INT),
        ("offset.metadata.max.bytes", str(config.groups.metadata_bytes), _INT),
    )
    return [_entry(name, value, kind, "", read_only=True, source=settings.OF_BROKER) for name, value, kind in values]


def _entry(
    name: str, value: str, kafka_type: int, documentation: str, *, read_only: bool, source: int
) -> dict[str, Any]:
    return {
        "name": name,
        "value": value,
        "read_only": read_only,
        "config_source": source,
        "config_type": kafka_type,
        "documentation": documentation,
    }
