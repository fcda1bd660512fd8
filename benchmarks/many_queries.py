"""What one more query costs an engine: memory and processor time of 10, 25 and 50 small queries, busy and idle.

All read the same native topic, each keeps rows of one key and writes them to a topic of its own, exactly once. Both
transports: `grpc`, a Python data source that asks agents, and `kafka`, Spark's connector on the agents' Kafka port. The
peer is hand-written PySpark with as many such queries, through the same port, at least once. Each of the three has a
process of its own, which no other shares the machine with. Memory is that of the whole tree of processes (driver, JVM,
Python workers) after a full collection, shared pages counted once, less what it was before the first query; processor
time is that of the tree, in cores.

`ratio` is the worse of MB for each query over the aim: 120 with `grpc`, 10 with `kafka`. COUNTS=10,25,50; QUICK=1 shows
with a few queries that it all works.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

import processes
from bare_spark import Job
from streams import Bare, Stand, stand, wait_until_ready

QUICK = bool(os.environ.get("QUICK"))
COUNTS = tuple(int(count) for count in os.environ.get("COUNTS", "2,4" if QUICK else "10,25,50").split(","))
SECONDS = 5.0 if QUICK else 20.0
SETTLE_SECONDS = 5.0
ROWS_PER_SECOND = 100
PATIENCE_SECONDS = 300.0
AIMS = {"grpc": 120.0, "kafka": 10.0}
COLUMNS = "id INT64 NOT NULL, k INT32 NOT NULL"


@dataclass(frozen=True, slots=True)
class Cost:
    """Of so many queries, in all."""

    queries: int
    memory: float
    idle: float
    busy: float
    # Seconds until the last of them ran.
    started: float
    # What the agent takes, in cores, while they are busy; it is shared by everything.
    agent: float


class Meter:
    """Looks at a tree of processes from outside."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def cores(self, seconds: float, meanwhile: Callable[[float], None] = time.sleep) -> float:
        before, began = self.seconds(), time.monotonic()
        meanwhile(seconds)
        return (self.seconds() - before) / (time.monotonic() - began)

    def seconds(self) -> float:
        total = 0.0
        for pid in processes.tree(self._pid):
            try:
                total += processes.processor_seconds(pid)
            except OSError:
                continue
        return total

    def memory(self) -> float:
        """After a full collection of every JVM in it: garbage says nothing about queries."""
        for pid in processes.tree(self._pid):
            try:
                java = Path(f"/proc/{pid}/comm").read_text().strip() == "java"
            except OSError:
                continue
            if java and (jcmd := shutil.which("jcmd")):
                subprocess.run([jcmd, str(pid), "GC.run"], capture_output=True, timeout=60, check=False)
        time.sleep(1.0)
        return sum(processes.own_memory_mib(pid) for pid in processes.tree(self._pid))


def feed(on: Stand, seconds: float) -> None:
    """Rows at a steady rate; every query reads them all and keeps a few."""
    producer = on.native.producer({"linger.ms": 5})
    began = time.monotonic()
    sent = 0
    while (passed := time.monotonic() - began) < seconds:
        while sent < passed * ROWS_PER_SECOND:
            producer.produce("in", json.dumps({"id": sent, "k": sent % max(COUNTS)}).encode())
            sent += 1
        producer.poll(0)
        time.sleep(0.02)
    producer.flush(10)


def start_query(on: Stand, number: int, transport: str) -> None:
    name = f"{transport}{number}"
    on.native.create(name, 1, {"headgate.durability": "WAL"})
    on.cluster.sql(f"CREATE SINK {name} (id INT64, k INT32) TYPE TOPIC WITH (topic = '{name}')")
    on.cluster.sql(f"CREATE QUERY {name} AS SELECT id, k FROM {transport} WHERE k = {number} INTO {name}")


