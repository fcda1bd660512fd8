"""A server process of a test run: started, waited for, stopped by its process id."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

_SUPERVISE = Path(__file__).with_name("supervise.py")
_POLL_SECONDS = 0.05


class ServerDied(Exception):
    """A server ended, or did not answer in time; the message has the end of its log."""


def accepts_connections(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def tail(log: Path, lines: int = 40) -> str:
    if not log.exists():
        return "(no log)"
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


@dataclass(frozen=True, slots=True)
class Command:
    """What to run, and how it wants to be stopped."""

    name: str
    arguments: Sequence[str | Path]
    log: Path
    user: str | None = None
    stop_signal: signal.Signals = signal.SIGTERM
    grace_seconds: float = 10.0
    # Removed with the server where the test process was killed and cannot do it.
    folder: Path | None = None


class ServerProcess:
    """A running server under its supervisor.

    Contract: `stop` returns when the server is gone. If this process ends without calling it, the supervisor sees the
    end of its pipe and stops the server all the same.
    """

    def __init__(self, command: Command) -> None:
        self.command = command
        pid_file = command.log.with_suffix(".pid")
        pid_file.unlink(missing_ok=True)
        options: list[str | Path] = [
            "--log",
            command.log,
            "--pid-file",
            pid_file,
            "--stop-signal",
            str(int(command.stop_signal)),
        ]
        options += ["--grace", str(command.grace_seconds)]
        if command.user:
            options += ["--user", command.user]
        if command.folder:
            options += ["--remove", command.folder]
        self._supervisor = subprocess.Popen(
            [sys.executable, _SUPERVISE, *options, "--", *command.arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
        )
        self._wait_for(pid_file.exists, 30, "start")
        self.pid = int(pid_file.read_text())

    def wait_until_ready(self, ready: Callable[[], bool], seconds: float) -> None:
        """Returns once `ready` holds; `ServerDied` if the server ends or the time runs out first."""
        try:
            self._wait_for(ready, seconds, "become ready")
        except ServerDied:
            self.stop()
            raise

    def _wait_for(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            code = self._supervisor.poll()
            if code is not None:
                raise ServerDied(f"{self.command.name} ended with {code}\n{tail(self.command.log)}")
            if time.monotonic() > deadline:
                raise ServerDied(f"{self.command.name} did not {what} in {seconds} s\n{tail(self.command.log)}")
            time.sleep(_POLL_SECONDS)

    @property
    def alive(self) -> bool:
        return self._supervisor.poll() is None

    @property
    def exit_code(self) -> int | None:
        """How the server ended; None while it runs."""
        return self._supervisor.poll()

    def kill(self) -> None:
        """Ends the server as a crash would."""
        if self.alive:
            os.kill(self.pid, signal.SIGKILL)
        self._supervisor.wait(30)

    def stop(self) -> None:
        assert self._supervisor.stdin is not None
        # It may have ended by itself, with the server.
        with contextlib.suppress(BrokenPipeError, ValueError):
            self._supervisor.stdin.write(b".")
            self._supervisor.stdin.close()
        self._supervisor.wait(self.command.grace_seconds + 10)


def start_with_retry(start: Callable[[], ServerProcess], attempts: int = 3) -> ServerProcess:
    """Starts again on other ports where another process took one between its choice and its use."""
    for _ in range(attempts - 1):
        try:
            return start()
        except ServerDied as error:
            if "in use" not in str(error):
                raise
    return start()
