"""docs/log.md says of every setting of a topic what it means and what it costs."""

from __future__ import annotations

from pathlib import Path

from headgate.log import v1 as api
from headgate_agent.kafka.settings import GROUP, SETTINGS

PAGE = Path("docs/log.md")


def settings() -> dict[str, tuple[str, str, str, str]]:
    """The table of the page, by Kafka's names."""
    _, _, below = PAGE.read_text().partition("## Settings of a topic\n\n")
    head, _, *rows = below.partition("\n\n")[0].splitlines()
    assert head == "| Kafka's name | in SQL and gRPC | default | means | costs |"
    found: dict[str, tuple[str, str, str, str]] = {}
    for row in rows:
        name, called, default, means, costs = (cell.strip() for cell in row.strip("|").split("|"))
        found[name.strip("`")] = (called, default, means, costs)
    return found


def test_the_page_has_every_setting_of_a_topic_with_its_cost() -> None:
    table = settings()
    assert set(table) == set(SETTINGS)
    for name, (called, default, means, costs) in table.items():
        assert default and means and costs, name
        assert f"`{SETTINGS[name].field}`" in called, name
    fields = {field.name for field in api.TopicSettings.DESCRIPTOR.fields}
    assert fields - {"format"} == {one.field for name, one in SETTINGS.items() if name != GROUP}
