"""Queries whose edges are on a real Kafka broker: every row comes out, also after crashes, and no topic is left."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.e2e.queries.edges_workload import PREFIX, EdgesWorkload
from tests.e2e.queries.kit import QueryCluster, json_lines, query_cluster, until
from tests.e2e.queries.torment import Torment
from tests.e2e.queries.workload import COLUMNS, counted, rows_of, same, windowed

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.usefixtures("spark_kafka_jars")]

# So little that sources and queries go on only because what was read is deleted; and the run that comes after one that
# nobody heard the end of waits for as long as that one may live.
AGENT_OPTIONS = ("--set", "fragments.edge_max_lag=1KiB", "--set", "timings.engine_keep_alive=3s")
ENGINE_OPTIONS = ("--set", "edge_max_lag=8KiB")


def topics_of(cluster: QueryCluster, bootstrap: str, query: str) -> list[str]:
    uid = cluster.query(query).uid
    return [
        name for name in AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=30).topics if uid in name
    ]


@pytest.mark.timeout(1200)
def test_no_row_is_lost_though_every_process_is_killed_and_no_topic_is_left(
    tmp_path: Path, kafka_bootstrap: str
) -> None:
    """A windowed query, a join and a union of which one source ends early, from files to files, and one from a topic to
    a topic; then one that ends by itself. Without a crash no row comes twice either."""
    with query_cluster(
        tmp_path, agents=("a", "b"), agent_options=AGENT_OPTIONS, engine_options=ENGINE_OPTIONS
    ) as cluster:
        work = EdgesWorkload(cluster, kafka_bootstrap, seed=7)
        work.create()
        torment = Torment(cluster, (work,), random.Random(7))
        torment.begin()
        assert len(topics_of(cluster, kafka_bootstrap, "edged_joined")) == 3
        # Two at a time, so that what each of them held is lost while the other is away.
        for victims in (("a", "coordinator"), ("b", "engine1")):
            for victim in victims:
                torment.kill(next(one for one in cluster.processes() if one.name == victim))
                torment.feed(100)
            torment.all_run()
        torment.end(kill_while_draining=False)
        assert torment.kills == len(cluster.processes())
        create_bounded(cluster, f"WITH ({work.edges})")
        cluster.wait("bounded", "TERMINATED", seconds=600)
        rows = rows_of(work.files.feeds["left"].path)
        same("bounded", counted(json_lines(cluster.files / "bounded.json")), counted(windowed(rows)))
        queries = (*work.queries, "bounded")
        until(lambda: not any(topics_of(cluster, kafka_bootstrap, query) for query in queries), "topics to go", 60)


def create_bounded(cluster: QueryCluster, options: str) -> None:
    """The windowed query over the same file, which is not followed any more."""
    files = cluster.files
    for statement in (
        f"CREATE LOGICAL SOURCE whole {COLUMNS}",
        f"CREATE PHYSICAL SOURCE FOR whole TYPE FILE ON a SET('{files / f'{PREFIX}left.csv'}' AS `SOURCE`.file_path)",
        "CREATE SINK bounded (start TIMESTAMP, k INT32, n INT64, total INT64) TYPE FILE ON b "
        f"SET('{files / 'bounded.json'}' AS `SINK`.file_path, 'JSON' AS `SINK`.input_format)",
        "CREATE QUERY bounded AS SELECT start, k, COUNT(*) AS n, SUM(v) AS total FROM whole GROUP BY k "
        f"WINDOW TUMBLING(ts, SIZE 5 SEC) INTO bounded {options}",
    ):
        cluster.sql(statement)
