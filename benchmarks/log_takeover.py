"""From SIGKILL of a partition's leader to the next acknowledged record, on an `OBJECT` topic.

Three agents, a producer that never stops trying. `ratio` is the worst round over what is promised: the session's TTL
and two seconds.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from brokers import WAIT, Broker

from tests.chaos.servers import running_log_agent
from tests.e2e.api.kit import running_coordinator

GOAL = "<= 1.0"
SESSION_TTL = 6.0
ALLOWED = SESSION_TTL + 2.0
ROUNDS = 3
TOPIC = "takeover"


def leader_of(bootstrap: str) -> int:
    metadata = AdminClient({"bootstrap.servers": bootstrap}).list_topics(TOPIC, timeout=WAIT)
    return metadata.topics[TOPIC].partitions[0].leader


def first_acknowledged(producer: Producer) -> float:
    """Sends a record again and again until one is acknowledged; seconds."""
    began, done = time.monotonic(), []

    def delivered(error: KafkaError | None, _: object) -> None:
        if error is None:
            done.append(time.monotonic())

    while not done:
        if time.monotonic() > began + WAIT:
            raise SystemExit("nobody took over")
        producer.produce(TOPIC, b"x", on_delivery=delivered)
        producer.poll(0.05)
    return done[0] - began


def one_round(folder: Path) -> float:
    with ExitStack() as stack:
        folder.mkdir()
        coordinator = stack.enter_context(running_coordinator(folder))
        agents = [
            stack.enter_context(running_log_agent(folder, f"agent{number}", coordinator.address)) for number in range(3)
        ]
        bootstrap = ",".join(agent.kafka for agent in agents)
        Broker("Headgate", bootstrap, ()).create(TOPIC, 1, {"headgate.durability": "OBJECT"})
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "message.timeout.ms": int(WAIT * 1000),
                "retry.backoff.ms": 50,
                "retry.backoff.max.ms": 200,
                "reconnect.backoff.max.ms": 200,
                "topic.metadata.refresh.sparse": True,
                "metadata.max.age.ms": 1000,
            }
        )
        first_acknowledged(producer)
        producer.flush(WAIT)
        metadata = AdminClient({"bootstrap.servers": bootstrap}).list_topics(TOPIC, timeout=WAIT)
        leader = metadata.brokers[metadata.topics[TOPIC].partitions[0].leader]
        (victim,) = [agent for agent in agents if agent.kafka == f"{leader.host}:{leader.port}"]
        os.kill(victim.process.pid, signal.SIGKILL)
        took = first_acknowledged(producer)
        producer.flush(WAIT)
        return took


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder:
        took = [one_round(Path(folder) / str(number)) for number in range(ROUNDS)]
    print("seconds from SIGKILL to the next acknowledgement: " + ", ".join(f"{seconds:.2f}" for seconds in took))
    figures = {"seconds": [round(seconds, 2) for seconds in took], "session_ttl": SESSION_TTL}
    print(json.dumps({"name": "log_takeover", "ratio": round(max(took) / ALLOWED, 3), "goal": GOAL, **figures}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
