"""What the command says when there is nobody to talk to, or nothing to say."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.cli.command import HEADGATE, Headgate
from tests.servers.ports import free_port


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
        ["top"],
        ["errors", "x"],
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


def test_the_version_is_told_as_an_option_and_as_a_command(headgate: Headgate) -> None:
    assert headgate.ok("--version") == headgate.ok("version")


def test_a_taken_port_is_one_line_and_nothing_is_started(headgate: Headgate, taken_port: int, tmp_path: Path) -> None:
    done = headgate("dev", "--no-engine", "--data", str(tmp_path / "data"), "--port-base", str(taken_port))
    assert done.returncode == 2
    assert f"port {taken_port}, which coordinator would use, is taken" in done.stderr.splitlines()[0]
    assert not (tmp_path / "data" / "logs").exists()


def test_a_missing_jdk_is_one_line_and_nothing_is_started(tmp_path: Path) -> None:
    done = subprocess.run(
        [HEADGATE, "dev", "--data", tmp_path / "data"],
        env={"PATH": str(tmp_path), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    first, advice = done.stderr.splitlines()
    assert first == ("headgate: the engine needs a JDK, 17 or 21: there is no java on PATH, and JAVA_HOME is not set")
    assert "--no-engine" in advice
    assert not (tmp_path / "data").exists()


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


def bash(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        script,
        shell=True,
        executable="/bin/bash",
        env={**os.environ, "HEADGATE": str(HEADGATE), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_reader_who_has_enough_is_no_error() -> None:
    done = bash('"$HEADGATE" --help | head -1; echo ${PIPESTATUS[0]}')
    assert done.stderr == ""
    assert done.stdout.split()[0] == "Usage:"
    assert done.stdout.endswith("\n0\n")


@pytest.mark.parametrize("command", ["version", "version -o json", "--help", "dev --help"])
def test_a_full_disk_is_told_and_never_looks_like_success(command: str) -> None:
    done = bash(f'"$HEADGATE" {command} > /dev/full')
    assert (done.returncode, done.stderr) == (74, "headgate: No space left on device\n")


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("version >&-", 0),
        ("version 2>&-", 0),
        ("get nothing 2>&-", 2),
        ("sql <&-", 0),
        ("sql -c $'SHOW \\xff'", 2),
        ("sql < /bin/bash", 2),
        ("apply - < /bin/bash", 2),
        ("apply /bin/bash", 2),
        ("apply /", 2),
        ("export --to /nowhere/x", 3),
        ("status --coordinator nonsense", 2),
        ("status --coordinator 127.0.0.1:99999999", 2),
        ("--rpc-timeout 1e9 status", 2),
        ("--tls-ca /nowhere status", 2),
    ],
)
def test_hostile_surroundings_are_an_exit_code_and_never_a_trace(headgate: Headgate, script: str, code: int) -> None:
    done = bash(f'"$HEADGATE" {script}', HEADGATE_COORDINATOR=headgate.coordinator)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert "defect" not in done.stderr


def test_an_output_that_cannot_show_a_letter_shows_its_number() -> None:
    done = bash('"$HEADGATE" logs ä --data "$HEADGATE"', PYTHONIOENCODING="ascii")
    assert done.returncode == 2
