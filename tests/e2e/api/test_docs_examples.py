"""Every example of docs/api.md is run, in order, and answers what the page says."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from headgate.catalog import v1 as catalog
from tests.e2e.api.kit import Client, Server, fits, running_agent, running_coordinator, wait_until
from tests.servers.grpcurl import Grpcurl

PAGE = Path(__file__).resolve().parents[3] / "docs" / "api.md"
_EXAMPLE = re.compile(r"```sh\n(?P<command>.*?)```\n```(?P<form>json|text)\n(?P<answer>.*?)```", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Example:
    command: str
    form: str
    answer: str


def examples() -> list[Example]:
    return [Example(match["command"], match["form"], match["answer"]) for match in _EXAMPLE.finditer(PAGE.read_text())]


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[Server]:
    with running_coordinator(tmp_path) as server, running_agent(tmp_path, "edge", server.address):
        client = Client(server.address)
        wait_until(lambda: client(catalog.GetAgentRequest(name="edge")).agent.state == catalog.AGENT_STATE_ACTIVE)
        client.close()
        yield server


def test_every_command_on_the_page_has_its_answer() -> None:
    assert len(examples()) == PAGE.read_text().count("```sh")


@pytest.mark.slow
def test_the_examples_answer_what_the_page_says(coordinator: Server, grpcurl: Grpcurl) -> None:
    for example in examples():
        words = shlex.split(example.command.replace("\\\n", " "))
        assert words[0] == "grpcurl"
        done = grpcurl.run(*(word.replace("localhost:7400", coordinator.address) for word in words[1:]))
        if example.form == "json":
            assert done.returncode == 0, f"{example.command}\n{done.stderr}"
            assert fits(json.loads(example.answer), json.loads(done.stdout)), f"{example.command}\n{done.stdout}"
        else:
            said = done.stdout + done.stderr
            for line in example.answer.splitlines():
                for part in (piece.strip() for piece in line.split("...")):
                    assert part in said, f"{example.command}\n{part!r} is not in\n{said}"
