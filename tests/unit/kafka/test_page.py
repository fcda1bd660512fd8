"""docs/kafka.md says what the code says."""

from __future__ import annotations

from pathlib import Path

from headgate_agent.kafka import apidoc
from headgate_agent.kafka.apis import APIS
from headgate_agent.kafka.metadata import api_versions
from headgate_common import configdoc

PAGE = Path("docs/kafka.md")


def test_the_page_is_up_to_date() -> None:
    page = PAGE.read_text()
    assert apidoc.refresh(page) == page, f"run python -m headgate_agent.kafka.apidoc {PAGE}"
    assert configdoc.refresh(page) == page, f"run python -m headgate_common.configdoc {PAGE}"


def test_the_page_says_of_which_requests_lower_versions_are_announced() -> None:
    (sentence,) = (line for line in PAGE.read_text().splitlines() if line.startswith("ApiVersions announces"))
    told = {one["api_key"]: one["min_version"] for one in api_versions()["api_keys"]}
    assert {key for key, api in APIS.items() if told[key] != api.first} == {
        key for key, api in APIS.items() if f"{api.name} (from {told[key]})" in sentence
    }
    assert any(told[key] != api.first for key, api in APIS.items())


def test_every_request_is_on_the_page() -> None:
    page = PAGE.read_text()
    assert all(f"| {api.name} | {api.key} | {api.first} to {api.last} |" in page for api in APIS.values())
