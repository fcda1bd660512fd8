"""How long an acknowledgement takes at a steady rate, for both durabilities, next to Apache Kafka.

One producer sends records of 1 KB at a fixed rate, each in its own time, and notes how long each takes to be
acknowledged. `WAL` is compared with Kafka that flushes each message; `OBJECT` with its own linger, which is what it
waits for. `ratio` is the p99 of `WAL` over that of Kafka with `flush.messages=1`.

A disk that stalls once decides a p99, so both brokers run throughout and take turns, and the median of the rounds
counts.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from confluent_kafka import KafkaError, Producer

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from brokers import WAIT, Broker, apache_kafka, headgate, payloads, percentiles

GOAL = "<= 1.0"
RATES = (100, 1000)
SECONDS = 4.0
ROUNDS = 5
RECORD = 1000
LINGER_MS = 100
SIDES: dict[str, dict[str, str]] = {
    "WAL": {"headgate.durability": "WAL"},
    "OBJECT": {"headgate.durability": "OBJECT", "headgate.linger.ms": str(LINGER_MS)},
    "flush": {"flush.messages": "1"},
    "plain": {},
}


def latencies(broker: Broker, topic: str, rate: int) -> list[float]:
    """Seconds from handing a record to the client until its acknowledgement; the first second is left out."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all", "linger.ms": 0})
    values = payloads(RECORD)
    found: list[float] = []
    failed: list[KafkaError] = []
    producer.list_topics(topic, timeout=WAIT)
    began = time.monotonic()

    def sent_at(moment: float) -> Callable[[KafkaError | None, object], None]:
        def delivered(error: KafkaError | None, _: object) -> None:
            if error is not None:
                failed.append(error)
            else:
                found.append(time.monotonic() - moment)

        return delivered

    for number in range(int(rate * (SECONDS + 1))):
        due = began + number / rate
        while (now := time.monotonic()) < due:
            producer.poll(min(0.001, due - now))
        producer.produce(topic, values[number & 255], on_delivery=sent_at(time.monotonic()))
    if producer.flush(WAIT) or failed:
        raise SystemExit(f"{broker.name}: not everything was acknowledged: {failed[:1]}")
    return found[rate:]


def main() -> int:
    rounds: dict[str, dict[int, list[tuple[float, float]]]] = {name: {rate: [] for rate in RATES} for name in SIDES}
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder, ExitStack() as stack:
        ours = stack.enter_context(headgate(Path(folder) / "headgate"))
        kafka = stack.enter_context(apache_kafka(Path(folder) / "kafka"))
        brokers = {name: ours if "headgate.durability" in settings else kafka for name, settings in SIDES.items()}
        for name, settings in SIDES.items():
            brokers[name].create(name, 1, settings)
        for _ in range(ROUNDS):
            for rate in RATES:
                for name, broker in brokers.items():
                    rounds[name][rate].append(percentiles(latencies(broker, name, rate)))
    sides = {
        name: {rate: (median(p50 for p50, _ in one), median(p99 for _, p99 in one)) for rate, one in found.items()}
        for name, found in rounds.items()
    }
    print(f"{'':10}" + "".join(f"{f'{rate}/s p50 ms':>18}{'p99 ms':>10}" for rate in RATES))
    for name, found in sides.items():
        print(f"{name:10}" + "".join(f"{found[rate][0]:>18.2f}{found[rate][1]:>10.2f}" for rate in RATES))
    worst = max(sides["WAL"][rate][1] / sides["flush"][rate][1] for rate in RATES)
    print(
        json.dumps(
            {
                "name": "log_latency",
                "ratio": round(worst, 3),
                "goal": GOAL,
                "object_p50_over_linger": round(max(sides["OBJECT"][rate][0] for rate in RATES) / LINGER_MS, 3),
                "milliseconds": {
                    name: {str(rate): [round(value, 3) for value in found[rate]] for rate in RATES}
                    for name, found in sides.items()
                },
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
