"""The SQL shell at a real terminal."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.cli.command import HEADGATE, Headgate

CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[()][A-Z0-9]|\x1b[=>]|\r")
PROMPT = "headgate>"


class Terminal:
    """A process at a terminal: what is typed, and what has been shown so far without its control codes."""

    def __init__(self, process: subprocess.Popen[bytes], terminal: int) -> None:
        self.process = process
        self._terminal = terminal
        self._raw = b""
        self._mark = 0

    def ended(self, seconds: float = 30) -> tuple[int, str]:
        """The exit code, and everything that was shown with its control codes."""
        while select.select([self._terminal], [], [], seconds)[0]:
            try:
                self._raw += os.read(self._terminal, 65536)
            except OSError:
                # How Linux says that nobody has the other end any more.
                break
        return self.process.wait(seconds), self._raw.decode(errors="replace")

    @property
    def shown(self) -> str:
        return CONTROL.sub("", self._raw.decode(errors="replace"))

    def type(self, text: str) -> None:
        self._mark = len(self.shown)
        os.write(self._terminal, text.encode())

    def expect(self, *texts: str, seconds: float = 60) -> str:
        """What was shown since the last typing, once it has these texts in it, one after the other."""
        wanted = re.compile(".*".join(map(re.escape, texts)), re.DOTALL)
        deadline = time.monotonic() + seconds
        while not wanted.search(self.shown, self._mark):
            ready, _, _ = select.select([self._terminal], [], [], 0.2)
            if ready:
                chunk = os.read(self._terminal, 65536)
                self._raw += chunk
                if b"\x1b[6n" in chunk:
                    # It asks where the cursor is, as to a real terminal.
                    os.write(self._terminal, b"\x1b[1;1R")
            assert time.monotonic() < deadline, f"no {texts} in:\n{self.shown[self._mark :]}"
        return self.shown[self._mark :]


@contextmanager
def at_a_terminal(*arguments: str, environment: Mapping[str, str], state: Path) -> Iterator[Terminal]:
    """The command at a terminal of its own; `state` is where it keeps what it remembers."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        # Whoever runs the tests in the background has Ctrl-C ignored, and children inherit that.
        ["env", "--default-signal=INT", HEADGATE, *arguments],
        env={**environment, "XDG_STATE_HOME": str(state), "TERM": "xterm", "LINES": "50"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)
        os.close(ours)


@pytest.fixture
def terminal(headgate: Headgate, tmp_path: Path) -> Iterator[Terminal]:
    with at_a_terminal("sql", environment=headgate.environment(), state=tmp_path) as opened:
        opened.expect(PROMPT)
        yield opened


def test_a_statement_may_span_lines_and_runs_at_its_semicolon(terminal: Terminal, tmp_path: Path) -> None:
    terminal.type("SHOW\r")
    terminal.expect("........")
    terminal.type("AGENTS;\r")
    assert "127.0.0.1:" in terminal.expect("127.0.0.1:")
    terminal.type("\\q\r")
    assert terminal.process.wait(30) == 0
    assert "SHOW" in (tmp_path / "headgate" / "sql_history").read_text()


def test_a_mistake_is_shown_with_a_caret_and_the_shell_goes_on(terminal: Terminal) -> None:
    terminal.type("SHOW THINGS;\r")
    assert "PARSE_ERROR" in terminal.expect("     ^")
    terminal.type("SHOW AGENTS;\r")
    terminal.expect("127.0.0.1:")


def test_a_bundle_is_gathered_and_can_be_forgotten(terminal: Terminal) -> None:
    terminal.type("BEGIN;\r")
    terminal.expect("headgate*>")
    terminal.type("CREATE LOGICAL SOURCE never (ts TIMESTAMP);\r")
    terminal.expect("1 in the bundle")
    terminal.type("ROLLBACK;\r")
    terminal.expect("nothing was done")
    terminal.type("DESCRIBE LOGICAL SOURCE never;\r")
    terminal.expect("LOGICAL_SOURCE_NOT_FOUND")


def test_tab_completes_the_names_of_what_there_is(terminal: Terminal, headgate: Headgate) -> None:
    headgate.ok("sql", "-c", "CREATE LOGICAL SOURCE tabbed_source (ts TIMESTAMP)")
    # The names are asked for before each prompt.
    terminal.type(";\r")
    terminal.expect(PROMPT)
    terminal.type("DROP LOGICAL SOURCE tabb\t")
    terminal.expect("ed_source")
    terminal.type(";\r")
    terminal.expect("DROP LOGICAL SOURCE tabbed_source", PROMPT)
    assert headgate("get", "logical-source/tabbed_source").returncode == 1


def test_control_c_ends_a_watch_and_not_the_shell(terminal: Terminal) -> None:
    for _ in range(2):
        terminal.type("WATCH SELECT name FROM agents;\r")
        terminal.expect("agent c")
        os.killpg(os.getpgid(terminal.process.pid), signal.SIGINT)
        terminal.expect("interrupted", PROMPT)
    terminal.type("\x04")
    assert terminal.process.wait(30) == 0


# Bold and the like are no colours.
COLOUR = re.compile(r"\x1b\[(?:[0-9;]*;)?(?:[34][0-8]|9[0-7]|10[0-7])(?:;[0-9;]*)?m")


@pytest.mark.parametrize("asked", ["get", "sql"])
def test_no_color_turns_off_the_colours_that_a_terminal_gets_without_it(
    asked: str, headgate: Headgate, tmp_path: Path
) -> None:
    """In tables, and in what is typed into the shell."""
    shown = {}
    for setting in ({}, {"NO_COLOR": "1"}):
        environment = {name: value for name, value in headgate.environment().items() if name != "NO_COLOR"} | setting
        arguments = ("get", "agents") if asked == "get" else ("sql",)
        with at_a_terminal(*arguments, environment=environment, state=tmp_path) as terminal:
            if asked == "sql":
                terminal.expect(PROMPT)
                terminal.type("SHOW AGENTS;\r")
                terminal.expect("ACTIVE", PROMPT)
                terminal.type("\\q\r")
            code, raw = terminal.ended()
        assert code == 0 and "ACTIVE" in raw
        shown[bool(setting)] = COLOUR.search(raw) is not None
    assert shown == {False: True, True: False}
