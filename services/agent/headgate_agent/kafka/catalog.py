"""What the Kafka port asks of the coordinator: topics and producer ids."""

from __future__ import annotations

import asyncio
from typing import cast

from headgate.log import v1 as log
from headgate.log.v1 import log_metadata_service_pb2, topic_service_pb2
from headgate_agent.groups.asking import Asking
from headgate_agent.log.access import ClusterView
from headgate_agent.log.contract import PartitionKey
from headgate_common.clock import Clock
from headgate_common.dispatch import methods
from headgate_common.errors import HeadgateError
from headgate_common.ids import Ids

_TOPICS = methods(topic_service_pb2.DESCRIPTOR.services_by_name["TopicService"])
_METADATA = methods(log_metadata_service_pb2.DESCRIPTOR.services_by_name["LogMetadataService"])
# Producer ids fetched at once: one call to the coordinator for so many producers.
_PRODUCER_IDS = 100
# How long a change may take to be seen here, so that the client's next question finds it. In seconds.
_SEEN_WITHIN = 2.0
_LOOK_EVERY = 0.01
# How long the coordinator may take to say whether there is a topic, and how long its no is believed. In seconds.
_ASKED_WITHIN = 1.0
_ABSENT_FOR = 0.5
_MOST_ABSENT = 10_000
_MOST_PARTITIONS = 10_000


class TopicCatalog:
    """Raises the coordinator's errors. `within` is how long a call may take with its repetitions, in seconds."""

    def __init__(self, asking: Asking, view: ClusterView, ids: Ids, clock: Clock) -> None:
        self._asking, self._view, self._ids, self._clock = asking, view, ids, clock
        # Topics that the coordinator did not know, and until when that is believed.
        self._absent: dict[str, float] = {}
        self._producer_ids: list[int] = []
        self._filling = asyncio.Lock()

    async def create(self, request: log.CreateTopicRequest, within: float) -> log.Topic:
        """Answers when the topic is known here and its partitions have leaders, unless that takes too long: many
        clients do not ask again soon if they are told of a topic without leaders."""
        request.request_id = self._ids.uid("request")
        answer = cast(log.CreateTopicResponse, await self._asking.ask(_TOPICS["CreateTopic"], request, within=within))
        if not request.validate_only:
            await self._seen(answer.topic.revision)
            await self._led(answer.topic)
        return answer.topic

    async def catch_up(self, name: str) -> bool:
        """Returns when this agent knows of a topic what the coordinator does: a client may have heard of it from an
        agent that is ahead. False if that takes too long or nobody can say, as while the coordinator is away."""
        now = self._clock.monotonic()
        if self._absent.get(name, 0.0) > now:
            return True
        request = log.ListPartitionsRequest(topic=name, page_size=_MOST_PARTITIONS)
        try:
            answer = cast(
                log.ListPartitionsResponse,
                await self._asking.ask(_TOPICS["ListPartitions"], request, within=_ASKED_WITHIN),
            )
        except HeadgateError as error:
            if error.reason.name != "TOPIC_NOT_FOUND":
                return False
            if len(self._absent) >= _MOST_ABSENT:
                self._absent.clear()
            self._absent[name] = now + _ABSENT_FOR
            return True
        await self._seen(max((one.revision for one in answer.partitions), default=0))
        return self._view.topic(name) is not None

    async def drop(self, name: str, uid: str, within: float) -> None:
        request = log.DropTopicRequest(name=name, uid=uid, request_id=self._ids.uid("request"))
        await self._asking.ask(_TOPICS["DropTopic"], request, within=within)
        for _ in range(int(_SEEN_WITHIN / _LOOK_EVERY)):
            if self._view.topic_by_uid(uid) is None:
                return
            await asyncio.sleep(_LOOK_EVERY)

    async def alter(self, request: log.AlterTopicRequest, within: float) -> log.Topic:
        request.request_id = self._ids.uid("request")
        answer = cast(log.AlterTopicResponse, await self._asking.ask(_TOPICS["AlterTopic"], request, within=within))
        if not request.validate_only:
            await self._seen(answer.topic.revision)
        return answer.topic

    async def producer_id(self, within: float) -> int:
        """One that nobody has had. Ids that were fetched and not used are never given out again."""
        async with self._filling:
            if not self._producer_ids:
                answer = cast(
                    log.CreateProducerIdResponse,
                    await self._asking.ask(
                        _METADATA["CreateProducerId"], log.CreateProducerIdRequest(count=_PRODUCER_IDS), within=within
                    ),
                )
                self._producer_ids = list(range(answer.producer_id, answer.producer_id + _PRODUCER_IDS))
            return self._producer_ids.pop(0)

    async def _led(self, topic: log.Topic) -> None:
        index = 0
        for _ in range(int(_SEEN_WITHIN / _LOOK_EVERY)):
            while index < topic.partitions and self._view.leadership(PartitionKey(topic.uid, index)).leader:
                index += 1
            if index == topic.partitions:
                return
            await asyncio.sleep(_LOOK_EVERY)

    async def _seen(self, revision: int) -> None:
        try:
            async with asyncio.timeout(_SEEN_WITHIN):
                await self._view.caught_up(revision)
        except TimeoutError:
            # It has happened; a client that does not see it yet asks again, as with Kafka.
            return
