"""Clients that never give up: producers that write history, consumers that follow all along, and a reader of whole
partitions."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import grpc
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from headgate.log import v1 as log_api
from headgate.log.v1 import log_service_pb2_grpc
from tests.chaos.history import History, Place, Read, Written

PRODUCER = {
    "acks": "all",
    "enable.idempotence": True,
    "linger.ms": 5,
    "message.timeout.ms": 600_000,
    "request.timeout.ms": 5_000,
    "retry.backoff.ms": 50,
    "retry.backoff.max.ms": 500,
    "reconnect.backoff.max.ms": 500,
    "topic.metadata.refresh.interval.ms": 5_000,
}

# What a client tells of itself while it works, of which the end is shown for one that stands still.
# Metadata is part of it because a client that knows of no broker any more tells that and nothing else.
TOLD = {"debug": "eos,broker,msg,metadata", "log_level": 7}
KEPT_LINES, SHOWN_LINES = 2_000, 80

# What tells a consumer that records it was shown are gone. Whatever else happens to it passes.
TAKEN_BACK = (
    KafkaError._AUTO_OFFSET_RESET,
    KafkaError._LOG_TRUNCATION,
    KafkaError.OFFSET_OUT_OF_RANGE,
    KafkaError._BAD_MSG,
)
# What a producer says of records that it gave up itself: their time was over, or its own was.
GIVEN_UP = (KafkaError._MSG_TIMED_OUT, KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)
LOST = (grpc.StatusCode.OUT_OF_RANGE, grpc.StatusCode.DATA_LOSS)
# One stream of records; then the next agent is asked, from where this one has come to.
STREAM_SECONDS = 10.0


class Remembered(logging.Handler):
    """The last lines that a client has logged."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: deque[str] = deque(maxlen=KEPT_LINES)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.created:.3f} {record.getMessage()}")


class SteadyProducer:
    """Sends records to one partition at a steady rate until it is stopped, each with the next number.

    A client that reports a fatal error is replaced by a new one under a new name: its order and identity begin anew, as
    for every producer that was restarted. History is told why, and so of records that were refused.
    """

    def __init__(self, name: str, bootstrap: str, place: Place, history: History, rate: float) -> None:
        self._name, self._bootstrap, self._place, self._history = name, bootstrap, place, history
        self._pause = 1 / rate
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self.problems: list[str] = []
        self._heard = "nothing"
        self._told = Remembered()
        self._logger = logging.Logger(name)
        self._logger.addHandler(self._told)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def stop(self, seconds: float) -> None:
        """Sends nothing new, and waits until everything sent is acknowledged."""
        self._stop.set()
        self._thread.join(seconds)
        if self._thread.is_alive():
            with self._lock:
                sent = self._history.sent[self._place]
                own = {name: count for name, count in sent.items() if name.startswith(f"{self._name}.")}
                answered = [
                    *self._history.acknowledged[self._place].values(),
                    *self._history.unplaced[self._place],
                ]
                told = sum(one.producer in own for one in answered)
            self.problems.append(
                f"{self._name}: not everything was acknowledged within {seconds:.0f} s after healing: {told} of {own}; "
                f"it heard last: {self._heard}; it told last:\n" + "\n".join([*self._told.lines][-SHOWN_LINES:])
            )

    def _run(self) -> None:
        try:
            for life in itertools.count():
                if self._send(f"{self._name}.{life}"):
                    return
        except Exception as error:
            # One that died sends nothing, and all that it proves would be nothing.
            self.problems.append(f"{self._name} died: {error!r}")
            raise

    def _send(self, name: str) -> bool:
        """One client's life; False if it ended with a fatal error."""
        fatal, broken = threading.Event(), threading.Event()

        def breaks(error: KafkaError) -> None:
            # Once for each life: what follows comes of it.
            if not broken.is_set():
                broken.set()
                with self._lock:
                    self._history.broken[self._place][self._name].append(f"{name}: {error}")

        def failed(error: KafkaError) -> None:
            self._heard = str(error)
            if error.fatal():
                breaks(error)
                fatal.set()

        settings = {**PRODUCER, **TOLD, "bootstrap.servers": self._bootstrap, "error_cb": failed}
        producer = Producer(settings, logger=self._logger)
        number = 0
        while not self._stop.is_set() and not fatal.is_set():
            written = Written(name, number)
            with self._lock:
                self._history.sent[self._place][name] = number + 1
            try:
                producer.produce(
                    self._place.topic,
                    f"{name}:{number}".encode(),
                    partition=self._place.partition,
                    on_delivery=self._delivered(written, breaks),
                )
                number += 1
            except (BufferError, KafkaException):
                # Its queue is full, or it does not know the topic now: asked again in a moment.
                pass
            producer.poll(0)
            self._stop.wait(self._pause)
        while len(producer) and not fatal.is_set():
            producer.flush(1.0)
        if fatal.is_set():
            producer.purge()
            producer.flush(5.0)
        return not fatal.is_set() or self._stop.is_set()

    def _delivered(self, written: Written, breaks: Callable[[KafkaError], None]) -> Any:
        def answered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                # It may be there, or not.
                if error.code() not in GIVEN_UP:
                    breaks(error)
                return
            with self._lock:
                offset = message.offset()
                if offset is None:
                    # A later record was acknowledged first, so this one is there: the answer to it was lost.
                    self._history.unplaced[self._place].add(written)
                    return
                before = self._history.acknowledged[self._place].get(offset)
                if before is not None and before != written:
                    self.problems.append(f"{self._place}: offset {offset} acknowledged for {before} and {written}")
                self._history.acknowledged[self._place][offset] = written

        return answered


