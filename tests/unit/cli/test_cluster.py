"""`headgate dev` keeps its processes running and takes them all down with itself."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headgate_cli import cluster
from headgate_cli.cluster import Supervisor, keep_ports, sole_owner
from headgate_cli.failures import Failure
from headgate_cli.layout import Member
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

    def make(name: str, *arguments: str, stage: int = 0, later: bool = False) -> Member:
        log = tmp_path / f"{name}.log"
        return Member(name, "sleeper", (str(tmp_path / name), *arguments), 1, 2, log, stage, later=later)

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


@pytest.mark.slow
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


def test_a_folder_has_one_cluster_at_a_time(tmp_path: Path) -> None:
    with sole_owner(tmp_path), pytest.raises(Failure, match="another `headgate dev` works in"), sole_owner(tmp_path):
        pass
    with sole_owner(tmp_path):
        pass


async def test_a_second_signal_ends_what_does_not_stop(sleeper: Callable[..., Member]) -> None:
    members = [sleeper("one")]
    supervised = supervisor(members, [])
    running = asyncio.ensure_future(supervised.run())
    await until(lambda: bool(pids(members[0])))
    os.kill(pids(members[0])[0], signal.SIGSTOP)
    running.cancel()
    await asyncio.sleep(0)
    supervised.kill()
    await asyncio.wait_for(asyncio.gather(running, return_exceptions=True), 60)
    assert gone(pids(members[0])[0])


async def test_a_long_log_of_an_earlier_run_is_put_aside(
    sleeper: Callable[..., Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "_LOG_BYTES", 10)
    member = sleeper("one")
    member.log.write_text("a line of an earlier run\n")
    running = asyncio.ensure_future(supervisor([member], []).run())
    await until(lambda: bool(pids(member)))
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert "earlier" not in member.log.read_text()
    assert "earlier" in member.log.with_suffix(".log.old").read_text()


def test_a_cluster_stays_on_its_ports(tmp_path: Path) -> None:
    keep_ports(tmp_path, 7400)
    keep_ports(tmp_path, 7400)
    with pytest.raises(Failure, match="counted from 7400, not from 8400") as caught:
        keep_ports(tmp_path, 8400)
    assert "--port-base 7400" in caught.value.advice


async def test_what_is_to_start_later_waits_until_it_is_released(sleeper: Callable[..., Member]) -> None:
    members = [sleeper("one"), sleeper("two", later=True)]
    supervised = supervisor(members, [])
    running = asyncio.ensure_future(supervised.run())
    await until(lambda: bool(pids(members[0])))
    assert supervised.pid(members[1]) is None
    await supervised.release()
    assert supervised.pid(members[1]) is not None
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert all(gone(pid) for member in members for pid in pids(member))
