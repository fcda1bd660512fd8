"""The commands of docs/log.md are run against a real cluster, and its map from REST routes holds: the call and the
command of a route answer the same."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.e2e.cli.command import Headgate
from tests.servers.grpcurl import Grpcurl

pytestmark = [pytest.mark.slow, pytest.mark.grpcurl]

PAGE = Path(__file__).resolve().parents[3] / "docs" / "log.md"
COORDINATOR = "127.0.0.1:7400"
_BLOCK = re.compile(r"^```\n(?P<commands>.*?)^```$", re.M | re.S)


class Route(NamedTuple):
    route: str
    call: str
    command: str


def routes() -> list[Route]:
    _, _, below = PAGE.read_text().partition("## From the reference document's REST routes\n")
    rows = [line for line in below.partition("\n## ")[0].splitlines() if line.startswith("| `")]
    return [Route(*(cell.strip().strip("`") for cell in row.strip("|").split(" | "))) for row in rows]


class Page:
    """Runs what the page says, on the cluster that is there."""

    def __init__(self, headgate: Headgate, grpcurl: Grpcurl) -> None:
        self._headgate, self._grpcurl = headgate, grpcurl

    def call(self, line: str) -> Any:
        program, *words = shlex.split(line)
        assert program == "grpcurl" and COORDINATOR in words, line
        done = self._grpcurl.run(*(word.replace(COORDINATOR, self._headgate.coordinator) for word in words))
        assert done.returncode == 0, f"{line}\n{done.stderr}"
        return json.loads(done.stdout)

    def command(self, line: str) -> Any:
        """As it is on the page, and once more for what it says in JSON if it changes nothing."""
        program, *words = shlex.split(line, comments=True)
        assert program == "headgate", line
        said = self._headgate.ok(*words)
        return said if words[1] in ("create", "recover") else self._headgate.json(*words)


@pytest.fixture
def page(headgate: Headgate, grpcurl: Grpcurl) -> Page:
    return Page(headgate, grpcurl)


def _agents(page: Page, one: Route, _: Headgate) -> None:
    def names(found: Any) -> set[str]:
        return {agent["name"] for agent in found}

    assert names(page.call(one.call)["agents"]) == names(page.command(one.command)) != set()


def _create(page: Page, one: Route, headgate: Headgate) -> None:
    assert page.call(one.call)["topic"]["partitions"] == 6
    headgate.ok("topics", "delete", "my-topic")
    page.command(one.command)
    (topic,) = [each for each in headgate.json("topics", "list") if each["name"] == "my-topic"]
    assert topic["partitions"] == 6


def _partitions(page: Page, one: Route, _: Headgate) -> None:
    def indexes(found: Any) -> list[int]:
        return [partition.get("index", 0) for partition in found]

    assert indexes(page.call(one.call)["partitions"]) == list(range(6))
    assert indexes(page.command(one.command)["partitions"]) == list(range(6))


# The routes of the reference document, in its order.
ROUTES: dict[str, Callable[[Page, Route, Headgate], None]] = {
    "GET /api/v1/agents": _agents,
    "POST /api/v1/topics": _create,
    "GET /api/v1/topics/my-topic/partitions": _partitions,
}


def test_every_route_has_a_call_and_a_command_that_answer_the_same(page: Page, headgate: Headgate) -> None:
    told = routes()
    assert [one.route for one in told] == list(ROUTES)
    try:
        for one in told:
            ROUTES[one.route](page, one, headgate)
    finally:
        headgate("topics", "delete", "my-topic", "--if-exists")


def test_the_commands_of_the_page_work_in_its_order(page: Page, headgate: Headgate) -> None:
    lines = [line for block in _BLOCK.finditer(PAGE.read_text()) for line in block["commands"].splitlines()]
    # Another client, and the cluster itself, which is there already.
    ours = [line for line in lines if line and not line.startswith(("kcat ", "headgate dev"))]
    assert len(ours) >= 5
    try:
        for line in ours:
            run = page.call if line.startswith("grpcurl ") else page.command
            assert run(line) is not None
    finally:
        headgate("topics", "delete", "orders", "--if-exists")
