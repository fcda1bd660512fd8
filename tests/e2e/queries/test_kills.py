"""Exactly once through crashes: every process is killed while queries run, and the results are those of the oracle."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.e2e.queries.kit import query_cluster
from tests.e2e.queries.torment import Torment
from tests.e2e.queries.workload import Workload


@pytest.mark.timeout(1200)
def test_results_are_exact_though_every_process_is_killed_twice(tmp_path: Path) -> None:
    """Agents lead edges at both ends, and each of them may run what Spark computes."""
    seed = 7
    with query_cluster(tmp_path, agents=("a", "b")) as cluster:
        work = Workload(cluster, seed)
        work.create()
        work.feed(100)
        for query in work.QUERIES:
            cluster.wait(query, "RUNNING", seconds=300)
        torment = Torment(cluster, random.Random(seed))
        for victim in torment.schedule(2):
            torment.kill(victim)
            work.feed(100)
            time.sleep(torment.source.uniform(0.5, 3.0))
        for query in work.QUERIES:
            cluster.wait(query, "RUNNING", seconds=300)
        work.feed(50)
        for query in work.QUERIES:
            cluster.sql(f"STOP QUERY {query}")
        for query in work.QUERIES:
            cluster.wait(query, "STOPPED", seconds=300)
        work.check()
        for query in work.QUERIES:
            assert sum(one.progress.rows_late for one in cluster.fragments(query)) == 0
