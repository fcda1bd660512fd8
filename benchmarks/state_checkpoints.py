"""What a checkpoint of state costs, written as changes (`spark.changelog`, the default) and as a whole.

A count for each of many keys, in RocksDB, on a local folder; every micro-batch changes a few of the keys. Told are the
time of a micro-batch, the part of it that commits state, and how long a restart takes until its first micro-batch has
ended, which has to read the state back. The two settings take turns on one Spark. `ratio` is the time of a micro-batch
with changes over that without, at the largest state. BATCHES=n; QUICK=1 does few, and small ones.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headgate_engine.config import SparkConfig
from headgate_engine.spark import SparkHost

QUICK = bool(os.environ.get("QUICK"))
BATCHES = int(os.environ.get("BATCHES", "5" if QUICK else "30"))
SIZES = (10_000,) if QUICK else (10_000, 100_000, 1_000_000)
# Keys that a micro-batch changes.
CHANGED = 2_000
CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
KEPT = "spark.sql.streaming.numRecentProgressUpdates"
SHUFFLE = {"spark.sql.shuffle.partitions": "2"}


@dataclass(frozen=True, slots=True)
class Cost:
    batch_ms: float
    commit_ms: float
    restart_seconds: float


def feed(folder: Path, keys: int) -> None:
    """One file for each micro-batch: the first has all keys, the others some, and the last is that of the restart."""
    folder.mkdir()
    for number in range(BATCHES + 2):
        some = range(keys) if number == 0 else [(number * CHANGED + each) * 7919 % keys for each in range(CHANGED)]
        pq.write_table(pa.table({"k": pa.array(some, pa.int64())}), folder / f"{number:05}.parquet")
        os.utime(folder / f"{number:05}.parquet", (1_000_000 + number, 1_000_000 + number))


def run(host: SparkHost, rows: Path, checkpoint: Path, until: int, *, changelog: bool) -> tuple[float, list[Any]]:
    """Runs micro-batches of one file each; answers how long that took, and Spark's report of each."""
    session = host.session(SHUFFLE, pool="bench")
    session.conf.set(CHANGELOG, str(changelog).lower())
    session.conf.set(KEPT, str(2 * BATCHES))
    frame = session.readStream.schema("k long").option("maxFilesPerTrigger", 1).parquet(str(rows))
    began = time.monotonic()
    query = (
        frame.groupBy("k")
        .count()
        .writeStream.outputMode("update")
        .format("noop")
        .option("checkpointLocation", str(checkpoint))
        .start()
    )
    while query.lastProgress is None or query.lastProgress["batchId"] < until:
        if query.exception() is not None:
            raise SystemExit(str(query.exception()))
        time.sleep(0.005)
    took, reports = time.monotonic() - began, [json.loads(each.json) for each in query.recentProgress]
    query.stop()
    return took, reports


def measure(host: SparkHost, folder: Path, keys: int, *, changelog: bool) -> Cost:
    rows, checkpoint = folder / f"rows-{keys}", folder / f"checkpoint-{keys}-{changelog}"
    held_back = rows / f"{BATCHES + 1:05}.parquet"
    aside = folder / held_back.name
    held_back.rename(aside)
    _, reports = run(host, rows, checkpoint, BATCHES, changelog=changelog)
    aside.rename(held_back)
    restart, _ = run(host, rows, checkpoint, BATCHES + 1, changelog=changelog)
    steady = [each for each in reports if each["batchId"] > 0]
    return Cost(
        statistics.median(each["durationMs"]["triggerExecution"] for each in steady),
        # Of all tasks, which run at the same time.
        statistics.median(each["stateOperators"][0]["commitTimeMs"] / 2 for each in steady),
        restart,
    )


def main() -> int:
    host = SparkHost(SparkConfig(master="local[2]"))
    host.start()
    costs: dict[tuple[int, bool], Cost] = {}
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as name:
        folder = Path(name)
        for keys in SIZES:
            feed(folder / f"rows-{keys}", keys)
            for changelog in (True, False):
                costs[keys, changelog] = measure(host, folder, keys, changelog=changelog)
    host.stop()
    print(f"{'keys':<12}{'checkpoint':<12}{'batch, ms':>12}{'commit, ms':>12}{'restart, s':>12}")
    for (keys, changelog), cost in costs.items():
        how = "changes" if changelog else "whole"
        print(f"{keys:<12,}{how:<12}{cost.batch_ms:>12.0f}{cost.commit_ms:>12.0f}{cost.restart_seconds:>12.2f}")
    largest = SIZES[-1]
    ratios = {keys: round(costs[keys, True].batch_ms / costs[keys, False].batch_ms, 3) for keys in SIZES}
    print(json.dumps({"name": "state_checkpoints", "ratio": ratios[largest], "goal": "<= 1.0", "by_keys": ratios}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
