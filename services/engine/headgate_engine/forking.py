"""The Python processes of streams, as forks of one that has imported everything.

Spark starts a Python process for every stream of a Python data source and keeps it for as long as the stream runs: a
second of imports at each start, and memory that no two of them share. Here they are forked, so that a start is quick
and what was imported is there once. Spark calls an executable (`Nursery.start`) that passes such processes on to the
one that forks, and everything else to Python. Where that one does not answer, Python is called as without it.

Only for a local master: elsewhere Spark calls the same executable on its executors.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from shlex import quote
from typing import Any, NoReturn

_RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"
_IMPORTED = (_RUNNER, "headgate_engine.executor.topics", "headgate_engine.executor.warming")
# A path that the system takes for a socket.
_LONGEST_PATH = 100
_READ_SECONDS = 5.0
_LOOK_SECONDS = 10.0
_MOST_BYTES = 4 * 2**20
_EXECUTABLE = """#!/bin/sh
if [ "$2" = {runner} ]; then exec {python} -I -S {launcher} {socket} {python} "$@"; fi
exec {python} "$@"
"""
# Lives for as long as the process that was forked for it: Spark ends it, and so the other one.
_LAUNCHER = """
import json, os, socket, sys
line = socket.socket(socket.AF_UNIX)
try:
    line.connect(sys.argv[1])
    line.sendall(json.dumps(dict(os.environ)).encode() + b"\\n")
    taken = line.recv(1)
except OSError:
    taken = b""
if not taken:
    os.execv(sys.argv[2], sys.argv[2:])
# A shell waits in less memory.
os.dup2(line.fileno(), 0)
os.execv("/bin/sh", ["/bin/sh", "-c", "read gone"])
"""


class Nursery:
    """Starts and stops the process that forks. `folder` is private to this process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> str:
        """Answers the executable that Spark is to call; returns at once."""
        where = self._folder / "fork.sock"
        if len(str(where)) > _LONGEST_PATH:
            return sys.executable
        launcher, executable = self._folder / "launcher.py", self._folder / "python"
        launcher.write_text(_LAUNCHER)
        names = {"python": sys.executable, "launcher": launcher, "socket": where, "runner": _RUNNER}
        executable.write_text(_EXECUTABLE.format(**{name: quote(str(value)) for name, value in names.items()}))
        executable.chmod(0o700)
        # A process with threads is a bad one to fork.
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", __name__, str(where)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment)
        return str(executable)

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is None or process.stdin is None:
            return
        process.stdin.close()
        try:
            process.wait(_READ_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(_READ_SECONDS)


def serve(where: str) -> None:
    """Forks for whoever connects, until standard input ends, which it does with the engine."""
    # An interrupt from a terminal is for the engine, which ends this process in its turn.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in _IMPORTED:
        import_module(name)
    awake, wake = socket.socketpair()
    wake.setblocking(False)
    awake.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(where)
    listener.listen(64)
    # What is there now is never looked at again, and so not copied.
    gc.collect()
    gc.freeze()
    lines: dict[socket.socket, int] = {}
    while True:
        found, _, _ = select.select([sys.stdin, listener, awake, *lines], [], [], _LOOK_SECONDS)
        if sys.stdin in found:
            return
        if awake in found:
            with contextlib.suppress(OSError):
                awake.recv(1024)
        for line in [one for one in lines if one in found]:
            # The launcher was ended; it never sends anything.
            with contextlib.suppress(ProcessLookupError):
                os.kill(lines[line], signal.SIGTERM)
            del lines[line]
            line.close()
        _reap(lines)
        if listener in found:
            _take(listener, lines)


def _take(listener: socket.socket, lines: dict[socket.socket, int]) -> None:
    line, _ = listener.accept()
    environment = _environment(line)
    if environment is None:
        line.close()
        return
    pid = os.fork()
    if pid == 0:
        for one in (listener, line, *lines):
            one.close()
        _become(environment)
    lines[line] = pid
    with contextlib.suppress(OSError):
        line.sendall(b"1")


def _environment(line: socket.socket) -> dict[str, str] | None:
    """What the launcher sends: its environment, in one line."""
    line.settimeout(_READ_SECONDS)
    raw = b""
    try:
        while not raw.endswith(b"\n") and len(raw) < _MOST_BYTES:
            part = line.recv(65_536)
            if not part:
                return None
            raw += part
        return dict(json.loads(raw))
    except (OSError, ValueError):
        return None


def _reap(lines: dict[socket.socket, int]) -> None:
    """Lets the launchers go whose processes have ended."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        for line in [one for one, child in lines.items() if child == pid]:
            del lines[line]
            line.close()


def _become(environment: dict[str, str]) -> NoReturn:
    """Does what Python would have done in the launcher's place."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.environ.clear()
        os.environ.update(environment)
        sys.stdin.close()
        runner: Any = import_module(_RUNNER)
        with runner.get_sock_file_to_executor(timeout=None) as file:
            runner.main(file, file)
        code = 0
    except SystemExit:
        pass
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # Nothing that was registered before the fork is this process's to clean up.
        os._exit(code)


if __name__ == "__main__":
    serve(sys.argv[1])
