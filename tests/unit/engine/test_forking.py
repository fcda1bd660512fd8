"""Processes of streams are forked, end with whoever started them, and start without the one that forks too."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.serializers import read_int, write_with_length

from headgate_engine import forking
from headgate_engine.forking import Nursery

SECRET = "secret"
PATIENCE_SECONDS = 60.0


@pytest.fixture
def nursery(tmp_path: Path) -> Iterator[Nursery]:
    made = Nursery(tmp_path)
    yield made
    made.stop()


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.02)


def command_of(pid: int) -> str:
    """Empty where the process is gone, or is only waited for."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def start_stream(executable: str) -> tuple[subprocess.Popen[bytes], socket.socket, int]:
    """As Spark does it: the process it started, the connection, and the pid that came over it."""
    server = socket.create_server(("127.0.0.1", 0))
    server.settimeout(PATIENCE_SECONDS)
    environment = {
        **os.environ,
        "PYTHON_WORKER_FACTORY_PORT": str(server.getsockname()[1]),
        "PYTHON_WORKER_FACTORY_SECRET": SECRET,
    }
    process = subprocess.Popen([executable, "-m", forking._RUNNER], env=environment)
    line, _ = server.accept()
    server.close()
    file = line.makefile("rwb")
    assert file.read(read_int(file)) == SECRET.encode()
    write_with_length(b"ok", file)
    file.flush()
    return process, line, read_int(file)


@pytest.mark.slow
def test_a_stream_is_a_fork_that_ends_with_the_process_that_spark_ends(nursery: Nursery, tmp_path: Path) -> None:
    executable = nursery.start()
    until((tmp_path / "fork.sock").exists, "the process that forks")
    process, line, pid = start_stream(executable)
    assert pid != process.pid
    assert "headgate_engine.forking" in command_of(pid)
    process.kill()
    process.wait(PATIENCE_SECONDS)
    until(lambda: not command_of(pid), "the fork to end")
    line.close()
    # The other way round: the connection breaks, as when the JVM dies.
    process, line, pid = start_stream(executable)
    line.shutdown(socket.SHUT_RDWR)
    line.close()
    process.wait(PATIENCE_SECONDS)
    until(lambda: not command_of(pid), "the fork to end")


@pytest.mark.slow
def test_without_the_process_that_forks_python_is_called(nursery: Nursery) -> None:
    executable = nursery.start()
    nursery.stop()
    process, line, pid = start_stream(executable)
    assert pid == process.pid
    line.close()
    process.wait(PATIENCE_SECONDS)


def test_everything_else_is_python(nursery: Nursery) -> None:
    executable = nursery.start()
    answer = subprocess.run([executable, "-c", "print(6 * 7)"], capture_output=True, check=True, timeout=60)
    assert answer.stdout == b"42\n"
