"""`headgate dev` keeps its processes running and takes them all down with itself."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headgate_cli import cluster
from headgate_cli.cluster import Member, Supervisor, check_ports, layout, sole_owner
from headgate_cli.failures import ExitCode, Failure
from headgate_common.clock import SystemClock

SLEEPER = """#!{python}
import os, sys, time
with open(sys.argv[1], "a") as pids:
    pids.write(f"{{os.getpid()}}\\n")
if len(sys.argv) > 2:
    sys.exit(int(sys.argv[2]))
time.sleep(600)
"""


@pytest.fixture
def sleeper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Member]]:
    """Makes members that write their process id to a file and then sleep, or end with a code."""
    script = tmp_path / "sleeper"
    script.write_text(SLEEPER.format(python=sys.executable))
    script.chmod(0o755)
    monkeypatch.setattr(cluster, "find_script", lambda name: str(script))

    def make(name: str, *arguments: str, stage: int = 0) -> Member:
        return Member(name, "sleeper", (str(tmp_path / name), *arguments), 1, 2, tmp_path / f"{name}.log", stage)

    yield make


def pids(member: Member) -> list[int]:
    file = Path(member.arguments[0])
    return [int(line) for line in file.read_text().splitlines()] if file.exists() else []


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(600):
        if condition():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("it did not come true")


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def supervisor(members: list[Member], said: list[str]) -> Supervisor:
    return Supervisor(members, said.append, SystemClock(), random.Random(1))


async def test_a_process_that_is_killed_is_started_again_and_all_end_together(sleeper: Callable[..., Member]) -> None:
    members, said = [sleeper("one"), sleeper("two", stage=1)], list[str]()
    running = asyncio.ensure_future(supervisor(members, said).run())
    await until(lambda: all(pids(member) for member in members))
    os.kill(pids(members[1])[0], signal.SIGKILL)
    await until(lambda: len(pids(members[1])) == 2)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert all(gone(pid) for member in members for pid in pids(member))
    assert len(pids(members[0])) == 1
    assert any(line.startswith("two ended (killed by SIGKILL); starting it again") for line in said)


async def test_a_process_that_refuses_its_settings_ends_everything(sleeper: Callable[..., Member]) -> None:
    members = [sleeper("one"), sleeper("two", "2")]
    with pytest.raises(Failure, match="two cannot run"):
        await supervisor(members, []).run()
    assert all(gone(pid) for pid in pids(members[0]))


async def test_a_process_that_keeps_ending_is_tried_again(sleeper: Callable[..., Member]) -> None:
    members = [sleeper("one", "1")]
    running = asyncio.ensure_future(supervisor(members, []).run())
    await until(lambda: len(pids(members[0])) >= 3)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def test_processes_end_when_the_one_that_started_them_is_killed(tmp_path: Path) -> None:
    child = tmp_path / "child"
    code = f"""
import subprocess
from headgate_cli.cluster import launcher
p = subprocess.Popen([*launcher(), "/bin/sleep", "600"], start_new_session=True)
open({str(child)!r}, "w").write(str(p.pid))
p.wait()
"""
    with subprocess.Popen([sys.executable, "-c", code]) as parent:
        for _ in range(600):
            if child.exists() and child.read_text():
                break
            time.sleep(0.05)
        parent.kill()
    pid = int(child.read_text())
    for _ in range(200):
        if gone(pid):
            return
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    raise AssertionError("the child lives on")


def test_no_two_processes_of_a_cluster_share_a_port(tmp_path: Path) -> None:
    members = layout(tmp_path, 40, 7400, 8, "info")
    ports = [port for member in members for port in (member.port, member.http_port)]
    assert len(ports) == len(set(ports)) == 82
    assert len({member.name for member in members}) == 41


def test_a_taken_port_is_one_clear_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(Failure, match=f"port {port}, which coordinator would use, is taken") as caught:
            check_ports(layout(tmp_path, 0, port, 8, "info"))
    assert "\n" not in caught.value.message
    assert caught.value.code is ExitCode.USAGE


def test_ports_beyond_the_last_one_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="choose a lower --port-base"):
        check_ports(layout(tmp_path, 1, 65530, 8, "info"))


def test_a_folder_has_one_cluster_at_a_time(tmp_path: Path) -> None:
    with sole_owner(tmp_path), pytest.raises(Failure, match="another `headgate dev` works in"), sole_owner(tmp_path):
        pass
    with sole_owner(tmp_path):
        pass
