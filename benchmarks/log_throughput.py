"""Produce and consume through the Kafka protocol, side by side with Apache Kafka, with the same client and settings.

Headgate's topics are `WAL` (every acknowledgement after fdatasync). Its peer is Kafka with `flush.messages=1`, which
promises the same; plain Kafka, which acknowledges from memory, is printed beside it. `ratio` is the worse of produce
and consume at 1 MiB batches over the peer, of all sizes of records.

Both brokers run throughout and take turns, round by round: a machine that is slower for a minute is so for each of
them. A turn begins when all brokers rest and the disk has everything. A GB that is not counted comes first: a JVM
compiles, an agent writes its write-ahead files for the first time. What is read has just been written, and is read
several times; the best of all rounds counts. The processor time of a GB has
everything that storing it causes, uploads in the background too, and reading it once. Beside it stand its share of the
time that producing and consuming took, and that of the client: the client is what is measured where its share is
larger, and it is the same for all. What a GB asks of the object store is printed for both durabilities. FULL=1 runs
every combination; otherwise those that decide.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
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
WARM_UPS = 5
ROUNDS = 3
READS = 2
REQUESTS_SIZE = 256 * MIB
SETTLE = 3.0
# Brokers rest when they together take less than this share of a core for so long.
REST_SHARE = 0.2
REST_SECONDS = 0.3
REST_WITHIN = 30.0


@dataclass(frozen=True, slots=True)
class Case:
    record: int
    partitions: int
    batch: int
    codec: str

    def load(self) -> Load:
        # Small batches are slow with a flush for each, and small records in the client: less of them tells as much.
        size = 32 if self.batch < MIB else 192 if self.record >= 1000 else 64
        return Load(self.record, self.batch, size * MIB, self.codec)

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


@dataclass(slots=True)
class Found:
    """The best of some rounds in MB/s; what a GB cost in processor seconds, and what share of the time that was."""

    produce: float = 0.0
    consume: float = 0.0
    cpu_per_gb: float = float("inf")
    share: float = 0.0
    client_share: float = 0.0


def rest(brokers: Sequence[Broker]) -> None:
    """Returns when nothing is left to do behind what was acknowledged."""
    os.sync()
    deadline = time.monotonic() + REST_WITHIN
    while time.monotonic() < deadline:
        used = sum(broker.processor_seconds() for broker in brokers)
        time.sleep(REST_SECONDS)
        if sum(broker.processor_seconds() for broker in brokers) - used < REST_SHARE * REST_SECONDS:
            return


def warm_up(broker: Broker, settings: dict[str, str]) -> None:
    case = cases()[0]
    for number in range(WARM_UPS):
        topic = f"warm-up-{number}"
        broker.create(topic, case.partitions, settings)
        produce(broker, topic, case.load())
        consume(broker, topic, case.partitions, case.load())


def measure(
    broker: Broker, others: Sequence[Broker], topic: str, settings: dict[str, str], case: Case, found: Found
) -> None:
    """One round of one side, whose best goes into `found`."""
    load = case.load()
    broker.create(topic, case.partitions, settings)
    rest((broker, *others))
    used, client = broker.processor_seconds(), time.process_time()
    wrote = produce(broker, topic, load)
    client_wrote = time.process_time() - client
    rest((broker,))
    stored, client = broker.processor_seconds(), time.process_time()
    reads = [consume(broker, topic, case.partitions, load) for _ in range(READS)]
    client_read = (time.process_time() - client) / READS
    spent = stored - used + (broker.processor_seconds() - stored) / READS
    found.produce = max(found.produce, load.size / wrote / 1e6)
    found.consume = max(found.consume, load.size / min(reads) / 1e6)
    if (cost := spent / (load.size / 1e9)) < found.cpu_per_gb:
        took = wrote + sum(reads) / READS
        found.cpu_per_gb, found.share, found.client_share = cost, spent / took, (client_wrote + client_read) / took


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


def over(sides: Mapping[str, Found], peer: str) -> dict[str, float]:
    return {kind: round(getattr(sides["headgate"], kind) / getattr(sides[peer], kind), 3) for kind in KINDS}


def compare() -> tuple[dict[Case, dict[str, Found]], dict[str, float]]:
    """What each side did in each case, and requests per GB."""
    results = {case: {name: Found() for name, _ in SIDES} for case in cases()}
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder, ExitStack() as stack:
        ours = stack.enter_context(headgate(Path(folder) / "headgate"))
        kafka = stack.enter_context(apache_kafka(Path(folder) / "kafka"))
        # First, so that none of them is for what is left of other topics.
        requests = {
            f"{durability}, {partitions} partitions": requests_per_gb(ours, durability, partitions)
            for durability in ("WAL", "OBJECT")
            for partitions in (1, 16)
        }
        for broker, (_, settings) in zip((ours, kafka), SIDES, strict=False):
            warm_up(broker, dict(settings))
        for place, (case, sides) in enumerate(results.items()):
            for number in range(ROUNDS):
                for name, settings in SIDES:
                    broker, other = (ours, kafka) if name == "headgate" else (kafka, ours)
                    measure(broker, (other,), f"{name}-{place}-{number}", dict(settings), case, sides[name])
    return results, requests


def main() -> int:
    results, requests = compare()
    print(f"{'':44}{'produce MB/s':>30}{'consume MB/s':>30}{'CPU s per GB':>24}{'of the time':>24}{'client':>24}")
    heads = "".join(f"{name:>10}" for name, _ in SIDES)
    print(f"{'':44}{heads}{heads}" + 3 * "".join(f"{name[:7]:>8}" for name, _ in SIDES))
    figures = {}
    for case, sides in results.items():
        line = f"{case!s:44}"
        for kind in KINDS:
            line += "".join(f"{getattr(sides[name], kind):>10.0f}" for name, _ in SIDES)
        line += "".join(f"{sides[name].cpu_per_gb:>8.1f}" for name, _ in SIDES)
        line += "".join(f"{sides[name].share:>8.0%}" for name, _ in SIDES)
        print(line + "".join(f"{sides[name].client_share:>8.0%}" for name, _ in SIDES))
        figures[str(case)] = {
            "over_flush": over(sides, "flush"),
            "over_plain": over(sides, "plain"),
            "cpu_per_gb": {name: round(sides[name].cpu_per_gb, 2) for name, _ in SIDES},
            "cpu_share": {name: round(sides[name].share, 3) for name, _ in SIDES},
            "client_share": {name: round(sides[name].client_share, 3) for name, _ in SIDES},
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
