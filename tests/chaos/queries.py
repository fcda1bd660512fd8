"""`make chaos WHAT=queries`: kills every process of a cluster under queries, again and again, and compares the results
with an oracle; then the same from Kafka to Kafka, in every way of delivery. Bounded by HOURS; SEED names the first
round; each round prints its seed."""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.e2e.queries.kafka_workload import ENGINE_OPTIONS, KafkaWorkload
from tests.e2e.queries.kit import query_cluster
from tests.e2e.queries.torment import Torment
from tests.e2e.queries.workload import Workload
from tests.servers.kafka import running_kafka

KILLS_OF_EACH = 5


def main() -> int:
    hours = float(os.environ.get("HOURS") or 1)
    seed = int(os.environ.get("SEED") or 1)
    deadline = time.monotonic() + hours * 3600
    kills = 0
    while time.monotonic() < deadline:
        with tempfile.TemporaryDirectory(prefix="headgate-chaos-", ignore_cleanup_errors=True) as folder:
            print(f"seed {seed}", flush=True)
            with query_cluster(Path(folder), agents=("a", "b"), engines=2) as cluster:
                work = Workload(cluster, seed)
                work.create()
                work.create_relay()
                torment = Torment(cluster, work, random.Random(seed), say=_say)
                torment.begin()
                torment.kill_each(KILLS_OF_EACH)
                torment.end()
            kills += torment.kills
            print(f"seed {seed}: exact after {torment.kills} kills; {kills} in all", flush=True)
        kills += _with_kafka(seed)
        seed += 1
    return 0


def _with_kafka(seed: int) -> int:
    """The same for every way of delivery, from Kafka to Kafka; answers how many kills that took."""
    with tempfile.TemporaryDirectory(prefix="headgate-chaos-", ignore_cleanup_errors=True) as made:
        folder = Path(made)
        with (
            running_kafka(folder / "kafka.log") as kafka,
            query_cluster(folder, agents=("a", "b"), engines=2, engine_options=ENGINE_OPTIONS) as cluster,
        ):
            work = KafkaWorkload(cluster, kafka.bootstrap, f"chaos-{seed}", seed)
            work.create()
            torment = Torment(cluster, work, random.Random(seed), say=_say)
            torment.begin()
            torment.kill_each(KILLS_OF_EACH)
            torment.end()
    print(f"seed {seed}: every delivery kept its word through {torment.kills} kills", flush=True)
    return torment.kills


def _say(text: str) -> None:
    print(f"  {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
