"""The coordinator's settings: documented, consistent with each other, and usable by name."""

from __future__ import annotations

from pathlib import Path

from prometheus_client import generate_latest

from headgate_common.config import load
from headgate_common.configdoc import refresh
from headgate_common.metrics import new_registry
from headgate_coordinator.catalog.inline import InlineDatabase
from headgate_coordinator.config import PROFILES, CoordinatorConfig
from headgate_coordinator.server import publish
from tests.unit.api.kit import Client

PAGE = Path(__file__).resolve().parents[3] / "docs" / "coordinator.md"


def test_the_page_of_settings_is_up_to_date() -> None:
    page = PAGE.read_text()
    assert refresh(page) == page, "run python -m headgate_common.configdoc docs/coordinator.md"


def test_the_profile_of_the_documents_has_their_intervals() -> None:
    loaded = load(
        CoordinatorConfig, service="coordinator", environment={}, flags=["profile=documents"], profiles=PROFILES
    )
    timings = loaded.config.timings
    assert (timings.session_ttl, timings.leader_ttl, timings.leader_renew) == (30.0, 30.0, 10.0)
    assert timings.probe_interval == 10.0


def test_every_profile_renews_before_time_is_up() -> None:
    for profile in ([], *([f"profile={name}"] for name in PROFILES)):
        loaded = load(CoordinatorConfig, service="coordinator", environment={}, flags=profile, profiles=PROFILES)
        timings = loaded.config.timings
        assert timings.leader_renew + timings.leader_margin < timings.leader_ttl
        assert timings.poll_timeout_min <= timings.poll_timeout_max
        assert timings.retry_min <= timings.retry_max


async def test_every_metric_of_the_page_is_published_and_the_other_way_round() -> None:
    database = InlineDatabase()
    client = await Client(database).lead()
    registry = new_registry("coordinator", "1")
    before = {line.split()[2] for line in _lines(registry) if line.startswith("# HELP")}
    publish(client.coordinator, registry)
    names = {line.split()[2] for line in _lines(registry) if line.startswith("# HELP")} - before
    assert {name for name in names if f"`{name}`" not in PAGE.read_text()} == set()
    documented = {
        word.strip("`,") for line in PAGE.read_text().splitlines() for word in line.split() if "`headgate_" in word
    }
    assert documented == names
    await client.close()
    database.close()


def _lines(registry: object) -> list[str]:
    return generate_latest(registry).decode().splitlines()  # type: ignore[arg-type]
