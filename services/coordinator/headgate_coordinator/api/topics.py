"""TopicService: topics and their partitions."""

from __future__ import annotations

from headgate.log import v1 as log
from headgate.log.v1 import topic_service_pb2
from headgate_common.dispatch import Call
from headgate_common.errors import INVALID_ARGUMENT, HeadgateError
from headgate_coordinator.api.mutations import Mutations
from headgate_coordinator.catalog.log import leads, topics, transfers
from headgate_coordinator.catalog.store import Store


class TopicService:
    descriptor = topic_service_pb2.DESCRIPTOR.services_by_name["TopicService"]

    def __init__(self, store: Store, mutations: Mutations) -> None:
        self._store = store
        self._mutations = mutations

    async def create_topic(self, request: log.CreateTopicRequest, call: Call) -> log.CreateTopicResponse:
        response: log.CreateTopicResponse = await self._mutations.run(request, call)
        return response

    async def get_topic(self, request: log.GetTopicRequest, call: Call) -> log.GetTopicResponse:
        return log.GetTopicResponse(topic=await self._store.read(lambda tx: topics.get_topic(tx, request)))

    async def list_topics(self, request: log.ListTopicsRequest, call: Call) -> log.ListTopicsResponse:
        return await self._store.read(lambda tx: topics.list_topics(tx, request))

    async def alter_topic(self, request: log.AlterTopicRequest, call: Call) -> log.AlterTopicResponse:
        response: log.AlterTopicResponse = await self._mutations.run(request, call)
        return response

    async def drop_topic(self, request: log.DropTopicRequest, call: Call) -> log.DropTopicResponse:
        response: log.DropTopicResponse = await self._mutations.run(request, call)
        return response

    async def list_partitions(self, request: log.ListPartitionsRequest, call: Call) -> log.ListPartitionsResponse:
        return await self._store.read(lambda tx: topics.list_partitions(tx, request))

    async def list_transfers(self, request: log.ListTransfersRequest, call: Call) -> log.ListTransfersResponse:
        return await self._store.read(lambda tx: transfers.list_transfers(tx, request))

    async def get_partition_story(
        self, request: log.GetPartitionStoryRequest, call: Call
    ) -> log.GetPartitionStoryResponse:
        if bool(request.topic) == bool(request.topic_uid):
            raise HeadgateError(INVALID_ARGUMENT, "give the topic, or its uid")
        return await self._store.read(lambda tx: topics.get_partition_story(tx, request))

    async def recover_partitions(
        self, request: log.RecoverPartitionsRequest, call: Call
    ) -> log.RecoverPartitionsResponse:
        return await self._mutations.execute(
            request, log.RecoverPartitionsResponse, lambda tx: leads.recover_partitions(tx, request), call
        )
