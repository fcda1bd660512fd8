"""What the command says when there is nobody to talk to, or nothing to say."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.cli.command import HEADGATE, Headgate
from tests.servers.process import free_port


@pytest.fixture
def headgate() -> Headgate:
    return Headgate(f"127.0.0.1:{free_port()}")


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


@pytest.mark.parametrize(
    "arguments",
    [
        ["status"],
        ["get", "queries"],
        ["describe", "query/x"],
        ["explain", "SELECT 1"],
        ["sql", "-c", "SHOW QUERIES"],
        ["watch", "queries"],
        ["wait", "query/x", "--for", "RUNNING"],
        ["stop", "x"],
        ["drop", "sink", "x"],
        ["export"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_an_unreachable_coordinator_is_exit_code_3_and_two_lines(headgate: Headgate, arguments: list[str]) -> None:
    done = headgate(*arguments)
    assert done.returncode == 3
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        f"headgate: no coordinator answers at {headgate.coordinator} (nothing listens there)",
        "Start one with `headgate dev`, or say where it is with --coordinator or HEADGATE_COORDINATOR.",
    ]


def test_an_address_that_makes_no_sense_is_told_and_not_traced(headgate: Headgate) -> None:
    done = headgate.process("status", "--coordinator", "nowhere.invalid:1")
    assert done.returncode == 3
    assert "no coordinator answers at nowhere.invalid:1" in done.stderr


def test_a_taken_port_is_one_line_and_nothing_is_started(headgate: Headgate, taken_port: int, tmp_path: Path) -> None:
    done = headgate("dev", "--data", str(tmp_path / "data"), "--port-base", str(taken_port))
    assert done.returncode == 2
    assert f"port {taken_port}, which coordinator would use, is taken" in done.stderr.splitlines()[0]
    assert not (tmp_path / "data" / "logs").exists()


def test_the_version_is_answered_without_a_coordinator(headgate: Headgate) -> None:
    assert headgate.process("version").stdout.startswith("headgate 0.")
    assert headgate.json("version")["api"] == "headgate.catalog.v1"


def test_help_is_there_for_every_command_and_teaches_by_an_example(headgate: Headgate) -> None:
    listed = headgate.ok("--help")
    for command in ("dev", "status", "sql", "apply", "get", "describe", "explain", "watch", "wait", "stop", "drop"):
        assert f"\n  {command} " in listed
    assert "Example: headgate apply traffic.sql --wait" in headgate.ok("apply", "--help")


def test_a_shell_can_complete_its_words(headgate: Headgate) -> None:
    done = subprocess.run(
        [HEADGATE],
        env={
            **headgate.environment(),
            "_HEADGATE_COMPLETE": "complete_bash",
            "COMP_WORDS": "headgate get qu",
            "COMP_CWORD": "2",
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.split() == ["query"]


def test_a_reader_who_has_enough_is_no_error(headgate: Headgate) -> None:
    done = subprocess.run(
        f"'{HEADGATE}' --help | head -1",
        shell=True,
        executable="/bin/bash",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    assert json.dumps(done.stdout.split()[0]) == '"Usage:"'
