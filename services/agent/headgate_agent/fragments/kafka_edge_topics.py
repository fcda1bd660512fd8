"""The topics of edges on Kafka: made by the agent at the node-local end of an edge, deleted when its query is over.

A topic has one partition, of which nothing is ever too old: whoever reads it deletes what it has read.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from headgate.cluster import v1 as cluster
from headgate_agent.errors import EDGE_UNAVAILABLE
from headgate_agent.fragments.kafka_calls import KafkaCalls, KafkaTimings
from headgate_agent.fragments.sinks.kafka_client import EDGE, client_settings, consumer_settings
from headgate_agent.work import Work
from headgate_common.clock import Clock
from headgate_common.errors import HeadgateError

log = logging.getLogger(__name__)

# How many copies there are is left to the cluster.
_CONFIG = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}


@dataclass(frozen=True, slots=True)
class Reach:
    """What the ends of an edge on Kafka share. `blocking` is for calls that may take long."""

    clock: Clock
    source: random.Random
    blocking: Work
    timings: KafkaTimings | None = None


class KafkaEdgeTopic:
    """The topic of one edge."""

    def __init__(self, topic: cluster.EdgeTopic, reach: Reach, waits: Callable[[str], None]) -> None:
        self.name = topic.topic
        self.options = dict(topic.kafka)
        self.calls = KafkaCalls(
            f"edge {topic.topic} on Kafka at {topic.kafka['bootstrap_servers']}",
            waits,
            clock=reach.clock,
            source=reach.source,
            blocking=reach.blocking,
            timings=reach.timings,
            reasons=EDGE,
        )
        self._consumer: Consumer | None = None
        self._admin: AdminClient | None = None

    @property
    def consumer(self) -> Consumer:
        if self._consumer is None:
            raise HeadgateError(EDGE_UNAVAILABLE, f"{self.calls.where} is not open")
        return self._consumer

    async def open(self) -> None:
        """Returns when the topic is there."""
        settings = {
            **consumer_settings(self.options, f"headgate.{self.name}"),
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
        }
        calls = self.calls
        self._consumer = await calls.once(lambda: Consumer(settings, error_cb=calls.reported, logger=log))
        if not await calls.repeated(self._is_there):
            await calls.repeated(self._create)
            log.info("topic of an edge was made", extra={"topic": self.name})
        await calls.repeated(self._require)

    async def close(self) -> None:
        consumer, self._consumer, self._admin = self._consumer, None, None
        if consumer is not None:
            await self.calls.blocking.run(consumer.close)

    def partition(self, offset: int) -> TopicPartition:
        return TopicPartition(self.name, 0, offset)

    def bounds(self) -> tuple[int, int]:
        """The first offset, and the one after the last. Blocks."""
        try:
            low, high = self.consumer.get_watermark_offsets(self.partition(0), timeout=self.calls.timings.step)
        except KafkaException as error:
            # The client says why only when it is asked.
            self.consumer.poll(0)
            if error.args[0].code() == KafkaError._UNKNOWN_PARTITION:
                # It has not heard of the topic yet, or no more; whoever reads or writes is told which.
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, error.args[0].str())) from error
            raise
        self.calls.cause = None
        return low, high

    def delete_before(self, offset: int) -> None:
        """Blocks."""
        part = self.partition(offset)
        seconds = self.calls.timings.step
        _settled(self._admin_client().delete_records([part], request_timeout=seconds)[part], seconds)

    def _admin_client(self) -> AdminClient:
        if self._admin is None:
            self._admin = AdminClient(client_settings(self.options), logger=log)
        return self._admin

    def _is_there(self) -> bool:
        try:
            found = self.consumer.list_topics(self.name, timeout=self.calls.timings.step).topics[self.name]
        except KafkaException:
            self.consumer.poll(0)
            raise
        if found.error is None:
            return True
        if found.error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
            return False
        raise KafkaException(found.error)

    def _require(self) -> None:
        """What was just made is known to all brokers a moment later."""
        if not self._is_there():
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the topic is not known yet"))
        self.bounds()

    def _create(self) -> None:
        seconds = self.calls.timings.step
        new = NewTopic(self.name, num_partitions=1, replication_factor=-1, config=_CONFIG)
        try:
            _settled(self._admin_client().create_topics([new], request_timeout=seconds)[self.name], seconds)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise


async def discard_edges(topics: Iterable[cluster.EdgeTopic], blocking: Work, timeout: float = 5.0) -> None:
    """Deletes the topics of edges on Kafka, once a fragment at one of their ends is gone for good. Each end does so:
    that they are not there is fine.

    A cluster that does not answer, or refuses it, keeps them, and a query must not be kept from its end by that: no
    other query ever has their names. The log says which are left."""
    await asyncio.gather(*(_discard(topic, blocking, timeout) for topic in topics if topic.kafka))


async def _discard(topic: cluster.EdgeTopic, blocking: Work, timeout: float) -> None:
    def delete() -> None:
        admin = AdminClient(client_settings(topic.kafka), logger=log)
        _settled(admin.delete_topics([topic.topic], request_timeout=timeout)[topic.topic], timeout)

    try:
        await blocking.run(delete)
    except KafkaException as error:
        problem: KafkaError = error.args[0]
        if problem.code() not in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
            fields = {"topic": topic.topic, "brokers": topic.kafka["bootstrap_servers"], "error": str(problem)}
            log.warning("the topic of an edge is left on Kafka: delete it there", extra=fields)


def _settled(future: Any, seconds: float) -> None:
    """Waits for an answer to an administrator; a KafkaException where there is none or it is an error."""
    try:
        future.result(seconds)
    except TimeoutError:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from None
