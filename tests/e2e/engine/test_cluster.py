"""An engine on a Spark standalone cluster: a master and two workers as real processes, started from the wheel."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.engine import v1 as engine
from tests.integration.engine.edges import serving_edges
from tests.integration.engine.events import EVENTS, events, parts, seen_windows, windowed, windows
from tests.integration.engine.kit import Engine, until
from tests.servers.spark import SparkCluster, running_spark_cluster

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

# Runs in every Python that Spark starts, and takes away what executors of strangers would not have. The driver, where
# the engine is installed, starts Pythons too.
SITE = f"""
import os, sys
if "SPARK_EXECUTOR_DIRS" in os.environ:
    root = {str(Path(__file__).parents[3])!r}
    sys.path[:] = [path for path in sys.path if not path.startswith(root) or ".venv" in path]
    try:
        import headgate_common
    except ImportError:
        open(os.path.join(os.path.dirname(__file__), f"stranger{{os.getpid()}}"), "w").close()
    else:
        raise SystemExit("an executor has packages of ours")
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SparkCluster]:
    with running_spark_cluster(tmp_path) as made:
        yield made


def test_a_run_on_a_cluster_of_strangers_survives_the_loss_of_a_worker(cluster: SparkCluster, tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(SITE)
    options = (
        f"--master={cluster.url}",
        "--set=timings.keep_alive=120s",
        "--set=spark.conf.spark.executor.memory=512m",
        "--set=spark.conf.spark.executor.cores=1",
        f"--set=spark.conf.spark.executorEnv.PYTHONPATH={site}",
        "--set=spark.conf.spark.driver.host=127.0.0.1",
        "--set=spark.conf.spark.driver.bindAddress=127.0.0.1",
    )
    rows = events(51, 160)
    with serving_edges() as edges:
        source, out = edges.create("in", 2), edges.create("out", 2)
        source.edge, out.edge = 1, 9
        first, second = parts(rows, 80)
        for number, part in enumerate(parts(first, 20)):
            edges.append("in", part, EVENTS, number % 2)
        process = Engine(tmp_path, options)
        try:
            client = process.start()
            ref = engine.RunRef(fragment_uid="windows", epoch=1)
            client(
                engine.StartFragmentRequest(
                    run=ref,
                    query="cluster",
                    plan=windowed(1),
                    inputs=[source],
                    output=out,
                    checkpoint=str(tmp_path / "checkpoints"),
                )
            )
            until(lambda: client.run(ref).progress.rows_in == 80, "the first rows", 120)
            cluster.workers[0].kill()
            for number, part in enumerate(parts(second, 20)):
                edges.append("in", part, EVENTS, number % 2)
            edges.end("in")
            client.wait(ref, engine.RUN_STATE_FINISHED, seconds=150)
        finally:
            process.stop()
        assert seen_windows(edges.rows("out")) == windows(rows)
    assert list(site.glob("stranger*")), "no executor ran without our packages"
