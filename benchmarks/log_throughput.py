"""Produce and consume through the Kafka protocol, side by side with Apache Kafka, with the same client and settings.

Headgate's topics are `WAL` (every acknowledgement after fdatasync). Its peer is Kafka with `flush.messages=1`, which
promises the same; plain Kafka, which acknowledges from memory, is printed beside it. `ratio` is the worse of produce
and consume at 1 MiB batches over the peer, of all sizes of records. Beside the processor time that a GB costs the
broker stands what share that is of the time that it took: where it is small, the client is what is measured, as it is
with records of 100 B. What a GB asks of the object store is printed for both durabilities. FULL=1 runs every
combination; otherwise those that decide.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from brokers import Broker, Load, apache_kafka, consume, headgate, produce

GOAL = ">= 1.0"
MIB = 1 << 20
KINDS = ("produce", "consume")
SIDES: tuple[tuple[str, dict[str, str]], ...] = (
    ("headgate", {"headgate.durability": "WAL"}),
    ("flush", {"flush.messages": "1"}),
    ("plain", {}),
)
ROUNDS = 3
REQUESTS_SIZE = 256 * MIB
SETTLE = 5.0


@dataclass(frozen=True, slots=True)
class Case:
    record: int
    partitions: int
    batch: int
    codec: str

    def load(self) -> Load:
        # Small batches are slow with a flush for each: less of them tells as much.
        return Load(self.record, self.batch, (192 if self.batch >= MIB else 32) * MIB, self.codec)

    def __str__(self) -> str:
        return f"{self.record} B, {self.partitions} partitions, {self.batch >> 10} KiB, {self.codec}"


def cases() -> list[Case]:
    if os.environ.get("FULL"):
        return [
            Case(record, partitions, batch, codec)
            for record in (1000, 100)
            for partitions in (1, 16)
            for batch in (MIB, 128 << 10, 16 << 10)
            for codec in ("none", "lz4")
        ]
    return [
        Case(1000, 1, MIB, "none"),
        Case(1000, 16, MIB, "none"),
        Case(1000, 1, 16 << 10, "none"),
        Case(1000, 16, MIB, "lz4"),
        Case(100, 1, MIB, "none"),
        Case(100, 16, MIB, "none"),
    ]


def measure(broker: Broker, name: str, settings: dict[str, str], case: Case) -> dict[str, float]:
    """The best of some rounds in MB/s, what a GB cost in processor seconds, and what share of the time that was."""
    load, found = case.load(), {"produce": 0.0, "consume": 0.0, "cpu_per_gb": float("inf"), "share": 0.0}
    for number in range(ROUNDS):
        topic = f"{name}-{case.record}-{case.partitions}-{case.batch}-{case.codec}-{number}"
        broker.create(topic, case.partitions, settings)
        used = broker.processor_seconds()
        wrote = produce(broker, topic, load)
        read = consume(broker, topic, case.partitions, load)
        spent = broker.processor_seconds() - used
        cost = spent / (load.size / 1e9)
        found["produce"] = max(found["produce"], load.size / wrote / 1e6)
        found["consume"] = max(found["consume"], load.size / read / 1e6)
        if cost < found["cpu_per_gb"]:
            found["cpu_per_gb"], found["share"] = cost, spent / (wrote + read)
    return found


def requests_per_gb(broker: Broker, durability: str, partitions: int) -> float:
    """What storing a GB in batches of 1 MiB asks of the object store, when all of it is there."""
    load = Load(1000, MIB, REQUESTS_SIZE)
    topic = f"requests-{durability.lower()}-{partitions}"
    # What is left at the end is uploaded soon, and counted.
    broker.create(topic, partitions, {"headgate.durability": durability, "segment.ms": "1000"})
    asked = broker.object_requests()
    produce(broker, topic, load)
    time.sleep(SETTLE)
    return (broker.object_requests() - asked) / (load.size / 1e9)


def main() -> int:
    requests: dict[str, float] = {}
    results: dict[Case, dict[str, dict[str, float]]] = {case: {} for case in cases()}
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder:
        # One broker at a time has the machine.
        with headgate(Path(folder) / "headgate") as broker:
            for case, sides in results.items():
                sides["headgate"] = measure(broker, "headgate", {"headgate.durability": "WAL"}, case)
            for durability in ("WAL", "OBJECT"):
                for partitions in (1, 16):
                    where = f"{durability}, {partitions} partitions"
                    requests[where] = requests_per_gb(broker, durability, partitions)
        with apache_kafka(Path(folder) / "kafka") as broker:
            for name, settings in SIDES[1:]:
                for case, sides in results.items():
                    sides[name] = measure(broker, name, dict(settings), case)
    print(f"{'':44}{'produce MB/s':>30}{'consume MB/s':>30}{'CPU s per GB':>24}{'of the time':>24}")
    heads = "".join(f"{name:>10}" for name, _ in SIDES)
    print(f"{'':44}{heads}{heads}" + 2 * "".join(f"{name[:7]:>8}" for name, _ in SIDES))
    figures = {}
    for case, sides in results.items():
        line = f"{case!s:44}"
        for measured in ("produce", "consume"):
            line += "".join(f"{sides[name][measured]:>10.0f}" for name, _ in SIDES)
        line += "".join(f"{sides[name]['cpu_per_gb']:>8.1f}" for name, _ in SIDES)
        print(line + "".join(f"{sides[name]['share']:>8.0%}" for name, _ in SIDES))
        figures[str(case)] = {
            "over_flush": {kind: round(sides["headgate"][kind] / sides["flush"][kind], 3) for kind in KINDS},
            "over_plain": {kind: round(sides["headgate"][kind] / sides["plain"][kind], 3) for kind in KINDS},
            "cpu_per_gb": {name: round(sides[name]["cpu_per_gb"], 2) for name, _ in SIDES},
            "cpu_share": {name: round(sides[name]["share"], 3) for name, _ in SIDES},
        }
    print("object-store requests per GB: " + "; ".join(f"{where}: {count:.0f}" for where, count in requests.items()))
    by_record = {
        record: min(
            min(figures[str(case)]["over_flush"].values())
            for case in results
            if case.batch == MIB and case.record == record
        )
        for record in sorted({case.record for case in results})
    }
    print(
        "worst over flush at 1 MiB: " + ", ".join(f"{record} B records {worst}" for record, worst in by_record.items())
    )
    small = [figures[str(case)]["over_flush"] for case in results if case.batch == 16 << 10]
    print(
        json.dumps(
            {
                "name": "log_throughput",
                "ratio": min(by_record.values()),
                "goal": GOAL,
                "ratio_by_record": {str(record): worst for record, worst in by_record.items()},
                "ratio_16_kib": min(min(ratios.values()) for ratios in small),
                "goal_16_kib": ">= 0.5",
                "object_requests_per_gb": {where: round(count, 1) for where, count in requests.items()},
                "cases": figures,
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