class Follower(Protocol):
    """A consumer that reads partitions from their start on, and goes on until it is stopped. `read` grows meanwhile;
    a place where it stands still has a line in `problems`, or is found by who compares."""

    name: str
    read: dict[Place, list[tuple[int, bytes]]]
    problems: list[str]

    def stop(self) -> None: ...


def catch_up(followers: Iterable[Follower], ends: Mapping[Place, int], seconds: float) -> None:
    """Returns when all have read everything before `ends`, or stand still; then they are stopped."""
    followers = tuple(followers)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and any(
        read[-1][0] + 1 < ends[place] if read else ends[place] > 0
        for one in followers
        if not one.problems
        for place, read in one.read.items()
    ):
        time.sleep(0.1)
    for one in followers:
        one.stop()


class KafkaFollower:
    """One stock Kafka client on all partitions; it may not begin anew anywhere when it is told that it is out of
    range."""

    def __init__(self, name: str, bootstrap: str, followed: Sequence[Place]) -> None:
        self.name = name
        self.read: dict[Place, list[tuple[int, bytes]]] = {place: [] for place in followed}
        self.problems: list[str] = []
        self._stop = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "chaos-follower",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "check.crcs": True,
                "log_level": 0,
                "fetch.error.backoff.ms": 50,
                "reconnect.backoff.max.ms": 500,
                "topic.metadata.refresh.interval.ms": 5_000,
            }
        )
        self._consumer.assign([TopicPartition(place.topic, place.partition, 0) for place in followed])
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(30)

    def _run(self) -> None:
        while not self._stop.is_set():
            for message in self._consumer.consume(1_000, 0.2):
                self._take(message)
        self._consumer.close()

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            if error.code() in TAKEN_BACK:
                self.problems.append(f"{self.name}: {message.topic()}-{message.partition()}: {error}")
            return
        topic, partition, offset, value = message.topic(), message.partition(), message.offset(), message.value()
        assert topic is not None and partition is not None and offset is not None and value is not None
        self.read[Place(topic, partition)].append((offset, value))


class GrpcFollower:
    """TailRecords on one partition, through one agent after the other, whether it leads or not."""

    def __init__(self, name: str, agents: Sequence[str], place: Place) -> None:
        self.name, self._agents, self._place = name, agents, place
        self.read: dict[Place, list[tuple[int, bytes]]] = {place: []}
        self.problems: list[str] = []
        self._stop = threading.Event()
        self._call: Any = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._call is not None:
            self._call.cancel()
        self._thread.join(30)

    def _run(self) -> None:
        for turn in itertools.count(self._place.partition):
            if self._stop.is_set() or self.problems:
                return
            try:
                self._follow(self._agents[turn % len(self._agents)])
            except grpc.RpcError as error:
                failed: Any = error
                if failed.code() in LOST:
                    self.problems.append(f"{self.name}: {self._place}: {failed.details()}")
                elif failed.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                    self._stop.wait(0.2)

    def _follow(self, agent: str) -> None:
        read = self.read[self._place]
        start: Any = {"from": log_api.StartPosition(offset=read[-1][0] + 1 if read else 0)}
        request = log_api.TailRecordsRequest(topic=self._place.topic, partitions=[self._place.partition], **start)
        with grpc.insecure_channel(agent) as channel:
            self._call = log_service_pb2_grpc.LogServiceStub(channel).TailRecords(request, timeout=STREAM_SECONDS)
            for answer in self._call:
                read += [(record.offset, record.value) for record in answer.records]


def read_to_end(bootstrap: str, place: Place, seconds: float) -> tuple[int, Read]:
    """The first offset that is there, and everything from it to the high watermark."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "chaos-reader",
            "enable.auto.commit": False,
            "check.crcs": True,
            "log_level": 0,
        }
    )
    try:
        start, end = _bounds(consumer, place, seconds)
        consumer.assign([TopicPartition(place.topic, place.partition, start)])
        read: list[tuple[int, bytes]] = []
        deadline = time.monotonic() + seconds
        while consumer_position(consumer, place) < end:
            if time.monotonic() > deadline:
                raise AssertionError(f"{place}: read up to {read[-1:]} of {end} in {seconds:.0f} s")
            for message in consumer.consume(5_000, 0.5):
                if message.error() is not None:
                    raise AssertionError(f"{place}: {message.error()}")
                offset, value = message.offset(), message.value()
                assert offset is not None and value is not None
                read.append((offset, value))
        return start, read
    finally:
        consumer.close()


def consumer_position(consumer: Consumer, place: Place) -> int:
    (position,) = consumer.position([TopicPartition(place.topic, place.partition)])
    return int(position.offset)


def _bounds(consumer: Consumer, place: Place, seconds: float) -> tuple[int, int]:
    deadline = time.monotonic() + seconds
    while True:
        try:
            start, end = consumer.get_watermark_offsets(TopicPartition(place.topic, place.partition), timeout=5)
            return int(start), int(end)
        except KafkaException as error:
            if time.monotonic() > deadline:
                raise AssertionError(f"{place} cannot be read: {error}") from error
            time.sleep(0.2)


def places(topic: str, partitions: int) -> Sequence[Place]:
    return [Place(topic, number) for number in range(partitions)]
