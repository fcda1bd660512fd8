"""Exactly once to the end of all sources, and through crashes: the results are those of the oracle."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.e2e.queries.kit import QueryCluster, query_cluster
from tests.e2e.queries.topic_workload import TopicWorkload
from tests.e2e.queries.topics import LogTopics
from tests.e2e.queries.torment import Torment
from tests.e2e.queries.workload import Workload

pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueryCluster]:
    with query_cluster(tmp_path_factory.mktemp("kills"), agents=("a", "b")) as made:
        yield made


def test_bounded_queries_end_by_themselves_with_complete_results(cluster: QueryCluster) -> None:
    """The last windows of a windowed query, of a join of two agents' files and of a union come out at the end."""
    work = Workload(cluster, seed=5, follow=False, prefix="bounded_")
    work.create()
    for query in work.queries:
        cluster.wait(query, "TERMINATED", seconds=600)
    work.check()


def test_results_are_exact_though_every_process_is_killed_twice(cluster: QueryCluster) -> None:
    """Agents lead edges at both ends and the topics, and each of them may run what Spark computes."""
    works = (Workload(cluster, seed=7), TopicWorkload(cluster, LogTopics(cluster), seed=7))
    for work in works:
        work.create()
    torment = Torment(cluster, works, random.Random(7))
    torment.begin()
    torment.kill_each(2)
    torment.end()
    assert torment.kills == 2 * len(cluster.processes()) + len(cluster.engines)
