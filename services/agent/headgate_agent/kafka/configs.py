"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from headgate.log import v1 as log
from headgate_agent.kafka import settings
from headgate_agent.kafka.catalog import TopicCatalog
from headgate_agent.kafka.codec import Values
from headgate_agent.kafka.config import KafkaConfig
from headgate_agent.kafka.errors import KafkaError, translate
from headgate_agent.kafka.request import Request
from headgate_agent.log.access import ClusterView

TOPIC, BROKER = 2, 4
SET, DELETE = 0, 1
# Where a value comes from.
_DYNAMIC_TOPIC, _STATIC_BROKER, _DEFAULT = 1, 4, 5
_BOOLEAN, _STRING, _INT, _LONG = 1, 2, 3, 5


class Configs:
    def __init__(self, agent: str, view: ClusterView, catalog: TopicCatalog, config: KafkaConfig) -> None:
        self._agent, self._view, self._catalog, self._config = agent, view, catalog, config

    async def describe_configs(self, request: Request) -> Values:
        documented = request.get("include_documentation", False)
        synonyms = request.get("include_synonyms", False)
        results: list[dict[str, Any]] = []
        for resource in request.body.resources:
            entry = {"resource_type": resource.resource_type, "resource_name": resource.resource_name}
            try:
                wanted = resource.configuration_keys
                found = [one for one in self._describe(resource) if wanted is None or one["name"] in wanted]
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

    def _describe(self, resource: Any) -> list[dict[str, Any]]:
        if resource.resource_type == TOPIC:
            return _topic_entries(self._topic(resource.resource_name))
        if resource.resource_type == BROKER:
            me = self._view.peer(self._agent)
            if me is None or resource.resource_name != str(me.node_id):
                raise KafkaError(ErrorCode.invalid_request, "an agent describes itself only")
            return _broker_entries(self._config)
        raise KafkaError(ErrorCode.invalid_request, f"there are no settings of type {resource.resource_type}")

    async def incremental_alter_configs(self, request: Request) -> Values:
        return await self._alter(request, lambda resource: _changes(resource.configs))

    async def alter_configs(self, request: Request) -> Values:
        return await self._alter(request, lambda resource: _replacement(resource.configs))

    async def _alter(self, request: Request, changes: Callable[[Any], tuple[log.TopicSettings, list[str]]]) -> Values:
        responses: list[dict[str, Any]] = []
        for resource in request.body.resources:
            entry = {"resource_type": resource.resource_type, "resource_name": resource.resource_name}
            try:
                if resource.resource_type != TOPIC:
                    raise KafkaError(ErrorCode.invalid_request, "only settings of topics can be changed here")
                topic = self._topic(resource.resource_name)
                wanted, fields = changes(resource)
                if fields:
                    change = log.AlterTopicRequest(
                        name=topic.name, settings=wanted, fields=fields, validate_only=request.body.validate_only
                    )
                    await self._catalog.alter(change, self._config.limits.admin_timeout)
            except Exception as error:
                refused = translate(error)
                if refused.code is ErrorCode.unknown_server_error:
                    raise
                entry |= {"error_code": refused.code, "error_message": refused.message or None}
            responses.append(entry)
        return {"responses": responses}

    def _topic(self, name: str) -> log.Topic:
        topic = self._view.topic(name)
        if topic is None:
            raise KafkaError(ErrorCode.unknown_topic_or_partition, f"there is no topic {name!r}")
        if topic.internal:
            raise KafkaError(ErrorCode.topic_authorization_failed, "the topic belongs to a query")
        return topic


def _changes(configs: Sequence[Any]) -> tuple[log.TopicSettings, list[str]]:
    """What IncrementalAlterConfigs asks for: what is not named stays."""
    given: list[tuple[str, str | None]] = []
    fields: list[str] = []
    for config in configs:
        if config.config_operation not in (SET, DELETE):
            raise KafkaError(ErrorCode.invalid_config, f"{config.name}: only SET and DELETE are supported")
        field = settings.field_of(config.name)
        if field in fields:
            raise KafkaError(ErrorCode.invalid_request, f"{config.name} is named twice")
        given.append((config.name, config.value if config.config_operation == SET else None))
        if field is not None:
            fields.append(field)
    wanted, _ = settings.read(given)
    return wanted, fields


def _replacement(configs: Sequence[Any]) -> tuple[log.TopicSettings, list[str]]:
    """What AlterConfigs asks for: what is not named goes to its default."""
    # Tools send back what they were told, fixed ones included: those are checked against nothing here but their name.
    changeable = [
        (config.name, config.value)
        for config in configs
        if not (config.name in settings.SETTINGS and settings.SETTINGS[config.name].fixed)
    ]
    wanted, _ = settings.read(changeable)
    return wanted, [setting.field for setting in settings.SETTINGS.values() if not setting.fixed]


def _topic_entries(topic: log.Topic) -> list[dict[str, Any]]:
    entries = [
        _entry(
            setting.name,
            setting.show(topic.settings),
            setting.kafka_type,
            setting.documentation,
            read_only=setting.fixed,
            source=_DYNAMIC_TOPIC,
        )
        for setting in settings.SETTINGS.values()
    ]
    entries += [
        _entry(fixed.name, fixed.value, _STRING, fixed.documentation, read_only=True, source=_DEFAULT)
        for fixed in settings.FIXED.values()
    ]
    return sorted(entries, key=lambda entry: str(entry["name"]))


def _broker_entries(config: KafkaConfig) -> list[dict[str, Any]]:
    def milliseconds(seconds: float) -> str:
        return str(round(seconds * 1000))

    values = (
        ("advertised.listeners", f"PLAINTEXT://{config.advertise or config.listen}", _STRING),
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
    return [_entry(name, value, kind, "", read_only=True, source=_STATIC_BROKER) for name, value, kind in values]


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