def headgate(on: Stand, transport: str) -> list[Cost]:
    sql = on.cluster.sql
    sql(f"CREATE LOGICAL SOURCE {transport} ({COLUMNS})")
    sql(f"CREATE PHYSICAL SOURCE FOR {transport} TYPE TOPIC WITH (topic = 'in', transport = '{transport}')")
    engine = on.cluster.engines[0]
    wait_until_ready(engine)

    def start(first: int, count: int) -> None:
        for number in range(first, count):
            start_query(on, number, transport)
        for number in range(first, count):
            on.cluster.wait(f"{transport}{number}", "RUNNING", seconds=PATIENCE_SECONDS)

    return measure(on, engine.pid, start, transport)


def bare(on: Stand) -> list[Cost]:
    process = Bare.start(on.master, 2, on.folder / "bare.log")

    def start(first: int, count: int) -> None:
        for number in range(first, count):
            name = f"bare{number}"
            on.native.create(name, 1, {"headgate.durability": "WAL"})
            process.run(
                Job(
                    name=name,
                    sql=f"SELECT id, k FROM events WHERE k = {number}",
                    columns="id BIGINT, k INT",
                    bootstrap=on.native.bootstrap,
                    source="in",
                    sink=name,
                    checkpoint=str(on.folder / "bare" / name),
                )
            )

    try:
        return measure(on, process.process.pid, start, "bare")
    finally:
        process.close()


def measure(on: Stand, pid: int, start: Callable[[int, int], None], name: str) -> list[Cost]:
    meter, agent = Meter(pid), Meter(on.cluster.agents["a"].pid)
    base = meter.memory()
    base_cores = meter.cores(SETTLE_SECONDS)
    found: list[Cost] = []
    running = 0
    for count in COUNTS:
        began = time.monotonic()
        start(running, count)
        started, running = time.monotonic() - began, count
        # Every one of them has had rows before anything is measured.
        feed(on, SETTLE_SECONDS)
        beginning = agent.seconds()
        busy = meter.cores(SECONDS, lambda seconds: feed(on, seconds))
        spent = agent.seconds() - beginning
        time.sleep(SETTLE_SECONDS)
        idle = meter.cores(SECONDS)
        cost = Cost(count, meter.memory() - base, idle - base_cores, busy - base_cores, started, spent / SECONDS)
        print(f"  {name}: {cost}", file=sys.stderr)
        found.append(cost)
    return found


def main() -> int:
    found: dict[str, list[Cost]] = {}
    for side in ("grpc", "kafka", "bare"):
        with (
            tempfile.TemporaryDirectory(prefix="headgate-bench-", ignore_cleanup_errors=True) as folder,
            stand(Path(folder), agent=("--slots", "1000"), engines=0 if side == "bare" else 1, kafka=False) as on,
        ):
            on.native.create("in", 1, {"headgate.durability": "WAL"})
            found[side] = bare(on) if side == "bare" else headgate(on, side)
    heads = ("MB each", "idle m-cores each", "busy m-cores each", "started in s", "agent cores")
    print(f"{'':<8}{'queries':>8}" + "".join(f"{head:>19}" for head in heads))
    figures: dict[str, dict[str, dict[str, float]]] = {}
    for side, costs in found.items():
        for cost in costs:
            number = cost.queries
            each = [
                cost.memory / number,
                cost.idle / number * 1000,
                cost.busy / number * 1000,
                cost.started,
                cost.agent,
            ]
            print(f"{side:<8}{number:>8}" + "".join(f"{value:>19.2f}" for value in each))
            names = ("mb_each", "idle_millicores_each", "busy_millicores_each", "started_seconds", "agent_cores")
            figures.setdefault(side, {})[str(number)] = dict(zip(names, (round(one, 2) for one in each), strict=True))
    most = str(COUNTS[-1])
    print(
        json.dumps(
            {
                "name": "many_queries",
                "ratio": round(max(figures[side][most]["mb_each"] / aim for side, aim in AIMS.items()), 3),
                "goal": "<= 1",
                "aims_mb_each": AIMS,
                "rows_per_second": ROWS_PER_SECOND,
                "queries": figures,
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
