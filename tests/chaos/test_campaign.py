"""A short campaign against real servers; `make chaos` runs the same for hours."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.chaos.campaign import run
from tests.servers.minio import Bucket

# Long enough, with the seed below, for every fault to strike once.
SECONDS = float(os.environ.get("HEADGATE_CHAOS_SECONDS", "120"))


@pytest.mark.timeout(600)
def test_nothing_acknowledged_is_lost_doubled_or_moved_and_every_consumer_sees_the_same_whatever_breaks(
    tmp_path: Path, postgres_url: str, minio: Bucket
) -> None:
    told: list[str] = []
    outcome = run(tmp_path, postgres_url, minio, seed=1, seconds=SECONDS, say=told.append)
    assert outcome.violations == [], "\n".join([*told, str(outcome), *outcome.violations])
    if SECONDS >= 120:
        kinds = {f"agent {how}" for how in ("killed", "paused", "cut off", "full", "lost with its disk")}
        kinds |= {"coordinator killed", "coordinator paused", "agent's clock moved", "coordinator's clock moved"}
        kinds |= {f"object store {how}" for how in ("silent", "failing", "slow")}
        assert set(outcome.strokes) == kinds, "a fault that never struck proves nothing"
        assert outcome.holes, "no record was on a disk alone when that was lost"
