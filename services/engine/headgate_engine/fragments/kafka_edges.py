"""Edges on Kafka: topics of the query's own, with one partition, as the driver sees them.

Spark's connector reads and writes their rows. What it does not do is done here: to see whether an edge has ended, to
delete what was read, and to wait while whoever delivers an edge is far behind. A source writes in transactions, each of
which ends with a note, a record with a key; so the note is the last record but one of what is committed, before the
mark of the transaction itself. It has the source's position, and is never deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from headgate.engine import v1 as engine
from headgate_common.errors import HeadgateError
from headgate_engine.fragments.kafka import client_options, client_settings, connector_options, problem_of
from headgate_engine.fragments.read import Input

log = logging.getLogger(__name__)

END_KEY = "headgate.end"
# How long one look waits for brokers: a run that is to stop must not hang in it.
_ANSWER_SECONDS = 3.0
# The note and the mark of its transaction.
_NOTE_BACK = 2
_READ_COMMITTED = {"isolation.level": "read_committed", "allow.auto.create.topics": "false"}
_RECORDS_TO_DELETE = "org.apache.kafka.clients.admin.RecordsToDelete"
_BYTES, _TEXT = (f"org.apache.kafka.common.serialization.{kind}Deserializer" for kind in ("ByteArray", "String"))


def edge_records(session: SparkSession, edge: engine.KafkaEdge, records: int) -> DataFrame:
    """The records of an edge as a stream, from its beginning; about so many in a batch, all that are there if 0."""
    reader = (
        session.readStream.format("kafka")
        .options(**connector_options(edge.options, ""))
        .options(**{f"kafka.{name}": value for name, value in _READ_COMMITTED.items()})
        .option("subscribe", edge.topic)
        .option("startingOffsets", "earliest")
        .option("failOnDataLoss", "true")
    )
    return (reader.option("maxOffsetsPerTrigger", str(records)) if records else reader).load()


@dataclass(frozen=True, slots=True)
class Note:
    """The last note of a source."""

    offset: int
    ended: bool


class EdgeTopic:
    """The topic of one edge, for one thread at a time. Its calls block for a short time; HeadgateError where brokers do
    not answer."""

    def __init__(self, session: SparkSession, edge: engine.KafkaEdge) -> None:
        self._jvm: Any = session._jvm
        self._gateway: Any = session.sparkContext._gateway
        self._edge = edge
        self._clients = client_options(edge.options, "")
        self._consumer: Any = None
        self._admin: Any = None
        self._partition: Any = None

    def bounds(self) -> tuple[int, int]:
        """Its first offset, and the one after the last."""
        return self._try(self._bounds)  # type: ignore[no-any-return]

    def note(self) -> tuple[Note | None, int]:
        """The last note, if it is there, and the offset after the last record."""
        return self._try(self._note)  # type: ignore[no-any-return]

    def delete_before(self, offset: int) -> None:
        self._try(lambda: self._delete_before(offset))

    def close(self) -> None:
        for client in (self._consumer, self._admin):
            if client is not None:
                client.close(self._jvm.java.time.Duration.ZERO)
        self._consumer = self._admin = None

    def _try(self, call: Any) -> Any:
        try:
            return call()
        except Py4JJavaError as error:
            servers = self._clients["bootstrap.servers"]
            raise problem_of(error, self._edge.topic, servers, _ANSWER_SECONDS) or error from error

    def _bounds(self) -> tuple[int, int]:
        consumer = self._opened()
        parts = self._jvm.java.util.Collections.singletonList(self._partition)
        low = int(consumer.beginningOffsets(parts).get(self._partition))
        return low, int(consumer.endOffsets(parts).get(self._partition))

    def _note(self) -> tuple[Note | None, int]:
        low, high = self._bounds()
        at = high - _NOTE_BACK
        if at < low:
            return None, high
        self._consumer.seek(self._partition, at)
        found = self._consumer.poll(self._jvm.java.time.Duration.ofMillis(int(_ANSWER_SECONDS * 1000)))
        for record in found.records(self._partition):
            if record.key() is not None:
                return Note(int(record.offset()), record.key() == END_KEY), high
        return None, high

    def _delete_before(self, offset: int) -> None:
        jvm = self._jvm
        self._opened()
        if self._admin is None:
            settings = client_settings(jvm, self._clients, _ANSWER_SECONDS)
            self._admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(settings)
        # The class has two methods of this name, and py4j takes the first, which is not always the static one.
        named = jvm.java.lang.Class.forName(_RECORDS_TO_DELETE, True, self._admin.getClass().getClassLoader())
        (make,) = (method for method in named.getMethods() if _makes_records_to_delete(method))
        arguments = self._gateway.new_array(jvm.java.lang.Object, 1)
        arguments[0] = offset
        before = make.invoke(None, arguments)
        wanted = jvm.java.util.Collections.singletonMap(self._partition, before)
        self._admin.deleteRecords(wanted).all().get()

    def _opened(self) -> Any:
        if self._consumer is None:
            jvm = self._jvm
            settings = client_settings(jvm, {**self._clients, **_READ_COMMITTED}, _ANSWER_SECONDS)
            settings.put("enable.auto.commit", "false")
            settings.put("key.deserializer", _TEXT)
            settings.put("value.deserializer", _BYTES)
            self._partition = jvm.org.apache.kafka.common.TopicPartition(self._edge.topic, 0)
            self._consumer = jvm.org.apache.kafka.clients.consumer.KafkaConsumer(settings)
            self._consumer.assign(jvm.java.util.Collections.singletonList(self._partition))
        return self._consumer


def _makes_records_to_delete(method: Any) -> bool:
    return bool(method.getName() == "beforeOffset" and method.getParameterCount() == 1)


def read_up_to(report: Mapping[str, Any], topic: str) -> int | None:
    """Up to where all streams of an edge have read it, by the report of the last batch; None where it does not say."""
    ends = []
    for source in report.get("sources", ()):
        if f"Subscribe[{topic}]" in source.get("description", ""):
            end = source.get("endOffset")
            if not isinstance(end, Mapping) or topic not in end:
                return None
            ends.append(int(end[topic].get("0", 0)))
    return min(ends, default=None)


class KafkaInputs:
    """The edges on Kafka that a run reads: which of them have ended, and what of them is not needed any more."""

    def __init__(self, session: SparkSession, inputs: Sequence[Input]) -> None:
        self._inputs = [entry for entry in inputs if entry.kafka_edge is not None]
        edges = {entry.kafka_edge.topic: entry.kafka_edge for entry in self._inputs if entry.kafka_edge is not None}
        self._topics = {topic: EdgeTopic(session, edge) for topic, edge in edges.items()}
        self._notes: dict[str, Note] = {}
        self._deleted: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._inputs)

    def look(self, report: Mapping[str, Any]) -> list[Input]:
        """Deletes what was read by the time of the report, which is of a batch that is done or of none. Answers the
        inputs that have ended and were read to their end."""
        done = set()
        for name, topic in self._topics.items():
            try:
                note = self._look(name, topic, read_up_to(report, name))
            except HeadgateError as error:
                # The query itself reads the same topic, and decides how long it waits for it.
                log.warning("edge does not answer", extra={"topic": name, "error": str(error)})
                continue
            read = read_up_to(report, name)
            if note is not None and note.ended and read is not None and read > note.offset:
                done.add(name)
        return [entry for entry in self._inputs if entry.kafka_edge is not None and entry.kafka_edge.topic in done]

    def _look(self, name: str, topic: EdgeTopic, read: int | None) -> Note | None:
        known = self._notes.get(name)
        if known is None or not known.ended:
            found, _ = topic.note()
            if found is not None:
                known = self._notes[name] = found
        if known is not None and read is not None:
            before = min(read, known.offset)
            if before > self._deleted.get(name, 0):
                topic.delete_before(before)
                self._deleted[name] = before
        return known

    @property
    def ended(self) -> bool:
        """Whether every edge has an end that is there to be read, as of the last look."""
        return all(name in self._notes and self._notes[name].ended for name in self._topics)

    def close(self) -> None:
        for topic in self._topics.values():
            topic.close()
