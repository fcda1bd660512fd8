"""What the Kafka port asks of the coordinator: topics and producer ids."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import cast

from headgate.log import v1 as log
from headgate.log.v1 import log_metadata_service_pb2, topic_service_pb2
from headgate_agent.groups.asking import Asking
from headgate_agent.kafka.config import CatalogLimits
from headgate_agent.log.access import ClusterView, Peer
from headgate_agent.log.contract import PartitionKey
from headgate_common.clock import Clock
from headgate_common.dispatch import methods
from headgate_common.errors import HeadgateError
from headgate_common.ids import Ids

_TOPICS = methods(topic_service_pb2.DESCRIPTOR.services_by_name["TopicService"])
_METADATA = methods(log_metadata_service_pb2.DESCRIPTOR.services_by_name["LogMetadataService"])
_MOST_PARTITIONS = 10_000


class TopicCatalog:
    """Raises the coordinator's errors. `within` is how long a call may take with its repetitions, in seconds."""

    def __init__(self, asking: Asking, view: ClusterView, ids: Ids, clock: Clock, limits: CatalogLimits) -> None:
        self._limits = limits
        self._asking, self._view, self._ids, self._clock = asking, view, ids, clock
        # What a new topic is given where nothing else is said, if that is known; and until when it is not asked again.
        self._defaults: log.TopicSettings | None = None
        self._defaults_until = clock.monotonic()
        self._producer_ids: list[int] = []
        self._filling = asyncio.Lock()

    async def create(self, request: log.CreateTopicRequest, within: float) -> log.Topic:
        """Answers when the topic is known here and its partitions have leaders, unless that takes too long: many
        clients do not ask again soon if they are told of a topic without leaders."""
        until = self._clock.monotonic() + within
        request.request_id = self._ids.uid("request")
        answer = cast(log.CreateTopicResponse, await self._asking.ask(_TOPICS["CreateTopic"], request, within=within))
        if not request.validate_only:
            await self._seen(answer.topic.revision, until)
            await self._led(answer.topic, until)
        return answer.topic

    async def peer(self, name: str, within: float) -> Peer | None:
        """An agent, which this one may have to hear of first, as just after a start; None if that takes too long."""
        await self._until(lambda: self._view.peer(name) is not None, self._clock.monotonic() + within)
        return self._view.peer(name)

    async def catch_up(self, name: str, within: float) -> bool | None:
        """Whether there is a topic; None if nobody can say. If so this agent has heard of it too when this returns,
        unless that takes too long."""
        request = log.ListPartitionsRequest(topic=name, page_size=_MOST_PARTITIONS)
        try:
            answer = cast(
                log.ListPartitionsResponse,
                await self._asking.ask(_TOPICS["ListPartitions"], request, within=within),
            )
        except HeadgateError as error:
            return False if error.reason.name == "TOPIC_NOT_FOUND" else None
        await self._seen(max((one.revision for one in answer.partitions), default=0))
        return True

    async def drop(self, name: str, uid: str, within: float) -> None:
        until = self._clock.monotonic() + within
        request = log.DropTopicRequest(name=name, uid=uid, request_id=self._ids.uid("request"))
        await self._asking.ask(_TOPICS["DropTopic"], request, within=within)
        await self._until(lambda: self._view.topic_by_uid(uid) is None, until)

    async def alter(self, request: log.AlterTopicRequest, within: float) -> log.Topic:
        until = self._clock.monotonic() + within
        request.request_id = self._ids.uid("request")
        answer = cast(log.AlterTopicResponse, await self._asking.ask(_TOPICS["AlterTopic"], request, within=within))
        if not request.validate_only:
            await self._seen(answer.topic.revision, until)
        return answer.topic

    async def defaults(self, name: str, fields: Iterable[str]) -> log.TopicSettings | None:
        """The coordinator's defaults for these settings: what they would be if they were reset on this topic, which is
        there. None if nobody can say."""
        if self._clock.monotonic() < self._defaults_until:
            return self._defaults
        reset = log.AlterTopicRequest(name=name, settings=log.TopicSettings(), fields=fields, validate_only=True)
        believed = self._limits.defaults_for
        try:
            self._defaults = (await self.alter(reset, self._limits.asked_within)).settings
        except HeadgateError:
            believed = self._limits.absent_for
        self._defaults_until = self._clock.monotonic() + believed
        return self._defaults

    async def producer_id(self, within: float) -> int:
        """One that nobody has had. Ids that were fetched and not used are never given out again."""
        async with self._filling:
            if not self._producer_ids:
                count = self._limits.producer_ids
                answer = cast(
                    log.CreateProducerIdResponse,
                    await self._asking.ask(
                        _METADATA["CreateProducerId"], log.CreateProducerIdRequest(count=count), within=within
                    ),
                )
                self._producer_ids = list(range(answer.producer_id, answer.producer_id + count))
            return self._producer_ids.pop(0)

    async def _led(self, topic: log.Topic, until: float) -> None:
        left = list(range(topic.partitions))

        def all_led() -> bool:
            while left and self._view.leadership(PartitionKey(topic.uid, left[-1])).leader:
                left.pop()
            return not left

        await self._until(all_led, until)

    async def _until(self, holds: Callable[[], bool], until: float | None = None) -> None:
        """Returns when that is so, or has taken too long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._patience(until)):
                while not holds():  # noqa: ASYNC110
                    await asyncio.sleep(self._limits.look_interval)

    async def _seen(self, revision: int, until: float | None = None) -> None:
        try:
            async with asyncio.timeout(self._patience(until)):
                await self._view.caught_up(revision)
        except TimeoutError:
            # It has happened; a client that does not see it yet asks again, as with Kafka.
            return

    def _patience(self, until: float | None) -> float:
        """How long to wait for what has happened to be heard of: not beyond the time that the request has."""
        most = self._limits.seen_within
        return most if until is None else max(0.0, min(most, until - self._clock.monotonic()))
