"""From the frame of a request to the buffers of its answer. Wiring of the families, and the fate of what is not
understood: every request whose header can be read is answered, with the protocol's own error if need be."""

from __future__ import annotations

import logging
import struct
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from kio.schema.errors import ErrorCode
from prometheus_client import CollectorRegistry, Counter

from headgate_agent.groups.groups import Groups
from headgate_agent.kafka import apis
from headgate_agent.kafka.admin import Admin
from headgate_agent.kafka.apis import APIS
from headgate_agent.kafka.brokers import Brokers
from headgate_agent.kafka.catalog import TopicCatalog
from headgate_agent.kafka.codec import Header, Schema, Values, nearest_version, parts, schema
from headgate_agent.kafka.config import KafkaConfig
from headgate_agent.kafka.configs import Configs
from headgate_agent.kafka.connection import Answer, Client, GiveUp
from headgate_agent.kafka.errors import KafkaError, translate
from headgate_agent.kafka.fetch import Fetch
from headgate_agent.kafka.fetch_codec import FIRST_WITH_ERROR, FetchResult, read_fetch, write_fetch
from headgate_agent.kafka.groups import GroupApi
from headgate_agent.kafka.leader_hints import LeaderHints
from headgate_agent.kafka.lookup import Lookup
from headgate_agent.kafka.metadata import Metadata, api_versions
from headgate_agent.kafka.offsets import Offsets
from headgate_agent.kafka.outgoing import Reply
from headgate_agent.kafka.produce import NO_ACKS, Produce
from headgate_agent.kafka.produce_codec import ProduceResult, read_produce, write_produce
from headgate_agent.kafka.refusal import refuse
from headgate_agent.kafka.request import Request
from headgate_agent.kafka.topics import TopicNames
from headgate_agent.kafka.turns import is_long
from headgate_agent.kafka.walk import Items, Malformed, TooManyItems
from headgate_agent.log.access import LogAccess
from headgate_agent.log.answer_memory import AnswerMemory
from headgate_agent.work import Threads
from headgate_common.clock import Clock
from headgate_common.ids import Ids

log = logging.getLogger(__name__)

_ERROR = struct.Struct(">ih")
Family = Callable[[Request], Awaitable[Values]]


