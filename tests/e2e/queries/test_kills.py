"""Exactly once through crashes: every process is killed while queries run, and the results are those of the oracle."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.e2e.queries.kit import query_cluster
from tests.e2e.queries.torment import Torment
from tests.e2e.queries.workload import Workload


@pytest.mark.timeout(1800)
def test_results_are_exact_though_every_process_is_killed_twice(tmp_path: Path) -> None:
    """Agents lead edges at both ends and the topics, and each of them may run what Spark computes."""
    with query_cluster(tmp_path, agents=("a", "b")) as cluster:
        work = Workload(cluster, seed=7)
        work.create()
        work.create_relay()
        torment = Torment(cluster, work, random.Random(7))
        torment.begin()
        torment.kill_each(2)
        torment.end()
        assert torment.kills == 2 * len(cluster.processes())
