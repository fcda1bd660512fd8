"""Where the partitions of a topic of a Kafka cluster end, asked of its brokers. Blocking: not for the event loop."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition, admin

from headgate_agent.fragments.sinks.kafka_client import Reasons, client_settings, lasting_text, reason_of
from headgate_common.errors import HeadgateError
from headgate_common.kafka_reasons import KAFKA_REFUSED, KAFKA_TOPIC_MISSING, KAFKA_UNREACHABLE

log = logging.getLogger(__name__)

# The types of it that are published lack what is used here.
_ADMIN: Any = admin

T = TypeVar("T")

# Seconds between two looks at whether the answer is still wanted; errors of the client are taken in between.
_LOOK = 0.05
_SOURCE = Reasons(KAFKA_TOPIC_MISSING, KAFKA_REFUSED, KAFKA_UNREACHABLE)


def ends_of(options: Mapping[str, str], seconds: float, given_up: Callable[[], bool]) -> list[int]:
    """The offset after the last record of each partition, whether its transaction has ended or not, as Spark counts.

    `options` are those of a KAFKA source. KAFKA_TOPIC_MISSING and KAFKA_REFUSED will not pass; KAFKA_UNREACHABLE, after
    `seconds`, when it is given up, or from brokers that do not all know of a new topic yet, may. Makes no topic.
    """
    topic, servers = options["topic"], options["bootstrap_servers"]
    until = time.monotonic() + seconds
    causes: list[KafkaError] = []

    def failure(error: KafkaError) -> HeadgateError:
        for one in (error, *reversed(causes)):
            reason = reason_of(one, _SOURCE)
            if reason is KAFKA_TOPIC_MISSING:
                return HeadgateError(reason, f"there is no topic {topic} at {servers}", metadata={"topic": topic})
            if reason is KAFKA_REFUSED:
                text = f"the brokers of topic {topic}, {servers}, cannot be used as the options say: {one.str()}"
                return HeadgateError(reason, text)
        silent = error.code() == KafkaError._TIMED_OUT
        how = f"did not answer within {seconds:g} s" if silent else "do not say yet where it ends"
        why = lasting_text(causes[-1] if causes and silent else error)
        return HeadgateError(KAFKA_UNREACHABLE, f"the brokers of topic {topic}, {servers}, {how}: {why}")

    def answer(future: Future[T]) -> T:
        while not future.done():
            if given_up() or time.monotonic() >= until:
                raise failure(KafkaError(KafkaError._TIMED_OUT))
            # Calls `causes.append`.
            client.poll(_LOOK)
        return future.result()

    def left() -> float:
        return max(_LOOK, until - time.monotonic())

    try:
        client = _ADMIN.AdminClient({**client_settings(options), "error_cb": causes.append}, logger=log)
        described = answer(client.describe_topics(TopicCollection([topic]), request_timeout=left())[topic])
        latest = _ADMIN.OffsetSpec.latest()
        wanted = {TopicPartition(topic, one.id): latest for one in described.partitions}
        found = client.list_offsets(wanted, request_timeout=left())
        ends = {partition.partition: answer(future).offset for partition, future in found.items()}
    except KafkaException as error:
        raise failure(error.args[0]) from error
    return [ends[index] for index in sorted(ends)]
