"""`make chaos`: how long it goes on, and what it says."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.chaos import campaign
from tests.chaos.campaign import Outcome
from tests.servers import minio, postgres


class Servers:
    @contextmanager
    def fresh_database(self) -> Iterator[str]:
        yield "catalog"

    def fresh_bucket(self) -> str:
        return "bucket"


class Campaigns:
    """Instead of campaigns: each takes as long as it was told to, on a clock of its own, and half a minute more."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, hours: float) -> None:
        self.now = 1000.0
        self.ran: list[tuple[int, float]] = []
        self.broken_at = -1
        monkeypatch.setenv("HOURS", str(hours))
        monkeypatch.setenv("SEED", "7")
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(campaign, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(campaign, "signal", SimpleNamespace(signal=lambda *_: None, SIGTERM=15))
        monkeypatch.setattr(campaign, "run", self.run)
        for module, name in ((minio, "running_minio"), (postgres, "running_postgres")):
            monkeypatch.setattr(module, name, self.server)

    @contextmanager
    def server(self, log: Path) -> Iterator[Servers]:
        yield Servers()

    def run(self, folder: Path, *_: Any, seed: int, seconds: float, say: Callable[[str], None]) -> Outcome:
        say("a fault")
        (folder / "agent0.log").write_text("what happened")
        self.now += seconds + 30
        self.ran.append((seed, seconds))
        made = Outcome(acknowledged=100, followed=50)
        made.strokes["agent killed"] += 2
        if seed == self.broken_at:
            made.violations.append("a record is lost")
        return made


def test_it_ends_by_itself_after_the_hours_it_was_given_and_sums_up_the_faults_by_kind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    campaigns = Campaigns(monkeypatch, tmp_path, hours=0.25)
    assert campaign.main() == 0
    assert campaigns.ran == [(7, campaign.SPAN), (8, campaign.SPAN), (9, 240.0)]
    said = capsys.readouterr().out
    assert said.count("a fault") == 3 and re.search(r"seed 8, 300 s, 0\.16 hours left", said)
    assert "3 campaigns, seeds 7 to 9: 300 records acknowledged, 150 read" in said
    assert "6 faults: agent killed 6" in said and said.endswith("everything held\n")


def test_a_short_time_is_one_short_campaign(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    campaigns = Campaigns(monkeypatch, tmp_path, hours=0.001)
    assert campaign.main() == 0
    assert campaigns.ran == [(7, campaign.LEAST_SPAN)]


def test_it_stops_at_the_first_violation_and_keeps_the_logs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    campaigns = Campaigns(monkeypatch, tmp_path, hours=10)
    campaigns.broken_at = 8
    assert campaign.main() == 1
    assert [seed for seed, _ in campaigns.ran] == [7, 8]
    assert "a record is lost" in capsys.readouterr().out
    assert (tmp_path / "build/chaos-logs/8/agent0.log").read_text() == "what happened"
