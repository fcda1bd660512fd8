"""A message is shown to a person field by field."""

from __future__ import annotations

from headgate.catalog import v1 as catalog
from headgate_cli.fields import lines


def test_fields_come_in_the_order_of_the_proto_with_short_states_and_without_what_is_not_set() -> None:
    agent = catalog.Agent(
        name="a",
        slots=4,
        labels={"rack": "7", "disk": "ssd"},
        roles=[catalog.AGENT_ROLE_LOG, catalog.AGENT_ROLE_FRAGMENTS],
        state=catalog.AGENT_STATE_ACTIVE,
        peers=["b", "c"],
        resources=catalog.AgentResources(cpu=0.5),
    )
    agent.create_time.FromSeconds(1_800_000_000)
    shown = dict(lines(agent))
    assert list(shown)[:4] == ["name", "slots", "slots used", "labels"]
    assert shown["labels"] == "disk='ssd', rack='7'"
    assert (shown["roles"], shown["state"], shown["peers"]) == ("LOG, FRAGMENTS", "ACTIVE", "b, c")
    assert (shown["resources"], shown["  cpu"]) == ("", "0.5")
    assert shown["create time"] == "2027-01-15T08:00:00.000+00:00"
    assert shown["has engine"] == "no"
    assert "zone" not in shown


def test_columns_of_a_schema_are_shown_one_after_the_other() -> None:
    schema = catalog.Schema(
        fields=[catalog.Field(name="ts", type="TIMESTAMP", not_null=True), catalog.Field(name="v", type="INT32")]
    )
    assert dict(lines(catalog.Sink(name="s", schema=schema)))["schema"] == "ts TIMESTAMP NOT NULL, v INT32"
