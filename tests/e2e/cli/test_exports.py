"""What was exported from one cluster makes the same catalog in another that knows nothing yet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.cli.command import Headgate
from tests.e2e.cli.conftest import start_dev

BUNDLE = """
CREATE TOPIC orders PARTITIONS 3 WITH (durability = WAL);
CREATE LOGICAL SOURCE cars (ts TIMESTAMP NOT NULL, highway INT32, speed FLOAT32);
CREATE PHYSICAL SOURCE cars_p FOR cars TYPE Generator ON b SET(
  10 AS `SOURCE`.RATE, 'now()' AS `SOURCE`.`field.ts`, 'uniform(1, 9)' AS `SOURCE`.`field.highway`,
  'normal(60, 20)' AS `SOURCE`.`field.speed`);
CREATE SINK slow (highway INT32, speed FLOAT32) TYPE Void;
CREATE NETWORK LINK FROM b TO a;
CREATE QUERY q AS SELECT highway, speed FROM cars WHERE speed < 40 INTO slow;
"""
# What a person made, without what the cluster adds: identities, times, revisions, where fragments are.
MADE = {
    "topics": ("name", "partitions", "settings", "group"),
    "network-links": ("from_agent", "to_agent"),
    "logical-sources": ("name", "schema"),
    "physical-sources": ("name", "logical_source", "agent", "type", "options", "parser_options"),
    "sinks": ("name", "schema", "agent", "type", "options"),
    "queries": ("name", "statement", "sinks", "mode", "desired_state"),
}


Made = dict[str, list[dict[str, object]]]
Exported = tuple[Headgate, Made]


def made(headgate: Headgate) -> Made:
    return {
        kind: [{field: each[field] for field in fields} for each in headgate.json("get", kind)]
        for kind, fields in MADE.items()
    }


@pytest.mark.parametrize("form", [["--format", "sql"], ["--format", "json"], ["--agents"]], ids=" ".join)
def test_an_export_applies_to_a_cluster_that_knows_nothing(exported: Exported, form: list[str], tmp_path: Path) -> None:
    first, before = exported
    file = tmp_path / ("catalog.json" if "json" in form else "catalog.sql")
    done = first("export", *form, "--to", str(file))
    assert done.returncode == 0, done.stderr
    assert "these agents have to be there: a, b" in done.stderr
    other = start_dev(tmp_path / "other.log", 2, "--ephemeral")
    try:
        applied = other.headgate("apply", str(file), "--wait", "--timeout", "60s")
        assert applied.returncode == 0, applied.stderr
        assert made(other.headgate) == before
        agents = {agent["name"]: agent["state"] for agent in other.headgate.json("get", "agents")}
        assert agents == {"a": "AGENT_STATE_ACTIVE", "b": "AGENT_STATE_ACTIVE"}
    finally:
        other.process.stop()


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exported]:
    """A cluster with something of every kind, and what was made in it."""
    dev = start_dev(tmp_path_factory.mktemp("exported") / "dev.log", 2, "--ephemeral")
    try:
        dev.headgate.ok("apply", "-", "--wait", stdin=BUNDLE)
        yield dev.headgate, made(dev.headgate)
    finally:
        dev.process.stop()


def test_a_bundle_whose_agents_are_missing_says_which_and_changes_nothing(exported: Exported, tmp_path: Path) -> None:
    bundle = exported[0].ok("export")
    assert "-- Start these agents first, queries need them ACTIVE: a, b." in bundle
    lonely = start_dev(tmp_path / "lonely.log", 1, "--ephemeral")
    try:
        refused = lonely.headgate("apply", "-", stdin=bundle)
        assert refused.returncode == 1
        assert "AGENT_NOT_FOUND" in refused.stderr
        assert lonely.headgate.json("get", "topics") == []
    finally:
        lonely.process.stop()
