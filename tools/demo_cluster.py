"""The demo on real servers: the catalog in PostgreSQL, topics and checkpoints in MinIO, cars from Kafka to Kafka, and
the query on a Spark standalone cluster. An agent, a Spark worker and the engine are killed in front of the reader; what
a reader of Kafka sees must be what a few lines of Python make of the same cars.

Servers are those of the tests: found, or fetched and built into the cache folder at the first time. It exits with 1 if
a claim of its summary does not hold.
"""

from __future__ import annotations

import json
import random
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import spark_jars
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from demo_stage import (
    PATIENCE_SECONDS,
    DemoFailed,
    Stage,
    States,
    cluster,
    free_port_base,
    kill,
    performed,
    styled,
    summary,
    title,
)

from tests.servers.cache import ServerMissing
from tests.servers.kafka import running_kafka
from tests.servers.minio import Bucket, running_minio
from tests.servers.postgres import running_postgres
from tests.servers.process import ServerDied
from tests.servers.spark import SparkCluster, running_spark_cluster

BUNDLE = Path(__file__).with_name("demo_cluster.sql")
QUERY = "traffic"
GATES = ("north", "south", "west")
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
WINDOW = timedelta(seconds=10)
STEP = timedelta(milliseconds=50)
# Event time of a burst is less than the lateness of the query.
BURST = 400
PAUSE_SECONDS = 1.0
PARTITIONS = 2
PROCESSES = 4
# An executor and its worker on one core each.
WORKER_MEMORY = "1200m"
# The client tells of every moment in which a broker that has just started is not ready yet.
QUIET: dict[str, Any] = {"log_level": 3}

Window = tuple[str, str, int, int]


