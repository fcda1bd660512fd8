"""Every option that the coordinator takes for a node-local source or sink is read by the agent."""

from __future__ import annotations

from pathlib import Path

import pytest

import headgate_agent.fragments
from headgate_coordinator.catalog.descriptors import parsers, sinks, sources

PACKAGE = Path(str(headgate_agent.fragments.__file__)).parent
READ_BY = {
    "FILE source": (sources.FILE.options, "sources/file.py"),
    "TCP source": (sources.TCP.options, "sources/tcp.py"),
    "GENERATOR source": (sources.GENERATOR.options, "sources/generator.py"),
    "CSV parser": (parsers.CSV.options_for(records=False), "formats/csv_decode.py"),
    "JSON parser": (parsers.JSON.options_for(records=False), "formats/json_decode.py"),
    "FILE sink": (sinks.FILE.options, "sinks/file.py"),
    "PRINT sink": (sinks.PRINT.options, "sinks/print.py"),
}


@pytest.mark.parametrize("what", READ_BY)
def test_every_option_is_read(what: str) -> None:
    options, path = READ_BY[what]
    code = (PACKAGE / path).read_text()
    # What a malformed row does is for the source that reads it to say.
    names = [option.name for option in options if option.name != "on_error"]
    assert [name for name in names if f'"{name}' not in code and f"{name}." not in code] == []


def test_node_local_types_that_have_no_options_or_parsers_stay_so() -> None:
    assert not sinks.VOID.options
    assert not parsers.PARQUET.options_for(records=False)
    assert not parsers.ARROW.options_for(records=False)