class KafkaService:
    """`connection.Handler` of the Kafka port."""

    def __init__(
        self,
        agent: str,
        access: LogAccess,
        groups: Groups,
        catalog: TopicCatalog,
        config: KafkaConfig,
        ids: Ids,
        clock: Clock,
        registry: CollectorRegistry | None = None,
        *,
        tls: bool = False,
    ) -> None:
        """`tls` says whether clients use it."""
        topics = TopicNames(access.view)
        self._lookup = Lookup(topics, catalog, clock, config.catalog)
        admin = Admin(agent, access.view, topics, self._lookup, catalog, config)
        brokers = Brokers(access.view, clock, config.departed_listed, config.catalog.look_interval)
        metadata = Metadata(agent, access.view, brokers, topics, self._lookup, admin, config)
        offsets = Offsets(access, topics, config.limits)
        self._members = members = GroupApi(groups, topics, config.groups, ids)
        configs = Configs(agent, access.view, self._lookup, catalog, config, tls=tls)
        hints = LeaderHints(agent, access.view)
        self._request_items, self._turn_items = config.limits.request_items, config.limits.turn_items
        self._writer = Threads(1, "kafka-answers")
        self._produce = Produce(access, topics, hints, config.limits)
        self._fetch = Fetch(access, topics, hints, config.limits)
        self.answers = AnswerMemory(config.limits.answer_bytes)
        self._families: Mapping[int, Family] = {
            apis.API_VERSIONS.key: metadata.api_versions,
            apis.METADATA.key: metadata.metadata,
            apis.DESCRIBE_CLUSTER.key: metadata.describe_cluster,
            apis.LIST_OFFSETS.key: offsets.list_offsets,
            apis.OFFSET_FOR_LEADER_EPOCH.key: offsets.offset_for_leader_epoch,
            apis.DELETE_RECORDS.key: offsets.delete_records,
            apis.FIND_COORDINATOR.key: members.find_coordinator,
            apis.JOIN_GROUP.key: members.join_group,
            apis.SYNC_GROUP.key: members.sync_group,
            apis.HEARTBEAT.key: members.heartbeat,
            apis.LEAVE_GROUP.key: members.leave_group,
            apis.OFFSET_COMMIT.key: self._offset_commit,
            apis.OFFSET_FETCH.key: members.offset_fetch,
            apis.DESCRIBE_GROUPS.key: members.describe_groups,
            apis.LIST_GROUPS.key: members.list_groups,
            apis.DELETE_GROUPS.key: members.delete_groups,
            apis.CREATE_TOPICS.key: admin.create_topics,
            apis.DELETE_TOPICS.key: admin.delete_topics,
            apis.CREATE_PARTITIONS.key: admin.create_partitions,
            apis.INIT_PRODUCER_ID.key: admin.init_producer_id,
            apis.DESCRIBE_CONFIGS.key: configs.describe_configs,
            apis.ALTER_CONFIGS.key: configs.alter_configs,
            apis.INCREMENTAL_ALTER_CONFIGS.key: configs.incremental_alter_configs,
        }
        self._requests = Counter(
            "headgate_kafka_requests", "Requests of Kafka clients.", ("api", "version"), registry=registry
        )

    async def __call__(self, frame: memoryview, header: Header, client: Client) -> Answer:
        api = APIS.get(header.api_key)
        if api is None or not api.first <= header.version <= api.last:
            return Reply([self._unsupported(frame, header)])
        self._requests.labels(api.name, header.version).inc()
        layout, items = schema(header.api_key, header.version), Items(self._request_items)
        if api is apis.PRODUCE:
            return await self._answer_produce(frame, header, layout, items, client)
        if api is apis.FETCH:
            return await self._answer_fetch(frame, header, layout, items)
        try:
            request = Request(header, layout.decode(frame, header, items), client.host, self._turn_items)
        except TooManyItems as error:
            if all(part.name != "error_code" for part in parts(layout.response_type)):
                raise
            self._log_too_many(header, error)
            refusal = refuse(layout.response_type, None, ErrorCode.invalid_request, str(error))
            return Reply([layout.encode_entity(header.correlation_id, refusal)])
        try:
            values = await self._families[header.api_key](request)
            long = is_long(values, self._turn_items)
            return await self._written(long, lambda: layout.encode(header.correlation_id, values))
        except GiveUp:
            raise
        except Exception as error:
            refused = self._refused(error, header)
            long = items.limit - items.left > self._turn_items
            return await self._written(
                long,
                lambda: layout.encode_entity(
                    header.correlation_id, refuse(layout.response_type, request.body, refused.code, refused.message)
                ),
            )

    async def _written(self, long: bool, write: Callable[[], bytes]) -> Reply:
        """An answer. A long one is written in a thread, which leaves the event loop its turns, one after the other."""
        if not long:
            return Reply([write()])
        return Reply([await self._writer.run(write)])

    def close(self) -> None:
        self._writer.close()

    async def _offset_commit(self, request: Request) -> Values:
        # To be told that its topic is not there ends a Java consumer.
        if await self._lookup.doubtful(topic.name for topic in request.body.topics):
            raise KafkaError(ErrorCode.coordinator_load_in_progress)
        return await self._members.offset_commit(request)

    async def _answer_produce(
        self, frame: memoryview, header: Header, layout: Schema, items: Items, client: Client
    ) -> Answer:
        request = read_produce(frame, layout.body(frame, header, items), header.version, items)
        try:
            results = await self._produce(request, client)
        except GiveUp:
            raise
        except Exception as error:
            refused = self._refused(error, header)
            if request.acks == NO_ACKS:
                raise GiveUp(str(refused)) from error
            results = [
                ProduceResult(part.topic, part.partition, refused.code, message=refused.message)
                for part in request.parts
            ]
        if request.acks == NO_ACKS:
            return None
        return Reply([write_produce(layout.head(header.correlation_id), header.version, results)])

    async def _answer_fetch(self, frame: memoryview, header: Header, layout: Schema, items: Items) -> Answer:
        head = layout.head(header.correlation_id)
        try:
            request = read_fetch(frame, layout.body(frame, header, items), header.version, items)
        except TooManyItems as error:
            if header.version < FIRST_WITH_ERROR:
                raise
            self._log_too_many(header, error)
            return Reply(write_fetch(head, header.version, (), ErrorCode.invalid_request))
        share = self.answers.share()
        try:
            return Reply(write_fetch(head, header.version, await self._fetch(request, share)), share)
        except Exception as error:
            share.release()
            refused = self._refused(error, header)
            if refused.code is ErrorCode.fetch_session_id_not_found:
                return Reply(write_fetch(head, header.version, (), refused.code))
            results = [FetchResult(item.topic, item.partition, refused.code) for item in request.items]
            return Reply(write_fetch(head, header.version, results))
        except BaseException:
            share.release()
            raise

    def _unsupported(self, frame: memoryview, header: Header) -> bytes:
        """What a client is told that asks for a request, or a version of one, which is not supported."""
        log.info(
            "kafka request not supported",
            extra={"api": header.api_key, "version": header.version, "client_id": header.client_id},
        )
        code = ErrorCode.unsupported_version
        if header.api_key == apis.API_VERSIONS.key:
            # The client then asks again, in a version that this answer names.
            return schema(apis.API_VERSIONS.key, 0).encode(header.correlation_id, api_versions(code))
        nearest = nearest_version(header.api_key, header.version)
        if nearest is None:
            return _ERROR.pack(header.correlation_id, code)
        layout = schema(header.api_key, nearest)
        body: Any = None
        if nearest == header.version:
            try:
                body = layout.decode(frame, header, Items(self._request_items))
            except Malformed:
                body = None
        return layout.encode_entity(
            header.correlation_id, refuse(layout.response_type, body, code, "this version is not supported")
        )

    def _log_too_many(self, header: Header, error: TooManyItems) -> None:
        log.warning(
            "kafka request refused",
            extra={
                "error": str(error),
                "api": header.api_key,
                "version": header.version,
                "client_id": header.client_id,
            },
        )

    def _refused(self, error: Exception, header: Header) -> KafkaError:
        refused = translate(error)
        if refused.code is ErrorCode.unknown_server_error:
            log.error("defect", extra={"api": header.api_key, "version": header.version}, exc_info=error)
        return refused
