"""`headgate topics produce` sends each record once."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from headgate.catalog import v1 as catalog
from headgate.log import v1 as log
from headgate_cli.commands import records
from headgate_cli.connection import Connection
from headgate_cli.main import main
from headgate_common.errors import UNREACHABLE, HeadgateError
from headgate_common.ids import RandomIds
from tests.unit.cli.scripted import Script

pytestmark = pytest.mark.slow

AGENTS = catalog.ListAgentsResponse(
    agents=[
        catalog.Agent(name=name, address=f"{name}:1", present=True, roles=[catalog.AGENT_ROLE_LOG]) for name in "ab"
    ]
)
GONE = HeadgateError(UNREACHABLE, "the connection broke")


def produced(script: Script, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The exit code."""

    def run(options: Any, work: Callable[[Connection], Awaitable[Any]]) -> Any:
        async def scripted() -> Any:
            return await work(Connection(script, "c:1", 1.0, RandomIds(random.Random(1)), random.Random(1)))

        return asyncio.run(scripted())

    monkeypatch.setattr(records, "run", run)
    monkeypatch.setattr(sys, "argv", ["headgate", "topics", "produce", "orders", "one", "two"])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


def test_an_agent_that_is_away_is_passed_over_before_anything_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = log.ProduceRecordsResponse(positions=[log.RecordPosition(), log.RecordPosition(offset=1)])
    script = Script(AGENTS, GONE, log.ListOffsetsResponse(), stored)
    assert not produced(script, monkeypatch)
    assert [address for address, _ in script.asked] == ["c:1", "a:1", "b:1", "b:1"]


def test_records_that_may_be_stored_are_not_sent_to_another_agent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = Script(AGENTS, log.ListOffsetsResponse(), GONE)
    assert produced(script, monkeypatch)
    assert sum(isinstance(request, log.ProduceRecordsRequest) for _, request in script.asked) == 1
    told = capsys.readouterr().err
    assert "2 records may be stored" in told and "before you send them again" in told
