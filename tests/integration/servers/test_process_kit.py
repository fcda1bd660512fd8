"""Servers of the kit start, end and leave their logs as promised, whatever happens to the test process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.servers.ports import free_port
from tests.servers.process import Command, ServerDied, ServerProcess

ROOT = Path(__file__).resolve().parents[3]
LISTEN = """
import socket, sys, time
s = socket.socket(); s.bind(("127.0.0.1", int(sys.argv[1]))); s.listen()
print("listening", flush=True); time.sleep(600)
"""
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", flush=True); time.sleep(600)
"""
OWNER = """
import sys, time
from pathlib import Path
from tests.servers.process import Command, ServerProcess
sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
server = ServerProcess(Command("sleeper", sleep, Path(sys.argv[1]), folder=Path(sys.argv[2])))
print(server.pid, flush=True); time.sleep(600)
"""


def gone(pid: int) -> bool:
    """Whether no such process is left, waiting for it within reason."""
    for _ in range(200):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


def eventually(condition: Callable[[], bool]) -> bool:
    for _ in range(200):
        if condition():
            return True
        time.sleep(0.05)
    return False


def python(code: str, *arguments: str) -> list[str | Path]:
    return [sys.executable, "-c", code, *arguments]


def test_a_server_is_gone_after_stop_and_its_log_is_there(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    server = ServerProcess(Command("listener", python(LISTEN, str(free_port())), log))
    server.wait_until_ready(lambda: "listening" in log.read_text(), 30)
    server.stop()
    server.stop()
    assert gone(server.pid)
    assert log.read_text() == "listening\n"


def test_a_server_that_ignores_the_order_to_stop_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    server = ServerProcess(Command("deaf", python(STUBBORN), log, grace_seconds=0.2))
    server.wait_until_ready(lambda: "deaf" in log.read_text(), 30)
    server.stop()
    assert gone(server.pid)


def test_a_crash_can_be_staged(tmp_path: Path) -> None:
    server = ServerProcess(Command("sleeper", python("import time; time.sleep(600)"), tmp_path / "server.log"))
    before = server.alive
    server.kill()
    assert (before, server.alive) == (True, False)
    assert gone(server.pid)


def test_a_server_that_dies_at_start_is_reported_with_the_end_of_its_log(tmp_path: Path) -> None:
    server = ServerProcess(Command("broken", python("raise SystemExit('no such disk')"), tmp_path / "server.log"))
    with pytest.raises(ServerDied, match="broken ended with 1\nno such disk"):
        server.wait_until_ready(lambda: False, 30)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM], ids=lambda s: s.name)
def test_a_server_and_its_folder_go_with_the_process_that_started_it(how: signal.Signals, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path / "server.log"), str(folder)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        # As a keyboard and `timeout` do: to all of its process group.
        os.killpg(owner.pid, how) if how is not signal.SIGKILL else owner.kill()
        owner.wait(30)
    assert gone(pid)
    assert eventually(lambda: not folder.exists())


def test_logs_are_kept_and_shown_only_when_a_test_fails(tmp_path: Path) -> None:
    outcome = {}
    for name, verdict in (("passes", "True"), ("fails", "False")):
        root = tmp_path / name
        root.mkdir()
        (root / "test_it.py").write_text(
            f"import pytest\n\n@pytest.mark.postgres\ndef test_it(server_logs):\n"
            f"    (server_logs / 'postgres.log').write_text('a line of the server')\n    assert {verdict}\n"
        )
        (root / "pytest.ini").write_text("[pytest]\nmarkers = postgres\n")
        run = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", "test_it.py"],
            cwd=root,
            env={**{k: v for k, v in os.environ.items() if "PYTEST" not in k}, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        kept = list(root.glob("build/server-logs/main-*/postgres.log"))
        outcome[name] = (run.returncode, bool(kept), run.stdout)
    assert outcome["passes"][:2] == (0, False)
    assert outcome["fails"][:2] == (1, True)
    assert "a line of the server" in outcome["fails"][2]
