"""Stock Kafka clients that never give up: producers that write history, and a reader of whole partitions."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.chaos.history import History, Place, Read, Written

PRODUCER = {
    "log_level": 0,
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


class SteadyProducer:
    """Sends records to one partition at a steady rate until it is stopped, each with the next number.

    A client that reports a fatal error is replaced by a new one under a new name: its order and identity begin anew, as
    for every producer that was restarted.
    """

    def __init__(self, name: str, bootstrap: str, place: Place, history: History, rate: float) -> None:
        self._name, self._bootstrap, self._place, self._history = name, bootstrap, place, history
        self._pause = 1 / rate
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self.problems: list[str] = []
        self.restarts = 0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def stop(self, seconds: float) -> None:
        """Sends nothing new, and waits until everything sent is acknowledged."""
        self._stop.set()
        self._thread.join(seconds)
        if self._thread.is_alive():
            self.problems.append(f"{self._name}: not everything was acknowledged within {seconds:.0f} s after healing")

    def _run(self) -> None:
        for life in itertools.count():
            name = f"{self._name}.{life}"
            if self._send(name):
                return
            self.restarts += 1

    def _send(self, name: str) -> bool:
        """One client's life; False if it ended with a fatal error."""
        fatal = threading.Event()

        def failed(error: KafkaError) -> None:
            if error.fatal():
                fatal.set()

        producer = Producer({**PRODUCER, "bootstrap.servers": self._bootstrap, "error_cb": failed})
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
                    on_delivery=self._delivered(written),
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

    def _delivered(self, written: Written) -> Any:
        def answered(error: KafkaError | None, message: Message) -> None:
            with self._lock:
                if error is not None:
                    # It may be there, or not.
                    return
                offset = message.offset()
                assert offset is not None
                before = self._history.acknowledged[self._place].get(offset)
                if before is not None and before != written:
                    self.problems.append(f"{self._place}: offset {offset} acknowledged for {before} and {written}")
                self._history.acknowledged[self._place][offset] = written

        return answered


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
