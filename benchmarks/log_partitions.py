"""What partitions cost: memory and processor time of an agent that leads 1,000 idle ones, over one that leads 10, side
by side with Apache Kafka in the same run.

A partition's memory is measured over the last 990 of them, by what is resident; `ratio` is that of the worse durability
over Kafka's. Requests of idle partitions to the object store are counted for both durabilities. There should be none:
what is left is one listing of the whole store each `log.orphan_interval` (an hour), by one agent, which a shorter run
does not see and whose share of a partition is told beside.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from confluent_kafka import KafkaError, Producer

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from brokers import WAIT, Broker, apache_kafka

from tests.chaos.servers import running_log_agent
from tests.e2e.api.kit import running_coordinator

GOAL = "<= 1.0"
FEW, MANY = 10, 1000
RECORDS_EACH = 4
SETTLE, SPAN = 12.0, 20.0
# What one listing of the store answers at once.
LISTED_AT_ONCE = 1000


@contextmanager
def agent_alone(folder: Path) -> Iterator[Broker]:
    """An agent whose coordinator is not counted."""
    folder.mkdir()
    with (
        running_coordinator(folder) as coordinator,
        running_log_agent(folder, "agent", coordinator.address) as agent,
    ):
        yield Broker("Headgate", agent.kafka, (agent.process.pid,), (agent.http,))


# Segments are uploaded before the measuring begins, whatever the durability.
SIDES: dict[str, tuple[Callable[[Path], AbstractContextManager[Broker]], dict[str, str]]] = {
    "WAL": (agent_alone, {"headgate.durability": "WAL", "segment.ms": "1000"}),
    "OBJECT": (agent_alone, {"headgate.durability": "OBJECT"}),
    "Kafka": (apache_kafka, {}),
}


def write_to_each(broker: Broker, topic: str, partitions: int) -> None:
    """A partition that was never written to costs less."""
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: object) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all", "linger.ms": 20})
    for number in range(partitions * RECORDS_EACH):
        producer.produce(topic, b"x" * 100, partition=number % partitions, on_delivery=delivered)
        producer.poll(0)
    left = producer.flush(WAIT)
    if left or failed:
        raise SystemExit(f"{broker.name}: {left} records without an answer, {len(failed)} failed: {failed[:1]}")


def idle(name: str, folder: Path, partitions: int) -> dict[str, float]:
    start, settings = SIDES[name]
    with start(folder) as broker:
        broker.create("many", partitions, settings)
        write_to_each(broker, "many", partitions)
        time.sleep(SETTLE)
        used, asked, began = broker.processor_seconds(), broker.object_requests(), time.monotonic()
        time.sleep(SPAN)
        span = time.monotonic() - began
        return {
            "memory_mib": broker.memory_mib(),
            "share_of_a_core": (broker.processor_seconds() - used) / span,
            "requests_per_partition_hour": (broker.object_requests() - asked) / partitions / span * 3600,
        }


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder:
        found = {
            name: {count: idle(name, Path(folder) / f"{name}-{count}", count) for count in (FEW, MANY)}
            for name in SIDES
        }
    print(f"{'':8}{'partitions':>12}{'memory MiB':>14}{'share of a core':>18}{'requests per partition-hour':>30}")
    for name, counts in found.items():
        for count, one in counts.items():
            asked = "-" if name == "Kafka" else f"{one['requests_per_partition_hour']:.3f}"
            print(f"{name:8}{count:>12}{one['memory_mib']:>14.1f}{one['share_of_a_core']:>18.4f}{asked:>30}")
    each = {
        name: (counts[MANY]["memory_mib"] - counts[FEW]["memory_mib"]) * 1024 / (MANY - FEW)
        for name, counts in found.items()
    }
    print("KiB for each partition more: " + ", ".join(f"{name} {kib:.1f}" for name, kib in each.items()))
    print(f"and once an hour a listing of the store: 1/{LISTED_AT_ONCE} of a request for each object that it holds")
    figures = {
        name: {str(count): {key: round(value, 4) for key, value in one.items()} for count, one in counts.items()}
        for name, counts in found.items()
    }
    worse = max(each["WAL"], each["OBJECT"])
    print(
        json.dumps(
            {
                "name": "log_partitions",
                "ratio": round(worse / each["Kafka"], 3),
                "goal": GOAL,
                "kib_each": {name: round(kib, 1) for name, kib in each.items()},
                **figures,
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
