"""`top` and `logs` at a terminal, in a pipe, and while things happen."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
from pathlib import Path

import pytest

from tests.e2e.cli.command import HEADGATE, Headgate
from tests.e2e.cli.conftest import Dev
from tests.e2e.cli.test_shell import Terminal


@pytest.fixture
def data(dev: Dev) -> Path:
    """The folder of the shared cluster, as it told."""
    line = next(line for line in dev.log.splitlines() if line.startswith("data in "))
    return Path(line.removeprefix("data in ").partition(";")[0])


def at_terminal(headgate: Headgate, *arguments: str) -> Terminal:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [HEADGATE, *arguments],
        env={**headgate.environment(), "TERM": "xterm", "COLUMNS": "80", "LINES": "20"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    return Terminal(process, ours)


def test_top_is_redrawn_at_a_terminal_until_control_c_and_leaves_it_as_it_was(headgate: Headgate) -> None:
    terminal = at_terminal(headgate, "top", "--interval", "200ms")
    shown = terminal.expect("AGENT", "\nc ", "AGENT", "\nc ")
    assert "127.0.0.1:" in shown
    os.killpg(terminal.process.pid, signal.SIGINT)
    code, raw = terminal.ended()
    assert code == 130
    assert "Traceback" not in raw
    # The cursor and the screen that was there before come back.
    assert raw.index("\x1b[?1049h") < raw.index("\x1b[?1049l")
    assert raw.index("\x1b[?25l") < raw.index("\x1b[?25h")
    assert "\x1b[31m" not in raw


def test_top_in_a_pipe_is_one_look_and_json_lines_go_on(headgate: Headgate) -> None:
    text = headgate.ok("top")
    assert [line.split()[0] for line in text.splitlines()[-3:]] == ["a", "b", "c"]
    assert "\x1b" not in text
    (once,) = headgate.lines("top", "--once")
    assert [agent["name"] for agent in once["agents"]] == ["a", "b", "c"]
    with subprocess.Popen(
        [HEADGATE, "top", "-o", "jsonl", "-i", "100ms"], env=headgate.environment(), stdout=subprocess.PIPE, text=True
    ) as going:
        assert going.stdout is not None
        looks = [json.loads(going.stdout.readline()) for _ in range(3)]
        going.terminate()
    assert looks[0]["time"] < looks[1]["time"] < looks[2]["time"]


def test_logs_of_one_process_and_of_all_of_them(headgate: Headgate, data: Path) -> None:
    one = headgate.ok("logs", "coordinator", "--data", str(data), "-n", "0").splitlines()
    assert "starting service=coordinator" in one[0]
    assert headgate.ok("logs", "coordinator", "--data", str(data), "-n", "2").splitlines() == one[-2:]
    every = headgate.ok("logs", "--data", str(data)).splitlines()
    assert {line.partition(" | ")[0].strip() for line in every} == {"coordinator", "agent-a", "agent-b", "agent-c"}
    assert len(headgate.ok("logs", "a", "agent-b", "--data", str(data), "-n", "1").splitlines()) == 2


def test_logs_are_followed(headgate: Headgate, data: Path) -> None:
    with subprocess.Popen(
        [HEADGATE, "logs", "a", "-f", "-n", "1", "--data", data],
        env=headgate.environment(),
        stdout=subprocess.PIPE,
        text=True,
    ) as following:
        assert following.stdout is not None
        following.stdout.readline()
        headgate.ok("topics", "create", "followed", "--partitions", "9")
        assert "followed" in following.stdout.readline()
        following.send_signal(signal.SIGINT)
        assert following.wait(30) == 130
    headgate.ok("topics", "delete", "followed")
