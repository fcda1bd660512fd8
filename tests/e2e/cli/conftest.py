"""A real cluster for tests of the command line: `headgate dev`, once in each test process."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.cli.command import HEADGATE, Headgate
from tests.servers.process import free_port_base, tail

# The coordinator's two, and two for each of three agents.
PORTS = (0, 1, *range(10, 16))


@dataclass(slots=True)
class Dev:
    """A running `headgate dev`. `pids` are those of its processes at the start, by name."""

    process: subprocess.Popen[str]
    headgate: Headgate
    pids: dict[str, int]
    log: Path


def start_dev(log: Path, *arguments: str, base: int | None = None) -> Dev:
    port = base or free_port_base(PORTS)
    with log.open("w") as errors:
        process = subprocess.Popen(
            [HEADGATE, "dev", "--port-base", str(port), *arguments],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
            env={**os.environ, "NO_COLOR": "1"},
        )
    assert process.stdout is not None
    pids: dict[str, int] = {}
    expected = 2 if "--agents" in arguments and arguments[arguments.index("--agents") + 1] == "1" else 4
    for line in process.stdout:
        words = [word.strip() for word in line.split("   ") if word.strip()]
        if len(words) > 3 and words[3].isdecimal():
            pids[words[0]] = int(words[3])
        if len(pids) == expected:
            return Dev(process, Headgate(f"127.0.0.1:{port}"), pids, log)
    raise AssertionError(f"headgate dev did not come up:\n{tail(log)}")


def stop_dev(dev: Dev, how: signal.Signals = signal.SIGINT) -> int:
    dev.process.send_signal(how)
    try:
        return dev.process.wait(40)
    except subprocess.TimeoutExpired:
        os.killpg(dev.process.pid, signal.SIGKILL)
        raise


@pytest.fixture(scope="session")
def dev(server_logs: Path) -> Iterator[Dev]:
    """A cluster with three agents that all tests of this process share. Drop what you create."""
    running = start_dev(server_logs / "dev.log", "--agents", "3", "--ephemeral")
    yield running
    stop_dev(running)


@pytest.fixture
def headgate(dev: Dev) -> Headgate:
    return dev.headgate
