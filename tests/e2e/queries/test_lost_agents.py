"""Agents that are lost for good, with their disks: what they computed and delivered goes on elsewhere, and is exact."""

from __future__ import annotations

import random
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.catalog import v1 as catalog
from tests.e2e.queries.kit import QueryCluster, query_cluster, until
from tests.e2e.queries.workload import Feed, consumed, rows_of

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[QueryCluster]:
    """Agent `near` has the files and room for nothing else; what can move is on the others."""
    with query_cluster(tmp_path, agents=()) as made:
        made.add_agent("near", "--slots", "1", "--engine", "")
        made.add_agent("b")
        made.add_agent("c")
        yield made


def place_of(cluster: QueryCluster, kind: catalog.FragmentKind.ValueType) -> str:
    (found,) = [one for one in cluster.fragments("doubled") if one.kind == kind]
    return found.agent


def test_no_committed_batch_is_lost_with_the_agent_that_delivers_to_a_topic(cluster: QueryCluster) -> None:
    feed = Feed(cluster.files / "in.csv", random.Random(3))
    cluster.sql("CREATE LOGICAL SOURCE numbers (id INT64 NOT NULL, ts TIMESTAMP NOT NULL, k INT32 NOT NULL, v INT64)")
    cluster.sql(
        f"CREATE PHYSICAL SOURCE FOR numbers TYPE FILE ON near SET('{feed.path}' AS `SOURCE`.file_path, "
        "true AS `SOURCE`.follow, '100 ms' AS `SOURCE`.poll_interval)"
    )
    cluster.sql("CREATE TOPIC doubles PARTITIONS 2")
    cluster.sql("CREATE SINK doubles (id INT64, twice INT64) TYPE TOPIC WITH (topic = 'doubles', key_column = 'id')")
    feed.append(200)
    cluster.sql("CREATE QUERY doubled AS SELECT id, v * 2 AS twice FROM numbers INTO doubles")
    cluster.wait("doubled", "RUNNING", seconds=300)
    until(lambda: len(consumed(cluster, "doubles")) == 200, "the first rows to be delivered", 120)

    for count in (300, 400):
        feed.append(count)
        lost = place_of(cluster, catalog.FRAGMENT_KIND_SINK)
        assert lost != "near"
        gone = cluster.agents[lost]
        gone.kill()
        shutil.rmtree(cluster.folder / lost)
        killed = time.monotonic()
        until(lambda lost=lost: place_of(cluster, catalog.FRAGMENT_KIND_SINK) != lost, "the sink to move", 60)
        print(f"moved {time.monotonic() - killed:.1f} s after the kill")
        # Another one takes the place of the lost one, without anything of it.
        cluster.add_agent(f"{lost}x")
        cluster.wait("doubled", "RUNNING", seconds=300)

    feed.append(100)
    cluster.sql("STOP QUERY doubled WITHIN 3 MIN")
    cluster.wait("doubled", "STOPPED", seconds=300)
    expected = Counter((row.id, row.v * 2) for row in rows_of(feed.path))
    found = Counter((row["id"], row["twice"]) for row in consumed(cluster, "doubles"))
    assert found == expected
