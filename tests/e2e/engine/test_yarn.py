"""An engine on Hadoop YARN: a resource manager and a node manager as real processes."""

from __future__ import annotations

from pathlib import Path

import pyspark
import pytest

from headgate.engine import v1 as engine
from tests.integration.engine.edges import serving_edges
from tests.integration.engine.events import EVENTS, events, parts, seen_windows, windowed, windows
from tests.integration.engine.kit import Engine
from tests.servers.yarn import Yarn

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]


def test_a_windowed_run_on_yarn_is_exact(yarn: Yarn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", str(yarn.conf))
    rows = events(61, 160)
    with serving_edges() as edges:
        source, out = edges.create("in", 2), edges.create("out", 2)
        source.edge, out.edge = 1, 9
        for number, part in enumerate(parts(rows, 20)):
            edges.append("in", part, EVENTS, number % 2)
        edges.end("in")
        options = (
            "--master=yarn",
            "--set=timings.keep_alive=120s",
            "--set=spark.conf.spark.yarn.am.memory=384m",
            "--set=spark.conf.spark.executor.memory=512m",
            "--set=spark.conf.spark.executor.instances=2",
            # Jars that are on every node already; otherwise each start uploads all of Spark.
            f"--set=spark.conf.spark.yarn.jars=local:{Path(pyspark.__file__).parent / 'jars'}/*",
            f"--set=spark.conf.spark.yarn.stagingDir={tmp_path / 'staging'}",
            "--set=spark.conf.spark.driver.host=127.0.0.1",
            "--set=spark.conf.spark.driver.bindAddress=127.0.0.1",
        )
        process = Engine(tmp_path, options)
        try:
            client = process.start()
            ref = engine.RunRef(fragment_uid="windows", epoch=1)
            client(
                engine.StartFragmentRequest(
                    run=ref,
                    query="yarn",
                    plan=windowed(1),
                    inputs=[source],
                    output=out,
                    checkpoint=str(tmp_path / "checkpoints"),
                )
            )
            client.wait(ref, engine.RUN_STATE_FINISHED, seconds=150)
        finally:
            process.stop()
        assert seen_windows(edges.rows("out")) == windows(rows)
    ran = [path for path in (tmp_path / "logs").glob("application_*/container_*/stderr") if path.stat().st_size]
    assert len(ran) >= 2, "an application master and an executor ran in containers of the node"
