"""A real cluster for tests of the command line: `headgate dev`, once in each test process."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.cli.command import HEADGATE, Headgate
from tests.servers.ports import free_port_base
from tests.servers.process import Command, ServerProcess

# Two of the coordinator, two of an engine, and two for each of three agents.
PORTS = (0, 1, 2, 3, *range(10, 16))
# A line of the table that `dev` prints when everything is up.
ROW = re.compile(r"^(coordinator|agent \w+|engine \d+) +\S+ +http://\S+ +(\d+) +(?:Kafka \S+ +)?\S+$", re.MULTILINE)
START_SECONDS = 120


@dataclass(slots=True)
class Dev:
    """A running `headgate dev`. `pids` are those of its processes at the start, by name."""

    process: ServerProcess
    headgate: Headgate
    pids: dict[str, int]

    @property
    def log(self) -> str:
        return self.process.command.log.read_text()


def start_dev(log: Path, agents: int, *arguments: str, base: int | None = None, engine: bool = False) -> Dev:
    """A cluster of a test's own. Without an engine it is up at once, and queries only pretend to run."""
    port = base or free_port_base(PORTS)
    command: list[str | Path] = [HEADGATE, "dev", "--port-base", str(port), "--agents", str(agents), *arguments]
    command += [] if engine else ["--no-engine"]
    process = ServerProcess(Command("headgate dev", command, log, grace_seconds=30))

    def pids() -> dict[str, int]:
        return {name: int(pid) for name, pid in ROW.findall(log.read_text())}

    process.wait_until_ready(lambda: len(pids()) == agents + 1 + engine, START_SECONDS)
    return Dev(process, Headgate(f"127.0.0.1:{port}"), pids())


@pytest.fixture(scope="session")
def dev(server_logs: Path) -> Iterator[Dev]:
    """A cluster with three agents that all tests of this process share. Drop what you create."""
    running = start_dev(server_logs / "dev.log", 3, "--ephemeral")
    yield running
    running.process.stop()


@pytest.fixture
def headgate(dev: Dev) -> Headgate:
    return dev.headgate
