"""docs/troubleshooting.md and docs/deploying.md speak of what there is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from headgate.catalog import v1 as catalog
from headgate_agent.config import AgentConfig
from headgate_common.config import Loaded, load
from headgate_coordinator.config import CoordinatorConfig
from headgate_engine.config import EngineConfig

DOCS = Path(__file__).parents[3] / "docs"
CONFIGURATIONS: dict[str, type[Any]] = {"coordinator": CoordinatorConfig, "agent": AgentConfig, "engine": EngineConfig}


def page(name: str) -> str:
    return (DOCS / name).read_text()


def test_every_waiting_reason_has_a_section() -> None:
    sections = " ".join(re.findall(r"^### (.*)$", page("troubleshooting.md"), re.MULTILINE))
    named = {name.removeprefix("WAITING_REASON_") for name in catalog.WaitingReason.DESCRIPTOR.values_by_name}
    assert named - {"UNSPECIFIED"} == set(re.findall(r"[A-Z_]+", sections))


def test_every_reason_of_an_error_is_one() -> None:
    rows = [line for line in page("troubleshooting.md").splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"\b[A-Z]+(?:_[A-Z]+)+\b", row.split("|")[1])}
    known = set(re.findall(r"^\| `([A-Z_]+)` \|", page("errors.md"), re.MULTILINE))
    assert len(named) > 15
    assert named - known == set()


@pytest.mark.parametrize("service", CONFIGURATIONS)
def test_the_files_on_the_page_configure_their_servers(service: str, tmp_path: Path) -> None:
    (text,) = re.findall(rf"^```\n# {service}\.toml.*?\n(.*?)^```", page("deploying.md"), re.MULTILINE | re.DOTALL)
    file = tmp_path / "settings.toml"
    file.write_text(text)
    loaded: Loaded[Any] = load(CONFIGURATIONS[service], service=service, environment={}, flags=(), file=file)
    assert loaded.config.server.listen.startswith("0.0.0.0:")
