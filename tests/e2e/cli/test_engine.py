"""`headgate dev` with Spark: queries really run, and the command line tells how."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cli.conftest import start_dev
from tests.e2e.cli.test_dev import gone
from tests.e2e.life.kit import until
from tests.servers.process import accepts_connections as answers

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(600)]

# Spark starts slowly on a busy machine.
WARM_SECONDS = 300

BUNDLE = """
CREATE LOGICAL SOURCE cars (ts TIMESTAMP, highway INT32, speed FLOAT32);
CREATE PHYSICAL SOURCE cars_file FOR cars TYPE File ON a SET(
  '{folder}/cars.csv' AS `SOURCE`.file_path, 'CSV' AS PARSER.`TYPE`);
CREATE SINK slow (highway INT32, speed FLOAT32) TYPE File ON a SET(
  '{folder}/slow.csv' AS `SINK`.file_path, 'CSV' AS `SINK`.input_format);
CREATE QUERY slow_cars AS SELECT highway, speed FROM cars WHERE speed < 40 INTO slow;

CREATE LOGICAL SOURCE ticks (at TIMESTAMP, value INT32);
CREATE PHYSICAL SOURCE ticks_made FOR ticks TYPE Generator ON a SET(
  50 AS `SOURCE`.rate, 'now()' AS `SOURCE`.`field.at`, 'uniform(1, 9)' AS `SOURCE`.`field.value`);
CREATE SINK nowhere (value INT32) TYPE Void;
CREATE QUERY all_ticks AS SELECT value FROM ticks INTO nowhere;
"""


def test_queries_run_on_spark_and_their_progress_and_bad_records_are_told(tmp_path: Path) -> None:
    (tmp_path / "cars.csv").write_text("2026-01-01 00:00:00,1,50\nnonsense,two,x\n2026-01-01 00:00:01,2,30\n")
    dev = start_dev(tmp_path / "dev.log", 1, "--ephemeral", "--files", str(tmp_path), engine=True)
    try:
        # The control plane answers, and Spark is not warm yet.
        assert dev.headgate.json("status")["agents"] == {"ACTIVE": 1}
        assert "Spark warms up in engine 1; queries wait for it" in dev.log
        applied = dev.headgate.process(
            *("apply", "-", "--wait", "--timeout", f"{WARM_SECONDS}s"),
            stdin=BUNDLE.format(folder=tmp_path),
            timeout=WARM_SECONDS + 30,
        )
        assert applied.returncode == 0, applied.stderr + dev.log
        assert "engine 1 is ready: Spark is warm after" in dev.log
        dev.headgate.ok("wait", "query/slow_cars", "--for", "TERMINATED", "--timeout", "60s")
        assert (tmp_path / "slow.csv").read_text().splitlines() == ["2,30"]

        (bad,) = dev.headgate.json("errors", "slow_cars")
        assert (bad["raw"].rstrip("\n"), bad["fragment"]) == ("nonsense,two,x", 1)
        assert "'nonsense' is not a TIMESTAMP" in bad["reason"]
        assert "nonsense,two,x" in dev.headgate.ok("errors", "slow_cars")

        ticks = rates(dev.headgate.ok)
        assert ticks["state"] == "RUNNING"
        assert ticks["rows_out"] > 0
        described = dev.headgate.ok("describe", "query/all_ticks")
        assert "Progress" in described
        port = dev.headgate.coordinator.rpartition(":")[2]
        assert f"127.0.0.1:{int(port) + 2}" in described

        os.kill(dev.pids["engine 1"], signal.SIGKILL)
        ended = "engine 1 ended (killed by SIGKILL); starting it again"
        until(lambda: ended in dev.log and answers(int(port) + 3), "the engine to be started again")

        os.kill(dev.process.pid, signal.SIGTERM)
        assert all(gone(pid) for pid in [dev.process.pid, *dev.pids.values()])
    finally:
        dev.process.stop()
    assert dev.log.endswith("\nstopped\n")


def rates(ok: Callable[..., str]) -> dict[str, Any]:
    """What `top` tells of the query that goes on, once rows have come out of it."""
    deadline = time.monotonic() + 120
    while True:
        (line,) = json.loads(ok("top", "-o", "json"))["queries"]
        if line["rows_in_per_second"] and line["rows_out"]:
            found: dict[str, Any] = line
            return found
        assert time.monotonic() < deadline, line
        time.sleep(0.5)
