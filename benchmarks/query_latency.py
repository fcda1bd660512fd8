"""How long a row takes from a producer through a query to a consumer, next to the same query in hand-written PySpark.

A producer sends rows at a steady rate; each carries the time at which it was sent, and a consumer that waits on the
other topic takes the difference. Both modes: micro-batches (`exactly_once`, and `at_least_once`, which is what bare
Spark promises) with the trigger of bare Spark, and `realtime` next to bare Spark's real-time trigger; on Apache Kafka,
and for Headgate on native topics too. One side at a time; the first seconds of each do not count.

`ratio` is the p50 of `realtime` on Kafka topics over that of bare Spark's real-time trigger. RATE=n rows a second,
SECONDS=n of measuring; QUICK=1 shows in a few minutes that it all works.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from bare_spark import Job
from brokers import percentiles
from streams import Stand, TopicReader, Topics, stand

QUICK = bool(os.environ.get("QUICK"))
RATES = tuple(int(rate) for rate in os.environ.get("RATE", "100" if QUICK else "100,1000").split(","))
SECONDS = float(os.environ.get("SECONDS", "5" if QUICK else "20"))
SETTLE_SECONDS = 5.0
PATIENCE_SECONDS = 300.0
# Real time holds a slot for each partition for good; two are kept for micro-batches.
MASTER = "local[4]"
SQL = "SELECT id, sent, v * 2 AS doubled FROM events WHERE v >= 0"
COLUMNS = "id INT64 NOT NULL, sent INT64 NOT NULL, v INT64 NOT NULL"
OUT_COLUMNS = "id INT64, sent INT64, doubled INT64"


@dataclass(frozen=True, slots=True)
class Side:
    name: str
    # Options of the query; none for bare Spark.
    options: str = ""
    realtime: bool = False
    native: bool = False


BARE_REALTIME = Side("bare Spark, real time", realtime=True)
REALTIME = Side("Headgate, realtime", "mode = 'realtime'", realtime=True)
SIDES = (
    BARE_REALTIME,
    REALTIME,
    Side("Headgate, realtime, native topics", "mode = 'realtime'", realtime=True, native=True),
    Side("bare Spark, micro-batches"),
    Side("Headgate, at_least_once", "delivery = 'at_least_once'"),
    Side("Headgate, exactly_once", "delivery = 'exactly_once'"),
    Side("Headgate, exactly_once, native topics", "delivery = 'exactly_once'", native=True),
)


class Bench:
    def __init__(self, on: Stand) -> None:
        self._on = on
        self._runs = 0

    def run(self, side: Side, rates: tuple[int, ...]) -> list[list[float]]:
        """Latencies in seconds, one list for each rate."""
        self._runs += 1
        name = f"run{self._runs}"
        topics = self._on.native if side.native else self._on.kafka
        for topic in (f"{name}-in", f"{name}-out"):
            topics.create(topic, 1, {"headgate.durability": "WAL"} if side.native else None)
        reader = topics.reader(f"{name}-out", 1)
        self._start(name, side)
        try:
            self._until_running(topics, reader, name)
            return [self._measure(topics, reader, name, rate) for rate in rates]
        finally:
            reader.close()
            if side.options:
                self._on.drop(name)
            else:
                self._on.bare.stop(name)

    def _start(self, name: str, side: Side) -> None:
        cluster, kafka = self._on.cluster, self._on.kafka.bootstrap
        if not side.options:
            checkpoint = str(self._on.folder / "bare" / name)
            job = Job(name, SQL, "id BIGINT, sent BIGINT, v BIGINT", kafka, f"{name}-in", f"{name}-out", checkpoint)
            self._on.bare.run(replace(job, realtime=side.realtime))
            return
        kind, where = ("TOPIC", "") if side.native else ("KAFKA", f"bootstrap_servers = '{kafka}', ")
        cluster.sql(f"CREATE LOGICAL SOURCE {name} ({COLUMNS})")
        cluster.sql(f"CREATE PHYSICAL SOURCE FOR {name} TYPE {kind} WITH ({where}topic = '{name}-in')")
        cluster.sql(f"CREATE SINK {name} ({OUT_COLUMNS}) TYPE {kind} WITH ({where}topic = '{name}-out')")
        text = SQL.replace("FROM events", f"FROM {name}")
        cluster.sql(f"CREATE QUERY {name} AS {text} INTO {name} WITH ({side.options})")
        cluster.wait(name, "RUNNING", seconds=PATIENCE_SECONDS)

    def _until_running(self, topics: Topics, reader: TopicReader, name: str) -> None:
        """Rows go through; then some more, until everything has been compiled."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        producer = topics.producer({"linger.ms": 0})
        while not reader.poll(0.2):
            producer.produce(f"{name}-in", row(-1))
            producer.flush(10)
            if time.monotonic() > deadline:
                raise SystemExit(f"{name}: no row came in {PATIENCE_SECONDS:g} s")
        self._measure(topics, reader, name, RATES[0], SETTLE_SECONDS)

    def _measure(
        self, topics: Topics, reader: TopicReader, name: str, rate: int, seconds: float = SECONDS
    ) -> list[float]:
        producer = topics.producer({"linger.ms": 0})
        wanted = int(rate * seconds)
        found: dict[int, float] = {}
        began, sent = time.monotonic(), 0
        deadline = began + seconds + PATIENCE_SECONDS
        while len(found) < wanted:
            due = min(wanted, int((time.monotonic() - began) * rate) + 1)
            for number in range(sent, due):
                producer.produce(f"{name}-in", row(number))
            sent = due
            producer.poll(0)
            for value in reader.poll(0.001):
                now = time.time()
                told = json.loads(value)
                if told["id"] >= 0:
                    found.setdefault(told["id"], now - told["sent"] / 1e6)
            if time.monotonic() > deadline:
                raise SystemExit(f"{name}: {len(found)} of {wanted} rows came")
        producer.flush(10)
        # The next round counts from 0 again: nothing of this one may be among its rows.
        while reader.poll(0.5):
            pass
        return list(found.values())


def row(number: int) -> bytes:
    return json.dumps({"id": number, "sent": int(time.time() * 1e6), "v": number + 1}).encode()


def main() -> int:
    found: dict[str, list[tuple[float, float]]] = {}
    with (
        tempfile.TemporaryDirectory(prefix="headgate-bench-", ignore_cleanup_errors=True) as folder,
        stand(Path(folder), master=MASTER) as on,
    ):
        on.ready()
        bench = Bench(on)
        print(f"{'milliseconds':<40}" + "".join(f"{f'p50 at {r}/s':>14}{'p99':>10}" for r in RATES), flush=True)
        for side in SIDES:
            found[side.name] = [percentiles(latencies) for latencies in bench.run(side, RATES)]
            print(
                f"{side.name:<40}" + "".join(f"{p50:>14.1f}{p99:>10.1f}" for p50, p99 in found[side.name]), flush=True
            )
    ratio = found[REALTIME.name][0][0] / found[BARE_REALTIME.name][0][0]
    print(
        json.dumps(
            {
                "name": "query_latency",
                "ratio": round(ratio, 3),
                "goal": "<= 2",
                "rows_per_second": list(RATES),
                "milliseconds": {
                    name: [{"p50": round(p50, 2), "p99": round(p99, 2)} for p50, p99 in pairs]
                    for name, pairs in found.items()
                },
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
