"""The KAFKA sink: rows as records of a topic of an Apache Kafka cluster, in transactions.

Promises: a consumer with `isolation.level=read_committed` sees every row exactly once, after any number of crashes, and
rows of one partition in the order of the edge; any other consumer sees rows of aborted transactions too. Every flush is
one transaction that holds the records and the position: the edge offset after them, as the committed offset of
partition 0 of the topic for a consumer group that only this sink uses. Either both are there or neither is.

The transactional id is the fragment's, whatever the epoch of the run. Opening begins with `init_transactions`, which
shuts out the run before and ends what it left open, and only then reads the position: nothing can move it any more. A
run that was shut out ends with STALE_EPOCH.

The cluster forgets the offsets of an unused group, and transactional ids, after a time of its own (a week by default).
Then the edge alone says where to go on, from the first batch that was not trimmed; so each open trims what the position
covers (`run_sink`).
"""

from __future__ import annotations

import logging
import random
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from headgate_agent.errors import SINK_MISSING, SINK_UNAVAILABLE
from headgate_agent.fragments.kafka_calls import KafkaCalls, KafkaTimings
from headgate_agent.fragments.sinks.kafka_client import client_settings, consumer_settings, producer_settings
from headgate_agent.fragments.sinks.records import RecordEncoder, RowRecords
from headgate_agent.fragments.sinks.sink import Delivered
from headgate_agent.work import Work
from headgate_common.clock import Clock
from headgate_common.errors import HeadgateError

log = logging.getLogger(__name__)

# What the value of an ARROW record may have, where it holds more than one row: brokers take 1 MB by default.
_LARGEST_STREAM = 900_000


