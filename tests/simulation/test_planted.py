"""The simulation must be able to fail: every planted bug is found, and quickly."""

from __future__ import annotations

import os

import pytest

from headgate_simulation import log_planted
from headgate_simulation.hunt import PLANTED, WITHIN, Finding, hunt_all

# One worker hunts for all of them, on every core: see tests/conftest.py.
pytestmark = pytest.mark.timeout(1200)


@pytest.fixture(scope="module")
def findings(request: pytest.FixtureRequest) -> dict[str, Finding]:
    found = {finding.name: finding for finding in hunt_all(os.cpu_count() or 1)}
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        print("\nseeds until each planted bug was found:")
        for planted in PLANTED:
            print(found[planted.name])
    return found


def test_there_are_enough_planted_bugs() -> None:
    assert len(PLANTED) >= 30
    assert len(log_planted.PLANTED) >= 10
    assert len({planted.name for planted in PLANTED}) == len(PLANTED)


@pytest.mark.parametrize("name", [planted.name for planted in PLANTED])
def test_a_planted_bug_is_found(name: str, findings: dict[str, Finding]) -> None:
    finding = findings[name]
    assert finding.seeds is not None and finding.seeds <= WITHIN, str(finding)