class Feeder(threading.Thread):
    """Writes cars into Kafka, burst after burst, until it is told to stop. What was flushed is there once."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self._producer = Producer({**QUIET, "bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})
        self._source = random.Random(1)
        self._over = threading.Event()
        self.cars: list[tuple[datetime, str, int]] = []

    def run(self) -> None:
        while not self._over.wait(PAUSE_SECONDS):
            for _ in range(BURST):
                number = len(self.cars)
                at, gate = BEGIN + number * STEP, self._source.choice(GATES)
                speed = self._source.randrange(20, 120)
                car = {"id": number, "at": at.isoformat(), "gate": gate, "speed": speed}
                self._producer.produce("cars", json.dumps(car).encode(), key=gate.encode())
                self.cars.append((at, gate, speed))
            self._producer.flush(60)

    def stop(self) -> None:
        self._over.set()
        self.join(90)
        if self.is_alive() or len(self._producer):
            raise DemoFailed("Kafka did not take all cars")

    def windows(self) -> Counter[Window]:
        """What must come out, worked out without Spark."""
        speeds: dict[tuple[datetime, str], list[int]] = {}
        for at, gate, speed in self.cars:
            speeds.setdefault((BEGIN + (at - BEGIN) // WINDOW * WINDOW, gate), []).append(speed)
        return Counter(
            (start.strftime("%Y-%m-%dT%H:%M:%S.%fZ"), gate, len(found), sum(found))
            for (start, gate), found in speeds.items()
        )


class Reader:
    """Reads the topic of the results from its beginning, as any client of Kafka that wants only what is committed."""

    def __init__(self, bootstrap: str) -> None:
        self._consumer = Consumer(
            {
                **QUIET,
                "bootstrap.servers": bootstrap,
                "group.id": "demo",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
            }
        )
        self._consumer.assign([TopicPartition("traffic", 0, 0)])
        self.rows: list[dict[str, Any]] = []

    def look(self, seconds: float) -> None:
        """Shows what comes in some seconds."""
        deadline = time.monotonic() + seconds
        shown = 0
        while (left := deadline - time.monotonic()) > 0:
            message = self._consumer.poll(min(left, 0.2))
            if message is None or message.error():
                continue
            row = json.loads(message.value() or b"")
            self.rows.append(row)
            shown += 1
            if shown <= len(GATES):
                print(f"  {row['start'][11:19]}  {row['gate']:6} {row['cars']:4} cars", flush=True)
        if shown > len(GATES):
            print(f"  ... and {shown - len(GATES)} more", flush=True)

    def wait(self, more_than: int) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(self.rows) <= more_than:
            if time.monotonic() > deadline:
                raise DemoFailed(f"no row came in {PATIENCE_SECONDS} s")
            self.look(1)

    @property
    def windows(self) -> Counter[Window]:
        return Counter((row["start"], row["gate"], row["cars"], row["speeds"]) for row in self.rows)

    def close(self) -> None:
        self._consumer.close()


def environment_of(bucket: Bucket) -> dict[str, str]:
    return {
        "AWS_ACCESS_KEY_ID": bucket.access_key,
        "AWS_SECRET_ACCESS_KEY": bucket.secret_key,
        "AWS_REGION": bucket.region,
        "AWS_ENDPOINT_URL": bucket.endpoint,
    }


def create_topics(bootstrap: str) -> None:
    admin = AdminClient({**QUIET, "bootstrap.servers": bootstrap})
    wanted = [NewTopic("cars", PARTITIONS, 1), NewTopic("traffic", 1, 1)]
    for made in admin.create_topics(wanted).values():
        made.result(30)


def crash(stage: Stage, states: States, reader: Reader, victim: str, pid: int, *, moves: bool = True) -> None:
    """Kills a process, and waits for rows that came after."""
    mark = kill(states, victim, pid)
    if moves:
        states.wait_for(lambda seen: "DEPLOYING" in seen[mark:], "went back to DEPLOYING")
        states.wait_for(lambda seen: seen[mark:][-1:] != ["DEPLOYING"], "went on")
    seen = len(reader.rows)
    reader.wait(seen)
    stage.claim(len(reader.rows) > seen, f"after a kill rows arrived again: {victim}")


def place_of(stage: Stage, kind: str) -> str:
    """The agent that a fragment of the query is on."""
    found = [one["agent"] for one in stage.read("get", "fragments") if one["kind"].endswith(kind)]
    if not found:
        raise DemoFailed(f"the query has no {kind} fragment")
    return str(found[0])


def show(stage: Stage, spark: SparkCluster, pids: dict[str, int], bootstrap: str) -> None:
    title("3. Cars flow into Kafka, and a bundle says what is to become of them")
    create_topics(bootstrap)
    feeder, reader, states = Feeder(bootstrap), Reader(bootstrap), States(stage.coordinator, QUERY)
    feeder.start()
    try:
        stage.run("apply", str(BUNDLE))
        title("4. It runs on the Spark cluster, and windows come out of Kafka (the first when Spark has warmed up)")
        states.wait_for(lambda seen: "RUNNING" in seen, "was RUNNING")
        reader.wait(0)
        stage.run("get", "fragments")
        stage.claim(bool(reader.rows), "a windowed query on a Spark standalone cluster read Kafka and wrote to Kafka")
        title("5. A Spark worker, an agent and the engine are killed, in front of you")
        crash(stage, states, reader, "a Spark worker", spark.workers[0].pid, moves=False)
        agent = f"agent {place_of(stage, 'SINK')}"
        crash(stage, states, reader, f"{agent}, which writes to Kafka", pids[agent])
        crash(stage, states, reader, "the engine", pids["engine 1"])
        title("6. A soft stop: everything in flight and every open window comes out")
        feeder.stop()
        stage.run("sql", "-c", f"STOP QUERY {QUERY} WITHIN 5 MIN")
        states.wait_for(lambda seen: seen[-1:] == ["STOPPED"], "was STOPPED")
        reader.look(5)
        found, expected = reader.windows, feeder.windows()
        stage.claim(
            found == expected,
            f"who reads committed records sees every window once, as Python computes them: {len(expected)} windows of "
            f"{len(feeder.cars):,} cars",
        )
    finally:
        reader.close()
        states.close()


def play() -> None:
    began = time.monotonic()
    title("1. Servers: PostgreSQL, Kafka, MinIO, a Spark master and two workers, each its own process")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headgate-demo-"))).resolve()
        spark_jars.fetch()
        spark_jars.fetch_s3()
        postgres = stack.enter_context(running_postgres(folder / "postgres.log"))
        url = stack.enter_context(postgres.fresh_database())
        kafka = stack.enter_context(running_kafka(folder / "kafka.log"))
        bucket = stack.enter_context(running_minio(folder / "minio.log")).fresh_bucket()
        spark = stack.enter_context(running_spark_cluster(folder, memory=WORKER_MEMORY))
        print(f"  PostgreSQL, Kafka at {kafka.bootstrap}, MinIO at {bucket.endpoint}, Spark at {spark.url}", flush=True)
        title("2. Headgate on them: a coordinator, two agents, and an engine as the driver of the Spark cluster")
        port = free_port_base()
        options = ["--agents", "2", "--kafka", kafka.bootstrap, "--s3", f"s3://{bucket.name}/topics"]
        options += ["--spark", spark.url, "--checkpoints", f"s3a://{bucket.name}/checkpoints"]
        print(styled(f"$ headgate dev --postgres URL {' '.join(options)} --port-base {port}", "1"), flush=True)
        pids = stack.enter_context(
            cluster(port, folder, "--postgres", url, *options, processes=PROCESSES, environment=environment_of(bucket))
        )
        stage = Stage(f"127.0.0.1:{port}", folder)
        show(stage, spark, pids, kafka.bootstrap)
        kept = {key.partition("/")[0] for key in bucket.object_keys()}
        stage.claim(kept >= {"checkpoints", "topics"}, "topics and Spark's checkpoints were in S3, not in a folder")
    summary(began, stage.proved)


if __name__ == "__main__":
    raise SystemExit(performed(play, ServerMissing, ServerDied, spark_jars.Unavailable, KafkaException))
