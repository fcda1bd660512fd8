"""Both sides of the benchmarks of queries: a cluster of Headgate and a hand-written PySpark, and the topics they read.

A query's run is timed from outside, on both sides alike: it begins when Spark writes the offsets of its first batch
down, which is just before the first row is read, and ends when the last of its results can be read from the topic.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bare_spark import Job
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from headgate.catalog import v1 as catalog
from tests.e2e.life.kit import Process
from tests.e2e.queries.kit import QueryCluster, query_cluster, until
from tests.servers.kafka import running_kafka
from tests.servers.ports import free_port_base

BARE = Path(__file__).with_name("bare_spark.py")
START_SECONDS = 300.0
STILL_SECONDS = 0.5
LOOK_SECONDS = 0.02


class Topics:
    """Topics of something that speaks Kafka's protocol."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def create(self, name: str, partitions: int, settings: Mapping[str, str] | None = None) -> None:
        new = NewTopic(name, partitions, 1, config=dict(settings or {}))
        self._admin.create_topics([new], operation_timeout=60)[name].result(60)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            found = self._admin.list_topics(name, timeout=30).topics[name].partitions
            if len(found) == partitions and all(one.leader >= 0 for one in found.values()):
                return
            time.sleep(0.05)
        raise SystemExit(f"topic {name} has no leaders after 60 s")

    def fill(self, name: str, partitions: int, values: Iterator[bytes]) -> None:
        """Spreads records evenly; returns when all of them are acknowledged."""
        failed: list[object] = []
        producer = self.producer({"linger.ms": 20, "batch.size": 1 << 20, "queue.buffering.max.messages": 1_000_000})

        def delivered(error: object, _: object) -> None:
            if error is not None:
                failed.append(error)

        for number, value in enumerate(values):
            while True:
                try:
                    producer.produce(name, value, partition=number % partitions, on_delivery=delivered)
                    break
                except BufferError:
                    producer.poll(0.05)
            if number & 1023 == 0:
                producer.poll(0)
        if producer.flush(300) or failed:
            raise SystemExit(f"topic {name} could not be filled: {failed[:1]}")

    def producer(self, settings: Mapping[str, Any] | None = None) -> Producer:
        return Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "acks": "all",
                "message.max.bytes": 8 << 20,
                "log_level": 0,
                **(settings or {}),
            }
        )

    def reader(self, name: str, partitions: int) -> TopicReader:
        return TopicReader(self.bootstrap, name, partitions)


class TopicReader:
    """Sees how far a topic reaches, which costs its writer nothing, and reads it when it has come to rest."""

    def __init__(self, bootstrap: str, name: str, partitions: int) -> None:
        self._name = name
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "log_level": 0,
                "group.id": f"read-{name}",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 10,
            }
        )
        self.parts = [TopicPartition(name, number, 0) for number in range(partitions)]
        self._consumer.assign(self.parts)

    def ends(self) -> int:
        """The sum of the offsets up to which committed records can be read."""
        try:
            return sum(self._consumer.get_watermark_offsets(part, timeout=10)[1] for part in self.parts)
        except KafkaException:
            return -1

    def read(self, wait: float = 1.0) -> list[bytes]:
        """What has come since the last call, at once where there is something."""
        found: list[bytes] = []
        while messages := self._consumer.consume(10_000, wait if not found else 0.2):
            for message in messages:
                if message.error() is not None:
                    raise SystemExit(f"topic {self._name}: {message.error()}")
                found.append(message.value() or b"")
        return found

    def poll(self, wait: float) -> list[bytes]:
        """The next records; the moment they are there."""
        return [one.value() or b"" for one in self._consumer.consume(1_000, wait) if one.error() is None]

    def close(self) -> None:
        self._consumer.close()


