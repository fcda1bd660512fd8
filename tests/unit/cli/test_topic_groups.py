"""`headgate topics create --group` asks for a topic of that group."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from headgate.log import v1 as log
from headgate_cli.commands import topics
from headgate_cli.connection import Connection
from headgate_cli.main import main
from headgate_common.ids import RandomIds
from tests.unit.cli.scripted import Script


@pytest.mark.parametrize(("arguments", "group"), [(["--group", "plant"], "plant"), ([], "")])
@pytest.mark.slow
def test_a_topic_is_asked_for_in_the_group_that_is_named(
    arguments: list[str], group: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = Script(log.CreateTopicResponse(topic=log.Topic(name="orders")))

    def run(options: Any, work: Callable[[Connection], Awaitable[Any]]) -> Any:
        async def scripted() -> Any:
            return await work(Connection(script, "c:1", 1.0, RandomIds(random.Random(1)), random.Random(1)))

        return asyncio.run(scripted())

    monkeypatch.setattr(topics, "run", run)
    monkeypatch.setattr(sys, "argv", ["headgate", "topics", "create", "orders", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    ((_, request),) = script.asked
    assert (request.name, request.group) == ("orders", group)
    assert "topic orders: created" in capsys.readouterr().out
