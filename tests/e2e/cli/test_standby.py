"""A command that reaches a standby goes to the leader by itself."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.cli.command import Headgate
from tests.servers.ports import free_port
from tests.servers.process import Command, ServerProcess

COORDINATOR = Path(sys.executable).parent / "headgate-coordinator"


@pytest.fixture
def two_coordinators(postgres_url: str, server_logs: Path) -> Iterator[list[Headgate]]:
    """Two coordinators on one database, of which one leads."""
    with ExitStack() as stack:
        found = []
        for number in (1, 2):
            address = f"127.0.0.1:{free_port()}"
            log = server_logs / f"coordinator-{number}.log"
            arguments: list[str | Path] = [
                COORDINATOR,
                "--listen",
                address,
                "--http-listen",
                "127.0.0.1:0",
                "--catalog",
                postgres_url,
            ]
            process = ServerProcess(Command(f"coordinator {number}", arguments, log))
            stack.callback(process.stop)
            headgate = Headgate(address)
            process.wait_until_ready(lambda headgate=headgate: headgate("status").returncode == 0, 90)  # type: ignore[misc]
            found.append(headgate)
        yield found


def test_a_change_asked_of_either_of_two_coordinators_is_made(two_coordinators: list[Headgate]) -> None:
    for number, headgate in enumerate(two_coordinators):
        headgate.ok("sql", "-c", f"CREATE LOGICAL SOURCE s{number} (ts TIMESTAMP)")
    for headgate in two_coordinators:
        assert [source["name"] for source in headgate.json("get", "logical-sources")] == ["s0", "s1"]