@dataclass(slots=True)
class Bare:
    """The process of hand-written PySpark."""

    process: subprocess.Popen[str]
    ready_seconds: float = 0.0

    @classmethod
    def start(cls, master: str, shuffle: int, log: Path) -> Bare:
        began = time.monotonic()
        with log.open("a") as errors:
            process = subprocess.Popen(
                [sys.executable, str(BARE), master, str(shuffle)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        made = cls(process)
        made.answer(START_SECONDS)
        made.ready_seconds = time.monotonic() - began
        return made

    def answer(self, seconds: float = 60.0) -> dict[str, Any]:
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            if not selector.select(seconds):
                raise SystemExit(f"bare Spark did not answer in {seconds:g} s")
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("bare Spark ended")
        found: dict[str, Any] = json.loads(line)
        if "error" in found:
            raise SystemExit(f"bare Spark: {found['error']}")
        return found

    def tell(self, what: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()
        self.answer()

    def run(self, job: Job) -> None:
        self.tell({"start": asdict(job)})

    def stop(self, name: str) -> None:
        self.tell({"stop": name})

    def kill(self) -> None:
        """As a crash would end it: Python and the JVM, which are a session of their own."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)

    def close(self) -> None:
        if self.process.poll() is None:
            assert self.process.stdin is not None
            self.process.stdin.close()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()


@dataclass
class Stand:
    """Kafka, a cluster with an engine, and bare Spark, where they were asked for."""

    folder: Path
    cluster: QueryCluster
    kafka: Topics
    native: Topics
    master: str
    bare_: Bare | None = None

    @property
    def bare(self) -> Bare:
        if self.bare_ is None:
            shuffle = int(self.master.removeprefix("local[").removesuffix("]"))
            self.bare_ = Bare.start(self.master, shuffle, self.folder / "bare.log")
        return self.bare_

    def ready(self) -> None:
        """Returns when Spark has warmed up on both sides."""
        assert self.bare
        for one in self.cluster.engines:
            wait_until_ready(one)

    def compute_uid(self, query: str) -> str:
        return next(one.uid for one in self.cluster.fragments(query) if one.kind == catalog.FRAGMENT_KIND_COMPUTE)

    def drop(self, query: str) -> None:
        self.cluster.sql(f"DROP QUERY {query} HARD")

        def gone() -> bool:
            return query not in [one.name for one in self.cluster.ask(catalog.ListQueriesRequest()).queries]

        until(gone, f"query {query} to be gone", 60)


def wait_until_ready(engine: Process) -> None:
    """Returns when Spark has warmed up."""
    assert engine.running is not None
    engine.running.wait_until_ready(partial(is_ready, engine.http), START_SECONDS)


def is_ready(http: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{http}/ready", timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


@contextmanager
def stand(
    folder: Path,
    *,
    master: str = "local[2]",
    engines: int = 1,
    agents: Sequence[str] = ("a",),
    engine: Sequence[str] = (),
    agent: Sequence[str] = (),
    kafka: bool = True,
) -> Iterator[Stand]:
    """Everything on loopback; all of it is stopped at the end. `engine` and `agent` are further options of theirs;
    without `kafka` there are native topics only."""
    # Whoever ends a benchmark early ends all that it started.
    signal.signal(signal.SIGTERM, _terminated)
    port = free_port_base([0])
    with ExitStack() as stack:
        native = f"127.0.0.1:{port}"
        bootstrap = stack.enter_context(running_kafka(folder / "kafka.log")).bootstrap if kafka else native
        cluster = stack.enter_context(query_cluster(folder, agents=(), engines=0))
        for _ in range(engines):
            cluster.add_engine("--master", master, *engine)
        for name in agents:
            # Native topics are reached through the first.
            cluster.add_agent(name, "--kafka-listen", f"127.0.0.1:{port if name == agents[0] else 0}", *agent)
        made = Stand(folder, cluster, Topics(bootstrap), Topics(native), master)
        try:
            yield made
        finally:
            if made.bare_ is not None:
                made.bare_.close()


def _terminated(number: int, _: object) -> None:
    raise SystemExit(128 + number)


def began(checkpoint: Path, seconds: float = 120.0) -> float:
    """When Spark had planned the first batch of a query and was about to read its first row, by the wall clock."""
    path = checkpoint / "offsets" / "0"
    until(path.exists, f"the first batch of {checkpoint.name}", seconds)
    return path.stat().st_mtime