class KafkaSink:
    """A `Sink`. `identity` is the fragment's uid, whatever the epoch."""

    def __init__(
        self,
        identity: str,
        options: Mapping[str, str],
        update_keys: Sequence[str],
        *,
        clock: Clock,
        source: random.Random,
        blocking: Work,
        timings: KafkaTimings | None = None,
    ) -> None:
        self.delivered = Delivered()
        self._options = dict(options)
        self._topic = options["topic"]
        self._where = f"topic {self._topic} of Kafka at {options['bootstrap_servers']}"
        self._encoder = RecordEncoder(
            options.get("input_format", "JSON"), options.get("key_column", ""), tuple(update_keys)
        )
        self._name = name_of(identity)
        self._calls = KafkaCalls(
            self._where, self.delivered.waits, clock=clock, source=source, blocking=blocking, timings=timings
        )
        self._timings = self._calls.timings
        self._producer: Producer | None = None
        self._group: Any = None
        self._next = 0
        self._flushed = 0

    async def open(self, first: int) -> int:
        self._calls.cause = None
        consumer: Consumer = await self._calls.once(
            lambda: Consumer(consumer_settings(self._options, self._name), error_cb=self._calls.reported, logger=log)
        )
        try:
            await self._calls.repeated(partial(self._look_up, consumer))
            self._producer = producer = await self._calls.once(self._make_producer)
            await self._calls.repeated(partial(producer.init_transactions, self._timings.step))
            position: int = await self._calls.repeated(partial(self._position, consumer))
            self._group = consumer.consumer_group_metadata()
        finally:
            await self._calls.blocking.run(consumer.close)
        # The edge forgets only what was delivered for good.
        self._next = self._flushed = max(first, position)
        return self._flushed

    async def deliver(self, batches: Sequence[pa.RecordBatch], next_offset: int) -> None:
        producer = self._opened()
        if self._calls.begun is None:
            self._calls.begun = self._calls.clock.monotonic()
            await self._calls.once(producer.begin_transaction)
        for batch in batches:
            records = await self._calls.blocking.run(partial(self._encoder.encode, batch, _LARGEST_STREAM))
            await self._produce(producer, records)
            self.delivered.rows += batch.num_rows
            self.delivered.bytes += sum(map(len, records.values))
        self._next = next_offset

    async def flush(self) -> int:
        producer, calls = self._opened(), self._calls
        if calls.begun is not None:
            # Before the position is sent: that call alone keeps its thread for as long as a transaction may take, and
            # brokers that have just taken all records answer it at once.
            await calls.drain(producer)
            position = [TopicPartition(self._topic, 0, self._next)]
            await calls.repeated(
                lambda: producer.send_offsets_to_transaction(position, self._group, self._timings.step)
            )
            await calls.repeated(partial(producer.commit_transaction, self._timings.step))
            calls.begun = calls.cause = None
            self._flushed = self._next
            self.delivered.flushes += 1
        return self._flushed

    async def close(self) -> None:
        await self._calls.blocking.run(self._close)

    def _close(self) -> None:
        """The next run, or the cluster itself, ends what cannot be aborted now."""
        producer, self._producer = self._producer, None
        begun, self._calls.begun = self._calls.begun is not None, None
        if producer is None:
            return
        try:
            producer.purge()
            if begun:
                producer.abort_transaction(self._timings.closing)
        except KafkaException as error:
            log.info("transaction not aborted", extra={"topic": self._topic, "error": str(error.args[0])})

    def _make_producer(self) -> Producer:
        settings = producer_settings(self._options, self._name, self._timings.transaction)
        return Producer({**settings, "on_delivery": self._calls.delivered}, error_cb=self._calls.reported, logger=log)

    def _look_up(self, consumer: Consumer) -> None:
        """Refuses a topic that is not there: a producer that asks for one may create it."""
        try:
            found = consumer.list_topics(self._topic, timeout=self._timings.step).topics[self._topic]
        except KafkaException:
            # The client says why only when it is asked.
            consumer.poll(0)
            raise
        if found.error is not None:
            if found.error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
                raise HeadgateError(SINK_MISSING, f"there is no {self._where}", metadata={"topic": self._topic})
            raise KafkaException(found.error)

    def _position(self, consumer: Consumer) -> int:
        (found,) = consumer.committed([TopicPartition(self._topic, 0)], timeout=self._timings.step)
        if found.error is not None:
            raise KafkaException(found.error)
        return max(found.offset, 0)

    async def _produce(self, producer: Producer, records: RowRecords) -> None:
        """Waits while the client holds as much as it may."""
        at = 0
        until = self._calls.clock.monotonic() + self._timings.patience
        while at < len(records):
            moved = await self._calls.once(partial(self._enqueue, producer, records, at))
            if moved > at:
                until = self._calls.clock.monotonic() + self._timings.patience
            elif self._calls.clock.monotonic() > until:
                raise self._calls.failed(KafkaError(KafkaError._TIMED_OUT))
            at = moved

    def _enqueue(self, producer: Producer, records: RowRecords, at: int) -> int:
        """Hands records to the client; answers the first that it had no room for, after waiting a moment for room."""
        keys, values = records.keys, records.values
        # One by one: the client's produce_batch wants a dict for each, and gets 0.6 to 0.9 of the rows through.
        for index in range(at, len(values)):
            try:
                producer.produce(self._topic, values[index], keys[index] if keys is not None else None)
            except BufferError:
                producer.poll(self._timings.step / 4)
                return index
        producer.poll(0)
        return len(records)

    def _opened(self) -> Producer:
        if self._producer is None:
            raise HeadgateError(SINK_UNAVAILABLE, f"{self._where} failed before and must be opened again")
        return self._producer


def name_of(identity: str) -> str:
    """The sink's transactional id, and the consumer group that holds its position."""
    return f"headgate.{identity}"


async def discard_position(options: Mapping[str, str], identity: str, blocking: Work, timeout: float = 5.0) -> None:
    """Deletes the group that holds a sink's position, after its fragment is gone for good; that it is not there is
    fine. (A transactional id cannot be deleted: the cluster forgets it in time.)

    A cluster that does not answer, or does not take this client, forgets the group in time too, and no other sink will
    ever have its name: a query must not be kept from its end by a cluster that is gone."""
    name = name_of(identity)

    def delete() -> None:
        admin = AdminClient(client_settings(options), logger=log)
        admin.delete_consumer_groups([name], request_timeout=timeout)[name].result(timeout)

    try:
        await blocking.run(delete)
    except (KafkaException, TimeoutError) as error:
        problem = error.args[0] if isinstance(error, KafkaException) else error
        if not isinstance(problem, KafkaError) or problem.code() != KafkaError.GROUP_ID_NOT_FOUND:
            fields = {"group": name, "brokers": options["bootstrap_servers"], "error": str(problem)}
            log.warning("the group of a sink is left to the cluster, which forgets it in time", extra=fields)
