"""`make demo` and `make demo-cluster` end by themselves and prove what the README says they prove."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def _proved(script: str) -> str:
    """What the summary of a demo says."""
    done = subprocess.run(
        [sys.executable, script],
        cwd=ROOT,
        env={**os.environ, "NO_COLOR": "1", "PYTHONPATH": "."},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    return done.stdout.rpartition("\nProved in ")[2]


@pytest.mark.timeout(960)
def test_the_demo_runs_and_everything_it_claims_holds() -> None:
    summary = _proved("tools/demo.py")
    for part in ("windows came out", "rows arrived again: the engine", "every window is complete", "every slot"):
        assert part in summary


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.postgres
@pytest.mark.minio
@pytest.mark.timeout(960)
def test_the_demo_on_real_servers_runs_and_everything_it_claims_holds() -> None:
    summary = _proved("tools/demo_cluster.py")
    for part in (
        "read Kafka and wrote to Kafka",
        "again: a Spark worker",
        "again: the engine",
        "as Python computes them",
    ):
        assert part in summary


def test_the_readme_begins_with_the_two_commands_and_shows_what_the_demo_prints() -> None:
    readme = (ROOT / "README.md").read_text()
    commands = [line for line in readme.split("```")[1].splitlines() if line and not line.isalpha()]
    assert len(commands) == 2
    assert commands[1].split("#")[0].strip() == "make demo"
    source = (ROOT / "tools" / "demo.py").read_text()
    quoted = [line[4:].strip() for line in readme.splitlines() if line.startswith("  ok  ")]
    assert quoted
    for claim in quoted:
        assert claim.split(":")[0] in source.replace('"\n        f"', "").replace('"\n        "', ""), claim
