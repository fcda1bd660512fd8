"""An engine on a Spark standalone cluster: a master and two workers as real processes, started from the wheel."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pyspark
import pytest

from headgate.engine import v1 as engine
from tests.integration.engine.edges import serving_edges
from tests.integration.engine.events import EVENTS, events, parts, seen_windows, windowed, windows
from tests.integration.engine.kit import Engine, until
from tests.servers.process import Command, ServerProcess, free_port

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

SPARK_HOME = Path(pyspark.__file__).parent
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


class Cluster:
    """Owns its processes; each goes on until the test ends or kills it."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self.url = f"spark://127.0.0.1:{free_port()}"
        self._start("master", "Master", "--port", self.url.rpartition(":")[2], "--webui-port", "0")
        self.workers = [
            self._start(f"worker{number}", "Worker", "-c", "1", "-m", "900m", self.url) for number in (1, 2)
        ]

    def _start(self, name: str, kind: str, *arguments: str) -> ServerProcess:
        environment = [f"SPARK_HOME={SPARK_HOME}", "SPARK_DAEMON_MEMORY=256m", "SPARK_LOCAL_IP=127.0.0.1"]
        work = ["--work-dir", str(self._folder / name), "--webui-port", "0"] if kind == "Worker" else []
        command = [
            "env",
            *environment,
            str(SPARK_HOME / "bin" / "spark-class"),
            f"org.apache.spark.deploy.{kind.lower()}.{kind}",
        ]
        log = self._folder / f"{name}.log"
        process = ServerProcess(Command(name, [*command, "--host", "127.0.0.1", *work, *arguments], log))
        self._stack.callback(process.stop)
        return process

    def registered(self) -> int:
        log = self._folder / "master.log"
        return len(re.findall(r"Registering worker", log.read_text())) if log.exists() else 0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with ExitStack() as stack:
        made = Cluster(tmp_path, stack)
        until(lambda: made.registered() == 2, "both workers to register")
        yield made


def test_a_run_on_a_cluster_of_strangers_survives_the_loss_of_a_worker(cluster: Cluster, tmp_path: Path) -> None:
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
