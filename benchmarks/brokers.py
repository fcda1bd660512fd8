"""The two sides of the log's benchmarks, and the stock client that drives both in the same way."""

from __future__ import annotations

import os
import re
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles

import processes
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.chaos.servers import running_log_agent
from tests.e2e.api.kit import running_coordinator
from tests.servers.kafka import Kafka

WAIT = 120.0


@dataclass(frozen=True, slots=True)
class Broker:
    """Something that Kafka clients talk to. `pids` are the processes whose time and memory it costs; `http` is where
    agents tell their metrics."""

    name: str
    bootstrap: str
    pids: tuple[int, ...]
    http: tuple[str, ...] = ()

    def processor_seconds(self) -> float:
        return sum(processes.processor_seconds(pid) for pid in self.pids)

    def memory_mib(self) -> float:
        return sum(processes.memory_mib(pid) for pid in self.pids)

    def object_requests(self) -> float:
        """Requests to the object store so far."""
        return sum(_object_requests(address) for address in self.http)

    def create(self, topic: str, partitions: int, settings: Mapping[str, str]) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        new = NewTopic(topic, partitions, 1, config=dict(settings))
        admin.create_topics([new], operation_timeout=WAIT)[topic].result(WAIT)
        deadline = time.monotonic() + WAIT
        while time.monotonic() < deadline:
            found = admin.list_topics(topic, timeout=WAIT).topics[topic]
            led = [part for part in found.partitions.values() if part.leader >= 0]
            if found.error is None and len(led) == partitions:
                return
            time.sleep(0.05)
        raise SystemExit(f"{self.name}: {topic} has no leaders after {WAIT:.0f} s")


def _object_requests(http: str) -> float:
    with urllib.request.urlopen(f"http://{http}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found = re.findall(r"^headgate_log_object_requests_total\S* (\S+)$", text, re.MULTILINE)
    if not found:
        raise SystemExit(f"the agent at {http} does not count its requests to the object store")
    return sum(map(float, found))


@contextmanager
def apache_kafka(folder: Path) -> Iterator[Broker]:
    folder.mkdir(parents=True, exist_ok=True)
    kafka = Kafka(folder, folder / "kafka.log")
    try:
        yield Broker("Apache Kafka", kafka.bootstrap, (kafka.process.pid,))
    finally:
        kafka.process.stop()


@contextmanager
def headgate(folder: Path, *options: str, agents: int = 1) -> Iterator[Broker]:
    """A coordinator on SQLite and agents with a shared folder as object store; clients start at the first agent."""
    with ExitStack() as stack:
        folder.mkdir(parents=True, exist_ok=True)
        coordinator = stack.enter_context(running_coordinator(folder))
        started = [
            stack.enter_context(running_log_agent(folder, f"agent{number}", coordinator.address, *options))
            for number in range(agents)
        ]
        pids = (coordinator.process.pid, *(agent.process.pid for agent in started))
        yield Broker("Headgate", started[0].kafka, pids, tuple(agent.http for agent in started))


@dataclass(frozen=True, slots=True)
class Load:
    """What is sent: `size` bytes in records of `record` bytes, in batches of about `batch` bytes."""

    record: int
    batch: int
    size: int
    codec: str = "none"

    @property
    def records(self) -> int:
        return self.size // self.record


def payloads(record: int) -> list[bytes]:
    """Records that a codec can shorten about as well as real ones: half of each repeats."""
    return [os.urandom(record // 2) + b"x" * (record - record // 2) for _ in range(256)]


def produce(broker: Broker, topic: str, load: Load) -> float:
    """Seconds until everything is acknowledged by all replicas."""
    failed: list[KafkaError] = []
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "acks": "all",
            "batch.size": load.batch,
            "message.max.bytes": max(load.batch * 2, 1_000_000),
            "batch.num.messages": 1_000_000,
            "linger.ms": 20,
            "compression.type": load.codec,
            "queue.buffering.max.kbytes": 262_144,
            "queue.buffering.max.messages": 2_000_000,
            "sticky.partitioning.linger.ms": 20,
        }
    )
    values = payloads(load.record)

    def delivered(error: KafkaError | None, _: object) -> None:
        if error is not None:
            failed.append(error)

    producer.list_topics(topic, timeout=WAIT)
    began = time.monotonic()
    for number in range(load.records):
        while True:
            try:
                producer.produce(topic, values[number & 255], on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.05)
        if number & 1023 == 0:
            producer.poll(0)
    left = producer.flush(WAIT * 5)
    if left or failed:
        raise SystemExit(f"{broker.name}: {left} records without an answer, {len(failed)} failed: {failed[:1]}")
    return time.monotonic() - began


def consume(broker: Broker, topic: str, partitions: int, load: Load) -> float:
    """Seconds until everything is read, from the first partition on, without a group."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "benchmark",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.max.bytes": 52_428_800,
            "max.partition.fetch.bytes": max(load.batch * 4, 1_048_576),
            "queued.max.messages.kbytes": 131_072,
            # It asks for no more while it holds 100,000 records, and looks again only after this long, a second by
            # default: with small records that would be all that is measured.
            "fetch.queue.backoff.ms": 5,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    began, seen, deadline = time.monotonic(), 0, time.monotonic() + WAIT * 5
    while seen < load.records:
        # It waits for as many as it is asked for.
        for message in consumer.consume(min(10_000, load.records - seen), 1.0):
            if message.error() is not None:
                raise SystemExit(f"{broker.name}: {message.error()}")
            seen += 1
        if time.monotonic() > deadline:
            raise SystemExit(f"{broker.name}: {seen} of {load.records} records came")
    took = time.monotonic() - began
    consumer.close()
    return took


def percentiles(latencies: list[float]) -> tuple[float, float]:
    """p50 and p99, in milliseconds."""
    cuts = quantiles(latencies, n=100)
    return cuts[49] * 1000, cuts[98] * 1000
